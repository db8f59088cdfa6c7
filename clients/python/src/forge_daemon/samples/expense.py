"""An expense agent: submits expenses, lists them and knows the policy, from built-in data.

It shows a conversation of several turns: it asks for what is missing, makes a draft, and submits it only when the user
has confirmed. It remembers nothing: everything is read from the conversation that it is given.

`python -m forge_daemon.samples.expense --listen 127.0.0.1:50053` serves it, and beside it a user who talks to it
(`expense_user`), a validator who judges its answers (`expense_validator`), and a generator that writes cases for it
(`expense_generator`).
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.exceptions import ToolFailed

from forge_daemon import Agent as Served
from forge_daemon.adapters.pydantic_ai import from_pydantic_ai
from forge_daemon.samples import command, expense_generator, expense_user, expense_validator, offline
from forge_daemon.samples import expense_words as words
from forge_daemon.samples.expense_words import Claim, ExpenseType
from forge_daemon.samples.offline import Call, Line, Result

INSTRUCTIONS = """\
You help employees with their expenses. To submit one you need its type and its amount: ask for what is missing, one \
short question at a time, and ask for the type with the word "type". As soon as you know both, call create_expense \
without submit, tell the user what you have, and ask them to confirm. When they confirm, call create_expense again \
with the same values and submit=true, and say that it was submitted, with its reference. Never make up a reference or \
a limit: the tools know them. You help with nothing else."""


# What the tools know.

REFERENCE = "EXP-2025-001"
"""Nothing is stored, so that cases cannot see each other: every expense is the first one of its year."""

EXPENSES = [
    {"reference": "EXP-2024-115", "type": "business travel", "amount": 1280, "currency": "USD", "status": "paid"},
    {"reference": "EXP-2024-116", "type": "meals", "amount": 48.5, "currency": "USD", "status": "approved"},
    {"reference": "EXP-2024-117", "type": "training", "amount": 640, "currency": "USD", "status": "rejected"},
]
LIMITS: dict[ExpenseType, tuple[int, str]] = {
    "business travel": (5000, "trip"),
    "accommodation": (250, "night"),
    "meals": (75, "person and day"),
    "equipment": (1500, "year"),
    "training": (3000, "year"),
}
"""In dollars, each with what it is for."""

RECEIPT_FROM = 25


# The tools.


def tools(delay: float = 0.0) -> list[Tool]:
    """The tools, each of which takes `delay` seconds."""

    async def create_expense(
        type: ExpenseType, amount: float, currency: str = "USD", description: str = "", submit: bool = False
    ) -> dict[str, Any]:
        """Create an expense: a draft, or with submit=true the real thing, which the user must have confirmed before."""
        await asyncio.sleep(delay)
        if amount <= 0:
            raise ToolFailed("the amount must be more than 0")
        return {
            "status": "submitted" if submit else "draft",
            "reference": REFERENCE if submit else None,
            "type": type,
            "amount": amount,
            "currency": currency,
            "description": description,
        }

    async def list_expenses() -> list[dict[str, Any]]:
        """List the user's earlier expenses, each with its reference, amount and status."""
        await asyncio.sleep(delay)
        return EXPENSES

    async def get_policy(type: ExpenseType) -> dict[str, Any]:
        """Get the policy for a type of expenses: the limit, and from which amount on a receipt is needed."""
        await asyncio.sleep(delay)
        limit, per = LIMITS[type]
        return {"type": type, "limit": limit, "currency": "USD", "per": per, "receipt_from": RECEIPT_FROM}

    return [Tool(create_expense), Tool(list_expenses), Tool(get_policy)]


# The rules that stand in for a model: where the conversation stands.

YES = re.compile(r"^\W*(yes|yep|yeah|sure|ok(ay)?|confirm(ed)?|correct|right|please do|go ahead|do it)\b", re.I)
CANCEL = re.compile(r"\b(cancel|stop|forget it|never ?mind|discard)\b", re.I)
LIST = re.compile(r"\b(list|show|which|status)\b.*\bexpenses\b", re.I)


def latest(lines: Sequence[Line]) -> str:
    """What the user said last."""
    return next((line.text for line in reversed(lines) if line.speaker == "user"), "")


def last_answer(lines: Sequence[Line]) -> str:
    """What the assistant said last."""
    return next((line.text for line in reversed(lines) if line.speaker == "assistant"), "")


def open_lines(lines: Sequence[Line]) -> Sequence[Line]:
    """What was said since the last expense was submitted or discarded."""
    closed = [
        index
        for index, line in enumerate(lines)
        if line.speaker == "assistant" and (words.SUBMITTED.search(line.text) or words.DISCARDED.search(line.text))
    ]
    return lines[closed[-1] + 1 :] if closed else lines


def is_asked_to_confirm(lines: Sequence[Line]) -> bool:
    """Whether the user's last words answer the question whether the expense is right."""
    return words.ASKS_TO_CONFIRM.search(last_answer(open_lines(lines))) is not None


def claim_of(lines: Sequence[Line]) -> Claim:
    """The expense that the conversation is about now."""
    current = open_lines(lines)
    said = words.read_all(offline.texts_of("user", current))
    # What the user is asked to confirm counts too: a history may have no other place where it says what it is about.
    return words.read(last_answer(current)).updated(said) if is_asked_to_confirm(lines) else said


