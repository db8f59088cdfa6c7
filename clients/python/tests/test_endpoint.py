"""The endpoint, over a real server, as a daemon meets it. What all SDKs do is in `test_behaviour`."""

import asyncio
import json

import grpc
import pytest
from client import (
    LIVE,
    ROUTING_ONLY,
    SECONDS,
    STUB,
    cancel_frame,
    invoke,
    start_frame,
    stub_result,
)
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from forge_daemon import Agent, Server, ToolFailed, Turn
from forge_daemon.proto import agent_pb2, invoke_pb2
from forge_daemon.proto import values_pb2 as values
from forge_daemon.proto.agent_pb2_grpc import AgentEndpointStub


class Tool:
    """A tool that remembers whether it ran."""

    def __init__(self, result: object = None, *, error: Exception | None = None, seconds: float = 0) -> None:
        self.runs = 0
        self._result, self._error, self._seconds = result, error, seconds

    async def __call__(self) -> object:
        self.runs += 1
        await asyncio.sleep(self._seconds)
        if self._error:
            raise self._error
        return self._result


async def test_events_of_a_whole_turn(serve_answer):
    tool = Tool({"degrees": 17, "exact": 9007199254740993})

    async def answer(turn: Turn) -> None:
        with turn.model_turn() as record:
            record.model = "m"
            record.usage.input_tokens = 7
        turn.log("thinking")
        seen = await turn.call("look", '{ "at": 1.0 }', tool)
        turn.say("It is ")
        turn.say(f"{json.loads(seen)['degrees']}: {turn.user_text}")

    events = await invoke(await serve_answer(answer), start_frame("Warm?", invocation_id="one"))
    events.check_rules()
    assert events.kinds() == [
        "accepted", "model_turn", "log", "tool_started", "tool_finished", "text_delta", "text_delta", "finished",
    ]  # fmt: skip
    assert events[0].accepted.invocation_id == "one"
    (started,), (finished,) = events.of("tool_started"), events.of("tool_finished")
    assert started.params.raw == b'{ "at": 1.0 }', "the model's text stays as it was"
    assert (started.model_turn, started.awaits_result) == (1, False)
    assert (finished.result.raw, finished.source) == (
        b'{"degrees": 17, "exact": 9007199254740993}',
        invoke_pb2.RESULT_SOURCE_LIVE,
    )
    assert (events.reason, events.text) == ("COMPLETED", "It is 17: Warm?")
    assert (events.finished.usage.input_tokens, events.finished.usage.HasField("output_tokens")) == (7, False)


async def test_accepted_comes_while_the_agent_is_busy(serve_answer):
    async def answer(turn: Turn) -> str:
        await asyncio.sleep(60)
        return ""

    call = (await serve_answer(answer)).Invoke()
    await call.write(start_frame())
    async with asyncio.timeout(1):
        assert (await call.read()).WhichOneof("event") == "accepted"
    call.cancel()


@pytest.mark.parametrize(
    ("mode", "last", "text"),
    [
        (LIVE, "It is 5.", "It is 5."),
        (STUB, "It is 5.", "It is 5."),
        (ROUTING_ONLY, "It is 5.", "Let me look. "),
        (LIVE, "", "Let me look. "),
        (STUB, "", ""),
    ],
)
async def test_the_answer_is_what_was_said_last(serve_answer, mode, last, text):
    async def answer(turn: Turn) -> None:
        turn.say("Let me look. ")
        await turn.call("t", {}, Tool())
        turn.say(last)

    async def on_event(event, call):
        if event.WhichOneof("event") == "tool_started" and mode == STUB:
            await call.write(stub_result(event.tool_started.call_id, "1"))

    events = await invoke(await serve_answer(answer), start_frame(mode=mode), on_event=on_event)
    events.check_rules()
    assert events.text == text
    assert "".join(delta.text for delta in events.of("text_delta")).startswith("Let me look. ")


@pytest.mark.parametrize(
    ("params", "form", "text"),
    [
        ('{"a":9007199254740993}', "raw", b'{"a":9007199254740993}'),
        ({"a": None}, "raw", b'{"a": null}'),
        ("null", "raw", b"null"),
        ('{"a":', "malformed", b'{"a":'),
        ('{"a":NaN}', "malformed", b'{"a":NaN}'),
        ('"\udce4"', "malformed", b'"\xed\xb3\xa4"'),
        (None, None, None),
    ],
)
async def test_params_travel_as_text(serve_answer, params, form, text):
    async def answer(turn: Turn) -> str:
        turn.start_tool("t", params).fail("not run")
        return ""

    events = await invoke(await serve_answer(answer), start_frame())
    (started,) = events.of("tool_started")
    assert started.params.WhichOneof("form") == form
    assert form is None or getattr(started.params, form) == text
    assert not started.HasField("params_unknown")


