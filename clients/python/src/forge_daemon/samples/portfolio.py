"""A portfolio agent: what somebody owns and what it costs, from built-in data.

The data are those of `evals/seed-manifest.json`, so that its eval cases can name the values by path.
Run it with `python -m forge_daemon.samples.portfolio --listen 127.0.0.1:50052`.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.exceptions import ToolFailed

from forge_daemon import Agent as Served
from forge_daemon.adapters.pydantic_ai import from_pydantic_ai
from forge_daemon.samples import command, offline
from forge_daemon.samples.offline import Call, Result

INSTRUCTIONS = """\
You tell people what they own and what it costs. Look up holdings and quotes with the tools; never make them up. Write \
amounts as plain numbers, without separators. You do not trade, and you give no advice on what to buy or sell."""

HOLDINGS: dict[str, Any] = {
    "holdings": {
        "equities": [
            {"symbol": "AAPL", "shares": 150, "name": "Apple Inc."},
            {"symbol": "MSFT", "shares": 120, "name": "Microsoft Corporation"},
            {"symbol": "VTI", "shares": 100, "name": "Vanguard Total Stock Market ETF"},
        ]
    },
    "totals": {"portfolioValue": 125000, "cash": 24000},
}
PRICES = {"AAPL": 178.5, "MSFT": 410.0, "VTI": 250.25, "NVDA": 121.75, "TSLA": 242.0}
"""In dollars. With these the shares and the cash are worth exactly the portfolioValue above."""

NAMES = {"apple": "AAPL", "microsoft": "MSFT", "vanguard": "VTI", "nvidia": "NVDA", "tesla": "TSLA"}


def tools(delay: float = 0.0) -> list[Tool]:
    """The tools, each of which takes `delay` seconds."""

    async def get_holdings() -> dict[str, Any]:
        """Get everything that the user owns: equities with their shares, cash, and the total value in dollars."""
        await asyncio.sleep(delay)
        return HOLDINGS

    async def get_quote(symbol: str) -> dict[str, Any]:
        """Get the current price of one share, by its ticker symbol, for example AAPL."""
        await asyncio.sleep(delay)
        price = PRICES.get(symbol.upper())
        if price is None:
            raise ToolFailed(f"there is no quote for {symbol}")
        return {"symbol": symbol.upper(), "price": price, "currency": "USD"}

    return [Tool(get_holdings), Tool(get_quote)]


ADVICE = re.compile(r"\b(should i|shall i|recommend|advice|good time to)\b|\b(buy|sell)\b", re.I)
QUOTE = re.compile(r"price|quote|trading at|cost|a share of", re.I)
OWNED = re.compile(r"\b(own|hold|holdings?|position|portfolio|shares|have|cash|total|biggest|largest)\b", re.I)
WORTH = re.compile(r"worth|value", re.I)
TICKER = re.compile(r"\b[A-Z]{3,5}\b")
NOT_A_TICKER = {"USD", "ETF", "AND", "THE"}


def symbols(text: str) -> list[str]:
    """The ticker symbols that a text names, by symbol or by company, in its order."""
    found = [(match.start(), match[0]) for match in TICKER.finditer(text) if match[0] not in NOT_A_TICKER]
    found += [
        (match.start(), symbol) for name, symbol in NAMES.items() if (match := re.search(rf"\b{name}\b", text, re.I))
    ]
    return list(dict.fromkeys(symbol for _, symbol in sorted(found)))


def choose(said: Sequence[str]) -> list[Call]:
    """The calls that answer the latest text."""
    latest = said[-1] if said else ""
    if ADVICE.search(latest):
        return []
    named = symbols(latest)
    is_position = bool(named) and WORTH.search(latest) is not None and OWNED.search(latest) is not None
    wants_quote = bool(named) and (QUOTE.search(latest) is not None or WORTH.search(latest) is not None)
    wants_holdings = is_position or (not wants_quote and bool(OWNED.search(latest) or WORTH.search(latest)))
    quotes = [Call("get_quote", {"symbol": symbol}) for symbol in named] if wants_quote else []
    return [Call("get_holdings", {}), *quotes] if wants_holdings else quotes


def write(said: Sequence[str], results: list[Result]) -> str:
    """An answer from what the tools said, or without tools."""
    latest = said[-1] if said else ""
    if not results:
        if ADVICE.search(latest):
            return "I do not trade and cannot tell you what to do with your money; I can look up what you own."
        return "I can tell you what you own and what a share costs. What would you like to know?"
    shares: dict[str, float] = {}
    sentences = []
    for result in results:
        if result.error is not None:
            sentences.append(f"I could not look that up: {result.error}.")
        elif result.tool == "get_quote" and isinstance(result.data, Mapping) and "price" in result.data:
            symbol, price = result.data.get("symbol", result.arguments.get("symbol")), result.data["price"]
            owned = shares.get(symbol)
            position = f", so your {owned} shares are worth {_number(owned * price)} USD" if owned else ""
            sentences.append(f"{symbol} trades at {price:.2f} {result.data.get('currency', 'USD')}{position}.")
        elif result.tool == "get_holdings" and isinstance(result.data, Mapping):
            equities = _equities(result.data)
            shares = {equity["symbol"]: equity["shares"] for equity in equities}
            sentences.append(_holdings(symbols(latest), equities, result.data.get("totals") or {}))
        else:
            sentences.append(f"This is what I found: {result.data}.")
    return " ".join(sentences)


def _equities(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    holdings = data.get("holdings") or {}
    equities = holdings.get("equities") if isinstance(holdings, Mapping) else None
    return [
        equity for equity in equities or [] if isinstance(equity, Mapping) and {"symbol", "shares"} <= equity.keys()
    ]


def _holdings(named: Sequence[str], equities: list[Mapping[str, Any]], totals: Mapping[str, Any]) -> str:
    owned = [equity for equity in equities if not named or equity["symbol"] in named]
    if named and not owned:
        return f"You own no {' or '.join(named)}."
    listed = ", ".join(f"{item['shares']} shares of {item['symbol']} ({item.get('name', '')})" for item in owned)
    sentence = f"You own {listed}." if listed else ""
    if named:
        return sentence
    cash = f", of which {totals['cash']} USD in cash" if "cash" in totals else ""
    value = f"Your portfolio is worth {totals['portfolioValue']} USD{cash}." if "portfolioValue" in totals else ""
    return " ".join(filter(None, [value, sentence])) or "I found no holdings."


def _number(value: float) -> str:
    return f"{value:.2f}".removesuffix(".00")


def make(tool_delay: float = 0.0) -> Served:
    """The agent, ready to be served."""
    model = offline.model("portfolio-rules", choose, write)
    agent = Agent(model, name="Portfolio", instructions=INSTRUCTIONS, tools=tools(tool_delay))
    return from_pydantic_ai(agent, id="samples.portfolio", version="1.0.0", tool_versions="1.0.0", snapshot=capture)


async def capture(path: str) -> float:
    """Today's value at a path of a snapshot: `prices.SYMBOL`."""
    source, _, symbol = path.partition(".")
    if source != "prices" or symbol not in PRICES:
        raise LookupError(f"there is no price for {path}")
    return PRICES[symbol]


if __name__ == "__main__":
    command.run("Sample portfolio agent", make)
