"""The simulator and the validator, over a real server."""

import asyncio
from collections.abc import Awaitable

import grpc
import pytest
from client import SECONDS
from google.protobuf.duration_pb2 import Duration
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from forge_daemon import InvocationFailed, UserTurn, Verdict, text_of
from forge_daemon.proto import simulator_pb2, validator_pb2
from forge_daemon.proto import values_pb2 as values


async def refusal(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        async with asyncio.timeout(SECONDS):
            await call
    return failed.value.code(), failed.value.details()


def next_input(**fields: object) -> simulator_pb2.NextInputRequest:
    return simulator_pb2.NextInputRequest(**{"persona": "New", "goal": "Win", "turn_number": 2} | fields)


def validate(**fields: object) -> validator_pb2.ValidateRequest:
    return validator_pb2.ValidateRequest(**{"criteria": "Be nice"} | fields)


# The simulator.


async def test_a_simulator_says_something(parties):
    async def play(request: simulator_pb2.NextInputRequest) -> UserTurn:
        return UserTurn(f"{request.persona}, {request.goal}, {request.turn_number}", reasoning="because")

    answer = await (await parties(simulator=play)).simulator.NextInput(next_input())
    assert (answer.input.role, text_of(answer.input)) == (values.ROLE_USER, "New, Win, 2")
    assert (answer.goal_achieved, answer.gave_up, answer.reasoning) == (False, False, "because")
    assert not answer.HasField("usage")


async def test_a_simulator_may_say_more_than_text(parties):
    image = values.Part(blob=values.Blob(media_type="image/png", inline=b"x"))

    async def play(request: simulator_pb2.NextInputRequest) -> UserTurn:
        return UserTurn(values.Message(parts=[image]), usage=values.Usage(input_tokens=0))

    answer = await (await parties(simulator=play)).simulator.NextInput(next_input())
    assert (answer.input.role, list(answer.input.parts)) == (values.ROLE_USER, [image])
    assert answer.usage.HasField("input_tokens")


@pytest.mark.parametrize("end", ["goal_achieved", "gave_up"])
async def test_an_end_needs_no_input(parties, end):
    async def play(request: simulator_pb2.NextInputRequest) -> UserTurn:
        return UserTurn("ignored", **{end: True})

    answer = await (await parties(simulator=play)).simulator.NextInput(next_input())
    assert (getattr(answer, end), answer.HasField("input")) == (True, False)


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        (UserTurn(), "ValueError: the simulator gave neither an input nor an end"),
        (UserTurn(" \n"), "ValueError: the simulator gave neither an input nor an end"),
        (UserTurn(values.Message()), "ValueError: the simulator gave neither an input nor an end"),
        (None, "TypeError: a simulator returns a UserTurn or a text, not NoneType"),
        (
            UserTurn(goal_achieved=True, gave_up=True),
            "ValueError: the simulator says both that the goal is achieved and that the user gave up",
        ),
    ],
)
async def test_nothing_to_say_is_an_error(parties, turn, message):
    async def play(request: simulator_pb2.NextInputRequest) -> UserTurn:
        return turn

    served = await parties(simulator=play)
    assert await refusal(served.simulator.NextInput(next_input())) == (grpc.StatusCode.INTERNAL, message)


# The validator.


@pytest.mark.parametrize("passed", [True, False])
async def test_a_verdict_arrives_as_it_is(parties, passed):
    async def judge(request: validator_pb2.ValidateRequest) -> Verdict:
        return Verdict(passed, f"judged {request.criteria}", score=0.0, label="nice")

    answer = await (await parties(validator=judge)).validator.Validate(validate())
    assert answer.HasField("passed")
    assert (answer.passed, answer.reason, answer.label) == (passed, "judged Be nice", "nice")
    assert answer.HasField("score")
    assert not answer.HasField("usage")


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (None, "TypeError: a validator returns a Verdict, not NoneType"),
        (True, "TypeError: a validator returns a Verdict, not bool"),
        (Verdict("no"), "TypeError: passed: 'no' is neither True nor False"),
        (Verdict(None), "TypeError: passed: None is neither True nor False"),
        (Verdict(True, score=1.5), "ValueError: score: 1.5 is not between 0 and 1"),
        (Verdict(True, score=float("nan")), "ValueError: score: nan is not between 0 and 1"),
    ],
)
async def test_what_is_no_verdict_is_an_error(parties, verdict, message):
    async def judge(request: validator_pb2.ValidateRequest) -> Verdict:
        return verdict

    served = await parties(validator=judge)
    assert await refusal(served.validator.Validate(validate())) == (grpc.StatusCode.INTERNAL, message)


