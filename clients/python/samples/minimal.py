"""The smallest agent: nothing but gRPC and the generated code. It says back what it was told."""

import argparse
import asyncio
import sys

import grpc

from forge_daemon.proto import agent_pb2, agent_pb2_grpc, invoke_pb2, values_pb2


class Parrot(agent_pb2_grpc.AgentEndpointServicer):
    async def Invoke(self, frames, context):
        # Without a start frame this is an empty one, which is refused like a start frame without an id.
        start = (await anext(aiter(frames), agent_pb2.InvokeRequest())).start
        if not start.invocation_id or start.tool_mode not in agent_pb2.ToolMode.values()[1:]:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "start, with invocation_id and tool_mode, expected")
        if start.tool_mode != agent_pb2.TOOL_MODE_LIVE:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "tool_mode: there are no tools, so LIVE only")
        accepted = invoke_pb2.InvokeAccepted(invocation_id=start.invocation_id)
        yield invoke_pb2.InvokeResponse(seq=1, accepted=accepted)
        answer = "You said: " + start.messages[-1].parts[0].text
        message = values_pb2.Message(role=values_pb2.ROLE_ASSISTANT, parts=[values_pb2.Part(text=answer)])
        finished = invoke_pb2.InvokeFinished(finish_reason=invoke_pb2.FINISH_REASON_COMPLETED, response=message)
        yield invoke_pb2.InvokeResponse(seq=2, finished=finished)


async def main(listen: str) -> None:
    # Or two agents would share a port in silence.
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    agent_pb2_grpc.add_AgentEndpointServicer_to_server(Parrot(), server)
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError:
        sys.exit(f"cannot listen on {listen}: is the port taken?")
    await server.start()
    print(f"listening on {listen.rpartition(':')[0]}:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", default="127.0.0.1:50051")
    asyncio.run(main(parser.parse_args().listen))
