"""What the samples write into spans, as processes that send them to a receiver."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import otlp
import pytest
from client import Events, answering, invoke, start_frame
from eval_files import EVALS, cases
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from otlp import Receiver, Span, json_attribute, place

from forge_daemon import SPANS_ONLY
from forge_daemon.proto import agent_pb2, simulator_pb2, validator_pb2
from forge_daemon.proto import values_pb2 as values
from forge_daemon.proto.agent_pb2_grpc import AgentEndpointStub
from forge_daemon.proto.simulator_pb2_grpc import SimulatorStub
from forge_daemon.proto.validator_pb2_grpc import ValidatorStub
from forge_daemon.samples import spans_only, weather

Start = Callable[..., str]


@contextmanager
def process(module: str, *arguments: str, endpoint: str, **variables: str) -> Iterator[str]:
    """A sample that runs as a process; gives its address."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint} if endpoint else {}
    command = [sys.executable, "-m", f"forge_daemon.samples.{module}", "--listen", "127.0.0.1:0", *arguments]
    with subprocess.Popen(command, env=environment | variables, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running.stdout.readline().split()[-1]
        finally:
            running.send_signal(signal.SIGTERM)
            assert running.wait(10) == 0


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with otlp.grpc_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def start(receiver: Receiver) -> Iterator[Start]:
    """Starts samples that send their spans to the receiver, each once."""
    with ExitStack() as stack:
        started: dict[str, str] = {}

        def once(module: str) -> str:
            if module not in started:
                started[module] = stack.enter_context(process(module, endpoint=receiver.endpoint))
            return started[module]

        yield once


async def ask(address: str, text: str, stubs: dict[str, Any] | None = None, **fields: Any) -> SimpleNamespace:
    """One turn: its events, and the id of the span that it came with."""
    traceparent, trace, span = place()
    baggage = "forge.run.id=r-1,forge.case.id=c-1"
    context = values.CallContext(trace_context={"traceparent": traceparent, "baggage": baggage})
    async with grpc.aio.insecure_channel(address) as channel:
        frame = start_frame(text, context=context, **fields)
        events = await invoke(AgentEndpointStub(channel), frame, on_event=answering(stubs or {}))
    events.check_rules()
    return SimpleNamespace(events=events, text=events.text, trace=trace, span=span)


def tool_spans(receiver: Receiver, answer: SimpleNamespace) -> list[Span]:
    """The tool calls below the turn's span, as OpenInference writes them."""
    spans = receiver.below(answer.span)
    assert {span.trace for span in spans} <= {answer.trace}
    return [span for span in spans if span.attributes.get("openinference.span.kind") == "TOOL"]


def calls(receiver: Receiver, answer: SimpleNamespace) -> list[str]:
    return [span.attributes["tool.name"] for span in tool_spans(receiver, answer)]


def claims(events: Events) -> list[str]:
    return events.tools


# The agent whose calls are in its spans alone.


async def test_it_says_that_it_has_spans(start):
    async with grpc.aio.insecure_channel(start("spans_only")) as channel:
        description = await AgentEndpointStub(channel).Describe(agent_pb2.DescribeRequest())
    assert tuple(description.capabilities) == SPANS_ONLY
    assert "tools.from_spans" in SPANS_ONLY
    tools = {tool.name: tool for tool in description.card.tools}
    own = {tool.name: tool.description for tool in weather.tools()}
    assert {name: tool.description for name, tool in tools.items()} == own
    assert json.loads(tools["get_weather"].input_schema.raw)["required"] == ["city"]


async def test_a_tool_call_is_a_span(start, receiver):
    answer = await ask(start("spans_only"), "What's the weather in Paris?")
    assert answer.text.startswith("The weather in Paris: partly cloudy")
    assert answer.events.finished.spans_flushed
    assert claims(answer.events) == []
    # No waiting: `spans_flushed` says that they are here.
    (call,) = tool_spans(receiver, answer)
    assert (call.name, call.attributes["tool.name"]) == ("get_weather", "get_weather")
    assert json_attribute(call, "input.value") == {"city": "Paris", "units": "celsius"}
    assert call.attributes["input.mime_type"] == "application/json"
    result = json_attribute(call, "output.value")["data"]
    assert json.loads(result["content"]) == {
        "city": "Paris", "temperature": 17, "units": "celsius", "condition": "partly cloudy", "humidity": 63,
        "wind_kph": 15,
    }  # fmt: skip
    assert (call.attributes["forge.run.id"], call.attributes["forge.case.id"]) == ("r-1", "c-1")
    assert call.resource["service.name"] == "samples.spans_only"
    # What the model wrote, under the id that the tool's span has in its result.
    (model, *_) = [span for span in receiver.below(answer.span) if span.name == "Rules"]
    asked = "llm.output_messages.0.message.tool_calls.0.tool_call"
    assert model.attributes[f"{asked}.id"] == result["tool_call_id"]
    assert json_attribute(model, f"{asked}.function.arguments") == {"city": "Paris", "units": "celsius"}


async def test_the_only_text_argument_of_a_tool_has_no_name_in_its_span(start, receiver):
    """So writes the public instrumentation; the span of the model has the arguments whole."""
    answer = await ask(start("spans_only"), "How is the air in Delhi?")
    (call,) = tool_spans(receiver, answer)
    assert (call.attributes["input.value"], "input.mime_type" in call.attributes) == ("Delhi", False)
    (model, *_) = [span for span in receiver.below(answer.span) if span.name == "Rules"]
    asked = "llm.output_messages.0.message.tool_calls.0.tool_call"
    assert json_attribute(model, f"{asked}.function.arguments") == {"city": "Delhi"}


WANTED = [(case["input"]["message"], case["expect"]) for case in cases(EVALS / "weather.golden.json")]


@pytest.mark.parametrize(("text", "expect"), WANTED, ids=[text for text, _ in WANTED])
async def test_the_weather_agents_cases_hold_for_its_spans(start, receiver, text, expect):
    answer = await ask(start("spans_only"), text)
    assert answer.events.finished.spans_flushed
    assert calls(receiver, answer) == expect.get("toolsCalled", [])
    assert all(wanted in answer.text for wanted in expect.get("responseContains", []))


async def test_calls_have_an_order(start, receiver):
    text = "Give me a full overview for Cairo: current conditions, forecast and air quality"
    for _ in range(3):
        answer = await ask(start("spans_only"), text)
        assert calls(receiver, answer) == ["get_weather", "get_forecast", "get_air_quality"]
    fahrenheit = await ask(start("spans_only"), "Weather in Rome in Fahrenheit?")
    (call,) = tool_spans(receiver, fahrenheit)
    assert json_attribute(call, "input.value")["units"] == "fahrenheit"


async def test_it_runs_real_tools_only(start):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ask(start("spans_only"), "Weather in Oslo?", mode=agent_pb2.TOOL_MODE_STUB)
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_its_history_keeps_order_roles_and_calls():
    use = values.ToolUse(call_id="1", name="look", arguments=values.Json(raw=b'{"a":1}'))
    output = values.ToolOutput(call_id="1", result=values.Json(raw=b"[1.0]"))
    failed = values.ToolOutput(call_id="2", error=values.Fault(message="no"))
    messages = [
        values.Message(role=values.ROLE_SYSTEM, parts=[values.Part(text="Be brief.")]),
        values.Message(role=values.ROLE_USER, parts=[values.Part(text="Look!")]),
        values.Message(role=values.ROLE_ASSISTANT, parts=[values.Part(text="I do."), values.Part(tool_use=use)]),
        values.Message(role=values.ROLE_TOOL, parts=[values.Part(tool_output=output), values.Part(tool_output=failed)]),
    ]
    system, user, assistant, result, error = spans_only.history(messages)
    assert (system, user) == (SystemMessage("Be brief."), HumanMessage("Look!"))
    assert isinstance(assistant, AIMessage)
    assert [(call["name"], call["args"], call["id"]) for call in assistant.tool_calls] == [("look", {"a": 1}, "1")]
    assert result == ToolMessage("[1.0]", tool_call_id="1")
    assert error == ToolMessage("no", tool_call_id="2", status="error")


async def test_a_conversation_goes_on(start, receiver):
    said = [
        (values.ROLE_USER, "Weather in Oslo?"),
        (values.ROLE_ASSISTANT, "Snow."),
        (values.ROLE_USER, "And in Rome?"),
    ]
    messages = [values.Message(role=role, parts=[values.Part(text=text)]) for role, text in said]
    answer = await ask(start("spans_only"), "", messages=messages)
    (call,) = tool_spans(receiver, answer)
    assert json_attribute(call, "input.value")["city"] == "Rome"


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_behind_a_collector_it_promises_nothing(protocol):
    with otlp.grpc_receiver() if protocol == "grpc" else otlp.http_receiver() as receiver:
        endpoint, variables = receiver.endpoint, {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        with process("spans_only", endpoint=endpoint, **variables) as address:
            assert (await ask(address, "Weather in Oslo?")).events.finished.spans_flushed
        with process("spans_only", "--collector", endpoint=endpoint, **variables) as address:
            answer = await ask(address, "Weather in Oslo?")
        assert not answer.events.finished.spans_flushed
        assert calls(receiver, answer) == ["get_weather"]


@pytest.mark.parametrize(("module", "is_named"), [("spans_only", False), ("spans_only", True), ("weather", True)])
async def test_without_a_receiver_it_answers_all_the_same(module, is_named):
    with process(module, endpoint=otlp.closed_port() if is_named else "") as address:
        for _ in range(2):
            answer = await ask(address, "Weather in Oslo?")
            assert "light snow" in answer.text
            assert not answer.events.finished.spans_flushed
            assert answer.events.finished.duration.ToMilliseconds() < 1000


# The agent whose spans give it away.


@pytest.mark.parametrize(
    ("text", "claimed", "made", "says"),
    [
        ("What's the weather in Paris?", ["get_weather"], ["get_weather"], "partly cloudy"),
        ("How is the air in Delhi?", ["get_air_quality"], [], "AQI 42"),
        ("Do I need an umbrella in Rome tomorrow?", [], ["get_forecast"], "The weather forecast for Rome"),
        ("Weather and air quality in Oslo?", ["get_air_quality", "get_weather"], ["get_weather"], "AQI 42"),
        ("How does a barometer work?", [], [], "pressure"),
    ],
)
async def test_the_liar(start, receiver, text, claimed, made, says):
    answer = await ask(start("liar"), text)
    assert says in answer.text
    assert (claims(answer.events), calls(receiver, answer)) == (claimed, made)
    assert answer.events.finished.spans_flushed == bool(receiver.below(answer.span))
    for told in answer.events.of("tool_finished"):
        assert told.HasField("result")


async def test_what_the_liar_tells_truly_agrees_with_its_spans(start, receiver):
    answer = await ask(start("liar"), "What's the weather in Paris?")
    (call,), (started,) = tool_spans(receiver, answer), answer.events.of("tool_started")
    (finished,) = answer.events.of("tool_finished")
    assert json.loads(started.params.raw) == json_attribute(call, "input.value")
    assert json.loads(finished.result.raw) == json.loads(json_attribute(call, "output.value")["data"]["content"])


# The agents on pydantic-ai, and those who talk to them.


async def test_the_weather_agent_has_spans_too(receiver):
    with process("weather", endpoint=receiver.endpoint) as address:
        answer = await ask(address, "Weather and air quality in Oslo?")
        stubs = {"get_weather": {"condition": "frogs"}}
        stubbed = await ask(address, "Weather in Oslo?", stubs, mode=agent_pb2.TOOL_MODE_STUB)
    # The process has ended, and sent what it had.
    assert claims(answer.events) == ["get_weather", "get_air_quality"]
    assert not answer.events.finished.spans_flushed, "its calls are not taken from them"
    run, *spans = receiver.below(answer.span)
    assert (run.name, run.parent) == ("invoke_agent Weather", answer.span)
    assert [span.name for span in spans] == [
        "chat weather-rules",
        "execute_tool get_weather",
        "execute_tool get_air_quality",
        "chat weather-rules",
    ]
    told = {started.name: started for started in answer.events.of("tool_started")}
    for span in spans[1:3]:
        name = span.attributes["gen_ai.tool.name"]
        assert span.attributes["gen_ai.operation.name"] == "execute_tool"
        assert span.attributes["gen_ai.tool.call.id"] == told[name].call_id
        assert json_attribute(span, "gen_ai.tool.call.arguments") == {"city": "Oslo"}
        assert json_attribute(span, "gen_ai.tool.call.result")["city"] == "Oslo"
        assert span.attributes["forge.run.id"] == "r-1"
        assert span.resource["service.name"] == "samples.weather"
    # A stub stands in the span as the model saw it.
    (call,) = [span for span in receiver.below(stubbed.span) if span.name == "execute_tool get_weather"]
    assert "frogs" in stubbed.text
    assert "frogs" in call.attributes["gen_ai.tool.call.result"]


async def test_user_and_validator_have_spans_too(receiver):
    traceparent, _, span = place()
    context = values.CallContext(trace_context={"traceparent": traceparent})
    with process("expense", endpoint=receiver.endpoint) as address:
        async with grpc.aio.insecure_channel(address) as channel:
            await SimulatorStub(channel).NextInput(simulator_pb2.NextInputRequest(context=context, goal="Submit $5"))
            output = values.Message(role=values.ROLE_ASSISTANT, parts=[values.Part(text="Which type?")])
            criteria = "asks for the type"
            request = validator_pb2.ValidateRequest(context=context, output=output, criteria=criteria)
            verdict = await ValidatorStub(channel).Validate(request)
    user, validator = receiver.below(span)
    assert [user.name, validator.name] == ["invoke_agent expense.user", "invoke_agent expense.validator"]
    assert (user.parent, validator.parent) == (span, span)
    assert validator.attributes["gen_ai.agent.name"] == "expense.validator"
    assert verdict.passed
    assert validator.events["gen_ai.evaluation.result"] == {
        "gen_ai.evaluation.name": criteria,
        "gen_ai.evaluation.score.label": "pass",
        "gen_ai.evaluation.score.value": 1.0,
        "gen_ai.evaluation.explanation": verdict.reason,
    }
