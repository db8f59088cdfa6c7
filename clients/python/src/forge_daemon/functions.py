"""Calls functions that users wrote, async or plain. A plain one runs in a thread and never holds up the event loop."""

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["call", "in_thread", "is_async", "name_of", "takes"]


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await, or to iterate over with `async for`."""
    while isinstance(function, functools.partial):
        function = function.func
    candidates = (function, getattr(type(function), "__call__", None))  # noqa: B004
    return any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in candidates)


def name_of(function: Callable[..., Any]) -> str:
    """What people call it."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", None) or type(function).__name__)


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What an async function gives, or a plain one in a thread of its own. What can be awaited is awaited."""
    result = function(*arguments) if is_async(function) else await in_thread(function, *arguments)
    return await result if inspect.isawaitable(result) else result


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a function in a thread of its own, with the context variables of the caller.

    A thread cannot be stopped. If the caller is cancelled, the function runs on and nobody hears of it; and the
    process does not wait for it when it ends.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    future: asyncio.Future[Any] = loop.create_future()

    def done(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(function, *arguments)
        except StopIteration as stop:
            error = RuntimeError(f"{name_of(function)} raised StopIteration")  # No future takes it.
            error.__cause__ = stop
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # The loop is closed, so nobody waits.
            loop.call_soon_threadsafe(done, result, error)

    threading.Thread(target=work, name=f"forge-{name_of(function)}", daemon=True).start()
    return await future


def takes(function: Callable[..., Any], count: int, what: str, whole: str) -> None:
    """Raises TypeError unless the function can be called with `count` values.

    `what` is the place, for example `answer`, and `whole` says what it takes.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # Some that are written in C do not say.
    try:
        signature.bind(*[None] * count)
    except TypeError:
        names = ", ".join(str(one.replace(annotation=one.empty)) for one in signature.parameters.values())
        given = f"{name_of(function)}({names})"
        wanted = len([one for one in signature.parameters.values() if one.default is one.empty])
        arguments = "1 argument" if wanted == 1 else f"{wanted} arguments"
        raise TypeError(f"{what}: takes {whole} and nothing else, but {given} takes {arguments}") from None
