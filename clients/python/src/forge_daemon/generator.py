"""The server side of `Generator`: writes test cases for an agent."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from collections.abc import Generator as PlainGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from forge_daemon import functions
from forge_daemon.context import Context
from forge_daemon.party import ask
from forge_daemon.proto import generator_pb2, generator_pb2_grpc
from forge_daemon.proto import values_pb2 as values
from forge_daemon.values import json_of

__all__ = ["Case", "Generator", "Write"]

SERVICE = generator_pb2.DESCRIPTOR.services_by_name["Generator"].full_name

Case = dict[str, Any] | str
"""A case, or its JSON text, for example as a model wrote it: the text travels unchanged."""

Write = (
    Callable[[generator_pb2.GenerateRequest], AsyncIterator[Case]]
    | Callable[[generator_pb2.GenerateRequest], Iterator[Case]]
)
"""Writes cases: a function that yields them one by one, for as long as it is asked for more.

A plain function is asked in a thread for each case.
"""


class Generator(generator_pb2_grpc.GeneratorServicer):
    """Sends the cases that a function yields, each at once, and the summary.

    A case without an id, or with one that is taken, is discarded and counted. The function is left as soon as `count`
    cases are sent, so it need not count; if it ends before, there are no more. What is no JSON object is an error.

    `request.context.agent_id` says which generator is asked, if the process has several; one that does not know it
    raises `InvocationFailed(message, status=StatusCode.NOT_FOUND)`. Any other exception is INTERNAL: the daemon then
    knows that cases are missing.
    """

    def __init__(self, write: Write) -> None:
        """`write` is called once for every request, and only if cases are wanted."""
        self._write = write

    async def Generate(self, request: generator_pb2.GenerateRequest, context: Context) -> None:
        """Answers the daemon."""
        await ask(partial(self._generate, context), request, context)

    async def _generate(self, context: Context, request: generator_pb2.GenerateRequest) -> None:
        summary = generator_pb2.GenerateSummary()
        if request.count:
            await self._send(request, context, summary)
        await context.write(generator_pb2.GenerateResponse(summary=summary))

    async def _send(
        self,
        request: generator_pb2.GenerateRequest,
        context: Context,
        summary: generator_pb2.GenerateSummary,
    ) -> None:
        """Sends the cases, and counts them in the summary."""
        taken = set(request.existing_case_ids)
        made = self._write(request)
        cases = _in_thread(made) if isinstance(made, Iterator) else made
        if not isinstance(cases, AsyncGenerator):
            raise TypeError(f"a generator is a function that yields; this one gave {type(cases).__name__}")
        # Closed here, so that what the function holds is freed at once when it is left before its end.
        async with aclosing(cases):
            async for case in cases:
                text, case_id = _read(case)
                if case_id is None or case_id in taken:
                    summary.discarded += 1
                    # A function that never waits must not keep the budget and a cancel from being noticed.
                    await asyncio.sleep(0)
                    continue
                taken.add(case_id)
                await context.write(generator_pb2.GenerateResponse(case=text))
                summary.produced += 1
                if summary.produced == request.count:
                    break


async def _in_thread(cases: Iterator[Case]) -> AsyncGenerator[Case, None]:
    """What a plain function yields, each in a thread."""
    try:
        while (case := await functions.in_thread(next, cases, _END)) is not _END:
            yield case
    finally:
        if isinstance(cases, PlainGenerator):
            await functions.in_thread(cases.close)


_END: Any = object()


def _read(case: Case) -> tuple[values.Json, str | None]:
    """The case as it travels, and its id, if it has one."""
    if not isinstance(case, dict | str):
        raise TypeError(f"a case is a dict or JSON text, not {type(case).__name__}")
    text = json_of(case)
    # Floats, because integers may have more digits than Python reads.
    value = json.loads(text.raw, parse_int=float) if text.HasField("raw") else None
    if not isinstance(value, dict):
        raise ValueError(f"a case is a JSON object, and this is none: {str(case)[:200]}")
    case_id = value.get("id")
    return text, case_id if isinstance(case_id, str) and case_id else None
