"""Measures what the SDK costs: calls a second, and memory, of an empty agent on the SDK and of the same on raw gRPC.

    python benches/calls.py            1,000 calls, 100 of them at a time, to each agent in turn, three times

Each agent is a process of its own, and the client is this one. Memory is what the agent holds after its calls.
"""

import argparse
import asyncio
import subprocess
import sys
import time
import uuid
from pathlib import Path

import grpc

from forge_daemon.proto import agent_pb2, values_pb2
from forge_daemon.proto.agent_pb2_grpc import AgentEndpointStub

HERE = Path(__file__).parent
PLAIN = "def answer(turn):\n    return 'You said: ' + turn.user_text\n"
SERVED = "from forge_daemon import serve\n\n{}\n\nserve(answer)\n"
AGENTS = {
    "raw gRPC": [str(HERE / "../samples/minimal.py")],
    "SDK": ["-c", SERVED.format("async " + PLAIN)],
    "SDK, a plain function": ["-c", SERVED.format(PLAIN)],
}


async def call(stub: AgentEndpointStub) -> None:
    """One call, from the start frame to the end of the stream."""
    message = values_pb2.Message(role=values_pb2.ROLE_USER, parts=[values_pb2.Part(text="Hello")])
    start = agent_pb2.InvokeStart(
        invocation_id=uuid.uuid4().hex, tool_mode=agent_pb2.TOOL_MODE_LIVE, messages=[message]
    )
    stream = stub.Invoke()
    await stream.write(agent_pb2.InvokeRequest(start=start))
    last = None
    async for event in stream:
        last = event
    assert last is not None
    assert last.finished.response.parts[0].text == "You said: Hello"


async def measure(address: str, calls: int, parallel: int) -> float:
    """Calls a second."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub, places = AgentEndpointStub(channel), asyncio.Semaphore(parallel)

        async def one() -> None:
            async with places:
                await call(stub)

        await call(stub)
        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(calls)))
        return calls / (time.perf_counter() - began)


def memory(pid: int) -> float:
    """What a process holds, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    """Prints a line an agent and round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--parallel", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for number in range(1, arguments.rounds + 1):
        for name, command in AGENTS.items():
            listen = [sys.executable, *command, "--listen", "127.0.0.1:0"]
            with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as agent:
                assert agent.stdout is not None
                address = agent.stdout.readline().removeprefix("listening on ").strip()
                rate = asyncio.run(measure(address, arguments.calls, arguments.parallel))
                print(f"{number}  {name:<22} {rate:7.0f} calls/s  {memory(agent.pid):6.1f} MiB", flush=True)
                agent.kill()


if __name__ == "__main__":
    main()