async def test_params_that_nobody_can_tell(serve_answer):
    async def answer(turn: Turn) -> str:
        turn.start_tool("t", params_unknown="the log has none").fail("not run")
        return ""

    events = await invoke(await serve_answer(answer), start_frame())
    (started,) = events.of("tool_started")
    assert (started.HasField("params"), started.params_unknown) == (False, "the log has none")


@pytest.mark.parametrize(
    ("result", "seen"),
    [
        (agent_pb2.ToolResult(error=values.Fault(message="out of order")), "failed: out of order"),
        (agent_pb2.ToolResult(error=values.Fault(message="no stub"), unstubbed=True), "failed: no stub"),
        (agent_pb2.ToolResult(), "failed: no result came for the call of t"),
        (agent_pb2.ToolResult(result=values.Json(raw=b"null")), "null"),
        (agent_pb2.ToolResult(result=values.Json(raw=b'""')), '""'),
        (agent_pb2.ToolResult(result=values.Json()), ""),
    ],
)
async def test_what_a_stub_can_say(serve_answer, result, seen):
    async def answer(turn: Turn) -> str:
        try:
            return await turn.call("t", {}, Tool())
        except ToolFailed as failure:
            return f"failed: {failure}"

    async def on_event(event, call):
        if event.WhichOneof("event") == "tool_started":
            result.call_id = event.tool_started.call_id
            await call.write(agent_pb2.InvokeRequest(tool_result=result))

    events = await invoke(await serve_answer(answer), start_frame(mode=STUB), on_event=on_event)
    events.check_rules()
    assert events.text == seen


async def test_routing_only_survives_a_task_group(serve_answer):
    async def answer(turn: Turn) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(turn.call("a", {}, Tool()))
        return ""

    events = await invoke(await serve_answer(answer), start_frame(mode=ROUTING_ONLY))
    assert events.reason == "TOOL_CALLS"


@pytest.mark.parametrize(("mode", "last", "text"), [(STUB, "", ""), (STUB, "Two. ", "Two. "), (LIVE, "", "One. ")])
async def test_at_the_limit_the_answer_is_what_the_last_model_turn_said(serve_answer, mode, last, text):
    async def answer(turn: Turn) -> None:
        for said in ("One. ", last, "Three."):
            with turn.model_turn():
                turn.say(said)
            await turn.call("t", {}, Tool())

    async def on_event(event, call):
        if event.WhichOneof("event") == "tool_started" and mode == STUB:
            await call.write(stub_result(event.tool_started.call_id, "1"))

    start = start_frame(mode=mode, max_model_turns=2)
    events = await invoke(await serve_answer(answer), start, on_event=on_event)
    events.check_rules()
    assert (events.reason, len(events.tools), events.text) == ("MAX_MODEL_TURNS", 2, text)


@pytest.mark.parametrize("mode", [LIVE, STUB])
async def test_cancel_in_band(serve_answer, mode):
    was_stopped = asyncio.Event()

    async def answer(turn: Turn) -> str:
        turn.say("I am ")
        try:
            return await turn.call("t", {}, Tool(seconds=60))
        finally:
            await asyncio.sleep(0.1)  # The second cancel comes while the turn ends.
            was_stopped.set()

    async def on_event(event, call):
        if event.WhichOneof("event") == "tool_started":
            await call.write(cancel_frame())
            await call.write(cancel_frame())

    events = await invoke(await serve_answer(answer), start_frame(mode=mode), on_event=on_event)
    events.check_rules()
    assert (events.reason, events.text) == ("CANCELLED", "I am ")
    (finished,) = events.of("tool_finished")
    assert (finished.error.grpc_code, finished.error.reason) == (1, "CANCELLED")
    assert was_stopped.is_set()


async def test_code_that_ignores_its_cancellation_is_left_behind(serve_answer):
    is_over = False

    async def answer(turn: Turn) -> str:
        while not is_over:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                turn.say("never")
        return ""

    cancel = cancel_frame()
    cancel.cancel.grace.FromMilliseconds(200)
    events = await invoke(await serve_answer(answer), start_frame(), cancel)
    is_over = True
    events.check_rules()
    assert events.reason == "CANCELLED"


async def test_code_that_cancels_itself_has_failed(serve_answer):
    async def answer(turn: Turn) -> str:
        raise asyncio.CancelledError

    assert (await invoke(await serve_answer(answer), start_frame())).reason == "FAILED"


async def test_text_that_cannot_travel_is_a_failure(serve_answer):
    async def answer(turn: Turn) -> str:
        return "half a character: \udce4"

    assert (await invoke(await serve_answer(answer), start_frame())).reason == "FAILED"


