"""A turn for plain functions, which run in a thread: the same names, and what is awaited elsewhere blocks here."""

import asyncio
import concurrent.futures
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from forge_daemon.proto import agent_pb2, invoke_pb2
from forge_daemon.proto import values_pb2 as values
from forge_daemon.tools import Tool
from forge_daemon.turn import EndOfTurn, ToolCall, Turn

__all__ = ["BlockingToolCall", "BlockingTurn"]

T = TypeVar("T")


class BlockingTurn:
    """What to answer, and everything that can be reported while answering it, from a thread.

    When the turn is over, because it was cancelled or its time is used up, the next use of it leaves the function. A
    thread cannot be stopped in any other way, so a function that works for long without the turn may ask `is_over`.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._is_over

    @property
    def start(self) -> agent_pb2.InvokeStart:
        """The frame that began the turn."""
        return self._turn.start

    @property
    def messages(self) -> list[values.Message]:
        """The whole conversation, oldest first; the last message is the one to answer."""
        return self._turn.messages

    @property
    def user_text(self) -> str:
        """The text of the last message."""
        return self._turn.user_text

    @property
    def tool_mode(self) -> int:
        """What happens to tool calls: a value of `ToolMode`. `call` and `BlockingToolCall.run` already obey it."""
        return self._turn.tool_mode

    @property
    def options(self) -> values.Options:
        """The options of the case."""
        return self._turn.options

    @property
    def context(self) -> values.CallContext:
        """Run, suite, case, budget and trace context."""
        return self._turn.context

    @property
    def trace_context(self) -> dict[str, str]:
        """The W3C values `traceparent`, `tracestate` and `baggage`, as far as they came."""
        return self._turn.trace_context

    @property
    def partial_answer(self) -> str:
        """What to answer if the turn ends before the function returns."""
        return self._do(lambda: self._turn.partial_answer)

    @partial_answer.setter
    def partial_answer(self, text: str) -> None:
        self._do(lambda: setattr(self._turn, "partial_answer", text))

    def say(self, text: str) -> None:
        """Adds a piece to the answer, and sends it at once if somebody watches."""
        self._do(lambda: self._turn.say(text))

    def reason(self, text: str) -> None:
        """Sends a piece of the model's reasoning: see `Turn.reason`."""
        self._do(lambda: self._turn.reason(text))

    def log(self, message: str, level: str = "info") -> None:
        """Sends a line to people who debug the agent."""
        self._do(lambda: self._turn.log(message, level))

    def usage(self, **measured: Any) -> None:
        """Adds to what the whole turn has consumed: see `Turn.usage`."""
        self._do(lambda: self._turn.usage(**measured))

    @contextmanager
    def model_turn(self) -> Iterator[invoke_pb2.ModelTurn]:
        """Put it around a call of the model: see `Turn.model_turn`."""
        inside = self._turn.model_turn()
        record = self._do(inside.__enter__)
        try:
            yield record
        except BaseException as error:
            raised = error
            if not self._do(lambda: inside.__exit__(type(raised), raised, raised.__traceback__)):
                raise
        else:
            self._do(lambda: inside.__exit__(None, None, None))

    def start_tool(
        self, name: str, params: Any = None, call_id: str = "", *, params_unknown: str | None = None
    ) -> "BlockingToolCall":
        """Announces a call that the model has made: see `Turn.start_tool`."""
        call = self._do(lambda: self._turn.start_tool(name, params, call_id, params_unknown=params_unknown))
        return BlockingToolCall(self, call)

    def call(
        self,
        tool: str | Tool[..., Any],
        params: Any = None,
        run: Callable[[], Any] | None = None,
        call_id: str = "",
    ) -> str:
        """Announces a tool call and runs it, in this thread: see `Turn.call`."""
        name = tool.name if isinstance(tool, Tool) else tool
        return self.start_tool(name, params, call_id).run(tool if run is None and isinstance(tool, Tool) else run)

    def stop_if_routing_only(self) -> None:
        """Leaves the turn if its tools are only announced."""
        self._do(self._turn.stop_if_routing_only)

    # For the endpoint, on the event loop.

    def _end(self) -> None:
        self._is_over = True
        for waiting in list(self._waiting):
            waiting.cancel()

    # From the thread.

    def _do(self, action: Callable[[], T]) -> T:
        """Does something on the event loop, and waits for it."""

        async def act() -> T:
            return action()

        return self._wait(act())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_over:
            work.close()
            raise EndOfTurn
        future = asyncio.run_coroutine_threadsafe(_kept(work), self._loop)
        self._waiting.add(future)
        try:
            if self._is_over:
                future.cancel()
            result, error = future.result()
        except concurrent.futures.CancelledError:
            raise EndOfTurn from None
        finally:
            self._waiting.discard(future)
        if error is not None:
            raise error
        return result  # type: ignore[return-value]


class BlockingToolCall:
    """A call that the model has made and that has been announced."""

    def __init__(self, turn: BlockingTurn, call: ToolCall) -> None:
        self.name = call.name
        self.call_id = call.call_id
        self._turn = turn
        self._call = call

    @property
    def is_open(self) -> bool:
        """Whether it has neither succeeded nor failed yet."""
        return self._call.is_open

    def succeed(self, result: Any) -> None:
        """Closes a call that something else has run, with what it returned."""
        self._turn._do(lambda: self._call.succeed(result))

    def fail(self, message: str) -> None:
        """Closes a call that cannot be run."""
        self._turn._do(lambda: self._call.fail(message))

    def run(self, run: Callable[[], Any] | Tool[..., Any] | None = None) -> str:
        """Gives the text for the model: see `ToolCall.run`. The tool runs in this thread."""
        self._turn.stop_if_routing_only()
        if self._turn.tool_mode == agent_pb2.TOOL_MODE_STUB:
            return self._turn._wait(self._call._wait_for_stub())
        try:
            result = self._call._function(run)()
            if inspect.isawaitable(result):
                try:
                    result = self._turn._wait(_awaited(result))
                finally:
                    if inspect.iscoroutine(result) and inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
                        result.close()  # The turn was over before it began.
        except Exception as error:
            failure = error
            raise self._turn._do(lambda: self._call._failed(failure)) from error
        return self._turn._do(lambda: self._call._succeeded(result))


async def _awaited(result: Awaitable[T]) -> T:
    return await result


async def _kept(work: Coroutine[Any, Any, T]) -> tuple[T | None, BaseException | None]:
    """What it gave, or raised: futures of another thread do not take every exception."""
    try:
        return await work, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error
