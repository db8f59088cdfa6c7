"""Agents as users write them: what is refused at start, functions that block, and parts without an agent."""

import asyncio
import functools
import subprocess
import sys
import threading
import time
from typing import Any

import grpc
import pytest
from client import cancel_frame, invoke, start_frame

from forge_daemon import Agent, BlockingTurn, Server, Turn, current_turn, serve, tool
from forge_daemon.agent import agent_of
from forge_daemon.proto import agent_pb2, generator_pb2, invoke_pb2, simulator_pb2, snapshot_pb2, validator_pb2
from forge_daemon.proto import values_pb2 as values
from forge_daemon.proto.agent_pb2_grpc import AgentEndpointStub
from forge_daemon.proto.snapshot_pb2_grpc import SnapshotProviderStub
from forge_daemon.simulator import UserTurn
from forge_daemon.validator import Verdict


async def answer(turn: Turn) -> str:
    return turn.user_text


@tool
def look() -> int:
    """Looks."""
    return 5


def refused(message: str, make: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        make()
    assert str(raised.value) == message


def test_what_cannot_be_served_is_said_at_start():
    async def none() -> str:
        return ""

    async def two(turn: Turn, other: int) -> str:
        return ""

    async def more(turn: Turn, other: int = 1, *rest: int, **named: int) -> str:
        return ""

    missing = 'card.id: missing; give the agent one, for example "shop.orders"'
    refused(missing, lambda: Agent(answer, id=""))
    refused(missing, lambda: Agent(answer, id=None))  # type: ignore[arg-type]
    version = 'card.version: missing; give the agent one, for example "1.0.0"'
    refused(version, lambda: Agent(answer, id="a", version=""))
    refused('card.tools: two are called "look"', lambda: Agent(answer, id="a", tools=[look, look]))
    refused("answer: takes the turn and nothing else, but none() takes 0 arguments", lambda: agent_of(none))
    message = "answer: takes the turn and nothing else, but two(turn, other) takes 2 arguments"
    refused(message, lambda: agent_of(two))
    refused("answer: a function, not int", lambda: Agent(7, id="a"))  # type: ignore[arg-type]
    refused("agent: a function or an Agent, not int", lambda: agent_of(7))  # type: ignore[arg-type]
    refused("agent: a function or an Agent, not Server", lambda: agent_of(Server))  # type: ignore[arg-type]
    refused("simulator: a function, not UserTurn", lambda: Agent(id="a", simulator=UserTurn()))  # type: ignore[arg-type]
    refused(
        "snapshot: takes the path and nothing else, but none() takes 0 arguments", lambda: Agent(id="a", snapshot=none)
    )
    refused("max_concurrent: -1 is less than 0, which means no limit", lambda: Agent(answer, id="a", max_concurrent=-1))
    agent_of(more)


def test_a_function_is_an_agent_of_its_name():
    assert agent_of(answer).card.agent_id == "answer"
    assert agent_of(functools.partial(answer)).card.agent_id == "answer"
    assert agent_of(lambda turn: "").card.agent_id == "agent"


async def test_serve_says_what_to_do_where_an_event_loop_runs():
    with pytest.raises(TypeError, match="use `async with Server"):
        serve(answer)


def test_listen_of_the_command_line():
    code = "from forge_daemon import serve\nserve(lambda turn: '')"
    for arguments in (["--listen", "127.0.0.1:0"], ["--other", "--listen=127.0.0.1:0"]):
        with subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True) as agent:
            assert agent.stdout is not None
            assert agent.stdout.readline().startswith("listening on 127.0.0.1:")
            agent.terminate()
            assert agent.wait(10) == 0
    ended = subprocess.run([sys.executable, "-c", code, "--listen"], capture_output=True, text=True, timeout=20)
    assert (ended.returncode, ended.stderr) == (1, "--listen: expects an address, for example 127.0.0.1:50051\n")


async def test_blocking_code_holds_nobody_up(serve_answer):
    threads = set()

    def slow(turn: BlockingTurn) -> str:
        threads.add(threading.get_ident())
        time.sleep(0.3)
        return turn.user_text

    stub = await serve_answer(slow)
    began = time.monotonic()
    turns = await asyncio.gather(*(invoke(stub, start_frame(str(number))) for number in range(20)))
    assert [events.text for events in turns] == [str(number) for number in range(20)]
    assert time.monotonic() - began < 3
    assert threading.get_ident() not in threads


async def test_a_blocking_tool_of_an_async_agent_runs_in_a_thread(serve):
    where = []

    @tool
    def block() -> str:
        """Blocks."""
        where.append(threading.get_ident())
        return "done"

    async def answer(turn: Turn) -> str:
        return await turn.call(block)

    events = await invoke(await serve(Agent(answer, id="a", tools=[block])), start_frame())
    assert (events.text, where[0] != threading.get_ident()) == ('"done"', True)


async def test_a_cancel_leaves_blocking_code_at_its_next_use_of_the_turn(serve_answer):
    left = threading.Event()

    def endless(turn: BlockingTurn) -> str:
        try:
            while True:
                time.sleep(0.01)
                turn.log("still here")
        finally:
            left.set()

    events = await invoke(await serve_answer(endless), start_frame(), cancel_frame())
    assert events.reason == "CANCELLED"
    assert await asyncio.to_thread(left.wait, 2)


