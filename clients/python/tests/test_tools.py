"""Tools that are made of functions: their schemas, their arguments, and calls that go through a turn."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, Optional, TypedDict

import pytest
from client import LIVE, ROUTING_ONLY, STUB, answering, invoke, start_frame
from pydantic import BaseModel

from forge_daemon import Agent, BlockingTurn, ToolFailed, Turn, tool, wrap_tools
from forge_daemon.tools import schema_of


class Unit(Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


class Place(TypedDict):
    city: str
    country: str


class Inner(BaseModel):
    number: int


class Order(BaseModel):
    inner: Inner


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (dict, {"type": "object"}),
        (Any, {}),
        (object, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),  # noqa: UP045
        (Annotated[str, "Name of the city"], {"type": "string", "description": "Name of the city"}),
        (Unit, {"enum": ["c", "f"]}),
        (
            Place,
            {
                "type": "object",
                "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
                "required": ["city", "country"],
            },
        ),
    ],
)
def test_schemas(annotation: Any, schema: dict[str, Any]):
    def function(value) -> None: ...

    function.__annotations__["value"] = annotation
    wanted = {"type": "object", "properties": {"value": schema}, "required": ["value"], "additionalProperties": False}
    assert schema_of(function) == wanted


def test_schemas_of_defaults_and_models():
    def function(city: str, days: int = 3, when: object = object(), *, order: Order, **more: int) -> None: ...

    schema = schema_of(function)
    assert schema["properties"]["days"] == {"type": "integer", "default": 3}
    assert "default" not in schema["properties"]["when"]
    assert (schema["required"], schema["additionalProperties"]) == (["city", "order"], True)
    assert schema["properties"]["order"]["properties"]["inner"] == {"$ref": "#/$defs/Inner"}
    assert "Inner" in schema["$defs"]


def test_signatures_that_a_model_cannot_call():
    def rest(*values: int) -> None: ...

    def position(value: int, /) -> None: ...

    def later(value: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match=r"tool rest: a model gives parameters by name, which `\*values: int` does not"):
        tool(rest)
    with pytest.raises(TypeError, match="tool position: a model gives parameters by name"):
        tool(position)
    with pytest.raises(TypeError, match=r"tool later: cannot read its annotations \(name 'Missing' is not defined\)"):
        tool(later)
    assert tool(input_schema={})(later).input_schema == {}
    with pytest.raises(TypeError, match="tool: a function, not str"):
        tool("look")  # type: ignore[call-overload]


def test_a_tool_is_still_its_function():
    @tool(name="find", description="Finds.", version="2")
    def look(number: int) -> int:
        """Looks."""
        return number + 1

    assert look(3) == 4
    assert (look.name, look.description, look.version, look.spec.name) == ("find", "Finds.", "2", "find")
    assert tool(test_a_tool_is_still_its_function).description == ""


async def heard(serve: Any, agent: Agent, mode: int = LIVE, stubs: Any = None) -> Any:
    return await invoke(await serve(agent), start_frame(mode=mode), on_event=answering(stubs or {}))


async def test_arguments_become_what_the_function_takes(serve):
    seen: list[Any] = []

    @tool
    def look(unit: Unit, order: Order, units: list[Unit], maybe: Order | None = None) -> str:
        """Looks."""
        seen.extend([unit, order, units, maybe])
        return "ok"

    async def answer(turn: Turn) -> str:
        order = {"inner": {"number": 1}}
        texts = [await turn.call(look, {"unit": "c", "order": order, "units": ["f"]})]
        for arguments in ({"unit": "x", "order": order, "units": []}, {"unit": "c"}, {"nonsense": 1}):
            try:
                texts.append(await turn.call("look", arguments))
            except ToolFailed as failure:
                texts.append(str(failure))
        return " | ".join(texts)

    events = await heard(serve, Agent(answer, id="a", tools=[look]))
    assert seen == [Unit.CELSIUS, Order(inner=Inner(number=1)), [Unit.FAHRENHEIT], None]
    assert events.text.split(" | ")[:2] == ['"ok"', "'x' is not a valid Unit"]
    assert events.text.split(" | ")[2:] == [
        "look: missing a required argument: 'order'",
        "look: missing a required argument: 'unit'",
    ]


async def test_results_that_are_more_than_json(serve):
    @dataclass
    class Found:
        when: date
        unit: Unit

    @tool
    def look() -> list[Any]:
        """Looks."""
        return [Found(date(2026, 1, 2), Unit.CELSIUS), Inner(number=9007199254740993)]

    @tool
    def broken() -> object:
        """Gives what is no JSON."""
        return object()

    async def answer(turn: Turn) -> str:
        text = await turn.call(look)
        try:
            return await turn.call(broken)
        except ToolFailed as failure:
            return f"{text} | {failure}"

    events = await heard(serve, Agent(answer, id="a", tools=[look, broken]))
    found, failure = events.text.split(" | ")
    assert json.loads(found) == [{"when": "2026-01-02", "unit": "c"}, {"number": 9007199254740993}]
    assert failure == "Object of type object is not JSON serializable"


RUNS: list[int] = []


@tool
async def double(number: int) -> dict[str, int]:
    """Doubles."""
    RUNS.append(number)
    if number == 13:
        raise ValueError("unlucky")
    return {"result": 2 * number}


def triple(number: int) -> int:
    """Triples."""
    RUNS.append(number)
    return 3 * number


async def wrapped(turn: Turn) -> str:
    twice, thrice = wrap_tools(turn, [double, triple])
    assert (twice.__name__, twice.__doc__, thrice.__name__) == ("double", "Doubles.", "triple")
    found = await twice(4)
    try:
        return f"{found} {await thrice(number=5)} {await twice(13)}"
    except ToolFailed as failure:
        return f"{found} failed: {failure}"


def wrapped_plainly(turn: BlockingTurn) -> str:
    (thrice,) = wrap_tools(turn, [triple])
    return str(thrice(5))


async def test_functions_that_go_through_a_turn(serve):
    RUNS.clear()
    events = await heard(serve, Agent(wrapped, id="a"))
    events.check_rules()
    assert (events.text, events.tools, RUNS) == (
        "{'result': 8} failed: unlucky",
        ["double", "triple", "double"],
        [4, 5, 13],
    )
    assert events.of("tool_started")[0].params.raw == b'{"number": 4}'
    RUNS.clear()
    events = await heard(serve, Agent(wrapped, id="a"), STUB, {"double": [1.5], "triple": 7})
    assert (events.text, RUNS) == ("[1.5] 7 [1.5]", [])
    events = await heard(serve, Agent(wrapped, id="a"), ROUTING_ONLY)
    assert (events.reason, events.tools, RUNS) == ("TOOL_CALLS", ["double"], [])


async def test_plain_functions_that_go_through_a_turn(serve):
    for mode, text in ((LIVE, "15"), (STUB, "7")):
        events = await heard(serve, Agent(wrapped_plainly, id="a"), mode, {"triple": 7})
        assert (events.text, events.tools) == (text, ["triple"])
