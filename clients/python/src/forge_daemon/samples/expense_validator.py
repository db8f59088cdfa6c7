"""Judges the expense agent's answers by criteria in words: the validator `expense.validator`.

It knows a small set of phrases, needs no model, and gives the same verdict every time. What it does not understand it
does not judge: then the call fails and says which words it was, because neither "passed" nor "failed" would be true.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from grpc import StatusCode

from forge_daemon import InvocationFailed, Verdict, json_text, text_of
from forge_daemon.proto.validator_pb2 import ValidateRequest
from forge_daemon.samples import expense_words as words
from forge_daemon.samples import spans


@dataclass(frozen=True)
class Answer:
    """What is judged."""

    text: str
    tools: list[str]

    def has(self, pattern: str) -> bool:
        """Whether the text has a match, whatever its letter case."""
        return re.search(pattern, self.text, re.I) is not None


@dataclass(frozen=True)
class Check:
    """Something that criteria can ask for."""

    #: The phrase in the criteria.
    phrase: str
    #: What it means, for reasons.
    meaning: str
    #: Whether an answer satisfies it; it gets the phrase as it was found.
    holds: Callable[[Answer, re.Match[str]], bool]


COP_OUT = r"\bI (don't|do not) know\b|\bI (can't|cannot|am unable to|could not)\b|\bno idea\b"
RUDE = r"\b(stupid|idiot|dumb|shut up|ridiculous)\b|!!"
COURTESY = r"\b(please|thank|thanks|welcome|glad|happy to|would you like|can I|all right|hello)\b"
SHORT_WORDS = 60

SMALL = r"(?: (?:the|an?|user|for|about|of|what|which|that|it|this|expense|was|is|has|been))*"
"""Words that may stand within a phrase and change nothing."""

CHECKS = [
    # First, because these may stand in the middle of another phrase: "asks politely for confirmation".
    Check(
        r"polite(ly)?|courteous|professional(ly)?",
        "is polite",
        lambda answer, _: not answer.has(RUDE) and not answer.text.isupper(),
    ),
    Check(
        r"friendly",
        "is friendly",
        lambda answer, _: answer.has(COURTESY) and not answer.has(RUDE) and not answer.text.isupper(),
    ),
    Check(
        rf"ask\w*{SMALL} (for|to) (a )?confirm(ation)?( before (creating|submitting)( (the|an|it|this|expense))*)?",
        "asks for confirmation, and has not submitted yet",
        lambda answer, _: bool(words.ASKS_TO_CONFIRM.search(answer.text)) and not words.SUBMITTED.search(answer.text),
    ),
    Check(
        rf"ask\w*{SMALL} type( of (the )?expense)?",
        "asks for the type",
        lambda answer, _: words.ASKS_TYPE.search(answer.text) is not None,
    ),
    Check(
        rf"ask\w*{SMALL} (amount|how much( it was)?)",
        "asks for the amount",
        lambda answer, _: words.ASKS_AMOUNT.search(answer.text) is not None,
    ),
    Check(rf"ask\w*{SMALL} question", "asks a question", lambda answer, _: "?" in answer.text),
    Check(
        rf"(confirm|say|tell|state)\w*{SMALL} (submission|submitted)",
        "says that it is submitted",
        lambda answer, _: words.SUBMITTED.search(answer.text) is not None,
    ),
    Check(
        r"((mention|give|contain|include|state|name)\w* )?(an? |the )?reference( number)?",
        "gives a reference",
        lambda answer, _: answer.has(r"\bEXP-\d{4}-\d{3}\b"),
    ),
    Check(
        r"(mention|give|contain|include|state|name)\w* (an? |the )?amount",
        "names the amount",
        lambda answer, _: bool(words.amounts(answer.text)),
    ),
    Check(
        r"(mention|give|contain|include|state|name|explain|tell)\w* (an? |the )?(limit|policy)",
        "tells the limit",
        lambda answer, _: answer.has(r"\blimit\b"),
    ),
    Check(
        r"((mention|say|contain|include|name)\w* )?\"(?P<text>[^\"]+)\"",
        "has the text",
        lambda answer, found: found["text"].casefold() in answer.text.casefold(),
    ),
    Check(
        r"(call|use)\w* (the tool )?(?P<tool>create_expense|list_expenses|get_policy)",
        "calls the tool",
        lambda answer, found: found["tool"].lower() in answer.tools,
    ),
    Check(
        r"helpful|useful|answer\w* (the )?(user's )?question",
        "is of use: some words, and no excuse",
        lambda answer, _: len(answer.text.split()) >= 3 and not answer.has(COP_OUT),
    ),
    Check(
        r"short|brief|concise",
        f"is short: at most {SHORT_WORDS} words",
        lambda answer, _: len(answer.text.split()) <= SHORT_WORDS,
    ),
]

BETWEEN_CLAUSES = re.compile(r'(?:\.(?=\s|$)|[;,\n]|\b(?:and|but)\b)(?=(?:[^"]*"[^"]*")*[^"]*$)', re.I)
"""Where criteria fall into clauses: not within quotes."""

NOT = re.compile(r"\b(not|never|without|doesn't|don't|shouldn't|mustn't)\b", re.I)
FILLERS = re.compile(
    r"\b(the|an?|its?|this|agent|assistant|response|answer|tone|text|user|should|must|does|do|be|is|are|in|for|to)\b|\W",
    re.I,
)
"""Words and signs that change nothing."""


async def judge(request: ValidateRequest) -> Verdict:
    """Judges one answer by all clauses of the criteria, and by the tone if the assertion names one."""
    with spans.of_agent("expense.validator") as span:
        verdict = by_rules(request)
        spans.add_verdict(span, request.criteria, verdict)
        return verdict


def by_rules(request: ValidateRequest) -> Verdict:
    """The judgement that the rules come to."""
    answer = Answer(text_of(request.output).strip(), [call.started.name for call in request.tool_calls])
    judged = [verdict for clause in clauses(request) for verdict in _judge_clause(clause, answer)]
    if not answer.text:
        return Verdict(False, "the answer is empty", score=0.0, label="empty")
    wrong = [reason for holds, reason in judged if not holds]
    if wrong:
        return Verdict(False, f"does not hold: {'; '.join(wrong)}", score=1 - len(wrong) / len(judged))
    return Verdict(True, f"holds: {'; '.join(reason for _, reason in judged)}", score=1.0)


def clauses(request: ValidateRequest) -> list[str]:
    """The criteria in pieces, each of which can be judged by itself."""
    texts = [request.criteria]
    if "tone" in request.metadata:
        texts.append(_metadata_text(request, "tone"))
    texts = [text.replace("“", '"').replace("”", '"').replace("’", "'") for text in texts]
    found = [clause.strip() for text in texts for clause in BETWEEN_CLAUSES.split(text) if clause.strip()]
    if not found:
        raise _not_understood(request.criteria)
    return found


def _judge_clause(clause: str, answer: Answer) -> list[tuple[bool, str]]:
    """Whether each check that a clause names holds. Every word of the clause must have been understood."""
    rest, judged = clause, []
    is_negated = NOT.search(rest) is not None
    for check in CHECKS:
        if found := re.search(rf"(?<!\w)(?:{check.phrase})(?!\w)", rest, re.I):
            rest = " ".join(f"{rest[: found.start()]} {rest[found.end() :]}".split())
            what = next((f"{check.meaning} {text}" for text in found.groupdict().values()), check.meaning)
            judged.append((check.holds(answer, found) != is_negated, f"not: {what}" if is_negated else what))
    rest = FILLERS.sub("", NOT.sub("", rest, count=1))
    # "Not" before two phrases may mean one of them or both.
    if rest or not judged or (is_negated and len(judged) > 1):
        raise _not_understood(clause)
    return judged


def _metadata_text(request: ValidateRequest, key: str) -> str:
    value = json.loads(json_text(request.metadata[key]) or "null")
    if not isinstance(value, str):
        message = f"metadata.{key}: must be a text"
        raise InvocationFailed(message, "CRITERIA_NOT_UNDERSTOOD", StatusCode.INVALID_ARGUMENT)
    return value


def _not_understood(clause: str) -> InvocationFailed:
    known = ", ".join(dict.fromkeys(check.meaning.partition(":")[0].partition(",")[0] for check in CHECKS))
    message = f'by its rules this validator does not understand "{clause}"; it can judge: {known}'
    return InvocationFailed(message, "CRITERIA_NOT_UNDERSTOOD", StatusCode.INVALID_ARGUMENT)
