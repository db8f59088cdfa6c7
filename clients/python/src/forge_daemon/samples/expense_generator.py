"""Writes test cases for the expense agent: the generator `expense.generator`.

It follows rules, needs no model, and writes the same cases every time, in the format of Agent Test Framework V2. With
the focus `edge-cases` they are about what goes wrong easily, else about what users mostly want. Asked again with the
ids of the cases that there are, it writes the next ones, until it knows no more: hundreds of each.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, zip_longest
from typing import Any, TypeVar

from forge_daemon.proto.generator_pb2 import GenerateRequest
from forge_daemon.samples import expense_words as words
from forge_daemon.samples.expense_words import ExpenseType


async def write(request: GenerateRequest) -> AsyncIterator[dict[str, Any]]:
    """Yields the cases for a focus."""
    for case in cases(request.focus):
        yield case


def cases(focus: str) -> Iterator[dict[str, Any]]:
    """All cases for a focus. The kinds take turns, so that a few cases are of many kinds."""
    group, kinds = ("edge", EDGE) if EDGE_FOCUS.search(focus) else ("happy", HAPPY)
    for number, found in enumerate(zip_longest(*(kind() for kind in kinds.values())), 1):
        for name, idea in zip(kinds, found, strict=True):
            if idea is not None:
                yield _case(f"expense-{group}-{name}-{number:03}", idea)


EDGE_FOCUS = re.compile(r"\bedge\b", re.I)


@dataclass(frozen=True)
class Idea:
    """What a case is about."""

    name: str
    #: The conversation, which begins and ends with the user.
    said: Sequence[str]
    #: The assertions.
    expected: Sequence[dict[str, Any]]


def _case(case_id: str, idea: Idea) -> dict[str, Any]:
    speakers = cycle(["user", "assistant"])
    messages = [{"role": role, "content": text} for role, text in zip(speakers, idea.said, strict=False)]
    return {"id": case_id, "name": idea.name, "messages": messages, "assertions": list(idea.expected)}


# What can be expected.


def contains(text: str) -> dict[str, Any]:
    """The answer has the text."""
    return {"type": "contains", "value": text}


def calls(tool: str, **arguments: Any) -> dict[str, Any]:
    """The tool is called, with these arguments among others."""
    if not arguments:
        return {"type": "tool_called", "name": tool}
    return {"type": "tool_called", "value": {"name": tool, "arguments": arguments}}


def never_calls(tool: str, **arguments: Any) -> dict[str, Any]:
    """The tool is not called with these arguments; if there are none, not at all."""
    return calls(tool, **arguments) | {"negate": True}


# What users talk about. The numbers are the company's, so that an agent with others does not pass.

LIMITS: dict[ExpenseType, int] = {
    "business travel": 5000,
    "accommodation": 250,
    "meals": 75,
    "equipment": 1500,
    "training": 3000,
}
DETAILS: list[tuple[ExpenseType, str]] = [
    ("business travel", "Taxi to the airport"),
    ("accommodation", "Hotel in Lyon"),
    ("meals", "Client dinner"),
    ("equipment", "A new keyboard"),
    ("training", "Course on accounting"),
    ("business travel", "Train to Berlin"),
    ("accommodation", "Two nights of lodging"),
    ("meals", "Lunch with the team"),
    ("equipment", "Second monitor"),
    ("training", "Conference ticket"),
    ("business travel", "Flight to Rome"),
    ("accommodation", "Hotel near the customer"),
    ("meals", "Breakfast on the way"),
    ("equipment", "Headset for calls"),
    ("training", "Safety workshop"),
]
AMOUNTS = [42, 18.5, 60, 120, 9.99, 250, 480.75, 75, 1280, 3500]
WISHES = ["I want to submit an expense", "I have an expense", "Please reimburse me", "I have a receipt to hand in"]
YESES = ["Yes, confirm", "Yes", "OK", "Please do", "Go ahead", "Correct"]
ASKS_TYPE = "What type of expense would you like to submit?"
SUBMITTED = "Expense submitted. Reference: EXP-2025-001. Thank you!"
ASKS_AMOUNT = [contains("How much"), never_calls("create_expense")]
OFFERS_HELP = contains("I help with expenses")

Left = TypeVar("Left")
Right = TypeVar("Right")


def pairs(lefts: Sequence[Left], rights: Sequence[Right]) -> Iterator[tuple[Left, Right]]:
    """Every pair once, and both change from one pair to the next."""
    for shift in range(len(rights)):
        for index, left in enumerate(lefts):
            yield left, rights[(index + shift) % len(rights)]


@dataclass(frozen=True)
class Expense:
    """What a user wants to have back."""

    type: ExpenseType
    detail: str
    amount: float
    currency: str = "USD"

    @property
    def money(self) -> str:
        """The amount, as the agent writes it."""
        return words.money(self.amount, self.currency)

    @property
    def text(self) -> str:
        """All of it in the user's words."""
        return f"{self.detail}, {self.money}"

    @property
    def question(self) -> str:
        """What the agent asks before it submits it."""
        return f"I'll create an expense for {self.type}, {self.money}. Please confirm."

    @property
    def opening(self) -> list[str]:
        """A conversation up to that question."""
        return [f"{WISHES[0]}: {self.text}", self.question]

    @property
    def is_drafted(self) -> list[dict[str, Any]]:
        """The agent makes a draft, asks, and does not submit."""
        return [
            calls("create_expense", type=self.type, amount=self.amount, currency=self.currency),
            never_calls("create_expense", submit=True),
            contains(self.money),
            contains("confirm"),
        ]


