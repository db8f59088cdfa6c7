"""Measures what the SDK costs: calls a second, CPU a call, and memory, of an empty agent on the SDK and on raw gRPC.

    python benches/calls.py            1,000 calls, 100 of them at a time, to each agent in turn, three times

Each agent is a process of its own, and the client is this one. CPU is the agent's, which tells more than calls a
second: the client, in Python too, is busier than any of them. Memory is what the agent holds after its calls. What is
attached is called through a real daemon, if `cargo build --examples` has built its door. README.md has results.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import grpc

from forge_daemon.proto import agent_pb2, values_pb2
from forge_daemon.proto.agent_pb2_grpc import AgentEndpointStub

HERE = Path(__file__).parent
PLAIN = "def answer(turn):\n    return 'You said: ' + turn.user_text\n"
SERVED = "from forge_daemon import serve\n\n{}\n\nserve(answer)\n"
ATTACHED = "SDK, attached"
ATTACHES = "import sys\nfrom forge_daemon import attach\n\n{}\n\nattach(answer, sys.argv[1])\n"
DOOR = HERE / "../../../target/debug/examples/attach-door"
AGENTS = {
    "raw gRPC": [str(HERE / "../samples/minimal.py")],
    "SDK": ["-c", SERVED.format("async " + PLAIN)],
    ATTACHED: ["-c", ATTACHES.format("async " + PLAIN)],
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


async def measure(address: str, pid: int, calls: int, parallel: int) -> tuple[float, float]:
    """Calls a second, and the CPU of a call in milliseconds."""
    # The door of a daemon finds the agent by its name.
    async with grpc.aio.insecure_channel(address, [("grpc.default_authority", "answer")]) as channel:
        stub, places = AgentEndpointStub(channel), asyncio.Semaphore(parallel)

        async def one() -> None:
            async with places:
                await call(stub)

        await call(stub)
        began, used = time.perf_counter(), cpu(pid)
        await asyncio.gather(*(one() for _ in range(calls)))
        return calls / (time.perf_counter() - began), (cpu(pid) - used) * 1000 / calls


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
    with ExitStack() as stack:
        door: list[str] = []
        if DOOR.exists():
            process = stack.enter_context(subprocess.Popen([DOOR], stdout=subprocess.PIPE, text=True))
            stack.callback(process.terminate)
            door = [first_line(process).split()[-1] for _ in range(2)]
        for number in range(1, arguments.rounds + 1):
            for name, command in AGENTS.items():
                where = ["--listen", "127.0.0.1:0"]
                if name == ATTACHED:
                    if not door:
                        continue
                    where = [door[0]]
                start = [sys.executable, *command, *where]
                with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as agent:
                    address = first_line(agent).removeprefix("listening on ").strip()
                    call_at = door[1] if name == ATTACHED else address
                    rate, used = asyncio.run(measure(call_at, agent.pid, arguments.calls, arguments.parallel))
                    figures = f"{rate:6.0f} calls/s  {used:5.2f} ms CPU a call  {memory(agent.pid):6.1f} MiB"
                    print(f"{number}  {name:<22} {figures}", flush=True)
                    agent.kill()
                    agent.wait()
            time.sleep(0.2)  # For the daemon to notice who has gone.


def first_line(process: "subprocess.Popen[str]") -> str:
    """What a process says first."""
    assert process.stdout is not None
    return process.stdout.readline()


if __name__ == "__main__":
    main()
