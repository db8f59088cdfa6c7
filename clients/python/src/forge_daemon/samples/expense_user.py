"""A user who submits expenses: the simulator `expense.user`.

By default it follows rules, and says the same every time. With FORGE_SAMPLE_MODEL a model plays the user, with the
prompt of Agent Test Framework V2.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpc import StatusCode
from pydantic_ai import Agent
from pydantic_ai.models import Model

from forge_daemon import InvocationFailed, UserTurn, text_of
from forge_daemon.proto.simulator_pb2 import NextInputRequest
from forge_daemon.proto.values_pb2 import ROLE_ASSISTANT, ROLE_USER, Usage
from forge_daemon.samples import expense_words as words
from forge_daemon.samples import offline, spans
from forge_daemon.samples.expense_words import Claim
from forge_daemon.samples.offline import Line


async def play(request: NextInputRequest) -> UserTurn:
    """Says what the user says next: the model if there is one, else the rules."""
    lines = conversation(request)
    with spans.of_agent("expense.user"):
        if model := offline.real_model():
            return await ask_model(model, request.persona, request.goal, lines)
        return by_rules(request.persona, request.goal, lines)


def conversation(request: NextInputRequest) -> list[Line]:
    """What was said so far. Other roles are not for the user's ears."""
    speakers = {ROLE_USER: "user", ROLE_ASSISTANT: "assistant"}
    return [
        Line(speakers[message.role], text_of(message)) for message in request.conversation if message.role in speakers
    ]


# The rules.

WISH = "I want to submit an expense"
EXPERIENCED = re.compile(r"\b(experienced|expert|busy|impatient|in a hurry)\b", re.I)
NEW = re.compile(r"\b(new|unfamiliar|first day)\b", re.I)
SUBMIT = re.compile(r"\b(submit|file|claim|expenses?|reimburs\w*)\b", re.I)
LIMIT_TOLD = re.compile(r"\blimit\b", re.I)


@dataclass(frozen=True)
class Goal:
    """What the user wants, as far as the rules understand it."""

    claim: Claim
    submit: bool
    know_limit: bool

    @property
    def details(self) -> str:
        """The expense in the user's words."""
        kind = self.claim.type or "business travel"
        return f"{kind[0].upper()}{kind[1:]}, {self.money}"

    @property
    def money(self) -> str:
        """The amount in the user's words."""
        return words.money(self.claim.amount or 0, self.claim.currency)


def understand(goal: str) -> Goal:
    """Reads a goal such as "Submit a $3500 travel expense". What it leaves open is a $100 trip."""
    claim = words.read(goal)
    submit = not goal.strip() or SUBMIT.search(goal) is not None
    know_limit = words.LIMITS.search(goal) is not None
    if not submit and not know_limit:
        message = f"by its rules this user can submit an expense or ask for a limit, but not: {goal}"
        raise InvocationFailed(message, "GOAL_NOT_UNDERSTOOD", StatusCode.INVALID_ARGUMENT)
    complete = replace(claim, type=claim.type or "business travel", amount=claim.amount or 100)
    return Goal(complete, submit, know_limit)


def by_rules(persona: str, goal: str, lines: Sequence[Line]) -> UserTurn:
    """One turn of the user. Whoever has said the same twice in a row, to no effect, gives up."""
    wanted = understand(goal)
    answers, said = offline.texts_of("assistant", lines), offline.texts_of("user", lines)
    answer = answers[-1] if answers else ""
    limit_known = any(LIMIT_TOLD.search(text) for text in answers)
    if wanted.submit and words.SUBMITTED.search(answer):
        return UserTurn(goal_achieved=True, reasoning=f"the agent says that it is submitted: {answer}")
    if not wanted.submit and limit_known:
        return UserTurn(goal_achieved=True, reasoning="the agent has told the limit")
    if wanted.know_limit and not limit_known:
        turn = UserTurn(
            f"What is the limit for {wanted.claim.type}?", reasoning="the user wants to know the limit first"
        )
    else:
        turn = _reply(persona, wanted, answer, said)
    if said[-2:] == [turn.input] * 2:
        return UserTurn(gave_up=True, reasoning=f"said {turn.input!r} twice, and the agent still answers: {answer}")
    return turn


def _reply(persona: str, wanted: Goal, answer: str, said: Sequence[str]) -> UserTurn:
    """What the user says to the last answer."""
    if words.ASKS_TO_CONFIRM.search(answer):
        named = words.amounts(answer)
        if named and wanted.claim.amount not in named:
            return UserTurn(f"No, it was {wanted.money}.", reasoning="the agent has another amount")
        return UserTurn("Yes, confirm", reasoning="the agent asks to confirm")
    if words.ASKS_TYPE.search(answer):
        return UserTurn(wanted.details, reasoning="the agent asks for the type")
    if words.ASKS_AMOUNT.search(answer):
        return UserTurn(wanted.money, reasoning="the agent asks for the amount")
    if any(WISH in text for text in said):
        return UserTurn(
            f"{WISH}: {wanted.details}", reasoning="the agent did not react to the wish, so it comes in full"
        )
    return UserTurn(_opening(persona, wanted, is_first=not said), reasoning="the user says what they want")


def _opening(persona: str, wanted: Goal, *, is_first: bool) -> str:
    if EXPERIENCED.search(persona):
        return f"{WISH}: {wanted.details}"
    return f"Hello, I am new here. {WISH}" if is_first and NEW.search(persona) else WISH


# The model.

PROMPT = """\
You are simulating a user with the following characteristics:

Persona: {persona}
Goal: {goal}

Current conversation:
{conversation}

Generate the next user message to continue toward the goal.
If the goal has been achieved, set goal_achieved to true.

Respond in JSON format:
{{
  "input": "your response as the user",
  "goal_achieved": true/false,
  "reasoning": "brief explanation"
}}
"""


async def ask_model(model: Model | str, persona: str, goal: str, lines: Sequence[Line]) -> UserTurn:
    """One turn of the user, by a model."""
    said = "\n".join(f"{line.speaker}: {line.text}" for line in lines) or "(nothing yet)"
    result = await Agent(model).run(PROMPT.format(persona=persona, goal=goal, conversation=said))
    answer = read_json(result.output)
    text, is_end, reasoning = answer.get("input"), answer.get("goal_achieved", False), answer.get("reasoning")
    if not isinstance(is_end, bool):
        raise ValueError(f"goal_achieved: {is_end!r} is neither true nor false")
    return UserTurn(
        text if isinstance(text, str) else "",
        goal_achieved=is_end,
        reasoning=reasoning if isinstance(reasoning, str) else "",
        usage=Usage(input_tokens=result.usage.input_tokens, output_tokens=result.usage.output_tokens),
    )


def read_json(text: str) -> dict[str, Any]:
    """The JSON object in a model's answer, whatever fences or words stand around it."""
    found = re.search(r"\{.*\}", text, re.S)
    try:
        value = json.loads(found[0]) if found else None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"the model did not answer with a JSON object: {text[:200]}")
    return value
