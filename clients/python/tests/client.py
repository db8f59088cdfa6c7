"""The daemon's side of a turn, with nothing but generated code."""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc

from forge_daemon.proto import agent_pb2, agent_pb2_grpc, invoke_pb2
from forge_daemon.proto import values_pb2 as values

LIVE = agent_pb2.TOOL_MODE_LIVE
STUB = agent_pb2.TOOL_MODE_STUB
ROUTING_ONLY = agent_pb2.TOOL_MODE_ROUTING_ONLY
SECONDS = 10
"""Nothing here takes so long unless it hangs."""

OnEvent = Callable[[invoke_pb2.InvokeResponse, grpc.aio.StreamStreamCall], Awaitable[None]]


def start_frame(text: str = "Hello", *, mode: int = LIVE, **fields: Any) -> agent_pb2.InvokeRequest:
    """A start frame with one message of the user."""
    message = values.Message(role=values.ROLE_USER, parts=[values.Part(text=text)])
    fields = {"invocation_id": uuid.uuid4().hex, "messages": [message], "want_deltas": True} | fields
    return agent_pb2.InvokeRequest(start=agent_pb2.InvokeStart(tool_mode=mode, **fields))


def stub_result(call_id: str, text: str) -> agent_pb2.InvokeRequest:
    """The daemon's answer to a call that waits."""
    return agent_pb2.InvokeRequest(
        tool_result=agent_pb2.ToolResult(call_id=call_id, result=values.Json(raw=text.encode()))
    )


def cancel_frame(reason: int = agent_pb2.CANCEL_REASON_USER) -> agent_pb2.InvokeRequest:
    """Asks the agent to stop."""
    return agent_pb2.InvokeRequest(cancel=agent_pb2.InvokeCancel(reason=reason))


def answering(stubs: Mapping[str, Any]) -> OnEvent:
    """Answers calls that wait as the daemon does: from stubs, or with an error if there is none."""

    async def on_event(event: invoke_pb2.InvokeResponse, call: grpc.aio.StreamStreamCall) -> None:
        started = event.tool_started
        if event.WhichOneof("event") != "tool_started" or not started.awaits_result:
            return
        if started.name in stubs:
            await call.write(stub_result(started.call_id, json.dumps(stubs[started.name])))
        else:
            error = values.Fault(message=f"no stub for {started.name}")
            result = agent_pb2.ToolResult(call_id=started.call_id, error=error, unstubbed=True)
            await call.write(agent_pb2.InvokeRequest(tool_result=result))

    return on_event


async def invoke(
    stub: agent_pb2_grpc.AgentEndpointStub, *frames: agent_pb2.InvokeRequest, on_event: OnEvent | None = None
) -> "Events":
    """Sends the frames, keeps its side open, and reads all events of a turn. Raises what the call ends with."""
    call = stub.Invoke()
    for frame in frames:
        await call.write(frame)
    events = Events()
    async with asyncio.timeout(SECONDS):
        async for event in call:
            events.append(event)
            if on_event:
                await on_event(event, call)
        assert await call.code() == grpc.StatusCode.OK
    return events


class Events(list[invoke_pb2.InvokeResponse]):
    """What an agent sent, and the rules that hold for every turn."""

    def kinds(self) -> list[str]:
        return [event.WhichOneof("event") for event in self]

    def of(self, kind: str) -> list[Any]:
        return [getattr(event, kind) for event in self if event.WhichOneof("event") == kind]

    @property
    def tools(self) -> list[str]:
        return [started.name for started in self.of("tool_started")]

    @property
    def finished(self) -> invoke_pb2.InvokeFinished:
        (finished,) = self.of("finished")
        return finished

    @property
    def reason(self) -> str:
        return invoke_pb2.FinishReason.Name(self.finished.finish_reason).removeprefix("FINISH_REASON_")

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.finished.response.parts)

    def check_rules(self) -> None:
        """The order that invoke.proto prescribes."""
        assert [event.seq for event in self] == list(range(1, len(self) + 1))
        elapsed = [event.elapsed.ToNanoseconds() for event in self]
        assert elapsed == sorted(elapsed)
        kinds = self.kinds()
        assert (kinds[0], kinds[-1]) == ("accepted", "finished")
        assert (kinds.count("accepted"), kinds.count("finished")) == (1, 1)
        assert self.finished.tool_calls == len(self.tools)
        if deltas := [one for one in self.of("text_delta") if one.channel == invoke_pb2.TEXT_CHANNEL_ANSWER]:
            after = kinds[::-1].index("tool_started") if "tool_started" in kinds else len(kinds)
            last = [
                event.text_delta.text
                for event in self[len(kinds) - after :]
                if event.text_delta.channel == invoke_pb2.TEXT_CHANNEL_ANSWER
            ]
            assert self.text in ("".join(delta.text for delta in deltas), "".join(last))
        started = [call.call_id for call in self.of("tool_started")]
        assert all(started)
        assert len(set(started)) == len(started)
        finished = [call.call_id for call in self.of("tool_finished")]
        assert sorted(finished) in ([], sorted(started))
