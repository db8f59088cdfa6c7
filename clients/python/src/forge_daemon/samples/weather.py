"""A weather agent: current weather, forecast and air quality, from built-in data.

Run it with `python -m forge_daemon.samples.weather --listen 127.0.0.1:50051`.
"""

import asyncio
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_ai import Agent, Tool

from forge_daemon import Agent as Served
from forge_daemon.adapters.pydantic_ai import from_pydantic_ai
from forge_daemon.samples import command, offline
from forge_daemon.samples.offline import Call, Result

INSTRUCTIONS = """\
You answer questions about the weather. Look up current weather, forecasts and air quality with the tools; never make \
them up. Answer general questions about weather from what you know, without tools. Name the city, give temperatures \
with °, write plain sentences. You give no advice about anything but the weather."""

Units = Literal["celsius", "fahrenheit"]


# What the tools know.


@dataclass(frozen=True)
class Place:
    """Today's weather at a place. Numbers are made up, and never change."""

    celsius: int
    condition: str
    humidity: int
    wind_kph: int
    aqi: int


PLACES = {
    "Amsterdam": Place(13, "light rain", 81, 24, 38),
    "Barcelona": Place(21, "sunny", 58, 14, 52),
    "Beijing": Place(16, "hazy", 41, 11, 158),
    "Berlin": Place(9, "cloudy", 72, 17, 44),
    "Cairo": Place(29, "clear", 28, 19, 132),
    "Chicago": Place(4, "windy with snow flurries", 66, 34, 41),
    "Delhi": Place(27, "hazy", 55, 8, 217),
    "London": Place(12, "overcast", 78, 20, 47),
    "Madrid": Place(22, "sunny", 39, 10, 49),
    "New York": Place(11, "partly cloudy", 57, 21, 55),
    "Oslo": Place(-3, "light snow", 84, 9, 22),
    "Paris": Place(17, "partly cloudy", 63, 15, 58),
    "Rome": Place(20, "clear", 52, 12, 61),
    "San Francisco": Place(15, "foggy", 82, 18, 33),
    "Seattle": Place(11, "rainy", 87, 16, 29),
    "Singapore": Place(31, "thunderstorms", 85, 13, 67),
    "Sydney": Place(24, "sunny", 49, 22, 31),
    "Tokyo": Place(14, "clear", 47, 12, 63),
}
CONDITIONS = ["sunny", "partly cloudy", "cloudy", "light rain", "rainy", "clear"]
"""What comes next: every place steps through this list, each from its own beginning."""


def place(city: str) -> Place:
    """The weather of a city; one that is not in the table has weather too, the same every time."""
    for name, known in PLACES.items():
        if name.casefold() == city.strip().casefold():
            return known
    number = zlib.crc32(city.strip().casefold().encode("utf-8", "replace"))
    condition = CONDITIONS[number % len(CONDITIONS)]
    return Place(5 + number % 23, condition, 35 + number % 55, 5 + number % 30, 20 + number % 120)


def degrees(celsius: int, units: Units) -> int:
    """A temperature in the wanted units."""
    return celsius if units == "celsius" else round(celsius * 9 / 5 + 32)


# The tools.


def tools(delay: float = 0.0) -> list[Tool]:
    """The tools, each of which takes `delay` seconds."""

    async def get_weather(city: str, units: Units = "celsius") -> dict[str, Any]:
        """Get the current weather of a city: temperature, condition, humidity and wind. Not for the future."""
        await asyncio.sleep(delay)
        now = place(city)
        return {
            "city": city,
            "temperature": degrees(now.celsius, units),
            "units": units,
            "condition": now.condition,
            "humidity": now.humidity,
            "wind_kph": now.wind_kph,
        }

    async def get_forecast(city: str, days: int = 3, units: Units = "celsius") -> dict[str, Any]:
        """Get the weather forecast of a city for the coming days, beginning tomorrow."""
        await asyncio.sleep(delay)
        now, first = place(city), zlib.crc32(city.casefold().encode("utf-8", "replace"))
        coming = [
            {
                "day": "tomorrow" if day == 1 else f"in {day} days",
                "condition": CONDITIONS[(first + day) % len(CONDITIONS)],
                "low": degrees(now.celsius - 4 + day % 2, units),
                "high": degrees(now.celsius + 2 + day % 3, units),
            }
            for day in range(1, min(max(days, 1), 7) + 1)
        ]
        return {"city": city, "units": units, "days": coming}

    async def get_air_quality(city: str) -> dict[str, Any]:
        """Get the current air quality of a city: the AQI, what it means, and the main pollutant."""
        await asyncio.sleep(delay)
        aqi = place(city).aqi
        levels = [(50, "good"), (100, "moderate"), (150, "unhealthy for sensitive groups"), (200, "unhealthy")]
        category = next((name for limit, name in levels if aqi <= limit), "very unhealthy")
        return {"city": city, "aqi": aqi, "category": category, "main_pollutant": "PM2.5" if aqi > 50 else "ozone"}

    return [Tool(get_weather), Tool(get_forecast), Tool(get_air_quality)]