def is_confirmed(lines: Sequence[Line]) -> bool:
    """Whether the user has just agreed. "Yes, but make it $400" is a correction and no agreement."""
    if not is_asked_to_confirm(lines) or not YES.search(latest(lines)):
        return False
    before, now = claim_of(lines[:-1]), claim_of(lines)
    return (before.type, before.amount, before.currency) == (now.type, now.amount, now.currency)


# The rules that stand in for a model: which tools to call, and what to say.


def choose(lines: Sequence[Line]) -> list[Call]:
    """The calls that the user's last words ask for."""
    text, claim = latest(lines), claim_of(lines)
    if is_confirmed(lines):
        return [_create(claim, submit=True)] if claim.is_complete else []
    if CANCEL.search(text):
        return []
    if words.LIMITS.search(text):
        type_ = words.type_in(text) or claim.type
        return [Call("get_policy", {"type": type_})] if type_ else []
    if LIST.search(text):
        return [Call("list_expenses", {})]
    return [_create(claim, submit=False)] if claim.is_complete and not words.read(text).is_empty else []


def _create(claim: Claim, *, submit: bool) -> Call:
    arguments: dict[str, Any] = {
        "type": claim.type,
        "amount": claim.amount,
        "currency": claim.currency,
        "description": claim.description,
    }
    return Call("create_expense", arguments | {"submit": True} if submit else arguments)


def write(lines: Sequence[Line], results: list[Result]) -> str:
    """An answer from what the tools said, or the question that comes next."""
    if results:
        return " ".join(_sentence(result) for result in results)
    text, claim = latest(lines), claim_of(lines)
    if CANCEL.search(text):
        return "All right, I have discarded it. Is there anything else I can do for you?"
    if words.LIMITS.search(text):
        return f"Which type of expense do you mean? There is {_listed(words.TYPES)}."
    if not _is_about_an_expense(lines):
        return "I help with expenses: I can submit one, list yours, or look up the policy. What would you like to do?"
    if claim.type is None:
        more = " Please tell me the amount, too." if claim.amount is None else ""
        return f"What type of expense would you like to submit? There is {_listed(words.TYPES)}.{more}"
    if claim.amount is None:
        return f"How much was it? Please tell me the amount of your {claim.type} expense, with the currency."
    if is_asked_to_confirm(lines):
        return "All right, nothing was sent. What would you like to change?"
    return _question(claim.type, words.money(claim.amount, claim.currency))


def _is_about_an_expense(lines: Sequence[Line]) -> bool:
    """Whether the user speaks of an expense, or answers a question about one."""
    current = open_lines(lines)
    said = " ".join(offline.texts_of("user", current))
    answer = last_answer(current)
    return any(
        [
            words.EXPENSE.search(said),
            words.amounts(latest(lines)),
            words.ASKS_TYPE.search(answer),
            words.ASKS_TO_CONFIRM.search(answer),
        ]
    )


def _question(type_: Any, amount: str) -> str:
    return f"I'll create an expense for {type_}, {amount}. Please confirm."


def _sentence(result: Result) -> str:
    if result.error is not None:
        what = {"create_expense": "create the expense", "get_policy": "look up the policy"}
        return f"I could not {what.get(result.tool, 'look up your expenses')}: {result.error}."
    if result.tool == "list_expenses" and isinstance(result.data, list):
        return _list_sentence([item for item in result.data if isinstance(item, Mapping)])
    if not isinstance(result.data, Mapping):
        return f"This is what I found: {result.data}."
    return _created(result) if result.tool == "create_expense" else _policy_sentence(result.data)


def _created(result: Result) -> str:
    """What the user hears about a new expense. What the tool says wins over what it was called with."""
    data = {**result.arguments, **result.data}
    status = result.data.get("status") or ("submitted" if result.arguments.get("submit") else "draft")
    if status == "draft":
        return _question(data.get("type"), _money(data, "amount"))
    reference = f" Reference: {data['reference']}." if data.get("reference") else ""
    return f"Expense {status}.{reference} Thank you!"


def _policy_sentence(data: Mapping[str, Any]) -> str:
    per = f" per {data['per']}" if "per" in data else ""
    receipts = f" Please keep receipts from {_money(data, 'receipt_from')} on." if "receipt_from" in data else ""
    return f"The limit for {data.get('type', 'this')} is {_money(data, 'limit')}{per}.{receipts}"


def _list_sentence(expenses: Sequence[Mapping[str, Any]]) -> str:
    if not expenses:
        return "You have no expenses yet."
    items = [
        f"{item.get('reference')}: {item.get('type')}, {_money(item, 'amount')}, {item.get('status')}"
        for item in expenses
    ]
    return f"You have {len(items)} expenses. {'; '.join(items)}."


def _money(data: Mapping[str, Any], key: str) -> str:
    """An amount in a tool's answer; a stub may have anything there."""
    amount = data.get(key, "an unknown amount")
    return words.money(amount, str(data.get("currency", "USD"))) if isinstance(amount, int | float) else str(amount)


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def make(tool_delay: float = 0.0) -> Served:
    """The agent, ready to be served."""
    model = offline.dialogue_model("expense-rules", choose, write)
    agent = Agent(model, name="Expense", instructions=INSTRUCTIONS, tools=tools(tool_delay))
    return from_pydantic_ai(
        agent,
        id="samples.expense",
        version="1.0.0",
        tool_versions="1.0.0",
        simulator=expense_user.play,
        validator=expense_validator.judge,
        generator=expense_generator.write,
    )


if __name__ == "__main__":
    command.run("Sample expense agent, with a user, a validator and a generator", make)
