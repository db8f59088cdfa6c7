"""What the words of a conversation about expenses mean. The expense agent, its user and its validator share it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

ExpenseType = Literal["business travel", "accommodation", "meals", "equipment", "training"]
TYPES: tuple[ExpenseType, ...] = get_args(ExpenseType)
TYPE_WORDS: dict[ExpenseType, str] = {
    "business travel": r"\b(travel|flights?|trains?\b|taxi|trip|airfare|mileage)",
    "accommodation": r"\b(accommodation|hotel|lodging)",
    "meals": r"\b(meals?|dinner|lunch|breakfast|restaurant)\b",
    "equipment": r"\b(equipment|laptop|monitor|keyboard|headset)",
    "training": r"\b(training|course|conference|workshop)",
}

NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,12}(?:\.\d+)?"
MONEY = re.compile(
    rf"(?P<sign>[$€£])\s?(?P<after>{NUMBER})"
    rf"|(?P<before>{NUMBER})\s?(?P<name>USD|EUR|GBP|dollars?|euros?|pounds?)\b"
    rf"|^\s*(?P<bare>{NUMBER})\s*[.!]?\s*$",
    re.I,
)
SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
CURRENCIES = {"$": "USD", "€": "EUR", "£": "GBP", "dollar": "USD", "euro": "EUR", "pound": "GBP"}

EXPENSE = re.compile(r"expense|reimburs|receipt", re.I)
LIMITS = re.compile(r"\b(polic(y|ies)|limits?|allowed|how much (can|may))\b", re.I)

SUBMITTED = re.compile(r"(?<!not )(?<!not been )(?<!yet )(?<!once )(?<!\bbe )\bsubmitted\b", re.I)
"""In an answer: it is done. "Not submitted" and "will be submitted" are something else."""

DISCARDED = re.compile(r"\bdiscarded\b", re.I)
"""In an answer: it will not be done."""

ASKS_TO_CONFIRM = re.compile(
    r"\b(please|to) confirm\b|\bconfirm\b[^!\n]*\?|is (this|that) (right|correct)\?|shall i submit", re.I
)
ASKS_TYPE = re.compile(r"\b(type|kind|category)\b[^?]*\?", re.I)
ASKS_AMOUNT = re.compile(r"how much\b[^?]*\?|\bamount\b", re.I)


@dataclass(frozen=True)
class Claim:
    """An expense as far as it is known."""

    type: ExpenseType | None = None
    amount: float | None = None
    currency: str = "USD"
    description: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known that matters."""
        return self.type is None and self.amount is None

    @property
    def is_complete(self) -> bool:
        """Whether enough is known to create it."""
        return self.type is not None and self.amount is not None

    def updated(self, later: "Claim") -> "Claim":
        """This one, corrected and completed by what was said later."""
        claim = self
        if later.type is not None:
            claim = replace(claim, type=later.type, description=later.description)
        if later.amount is not None:
            claim = replace(claim, amount=later.amount, currency=later.currency)
        return claim


def read(text: str) -> Claim:
    """The expense that a text speaks of: "Business travel to Beijing, $3500"."""
    claim = Claim(type=type_in(text))
    if claim.type is not None:
        claim = replace(claim, description=_description(text, claim.type))
    if found := MONEY.search(text):
        claim = replace(claim, amount=_amount(found), currency=_currency(found))
    return claim


def read_all(texts: Iterable[str]) -> Claim:
    """The expense that several texts speak of; what was said later wins."""
    claim = Claim()
    for text in texts:
        claim = claim.updated(read(text))
    return claim


def amounts(text: str) -> list[float]:
    """All amounts of money that a text names."""
    return [_amount(found) for found in MONEY.finditer(text)]


def type_in(text: str) -> ExpenseType | None:
    """The type that a text names first."""
    found = [(match.start(), name) for name, words in TYPE_WORDS.items() if (match := re.search(words, text, re.I))]
    return min(found)[1] if found else None


def money(amount: float, currency: str) -> str:
    """An amount as people write it: $3500, €12.50, 80 CHF."""
    number = f"{amount:.2f}".removesuffix(".00")
    return f"{SIGNS[currency]}{number}" if currency in SIGNS else f"{number} {currency}"


def _amount(found: re.Match[str]) -> float:
    number = float((found["after"] or found["before"] or found["bare"]).replace(",", ""))
    return int(number) if number.is_integer() else number


def _currency(found: re.Match[str]) -> str:
    name = (found["sign"] or found["name"] or "USD").lower().removesuffix("s")
    return CURRENCIES.get(name, name.upper())


def _description(text: str, type_: ExpenseType) -> str:
    """The user's own words for it, without the amount; a whole sentence around them is of no use."""
    words = MONEY.sub("", text).strip(" ,.;:-")
    return type_ if EXPENSE.search(words) or len(words) > 60 else words