def expenses() -> Iterator[Expense]:
    """Ordinary expenses."""
    return (Expense(type_, detail, amount) for (type_, detail), amount in pairs(DETAILS, AMOUNTS))


# What users mostly want.


def at_once() -> Iterator[Idea]:
    """Everything in the first message."""
    for expense, wish in zip(expenses(), cycle(WISHES), strict=False):
        yield Idea(f"At once: {expense.text}", [f"{wish}: {expense.text}"], expense.is_drafted)


def answered() -> Iterator[Idea]:
    """The details after the agent has asked."""
    for expense, wish in zip(expenses(), cycle(WISHES), strict=False):
        yield Idea(f"Asked for: {expense.text}", [wish, ASKS_TYPE, expense.text], expense.is_drafted)


def confirmed() -> Iterator[Idea]:
    """A yes to the agent's question."""
    for expense, yes in zip(expenses(), cycle(YESES), strict=False):
        submits = calls(
            "create_expense", type=expense.type, amount=expense.amount, currency=expense.currency, submit=True
        )
        said = [*expense.opening, yes]
        yield Idea(f"Confirmed: {expense.text}", said, [submits, contains("submitted"), contains("EXP-")])


def policy() -> Iterator[Idea]:
    """Questions about a limit."""
    questions = [
        "What is the limit for {}?",
        "What does the policy say about {}?",
        "How much may I spend on {}?",
        "What amount is allowed for {}?",
    ]
    for (type_, limit), question in pairs(list(LIMITS.items()), questions):
        expected = [calls("get_policy", type=type_), contains(words.money(limit, "USD"))]
        yield Idea(f"Policy for {type_}", [question.format(type_)], expected)


def listed() -> Iterator[Idea]:
    """Questions about earlier expenses."""
    texts = ["Which expenses do I have?", "Show me my expenses", "List my expenses, please"]
    for text in [*texts, "What is the status of my expenses?"]:
        yield Idea("Earlier expenses", [text], [calls("list_expenses"), contains("EXP-2024-115")])


def wished() -> Iterator[Idea]:
    """A wish without details."""
    for wish in WISHES:
        yield Idea("The type is asked for", [wish], [contains("type"), never_calls("create_expense")])


# What goes wrong easily.


def unusual_amounts() -> Iterator[Idea]:
    """Very small and very large amounts, and ways to write them."""
    amounts = [
        ("$0.01", 0.01),
        ("$1,200.50", 1200.5),
        ("$12,345,678", 12345678),
        ("$0.5", 0.5),
        ("999999999999 dollars", 999999999999),
        ("$ 75", 75),
        ("$3,500.00", 3500),
    ]
    for (type_, detail), (written, amount) in pairs(DETAILS, amounts):
        expected = Expense(type_, detail, amount).is_drafted
        yield Idea(f"Unusual amount: {written}", [f"{WISHES[0]}: {detail}, {written}"], expected)


def currencies() -> Iterator[Idea]:
    """Other currencies, as signs, names and codes."""
    amounts = [
        ("€80", 80, "EUR"),
        ("60 pounds", 60, "GBP"),
        ("12.50 euros", 12.5, "EUR"),
        ("£7.25", 7.25, "GBP"),
        ("250 EUR", 250, "EUR"),
        ("45.90 GBP", 45.9, "GBP"),
        ("30 USD", 30, "USD"),
    ]
    for (type_, detail), (written, amount, currency) in pairs(DETAILS, amounts):
        expected = Expense(type_, detail, amount, currency).is_drafted
        yield Idea(f"Currency: {written}", [f"{WISHES[0]}: {detail}, {written}"], expected)


def unknown_currencies() -> Iterator[Idea]:
    """Currencies that the agent does not know: better to ask than to submit dollars."""
    for (_, detail), money in pairs(DETAILS, ["80 CHF", "9000 JPY", "250 SEK"]):
        yield Idea(f"Unknown currency: {money}", [f"{WISHES[1]}: {detail}, {money}"], ASKS_AMOUNT)


def amount_corrections() -> Iterator[Idea]:
    """Another amount in place of a yes, or together with one: it is asked again."""
    corrections = cycle(["No, it was {}.", "Yes, but make it {}", "Sorry, I meant {}"])
    for expense, correction in zip(expenses(), corrections, strict=False):
        right = Expense(expense.type, expense.detail, expense.amount + 5)
        said = [*expense.opening, correction.format(right.money)]
        yield Idea(f"Corrected amount: {expense.money} to {right.money}", said, right.is_drafted)