async def test_nothing_to_judge_by_is_an_error(parties):
    async def judge(request: validator_pb2.ValidateRequest) -> Verdict:
        raise AssertionError("is not asked")

    served = await parties(validator=judge)
    code, message = await refusal(served.validator.Validate(validate(criteria=" ")))
    assert (code, message) == (grpc.StatusCode.INVALID_ARGUMENT, "criteria: there is nothing to judge by")


# Both.


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RuntimeError("the model is gone"), grpc.StatusCode.INTERNAL, "RuntimeError: the model is gone"),
        (TimeoutError(), grpc.StatusCode.INTERNAL, "TimeoutError"),
        (asyncio.CancelledError(), grpc.StatusCode.INTERNAL, "CancelledError"),
        (ValueError("x" * 5000), grpc.StatusCode.INTERNAL, ("ValueError: " + "x" * 5000)[:900]),
        (ValueError("half \ud83d"), grpc.StatusCode.INTERNAL, "ValueError: half ?"),
        (
            InvocationFailed("no such user", status=grpc.StatusCode.NOT_FOUND),
            grpc.StatusCode.NOT_FOUND,
            "no such user",
        ),
        (
            InvocationFailed("what?", "ODD", grpc.StatusCode.INVALID_ARGUMENT),
            grpc.StatusCode.INVALID_ARGUMENT,
            "ODD: what?",
        ),
        (InvocationFailed("fine", status=grpc.StatusCode.OK), grpc.StatusCode.INTERNAL, "fine"),
    ],
    ids=["exception", "own-timeout", "own-cancel", "long", "half-a-character", "not-found", "with-reason", "ok"],
)
async def test_an_exception_is_a_status(parties, error, code, message):
    async def fail(request: object) -> None:
        raise error

    served = await parties(simulator=fail, validator=fail)
    assert await refusal(served.simulator.NextInput(next_input())) == (code, message)
    assert await refusal(served.validator.Validate(validate())) == (code, message)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Duration(nanos=50_000_000), "not done within the budget of 0.05 s"),
        (Duration(), "the budget of the call is used up"),
    ],
)
async def test_the_budget_is_a_limit(parties, budget, message):
    asked = []

    async def hang(request: object) -> None:
        asked.append(request)
        await asyncio.sleep(60)

    served = await parties(simulator=hang, validator=hang)
    context = values.CallContext(budget=budget)
    expected = grpc.StatusCode.DEADLINE_EXCEEDED, message
    assert await refusal(served.simulator.NextInput(next_input(context=context))) == expected
    assert await refusal(served.validator.Validate(validate(context=context))) == expected
    assert len(asked) == (2 if budget.nanos else 0)


async def test_one_process_plays_several(parties):
    async def play(request: simulator_pb2.NextInputRequest) -> UserTurn:
        if request.context.agent_id not in {"polite", "rude"}:
            raise InvocationFailed(f"no {request.context.agent_id}", status=grpc.StatusCode.NOT_FOUND)
        return UserTurn(f"I am {request.context.agent_id}")

    stub = (await parties(simulator=play)).simulator
    for agent_id in ("polite", "rude"):
        answer = await stub.NextInput(next_input(context=values.CallContext(agent_id=agent_id)))
        assert text_of(answer.input) == f"I am {agent_id}"
    unknown = stub.NextInput(next_input(context=values.CallContext(agent_id="silent")))
    assert await refusal(unknown) == (grpc.StatusCode.NOT_FOUND, "no silent")


async def test_what_is_not_served_is_unimplemented(parties):
    served = await parties()
    assert (await refusal(served.simulator.NextInput(next_input())))[0] == grpc.StatusCode.UNIMPLEMENTED
    assert (await refusal(served.validator.Validate(validate())))[0] == grpc.StatusCode.UNIMPLEMENTED


async def test_reflection_lists_what_is_served(parties):
    async def fail(request: object) -> None:
        raise AssertionError

    async def listed(channel: grpc.aio.Channel) -> set[str]:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        await call.done_writing()
        return {service.name for service in answer.list_services_response.service}

    names = {"forge.agent.v1.Simulator", "forge.agent.v1.Validator", "forge.agent.v1.Generator"}
    with_all = await parties(simulator=fail, validator=fail, generator=fail)
    assert await listed(with_all.channel) >= names
    assert not await listed((await parties()).channel) & names