def with_probe() -> agent_pb2.InvokeRequest:
    frame = start_frame()
    frame.start.probe.SetInParent()
    return frame


@pytest.mark.parametrize(
    ("frames", "code", "field"),
    [
        ([start_frame(mode=0)], grpc.StatusCode.INVALID_ARGUMENT, "tool_mode"),
        ([start_frame(mode=99)], grpc.StatusCode.INVALID_ARGUMENT, "tool_mode"),
        ([start_frame(invocation_id="")], grpc.StatusCode.INVALID_ARGUMENT, "invocation_id"),
        ([cancel_frame()], grpc.StatusCode.INVALID_ARGUMENT, "start"),
        ([], grpc.StatusCode.INVALID_ARGUMENT, "start"),
        ([with_probe()], grpc.StatusCode.FAILED_PRECONDITION, "probe"),
    ],
)
async def test_refused_before_anything_runs(serve_answer, frames, code, field):
    was_asked = False

    async def answer(turn: Turn) -> str:
        nonlocal was_asked
        was_asked = True
        return ""

    call = (await serve_answer(answer)).Invoke(iter(frames))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async for _ in call:
            pass
    assert refused.value.code() == code
    assert field in refused.value.details()
    assert not was_asked


async def test_a_mode_that_is_not_declared_is_refused(serve_answer):
    async def answer(turn: Turn) -> str:
        return ""

    stub = await serve_answer(answer, capabilities=("cancel",))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await invoke(stub, start_frame(mode=STUB))
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION


async def test_unknown_frames_and_metadata_are_ignored(serve_answer):
    async def answer(turn: Turn) -> str:
        await asyncio.sleep(0.1)
        return "fine"

    unknown = agent_pb2.InvokeRequest.FromString(bytes([0xA2, 0x1F, 0x01, 0x41]))  # Field 500.
    call = (await serve_answer(answer)).Invoke(iter([start_frame(), unknown]), metadata=[("x-unknown", "1")])
    kinds = [event.WhichOneof("event") async for event in call]
    assert kinds == ["accepted", "text_delta", "finished"]


async def test_calls_beyond_the_limit_wait_and_do_not_mix(serve_answer):
    running = peak = 0

    async def answer(turn: Turn) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.02)
        running -= 1
        return turn.user_text

    stub = await serve_answer(answer, max_concurrent=3)
    texts = [f"secret {number}" for number in range(10)]
    turns = await asyncio.gather(*(invoke(stub, start_frame(text)) for text in texts))
    assert ([events.text for events in turns], peak) == (texts, 3)


async def test_describe(serve_answer):
    async def answer(turn: Turn) -> str:
        return ""

    stub = await serve_answer(answer, max_concurrent=2)
    request = agent_pb2.DescribeRequest(min_revision=1, max_revision=3, host_capabilities=["x.future"])
    description = await stub.Describe(request)
    assert description == await stub.Describe(request)
    assert (description.revision, description.card.agent_id) == (1, "test.agent")
    assert description.limits.max_concurrent_invocations == 2
    assert "tools.stub" in description.capabilities
    events = await invoke(stub, start_frame())
    assert events[0].accepted.instance_id == description.instance_id != ""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Describe(agent_pb2.DescribeRequest(min_revision=999, max_revision=999))
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "REVISION_UNSUPPORTED" in refused.value.details()


async def test_reflection():
    async def answer(turn: Turn) -> str:
        return ""

    server = Server(Agent(answer, id="a"), "127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (response,) = [response async for response in stub.ServerReflectionInfo(iter([request]))]
    names = {service.name for service in response.list_services_response.service}
    assert {"forge.agent.v1.AgentEndpoint", "grpc.health.v1.Health"} <= names
    await server.stop()


async def test_health_and_draining():
    is_running, release = asyncio.Event(), asyncio.Event()

    async def answer(turn: Turn) -> str:
        is_running.set()
        await release.wait()
        return "finished in peace"

    server = Server(Agent(answer, id="a"), "127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel, asyncio.timeout(SECONDS):
        health = health_pb2_grpc.HealthStub(channel)
        stub = AgentEndpointStub(channel)
        for service in ("", "forge.agent.v1.AgentEndpoint"):
            status = (await health.Check(health_pb2.HealthCheckRequest(service=service))).status
            assert status == health_pb2.HealthCheckResponse.SERVING
        running = asyncio.create_task(invoke(stub, start_frame()))
        await is_running.wait()
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0.05)
        status = (await health.Check(health_pb2.HealthCheckRequest())).status
        assert status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await invoke(stub, start_frame())
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        release.set()
        assert (await running).text == "finished in peace"
        await stopping