# The rules that stand in for a model: which tools to call.

AIR = re.compile(r"\bair\b|\baqi\b|pollut|smog", re.I)
FUTURE = re.compile(r"forecast|tomorrow|\bweek|coming days|next (few )?days|later|\btrip\b|travel", re.I)
PRESENT = re.compile(r"right now|\bnow\b|current|today|outside|at the moment", re.I)
WEATHER = re.compile(
    r"weather|temperature|degrees|conditions|it like|umbrella|"
    r"\bcold|\bwarm|\bhot\b|rain|snow|sunn|cloud|fog|wind|humid",
    re.I,
)
NAMED_PLACE = re.compile(r"\b(?:in|for|at|to|near|around|about)\s+((?:[A-Z][\w'’-]+)(?:\s[A-Z][\w'’-]+)*)")
NOT_A_PLACE = re.compile(
    r"^(january|february|march|april|may|june|july|august|september|october|november|december|"
    r"monday|tuesday|wednesday|thursday|friday|saturday|sunday|celsius|fahrenheit|i|aqi)$",
    re.I,
)


def cities(text: str) -> list[str]:
    """The cities that a text names, in its order."""
    known = [(match.start(), name) for name in PLACES if (match := re.search(rf"\b{name}\b", text, re.I)) is not None]
    if known:
        return [name for _, name in sorted(known)]
    return [name for name in NAMED_PLACE.findall(text) if not NOT_A_PLACE.match(name)]


def wanted_tools(text: str) -> list[str]:
    """The tools that a text asks for, whatever the city."""
    is_future = FUTURE.search(text) is not None
    is_present = PRESENT.search(text) is not None or (WEATHER.search(text) is not None and not is_future)
    wanted = [("get_weather", is_present), ("get_forecast", is_future), ("get_air_quality", bool(AIR.search(text)))]
    return [tool for tool, is_wanted in wanted if is_wanted]


def choose(said: Sequence[str]) -> list[Call]:
    """The calls that answer the latest text. "And in Oslo?" is understood from what was said before it."""
    latest, earlier = said[-1] if said else "", " ".join(said[:-1])
    named = cities(latest)
    asked = wanted_tools(latest) or (wanted_tools(earlier) if named and earlier else [])
    if not named and asked and not general_knowledge(latest):
        named = cities(earlier)[-1:]
    options = {"units": "fahrenheit"} if re.search("fahrenheit", latest, re.I) else {}
    further = {"get_weather": options, "get_forecast": _days(latest) | options, "get_air_quality": {}}
    return [Call(tool, {"city": city} | further[tool]) for tool in asked for city in named]


def _days(text: str) -> dict[str, Any]:
    if re.search(r"\bweek\b", text, re.I):
        return {"days": 7}
    return {"days": 1} if re.search("tomorrow", text, re.I) else {}


# The rules that stand in for a model: what to say.

KNOWLEDGE = {
    r"barometer": "A barometer measures the pressure of the atmosphere: air presses on mercury, or on a small sealed "
    "box, and shows how strongly. Falling pressure often means that bad weather is coming.",
    r"rainbow": "A rainbow appears when sunlight enters raindrops, is split into its colours, and is thrown back from "
    "their far side. You see it with the sun behind you.",
    r"humidity": "Humidity says how much water vapour the air holds, as a share of the most that it could hold.",
    r"dew point": "Below the dew point the air cannot hold its water vapour any longer, so that dew or fog forms.",
    r"wind ?chill": "Wind chill is how cold it feels: wind carries away the warm air around your skin.",
    r"\baqi\b|air quality index": "The AQI, the air quality index, puts the pollution of the air on one scale: up to "
    "50 is good, above 150 is unhealthy for everybody.",
    r"thunder|lightning": "Lightning is a discharge between a charged cloud and the ground. It heats the air so fast "
    "that the air bursts outwards, and that is the thunder.",
    r"sky (is )?blue": "The sky is blue because air scatters the short, blue waves of sunlight more than long ones.",
}


