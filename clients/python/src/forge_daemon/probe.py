"""Follows a probe script in place of the agent's own function: what stands around it is tested without a model.

The rules are written at `ProbeScript` in probe.proto. Scripts are followed only with FORGE_PROBE=1.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from forge_daemon.proto import agent_pb2, invoke_pb2, probe_pb2
from forge_daemon.proto import values_pb2 as values
from forge_daemon.turn import Conclusion, InvocationFailed, ToolCall, ToolFailed, Turn
from forge_daemon.values import json_text, seconds

__all__ = ["Crash", "Host", "Script"]

MAX_PADDING = 4 * 1024 * 1024
"""A log line that is longer would fit into no message."""


class Crash(BaseException):
    """Ends the call as a bug would: with a status, and without its last event."""


@dataclass(frozen=True)
class Host:
    """What a script may ask of whoever runs it."""

    #: Is told of every step that is begun.
    count: Callable[[], None]
    #: How many steps the invocation with an id has begun.
    steps_of: Callable[[str], int]
    #: Begins the graceful shutdown.
    drain: Callable[[], None]
    #: The metadata that came with the call.
    metadata: Iterable[tuple[str, str | bytes]]


class Script:
    """The script of one turn."""

    def __init__(self, turn: Turn, host: Host) -> None:
        self._turn = turn
        self._host = host
        self._steps = _repeated(turn.start.probe.steps)
        self._results: list[str] = []
        self._called = False

    async def follow(self) -> Conclusion:
        """Runs the steps, in order."""
        for step in self._steps:
            self._host.count()
            end = await self._run(step)
            if end is not None:
                return end
            await asyncio.sleep(0)  # A step that never waits must not keep a cancel from being noticed.
        is_routed = self._called and self._turn.tool_mode == agent_pb2.TOOL_MODE_ROUTING_ONLY
        return Conclusion(invoke_pb2.FINISH_REASON_TOOL_CALLS if is_routed else invoke_pb2.FINISH_REASON_COMPLETED)

    async def _run(self, step: probe_pb2.ProbeStep) -> Conclusion | None:
        """Runs one step; what it gives ends the turn."""
        match step.WhichOneof("action"):
            case "emit_text":
                self._turn.say(step.emit_text)
            case "call_tool":
                await self._call([step.call_tool])
            case "parallel_tools":
                await self._call(self._following_calls(step.parallel_tools))
            case "sleep":
                await asyncio.sleep(max(seconds(step.sleep), 0))
            case "emit_padding_bytes":
                self._turn.log("x" * min(max(step.emit_padding_bytes, 0), MAX_PADDING))
            case "echo_request":
                self._turn.log(self._echo())
            case "echo_tool_results":
                self._turn.say("".join(self._results))
            case "fail":
                return Conclusion(invoke_pb2.FINISH_REASON_FAILED, error=step.fail)
            case "wait_cancel":
                await asyncio.Event().wait()
            case "finish":
                return Conclusion(step.finish.finish_reason, finished=step.finish)
            case "crash":
                raise Crash
            case "model_turn":
                self._turn._emit(model_turn=step.model_turn)
            case "report_steps_of":
                self._turn.log(str(self._host.steps_of(step.report_steps_of)))
            case "begin_drain":
                self._host.drain()
            case _:
                raise InvocationFailed("probe: a step that this agent does not know", "UNSUPPORTED_PROBE_STEP")
        return None

    def _following_calls(self, count: int) -> list[values.ToolUse]:
        uses: list[values.ToolUse] = []
        while len(uses) < count and (step := next(self._steps, None)) is not None:
            if step.WhichOneof("action") != "call_tool":
                raise InvocationFailed("probe: behind parallel_tools stands a step that is no call", "BAD_PROBE_SCRIPT")
            self._host.count()
            uses.append(step.call_tool)
        return uses

    async def _call(self, uses: Sequence[values.ToolUse]) -> None:
        """Makes the calls of one model turn: all are announced before any is answered."""
        self._turn._begin_model_turn()
        self._called = True
        calls = [
            self._turn.start_tool(use.name, use.arguments if use.HasField("arguments") else None, use.call_id)
            for use in uses
        ]
        if self._turn.tool_mode == agent_pb2.TOOL_MODE_ROUTING_ONLY:
            return
        self._results += await asyncio.gather(*(self._result(call) for call in calls))

    async def _result(self, call: ToolCall) -> str:
        if self._turn.tool_mode == agent_pb2.TOOL_MODE_LIVE:
            given = values.Json(raw=b"null") if call._params is None else call._params
            call._close(result=given)
            return json_text(given)
        try:
            return await call._wait_for_stub()
        except ToolFailed as failure:
            return str(failure)

    def _echo(self) -> str:
        """What arrived, as JSON: hashes of messages as they are encoded, and of the options' values as texts."""
        options = self._turn.options
        given = {**options.metadata, **options.extra}
        return json.dumps(
            {
                "messages": [_hash(message.SerializeToString(deterministic=True)) for message in self._turn.messages],
                "options": {key: _hash(json_text(value).encode()) for key, value in sorted(given.items())},
                "metadata": {key: value for key, value in self._host.metadata if isinstance(value, str)},
                "trace_context": self._turn.trace_context,
            }
        )


def _repeated(steps: Iterable[probe_pb2.ProbeStep]) -> Iterator[probe_pb2.ProbeStep]:
    for step in steps:
        for _ in range(max(step.repeat, 1)):
            yield step


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
