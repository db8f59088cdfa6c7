"""The table that the SDKs of all languages share: clients/shared/README.md says what its keys mean."""

import asyncio
import functools
import json
import os
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from client import Events, start_frame
from google.protobuf import json_format

from forge_daemon import Agent, Attached, BlockingTurn, InvocationFailed, Server, Tool, ToolFailed, Turn
from forge_daemon.proto import agent_pb2, invoke_pb2
from forge_daemon.proto import values_pb2 as values
from forge_daemon.proto.agent_pb2_grpc import AgentEndpointStub

TABLE = Path(__file__).parents[2] / "shared/behaviour.json"
CASES = json.loads(TABLE.read_text("utf-8"))["cases"]
FORGECTL = os.environ.get("FORGECTL") or Path(__file__).parents[3] / "target/debug/forgectl"
DOOR = Path(FORGECTL).parent / "examples/attach-door"
SECONDS = 10


# The agent: it follows the steps with the surface of the SDK.


class Scripted:
    """An agent that follows the steps of a case, and what is known of it."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.steps = case["agent"]
        self.ran = Counter[str]()
        self.asked = 0
        self.finished = False
        self.left = asyncio.Event()
        tools = [Tool(functools.partial(self.tool, name, spec), name) for name, spec in case.get("tools", {}).items()]
        self.agent = Agent(self.answer, id="shared", version="1", tools=tools, **case.get("options", {}))

    async def tool(self, name: str, spec: dict[str, Any], **arguments: Any) -> Any:
        self.ran[name] += 1
        await asyncio.sleep(spec.get("seconds", 0))
        if "throw" in spec:
            raise RuntimeError(spec["throw"])
        return arguments if "echo" in spec else spec["result"]

    async def answer(self, turn: Turn) -> str | None:
        self.asked += 1
        try:
            answer = await self.follow(turn, self.steps, [])
            self.finished = True
            return answer
        finally:
            self.left.set()

    async def follow(self, turn: Turn, steps: list[dict[str, Any]], heard: list[str]) -> str | None:
        for step in steps:
            match next(iter(step)):
                case "say":
                    turn.say(step["say"])
                case "log":
                    turn.log(step["log"])
                case "call":
                    heard.append(await self.call(turn, step))
                case "parallel":
                    calls = [turn.start_tool(one["call"], one.get("params")) for one in step["parallel"]]
                    runs = [
                        self.heard(call.run(self.run(one))) for call, one in zip(calls, step["parallel"], strict=True)
                    ]
                    heard += await asyncio.gather(*runs)
                case "model_turn":
                    with turn.model_turn() as record:
                        await self.follow(turn, step["do"], heard)
                        for name, value in step["model_turn"].items():
                            setattr(record if name in ("model", "finish_reason") else record.usage, name, value)
                case "usage":
                    turn.usage(**step["usage"])
                case "partial_answer":
                    turn.partial_answer = step["partial_answer"]
                case "sleep":
                    await asyncio.sleep(step["sleep"])
                case "throw":
                    raise RuntimeError(step["throw"])
                case "fail":
                    raise InvocationFailed(step["fail"], step["reason"], grpc.StatusCode[step["status"]])
                case "forever":
                    while True:
                        await self.follow(turn, step["forever"], heard)
                case "return":
                    return step["return"].replace("{heard}", ", ".join(heard)).replace("{text}", turn.user_text)
                case unknown:
                    raise AssertionError(f"no such step: {unknown}")
        return None

    def run(self, step: dict[str, Any]) -> Any:
        return (
            functools.partial(self.tool, step["call"], step["tool"], **self.arguments(step)) if "tool" in step else None
        )

    @staticmethod
    def arguments(step: dict[str, Any]) -> dict[str, Any]:
        return json.loads(step["params"]) if "echo" in step["tool"] else {}

    async def call(self, turn: Turn, step: dict[str, Any]) -> str:
        return await self.heard(
            turn.call(step["call"], step.get("params"), self.run(step), call_id=step.get("call_id", ""))
        )

    @staticmethod
    async def heard(result: Any) -> str:
        try:
            return await result
        except ToolFailed as failure:
            return f"failed: {failure}"


# The daemon: it sends what the case says.


def first_frame(start: dict[str, Any]) -> agent_pb2.InvokeRequest:
    mode = start.get("mode", "LIVE")
    context = values.CallContext()
    if "budget_seconds" in start:
        context.budget.FromNanoseconds(int(start["budget_seconds"] * 1e9))
    frame = start_frame(
        start.get("text", "Hello"),
        mode=mode if isinstance(mode, int) else agent_pb2.ToolMode.Value(f"TOOL_MODE_{mode}"),
        invocation_id=start.get("invocation_id", uuid.uuid4().hex),
        want_deltas=start.get("want_deltas", True),
        max_model_turns=start.get("max_model_turns"),
        context=context,
    )
    if "probe" in start:
        json_format.ParseDict(start["probe"], frame.start.probe)
    return frame


def outcome(spec: dict[str, Any], call_id: str) -> agent_pb2.InvokeRequest:
    result = agent_pb2.ToolResult(call_id=call_id)
    if "result" in spec:
        result.result.raw = spec["result"].encode()
    elif "error" in spec:
        result.error.message = spec["error"]
    return agent_pb2.InvokeRequest(tool_result=result)


class Daemon:
    """The other side of one call."""

    def __init__(
        self,
        case: dict[str, Any],
        stub: AgentEndpointStub,
        start: agent_pb2.InvokeRequest | None,
        way: str = "dialled",
    ) -> None:
        self.case, self.start, self.way = case, start, way
        self.call = stub.Invoke()
        self.events = Events()

    async def run(self) -> tuple[grpc.StatusCode, str]:
        """Sends, and reads until the call is over: its status."""
        if self.start is None:
            if self.way == "attached":  # There every call has a first message.
                await self.call.write(agent_pb2.InvokeRequest())
            await self.call.done_writing()
        else:
            await self.call.write(self.start)
            await self.send([frame for one in self.case.get("daemon", []) if "on" not in one for frame in one["send"]])
        try:
            async for event in self.call:
                self.events.append(event)
                await self.react(event)
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass
        return await self.call.code(), await self.call.details() or ""

    async def react(self, event: invoke_pb2.InvokeResponse) -> None:
        kind = event.WhichOneof("event")
        for one in self.case.get("daemon", []):
            if one.get("on") == [kind, self.events.kinds().count(kind)]:
                await self.send(one["send"])
        stubs = self.case.get("stubs")
        if kind == "tool_started" and event.tool_started.awaits_result and stubs is not None:
            started = event.tool_started
            frame = outcome(stubs.get(started.name, {"error": f"no stub for {started.name}"}), started.call_id)
            frame.tool_result.unstubbed = started.name not in stubs
            await self.call.write(frame)

    async def send(self, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            match next(iter(frame)):
                case "tool_result":
                    which = frame["tool_result"]
                    started = self.events.of("tool_started")
                    await self.call.write(
                        outcome(frame, which if isinstance(which, str) else started[which - 1].call_id)
                    )
                case "cancel":
                    reason = agent_pb2.CancelReason.Value(f"CANCEL_REASON_{frame['cancel']}")
                    await self.call.write(agent_pb2.InvokeRequest(cancel=agent_pb2.InvokeCancel(reason=reason)))
                case "half_close":
                    await self.call.done_writing()
                case "reset":
                    self.call.cancel()
                case "start":
                    await self.call.write(self.start)
                case "unknown":
                    await self.call.write(agent_pb2.InvokeRequest.FromString(bytes([0xA2, 0x1F, 0x01, 0x41])))
                case unknown:
                    raise AssertionError(f"no such frame: {unknown}")


# What is seen, in the words of the table.


def seen(message: Any) -> dict[str, Any]:
    """The fields of an event, as the table names them."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and not field.is_repeated and not message.HasField(field.name):
            found[field.name] = None
        elif isinstance(value, values.Json):
            found[field.name] = value.raw.decode() if value.HasField("raw") else None
            found[f"malformed_{field.name}"] = value.malformed.decode() if value.HasField("malformed") else None
        elif field.enum_type is not None:
            found[field.name] = short(field.enum_type.values_by_number[value].name)
        elif isinstance(value, values.Fault):
            origin = short(values.FaultOrigin.Name(value.origin))
            found[field.name] = {
                "code": value.grpc_code,
                "reason": value.reason,
                "text": value.message,
                "origin": origin,
            }
        else:
            found[field.name] = value
    return found


