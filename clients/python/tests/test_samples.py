"""The sample agents answer their eval files, and pydantic-ai keeps the protocol's rules in every mode."""

import asyncio
import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from types import ModuleType

import grpc
import pytest
from client import LIVE, ROUTING_ONLY, STUB, answering, cancel_frame, invoke, start_frame
from eval_files import EVALS, cases, failures, run
from pydantic_ai import Agent, Tool
from pydantic_ai.exceptions import ToolFailed as ModelSeesFailure
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from forge_daemon.adapters.pydantic_ai import from_pydantic_ai, history
from forge_daemon.proto import agent_pb2
from forge_daemon.proto import values_pb2 as values
from forge_daemon.proto.agent_pb2_grpc import AgentEndpointStub
from forge_daemon.samples import portfolio, weather

SUITES = [
    (weather, EVALS / "weather.golden.json"),
    (weather, EVALS / "weather.labeled.json"),
    (portfolio, EVALS / "portfolio.golden.json"),
]
CASES = [pytest.param(agent, case, id=case["id"]) for agent, path in SUITES for case in cases(path)]


@pytest.fixture(autouse=True)
def _rules_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORGE_SAMPLE_MODEL", raising=False)


@pytest.mark.parametrize(("agent", "case"), CASES)
async def test_eval_case(serve, agent: ModuleType, case):
    wrong = failures(case, await run(await serve(agent.make()), case))
    if "FAILS ON PURPOSE" in case["description"]:
        assert [text.partition(":")[0] for text in wrong] == ["responseNotContains"]
    else:
        assert wrong == []


def test_one_case_fails_on_purpose():
    descriptions = [case["description"] for case in cases(EVALS / "weather.golden.json")]
    assert len([text for text in descriptions if "FAILS ON PURPOSE" in text]) == 1


METADATA = [
    pytest.param(agent, json.loads(path.read_text("utf-8"))["metadata"], id=path.name) for agent, path in SUITES
]


@pytest.mark.parametrize(("agent", "metadata"), METADATA)
async def test_metadata_fits_the_tools(serve, agent: ModuleType, metadata):
    card = (await (await serve(agent.make())).Describe(agent_pb2.DescribeRequest())).card
    tool = next(tool for tool in card.tools if tool.name == metadata["toolName"])
    assert metadata["description"] == tool.description
    assert metadata["descriptionHash"] == hashlib.sha256(tool.description.encode()).hexdigest()[:12]
    assert (metadata["toolVersion"], metadata["registrySize"]) == (tool.version, len(card.tools))


def test_the_portfolio_is_the_seed_manifest():
    assert json.loads((EVALS / "seed-manifest.json").read_text("utf-8")) == portfolio.HOLDINGS
    shares = sum(
        item["shares"] * portfolio.PRICES[item["symbol"]] for item in portfolio.HOLDINGS["holdings"]["equities"]
    )
    assert shares + portfolio.HOLDINGS["totals"]["cash"] == portfolio.HOLDINGS["totals"]["portfolioValue"]


async def test_the_answer_is_made_of_what_the_stub_says(serve):
    stub = await serve(weather.make())
    stubs = {"get_weather": {"city": "Paris", "temperature": -40, "condition": "raining frogs"}}
    events = await invoke(stub, start_frame("Weather in Paris?", mode=STUB), on_event=answering(stubs))
    assert "raining frogs" in events.text
    assert "-40°" in events.text
    events = await invoke(stub, start_frame("Weather in Paris?", mode=STUB), on_event=answering({}))
    assert events.text == "I could not get the weather in Paris: no stub for get_weather."
    for odd in ({"sky": "green"}, "sky green", ["sky green"]):
        events = await invoke(
            stub, start_frame("Weather in Paris?", mode=STUB), on_event=answering({"get_weather": odd})
        )
        assert "sky green" in events.text


async def test_routing_only(serve):
    frame = start_frame("Weather and air quality in Oslo?", mode=ROUTING_ONLY)
    events = await invoke(await serve(weather.make(tool_delay=60)), frame)
    events.check_rules()
    assert (events.tools, events.reason) == (["get_weather", "get_air_quality"], "TOOL_CALLS")
    assert events.of("tool_finished") == []


async def test_slow_tools_run_side_by_side_and_can_be_cancelled(serve):
    stub = await serve(weather.make(tool_delay=0.2))
    events = await invoke(stub, start_frame("Weather and air quality in Oslo?"))
    events.check_rules()
    assert events.kinds()[:4] == ["accepted", "model_turn", "tool_started", "tool_started"]
    assert all(0.2 <= call.duration.ToMilliseconds() / 1000 < 0.4 for call in events.of("tool_finished"))
    assert events.finished.duration.ToMilliseconds() < 400

    async def on_event(event, call):
        if event.WhichOneof("event") == "tool_started":
            await call.write(cancel_frame())

    events = await invoke(stub, start_frame("Weather in Oslo?"), on_event=on_event)
    events.check_rules()
    assert events.reason == "CANCELLED"


async def test_a_conversation_goes_on(serve):
    said = [
        (values.ROLE_USER, "Weather in Oslo?"),
        (values.ROLE_ASSISTANT, "Snow."),
        (values.ROLE_USER, "And in Rome?"),
    ]
    messages = [values.Message(role=role, parts=[values.Part(text=text)]) for role, text in said]
    events = await invoke(await serve(weather.make()), start_frame(messages=messages))
    assert (events.tools, "Rome" in events.text, "Oslo" in events.text) == (["get_weather"], True, False)


