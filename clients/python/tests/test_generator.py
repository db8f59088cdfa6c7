"""The generator, over a real server."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from client import SECONDS
from google.protobuf.duration_pb2 import Duration

from forge_daemon import InvocationFailed
from forge_daemon.generator import Write
from forge_daemon.proto import generator_pb2
from forge_daemon.proto import values_pb2 as values


def writing(cases: Iterable[Any], asked: list[int] | None = None) -> Write:
    """A generator that has these cases, and notes for how many it was asked."""

    async def write(request: generator_pb2.GenerateRequest) -> AsyncIterator[Any]:
        for number, case in enumerate(cases, 1):
            if asked is not None:
                asked.append(number)
            yield case

    return write


def failing(error: BaseException, cases: Iterable[Any] = ()) -> Write:
    """A generator that fails when it has written these cases."""

    async def write(request: generator_pb2.GenerateRequest) -> AsyncIterator[Any]:
        for case in cases:
            yield case
        raise error

    return write


async def generate(served: SimpleNamespace, count: int = 10, **fields: Any) -> SimpleNamespace:
    """What a daemon gets: the texts of the cases, the summary if one came, and the status."""
    call = served.generator.Generate(generator_pb2.GenerateRequest(count=count, **fields))
    answer = SimpleNamespace(cases=[], summary=None)
    async with asyncio.timeout(SECONDS):
        try:
            async for item in call:
                assert answer.summary is None, "something came after the summary"
                if item.WhichOneof("item") == "case":
                    answer.cases.append(item.case.raw.decode())
                else:
                    answer.summary = item.summary
        except grpc.aio.AioRpcError:
            assert answer.summary is None
        answer.status = await call.code(), await call.details()
    return answer


def counts(answer: SimpleNamespace) -> tuple[int, int]:
    assert answer.status[0] == grpc.StatusCode.OK, answer.status
    assert not answer.summary.HasField("usage")
    return answer.summary.produced, answer.summary.discarded


async def test_cases_and_a_summary(parties):
    text = '{"input": "Hi",\n  "n": 9007199254740993, "id": "b"}'
    answer = await generate(await parties(generator=writing([{"id": "a", "input": "Grüße"}, text])))
    assert answer.cases == ['{"id": "a", "input": "Grüße"}', text]
    assert counts(answer) == (2, 0)


async def test_the_request_arrives(parties):
    async def write(request: generator_pb2.GenerateRequest) -> AsyncIterator[dict[str, Any]]:
        yield {"id": f"{request.context.agent_id} for {request.target.agent_id}: {request.focus}"}

    served = await parties(generator=write)
    context = values.CallContext(agent_id="gen")
    answer = await generate(served, context=context, focus="edge-cases", target={"agent_id": "shop"})
    assert answer.cases == ['{"id": "gen for shop: edge-cases"}']


async def test_a_case_is_sent_before_the_next_is_written(parties):
    is_seen = asyncio.Event()

    async def write(request: generator_pb2.GenerateRequest) -> AsyncIterator[dict[str, Any]]:
        yield {"id": "a"}
        await is_seen.wait()
        yield {"id": "b"}

    served = await parties(generator=write)
    call = served.generator.Generate(generator_pb2.GenerateRequest(count=2))
    async with asyncio.timeout(SECONDS):
        assert json.loads((await call.read()).case.raw) == {"id": "a"}
        is_seen.set()
        assert json.loads((await call.read()).case.raw) == {"id": "b"}
        assert (await call.read()).summary.produced == 2
        assert await call.read() is grpc.aio.EOF


@pytest.mark.parametrize(("count", "produced"), [(1, 1), (3, 3), (5, 4)])
async def test_never_more_than_are_wanted(parties, count, produced):
    asked: list[int] = []
    answer = await generate(await parties(generator=writing([{"id": str(n)} for n in range(4)], asked)), count)
    assert [json.loads(case)["id"] for case in answer.cases] == [str(n) for n in range(produced)]
    assert counts(answer) == (produced, 0)
    assert len(asked) == produced, "cases were written that nobody wanted"


async def test_what_a_function_holds_is_freed_when_it_is_left(parties):
    freed = []

    async def write(request: generator_pb2.GenerateRequest) -> AsyncIterator[dict[str, Any]]:
        try:
            while True:
                yield {"id": str(len(freed))}
        finally:
            freed.append("yes")

    answer = await generate(await parties(generator=write), 1)
    assert (counts(answer), freed) == ((1, 0), ["yes"])


async def test_nothing_wanted_is_only_a_summary(parties):
    answer = await generate(await parties(generator=failing(AssertionError("is not asked"))), 0)
    assert (answer.cases, counts(answer)) == ([], (0, 0))


async def test_cases_without_an_id_of_their_own_are_discarded(parties):
    cases = [
        {"id": "a"}, {"id": "taken"}, {"id": "a", "input": "another"}, '{"id": "a"}', {}, {"id": ""}, {"id": 7},
        '{"id": 7}', {"id": None}, {"id": "b"}, {"id": "c"},
    ]  # fmt: skip
    asked: list[int] = []
    served = await parties(generator=writing(cases, asked))
    answer = await generate(served, 2, existing_case_ids=["taken", "other"])
    assert answer.cases == ['{"id": "a"}', '{"id": "b"}']
    assert counts(answer) == (2, 8)
    assert asked[-1] == 10


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("Here you are", "ValueError: a case is a JSON object, and this is none: Here you are"),
        ('{"id": "a"', 'ValueError: a case is a JSON object, and this is none: {"id": "a"'),
        ('[{"id": "a"}]', 'ValueError: a case is a JSON object, and this is none: [{"id": "a"}]'),
        ('{"id": "\ud83d"}', 'ValueError: a case is a JSON object, and this is none: {"id": "?"}'),
        ("x" * 201, f"ValueError: a case is a JSON object, and this is none: {'x' * 200}"),
        (None, "TypeError: a case is a dict or JSON text, not NoneType"),
        ([{"id": "a"}], "TypeError: a case is a dict or JSON text, not list"),
        ({"id": {1}}, "TypeError: Object of type set is not JSON serializable"),
    ],
)
async def test_what_is_no_case_is_an_error(parties, case, message):
    answer = await generate(await parties(generator=writing([{"id": "first"}, case])))
    assert answer.cases == ['{"id": "first"}']
    assert answer.status == (grpc.StatusCode.INTERNAL, message)


async def test_a_number_of_any_length_is_json(parties):
    text = '{"id": "a", "n": ' + "1" * 5000 + "}"
    answer = await generate(await parties(generator=writing([text])))
    assert (answer.cases, counts(answer)) == ([text], (1, 0))


async def test_a_function_that_does_not_yield_is_an_error(parties):
    def write(request: generator_pb2.GenerateRequest) -> list[dict[str, Any]]:
        return [{"id": "a"}]

    answer = await generate(await parties(generator=write))
    message = "TypeError: a generator is a function that yields; this one gave list"
    assert answer.status == (grpc.StatusCode.INTERNAL, message)


@pytest.mark.parametrize("written", [[], [{"id": "a"}]], ids=["before", "after"])
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RuntimeError("the model is gone"), grpc.StatusCode.INTERNAL, "RuntimeError: the model is gone"),
        (asyncio.CancelledError(), grpc.StatusCode.INTERNAL, "CancelledError"),
        (
            InvocationFailed("no such generator", status=grpc.StatusCode.NOT_FOUND),
            grpc.StatusCode.NOT_FOUND,
            "no such generator",
        ),
        (
            InvocationFailed("what?", "ODD", grpc.StatusCode.INVALID_ARGUMENT),
            grpc.StatusCode.INVALID_ARGUMENT,
            "ODD: what?",
        ),
    ],
    ids=["exception", "own-cancel", "not-found", "with-reason"],
)
async def test_an_exception_is_a_status(parties, written, error, code, message):
    answer = await generate(await parties(generator=failing(error, written)))
    assert len(answer.cases) == len(written)
    assert (answer.summary, answer.status) == (None, (code, message))


async def slowly(request: generator_pb2.GenerateRequest) -> AsyncIterator[dict[str, Any]]:
    yield {"id": "a"}
    await asyncio.sleep(60)


async def the_same(request: generator_pb2.GenerateRequest) -> AsyncIterator[dict[str, Any]]:
    while True:
        yield {"id": "a"}


@pytest.mark.parametrize("write", [slowly, the_same])
async def test_the_budget_is_a_limit(parties, write):
    served = await parties(generator=write)
    answer = await generate(served, context=values.CallContext(budget=Duration(nanos=100_000_000)))
    assert answer.cases == ['{"id": "a"}']
    assert answer.status == (grpc.StatusCode.DEADLINE_EXCEEDED, "not done within the budget of 0.1 s")
    answer = await generate(served, context=values.CallContext(budget=Duration()))
    assert answer.cases == []
    assert answer.status == (grpc.StatusCode.DEADLINE_EXCEEDED, "the budget of the call is used up")


@pytest.mark.parametrize("pause", [0, 60])
async def test_a_daemon_that_has_enough_ends_the_call(parties, pause):
    ended = asyncio.Event()

    async def write(request: generator_pb2.GenerateRequest) -> AsyncIterator[dict[str, Any]]:
        try:
            yield {"id": "a"}
            while True:
                await asyncio.sleep(pause)
                yield {"id": "a"}
        finally:
            ended.set()

    call = (await parties(generator=write)).generator.Generate(generator_pb2.GenerateRequest(count=9))
    async with asyncio.timeout(SECONDS):
        await call.read()
        call.cancel()
        await ended.wait()


async def test_what_is_not_served_is_unimplemented(parties):
    assert (await generate(await parties())).status[0] == grpc.StatusCode.UNIMPLEMENTED