def short(name: str) -> str:
    """The name of an enum's value without the enum's own."""
    for prefix in ("RESULT_SOURCE_", "TEXT_CHANNEL_", "FINISH_REASON_", "FAULT_ORIGIN_"):
        name = name.removeprefix(prefix)
    return name


def usage_of(usage: values.Usage) -> dict[str, Any]:
    found = {field.name: value for field, value in usage.ListFields() if field.name != "cost"}
    return {**found, "cost_usd": usage.cost.nano_units / 1e9} if usage.HasField("cost") else found


def compare(place: str, wanted: dict[str, Any], found: dict[str, Any], text: str) -> None:
    for name, value in wanted.items():
        if name == "contains":
            assert value in text, place
        elif isinstance(value, dict):
            assert found[name] is not None, f"{place}.{name} is missing"
            compare(f"{place}.{name}", value, found[name], found[name]["text"])
        else:
            assert found[name] == value, f"{place}.{name}"


def check_events(wanted: list[Any], events: Events) -> None:
    assert events.kinds() == [one if isinstance(one, str) else next(iter(one)) for one in wanted]
    for number, (one, event) in enumerate(zip(wanted, events, strict=True)):
        if isinstance(one, dict):
            kind = event.WhichOneof("event")
            message = getattr(event, kind)
            compare(f"events[{number}].{kind}", one[kind], seen(message), getattr(message, "message", ""))