def general_knowledge(text: str) -> str | None:
    """What the rules know by heart about the subject of a text."""
    return next((answer for subject, answer in KNOWLEDGE.items() if re.search(subject, text, re.I)), None)


def write(said: Sequence[str], results: list[Result]) -> str:
    """An answer from what the tools said, or without tools."""
    latest = said[-1] if said else ""
    if results:
        sentences = [_sentence(result) for result in results]
        verdict = _verdict(latest, results)
        return " ".join([verdict, *sentences] if verdict else sentences)
    if known := general_knowledge(latest):
        return known
    if WEATHER.search(latest) or wanted_tools(latest):
        return (
            "Which city do you mean? Tell me one, and I can look up its current weather, its forecast and its air "
            "quality. Anything but the weather is for somebody else to judge."
        )
    return "I answer questions about the weather: name a city, or ask how something about the weather works."


SUBJECTS = {
    "get_weather": "the weather in",
    "get_forecast": "the weather forecast for",
    "get_air_quality": "the air quality in",
}


def _sentence(result: Result) -> str:
    data = result.data if isinstance(result.data, Mapping) else {}
    city = data.get("city") or result.arguments.get("city", "that place")
    subject = f"{SUBJECTS.get(result.tool, result.tool)} {city}"
    if result.error is not None:
        return f"I could not get {subject}: {result.error}."
    describe = {"get_weather": _now, "get_forecast": _coming, "get_air_quality": _air}.get(result.tool, _as_it_is)
    return f"{subject[0].upper()}{subject[1:]}: {describe(data) or _as_it_is(result.data)}."


def _now(data: Mapping[str, Any]) -> str:
    facts = [
        str(data["condition"]) if "condition" in data else "",
        f"a temperature of {_degrees(data['temperature'], data)}" if "temperature" in data else "",
        f"{data['humidity']}% humidity" if "humidity" in data else "",
        f"wind at {data['wind_kph']} km/h" if "wind_kph" in data else "",
    ]
    return _listed(facts)


def _coming(data: Mapping[str, Any]) -> str:
    days = data.get("days") or data.get("forecast")
    days = [day for day in days if isinstance(day, Mapping)] if isinstance(days, list) else []
    return "; ".join(filter(None, (_day(day, data) for day in days)))


def _day(day: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    name = day.get("day") or day.get("date") or ""
    span = f"{_degrees(day['low'], data)} to {_degrees(day['high'], data)}" if {"low", "high"} <= day.keys() else ""
    facts = ", ".join(filter(None, [str(day.get("condition", "")), span]))
    return f"{name} {facts}".strip() if facts else ""


def _air(data: Mapping[str, Any]) -> str:
    if "aqi" not in data:
        return ""
    category = f" ({data['category']})" if "category" in data else ""
    pollutant = f", mainly {data['main_pollutant']}" if "main_pollutant" in data else ""
    return f"AQI {data['aqi']}{category}{pollutant}"


def _as_it_is(data: Any) -> str:
    """The facts of a result in a shape that the rules do not know."""
    if isinstance(data, Mapping):
        return _listed([f"{str(key).replace('_', ' ')} {value}" for key, value in data.items() if key != "city"])
    return str(data) if data not in (None, "", [], {}) else "no details were given"


def _degrees(value: Any, data: Mapping[str, Any]) -> str:
    return f"{value}°F" if str(data.get("units", "")).lower().startswith("f") else f"{value}°C"


def _listed(facts: Sequence[str]) -> str:
    given = [fact for fact in facts if fact]
    return " and ".join([", ".join(given[:-1]), given[-1]] if len(given) > 1 else given)


def _verdict(question: str, results: list[Result]) -> str:
    """A word ahead, where the question wants a yes or a no."""
    text = " ".join(str(result.data) for result in results if result.error is None).lower()
    if not text:
        return ""
    is_wet = re.search(r"rain|shower|storm|drizzle|snow", text) is not None
    if re.search(r"umbrella", question, re.I):
        return "Yes, take an umbrella." if is_wet else "It looks dry, so you can leave your umbrella at home."
    if asked := re.search(r"\bis it (rain|snow|sunny|cloudy|foggy|windy)", question, re.I):
        return "Yes." if asked[1].lower() in text else "No."
    return ""


def make(tool_delay: float = 0.0) -> Served:
    """The agent, ready to be served."""
    model = offline.model("weather-rules", choose, write)
    agent = Agent(model, name="Weather", instructions=INSTRUCTIONS, tools=tools(tool_delay))
    return from_pydantic_ai(agent, id="samples.weather", version="1.0.0", tool_versions="1.0.0")


if __name__ == "__main__":
    command.run("Sample weather agent", make)