def type_corrections() -> Iterator[Idea]:
    """Another type in place of a yes."""
    for expense, type_ in pairs([*expenses()][: len(DETAILS)], words.TYPES):
        if type_ != expense.type:
            right = Expense(type_, expense.detail, expense.amount)
            said = [*expense.opening, f"No, that was {type_}."]
            yield Idea(f"Corrected type: {expense.type} to {type_}", said, right.is_drafted)


def missing_amounts() -> Iterator[Idea]:
    """A type without an amount."""
    for (_, detail), wish in pairs(DETAILS, WISHES):
        yield Idea(f"No amount: {detail}", [f"{wish}: {detail}"], ASKS_AMOUNT)


def missing_types() -> Iterator[Idea]:
    """An amount without a type."""
    for amount, wish in pairs(AMOUNTS, WISHES):
        money = words.money(amount, "USD")
        yield Idea(f"No type: {money}", [f"{wish}: {money}"], [contains("type"), never_calls("create_expense")])


def nothing_spent() -> Iterator[Idea]:
    """An amount of zero, which cannot be submitted."""
    for (_, detail), money in pairs(DETAILS, ["$0", "€0.00"]):
        expected = [contains("could not"), contains("more than 0"), never_calls("create_expense", submit=True)]
        yield Idea(f"Nothing spent: {money}", [f"{WISHES[0]}: {detail}, {money}"], expected)


def limits() -> Iterator[Idea]:
    """Exactly the limit, and a little more: the agent still makes a draft, and whoever approves it decides."""
    for (type_, detail), more in pairs(DETAILS, [0, 1, 0.01]):
        expense = Expense(type_, detail, LIMITS[type_] + more)
        name = f"{'Above' if more else 'At'} the limit for {type_}: {expense.money}"
        yield Idea(name, [f"{WISHES[0]}: {expense.text}"], expense.is_drafted)


def limit_first() -> Iterator[Idea]:
    """A question about the limit in place of a yes."""
    for expense in expenses():
        limit = words.money(LIMITS[expense.type], "USD")
        said = [*expense.opening, f"What is the limit for {expense.type}?"]
        expected = [calls("get_policy", type=expense.type), contains(limit), never_calls("create_expense")]
        yield Idea(f"Limit first: {expense.text}", said, expected)


def limit_of_what() -> Iterator[Idea]:
    """A question about the limit that names no type."""
    for text in ["What is the policy?", "How much may I spend?", "What are the limits?"]:
        yield Idea("Limit of what", [text], [contains("type"), never_calls("get_policy")])


def refusals() -> Iterator[Idea]:
    """Something else than a yes."""
    texts = cycle(["No", "Not yet", "Wait, let me check first", "Hm, I am not sure"])
    for expense, text in zip(expenses(), texts, strict=False):
        expected = [contains("nothing was sent"), never_calls("create_expense")]
        yield Idea(f"Not confirmed: {text}", [*expense.opening, text], expected)


def cancellations() -> Iterator[Idea]:
    """The user changes their mind."""
    texts = cycle(["Please cancel it", "Forget it", "Stop, never mind"])
    for expense, text in zip(expenses(), texts, strict=False):
        expected = [contains("discarded"), never_calls("create_expense")]
        yield Idea(f"Cancelled: {text}", [*expense.opening, text], expected)


def second_yes() -> Iterator[Idea]:
    """A yes after everything was submitted: nothing is submitted twice."""
    for expense, yes in zip(expenses(), cycle(YESES), strict=False):
        said = [*expense.opening, "Yes", SUBMITTED, yes]
        yield Idea(f"Second yes: {yes}", said, [OFFERS_HELP, never_calls("create_expense")])


def off_topic() -> Iterator[Idea]:
    """Something that the agent does not help with."""
    for text in ["Who won the World Cup?", "What's the weather in Paris?", "Tell me a joke", "Thanks, bye", "???"]:
        yield Idea(f"Off topic: {text}", [text], [OFFERS_HELP, never_calls("create_expense")])


Kinds = dict[str, Callable[[], Iterator[Idea]]]
"""Kinds of cases, each with the name that stands in their ids."""

HAPPY: Kinds = {
    "at-once": at_once,
    "answered": answered,
    "confirmed": confirmed,
    "policy": policy,
    "list": listed,
    "wish": wished,
}
EDGE: Kinds = {
    "amount": unusual_amounts,
    "currency": currencies,
    "correction": amount_corrections,
    "no-amount": missing_amounts,
    "limit": limits,
    "type-correction": type_corrections,
    "no-type": missing_types,
    "refusal": refusals,
    "second-yes": second_yes,
    "unknown-currency": unknown_currencies,
    "limit-first": limit_first,
    "cancel": cancellations,
    "zero": nothing_spent,
    "limit-of-what": limit_of_what,
    "off-topic": off_topic,
}