def check_finished(wanted: dict[str, Any], finished: invoke_pb2.InvokeFinished) -> None:
    text = "".join(part.text for part in finished.response.parts)
    found = {**seen(finished), "text": text}
    found["reason"] = found["finish_reason"]
    if "usage" in wanted:
        assert (usage_of(finished.usage) if finished.HasField("usage") else None) == wanted["usage"]
    compare("finished", {name: value for name, value in wanted.items() if name != "usage"}, found, text)


async def check(see: dict[str, Any], scripted: Scripted, daemon: Daemon, status: grpc.StatusCode, details: str) -> None:
    assert status.name == see.get("status", "OK"), details
    assert see.get("details", "") in details
    if status is grpc.StatusCode.OK:
        daemon.events.check_rules()
    if "events" in see:
        check_events(see["events"], daemon.events)
    if "finished" in see:
        check_finished(see["finished"], daemon.events.finished)
    for name, times in see.get("ran", {}).items():
        assert scripted.ran[name] == times, name
    if "asked" in see:
        assert scripted.asked == see["asked"]
    if see.get("stopped"):
        await asyncio.wait_for(scripted.left.wait(), 2)
        assert not scripted.finished


@pytest.fixture(scope="module")
def door() -> Iterator[tuple[str, str]]:
    """A real daemon whose attached agents can be called (clients/shared/attach_door.rs): both addresses."""
    assert DOOR.exists(), f"{DOOR} is missing: run `cargo build --examples` (`make test` does)"
    with subprocess.Popen([DOOR], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        attach, call = (process.stdout.readline().split()[-1] for _ in range(2))
        yield attach, call
        process.terminate()


@pytest.fixture
async def served(door: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """Serves the agent of a case, and gives what calls it: one that is dialled, or one that dials."""
    monkeypatch.delenv("FORGE_PROBE", raising=False)
    async with AsyncExitStack() as stack:

        async def start(case: dict[str, Any], scripted: Any, way: str = "dialled") -> Any:
            for name, value in case.get("env", {}).items():
                monkeypatch.setenv(name, value)
            if way == "attached":
                attach, address = door
                attached = Attached(scripted.agent, attach, id=uuid.uuid4().hex)
                await stack.enter_async_context(attached)
                options = [("grpc.default_authority", attached.names[0])]
            else:
                server = Server(scripted.agent, "127.0.0.1:0")
                await server.start()
                stack.push_async_callback(server.stop, 0.1)
                address, options = server.address, []
            return AgentEndpointStub(await stack.enter_async_context(grpc.aio.insecure_channel(address, options)))

        yield start


@pytest.mark.parametrize("way", ["dialled", "attached"])
@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
async def test_the_shared_table(served, case: dict[str, Any], way: str):
    scripted = Scripted(case)
    stub = await served(case, scripted, way)
    start = None if case.get("start", {}) is None else first_frame(case.get("start", {}))
    daemon = Daemon(case, stub, start, way)
    status, details = await asyncio.wait_for(daemon.run(), SECONDS)
    await check(case["see"], scripted, daemon, status, details)
    if "again" in case:
        daemon = Daemon(case, stub, start, way)
        status, details = await asyncio.wait_for(daemon.run(), SECONDS)
        await check(case["again"], scripted, daemon, status, details)


# The same agent as a plain function, in a thread.


class Blocking(Scripted):
    """A plain function that follows the same steps with the turn of a thread."""

    def __init__(self, case: dict[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(case)
        self.loop = loop
        self.agent = Agent(self.plain_answer, id="shared", tools=self.agent.tools.values())

    def plain_answer(self, turn: BlockingTurn) -> str | None:
        self.asked += 1
        try:
            answer = self.plainly(turn, self.steps, [])
            self.finished = True
            return answer
        finally:
            self.loop.call_soon_threadsafe(self.left.set)

    def plainly(self, turn: BlockingTurn, steps: list[dict[str, Any]], heard: list[str]) -> str | None:
        for step in steps:
            match next(iter(step)):
                case "say":
                    turn.say(step["say"])
                case "log":
                    turn.log(step["log"])
                case "call":
                    try:
                        run = self.run(step)
                        heard.append(turn.call(step["call"], step.get("params"), run, step.get("call_id", "")))
                    except ToolFailed as failure:
                        heard.append(f"failed: {failure}")
                case "model_turn":
                    with turn.model_turn() as record:
                        self.plainly(turn, step["do"], heard)
                        for name, value in step["model_turn"].items():
                            setattr(record if name in ("model", "finish_reason") else record.usage, name, value)
                case "usage":
                    turn.usage(**step["usage"])
                case "partial_answer":
                    turn.partial_answer = step["partial_answer"]
                case "sleep":
                    until = time.monotonic() + step["sleep"]
                    while time.monotonic() < until and not turn.is_over:
                        time.sleep(0.02)
                    turn.log("still here")  # Leaves the function if the turn is over.
                case "throw":
                    raise RuntimeError(step["throw"])
                case "fail":
                    raise InvocationFailed(step["fail"], step["reason"], grpc.StatusCode[step["status"]])
                case "forever":
                    while True:
                        self.plainly(turn, step["forever"], heard)
                case "return":
                    return step["return"].replace("{heard}", ", ".join(heard)).replace("{text}", turn.user_text)
        return None


def has(step: Any, verb: str) -> bool:
    if isinstance(step, list):
        return any(has(one, verb) for one in step)
    return isinstance(step, dict) and (verb in step or has(list(step.values()), verb))


IN_THREADS = [case for case in CASES if not has(case["agent"], "parallel") and not case.get("env")]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in IN_THREADS])
async def test_the_shared_table_in_threads(served, case: dict[str, Any]):
    scripted = Blocking(case, asyncio.get_running_loop())
    stub = await served(case, scripted)
    start = None if case.get("start", {}) is None else first_frame(case.get("start", {}))
    daemon = Daemon(case, stub, start)
    status, details = await asyncio.wait_for(daemon.run(), SECONDS)
    await check(case["see"], scripted, daemon, status, details)


def test_every_case_has_a_name_of_its_own():
    names = [case["name"] for case in CASES]
    assert len(names) == len(set(names)) >= 50