async def test_the_turn_that_runs_here(serve_answer):
    def plain_tool() -> str:
        turn = current_turn()
        assert isinstance(turn, Turn)
        return turn.user_text

    async def answer(turn: Turn) -> str:
        assert current_turn() is turn
        turn.reason("hm")
        call = turn.start_tool("look", {})
        call.succeed({"a": 1})
        return await turn.call("t", {}, plain_tool)

    def plain(turn: BlockingTurn) -> str:
        turn.reason("hm")
        turn.start_tool("look").succeed([1])
        return turn.user_text if current_turn() is turn else "none"

    stub = await serve_answer(answer)
    turns = await asyncio.gather(*(invoke(stub, start_frame(str(number))) for number in range(9)))
    assert [events.text for events in turns] == [f'"{number}"' for number in range(9)]
    assert turns[0].of("tool_finished")[0].result.raw == b'{"a": 1}'
    reasoning = turns[0].of("text_delta")[0]
    assert (reasoning.text, reasoning.channel) == ("hm", invoke_pb2.TEXT_CHANNEL_REASONING)
    assert (await invoke(await serve_answer(plain), start_frame("x"))).text == "x"
    assert current_turn() is None


async def test_code_that_exits_fails_its_turn_and_not_the_process(serve_answer):
    async def leave(turn: Turn) -> str:
        sys.exit(3)

    stub = await serve_answer(leave)
    for _ in range(2):
        events = await invoke(stub, start_frame())
        assert (events.reason, events.finished.error.message) == ("FAILED", "SystemExit: 3")


@pytest.mark.parametrize("given", [7, b"text", ["text"]])
async def test_an_answer_that_is_no_text(serve_answer, given):
    async def answer(turn: Turn) -> Any:
        return given

    error = (await invoke(await serve_answer(answer), start_frame())).finished.error
    assert error.message == f"TypeError: an agent answers with a text or None, not {type(given).__name__}"


async def test_a_process_without_an_agent():
    async def play(request: simulator_pb2.NextInputRequest) -> str:
        return "hello"

    async with Server(Agent(id="user", simulator=play), "127.0.0.1:0") as server:
        channel = grpc.aio.insecure_channel(server.address)
        stub = AgentEndpointStub(channel)
        assert (await stub.Describe(agent_pb2.DescribeRequest())).card.agent_id == "user"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await invoke(stub, start_frame())
        await channel.close()
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert refused.value.details() == "this process serves no agent, only other parts"


async def test_other_parts_as_plain_functions(parties):
    def play(request: simulator_pb2.NextInputRequest) -> str:
        return f"I want {request.goal}"

    def judge(request: validator_pb2.ValidateRequest) -> Verdict:
        return Verdict(True, threading.current_thread().name)

    def write(request: generator_pb2.GenerateRequest) -> Any:
        for number in range(9):
            yield {"id": str(number)}

    def capture(path: str) -> int:
        if path != "a":
            raise LookupError(path)
        return 1

    served = await parties(simulator=play, validator=judge, generator=write, snapshot=capture)
    said = await served.simulator.NextInput(simulator_pb2.NextInputRequest(goal="tea"))
    assert said.input.parts[0].text == "I want tea"
    verdict = await served.validator.Validate(validator_pb2.ValidateRequest(criteria="nice"))
    assert (verdict.passed, verdict.reason) == (True, "forge-judge")
    sent = [one async for one in served.generator.Generate(generator_pb2.GenerateRequest(count=3))]
    assert [one.case.raw for one in sent[:3]] == [b'{"id": "0"}', b'{"id": "1"}', b'{"id": "2"}']
    assert sent[3].summary.produced == 3
    captured = await SnapshotProviderStub(served.channel).Capture(snapshot_pb2.CaptureRequest(paths=["a", "b"]))
    assert (captured.data.raw, captured.unresolved["b"].message) == (b'{"a": 1}', "b")


async def test_the_probe_tells_what_arrived_and_ends_the_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORGE_PROBE", "1")
    server = Server(Agent(answer, id="a"), "127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = AgentEndpointStub(channel)
        assert "probe" in (await stub.Describe(agent_pb2.DescribeRequest())).capabilities
        frame = start_frame(options=values.Options(metadata={"k": values.Json(raw=b"1.0")}), invocation_id="one")
        frame.start.probe.steps.add(echo_request=True)
        frame.start.probe.steps.add(report_steps_of="one", repeat=2)
        logs = [line.message for line in (await invoke(stub, frame)).of("log")]
        assert logs[1:] == ["2", "3"]
        assert '"options": {"k": "d0ff5974b6aa52cf562bea5921840c032a860a91a3512f7fe8f768f6bbe005f6"}' in logs[0]
        frame = start_frame()
        frame.start.probe.steps.add(begin_drain=True)
        assert (await invoke(stub, frame)).reason == "COMPLETED"
        await asyncio.wait_for(server.wait_for_end(), 5)