async def test_an_image_is_refused_with_a_reason(serve):
    image = values.Part(blob=values.Blob(media_type="image/png", inline=b"x"))
    frame = start_frame(messages=[values.Message(role=values.ROLE_USER, parts=[image])])
    events = await invoke(await serve(weather.make()), frame)
    assert (events.reason, events.finished.error.reason) == ("FAILED", "UNSUPPORTED_MEDIA_TYPE")


def scripted(*calls: tuple[str, str]) -> Agent[None, str]:
    """An agent whose model makes these calls at once, and then answers with what it saw."""

    def respond(messages, info):
        returns = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if not returns:
            return ModelResponse(parts=[TextPart("One moment."), *(ToolCallPart(*call) for call in calls)])
        return ModelResponse(parts=[TextPart(" | ".join(f"{part.outcome} {part.content}" for part in returns))])

    def double(number: int) -> int:
        if number == 13:
            raise ModelSeesFailure("unlucky")
        return 2 * number

    return Agent(FunctionModel(respond), tools=[Tool(double)])


CALLS = [("double", '{ "number":4 }'), ("unknown", "{}"), ("double", '{"number":"x"}'), ("double", '{"number":')]


async def test_every_call_of_a_model_is_reported_live(serve):
    endpoint = from_pydantic_ai(scripted(*CALLS, ("double", '{"number":13}')))
    events = await invoke(await serve(endpoint), start_frame())
    events.check_rules()
    started, finished = events.of("tool_started"), {call.call_id: call for call in events.of("tool_finished")}
    assert [call.params.raw or call.params.malformed for call in started] == [
        b'{ "number":4 }', b"{}", b'{"number":"x"}', b'{"number":', b'{"number":13}',
    ]  # fmt: skip
    outcomes = [finished[call.call_id].WhichOneof("outcome") for call in started]
    assert outcomes == ["result", "error", "error", "error", "error"]
    assert finished[started[0].call_id].result.raw == b"8"
    assert "Unknown tool" in finished[started[1].call_id].error.message
    assert finished[started[4].call_id].error.message == "unlucky"
    assert "failed unlucky" in events.text
    assert "One moment" not in events.text


async def test_stubs_stand_in_for_every_call_of_a_model(serve):
    endpoint = from_pydantic_ai(scripted(*CALLS))
    on_event = answering({"double": "D", "unknown": "U"})
    events = await invoke(await serve(endpoint), start_frame(mode=STUB), on_event=on_event)
    events.check_rules()
    assert events.text == 'success "D" | success "U" | success "D" | success "D"'


async def test_model_turns_are_limited(serve):
    def respond(messages, info):
        return ModelResponse(parts=[TextPart("Looking."), ToolCallPart("look", "{}")])

    agent = Agent(FunctionModel(respond), tools=[Tool(lambda: "nothing", name="look")])
    stub = await serve(from_pydantic_ai(agent))
    events = await invoke(stub, start_frame(max_model_turns=3))
    events.check_rules()
    assert (events.reason, len(events.tools), events.text) == ("MAX_MODEL_TURNS", 3, "Looking.")


def test_history_keeps_order_roles_and_calls():
    use = values.ToolUse(call_id="1", name="look", arguments=values.Json(raw=b'{"a":1.0}'))
    output = values.ToolOutput(call_id="1", result=values.Json(raw=b"[1.0]"))
    messages = [
        values.Message(role=values.ROLE_SYSTEM, parts=[values.Part(text="Be brief.")]),
        values.Message(role=values.ROLE_USER, parts=[values.Part(text="Look!")]),
        values.Message(role=values.ROLE_ASSISTANT, parts=[values.Part(tool_use=use)]),
        values.Message(role=values.ROLE_TOOL, parts=[values.Part(tool_output=output)]),
    ]
    system, user, call, returned = (message.parts[0] for message in history(messages))
    assert (system.content, user.content) == ("Be brief.", "Look!")
    assert (call.tool_name, call.args, call.tool_call_id) == ("look", '{"a":1.0}', "1")
    assert (returned.tool_name, returned.content, returned.tool_call_id) == ("look", "[1.0]", "1")
    assert isinstance(history(messages)[0], ModelRequest)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["-m", "forge_daemon.samples.weather"], "The weather in Paris"),
        (["-m", "forge_daemon.samples.portfolio"], "I can tell you what you own"),
        ([str(Path(__file__).parents[1] / "samples/minimal.py")], "You said: What's the weather in Paris?"),
    ],
    ids=["weather", "portfolio", "minimal"],
)
async def test_as_a_process(command, expected):
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--listen", "127.0.0.1:0", stdout=asyncio.subprocess.PIPE, env=os.environ
    )
    try:
        async with asyncio.timeout(30):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("listening on 127.0.0.1:")
        async with grpc.aio.insecure_channel(line.split()[-1]) as channel:
            events = await invoke(AgentEndpointStub(channel), start_frame("What's the weather in Paris?", mode=LIVE))
        events.check_rules()
        assert events.text.startswith(expected)
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            code = await process.wait()
    assert code == 0 or "minimal" in command[0]
