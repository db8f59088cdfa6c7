"""A minimal agent for Forge: it greets, and says so when it cannot do more."""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from forge.agent.v1 import agent_pb2, agent_pb2_grpc, invoke_pb2, values_pb2


def answer(message: str) -> str:
    """Your agent goes here."""
    if message.startswith("Hello, I am "):
        return f"Hello {message.removeprefix('Hello, I am ')}, nice to meet you."
    return "Sorry, all I can do is greet people: say 'Hello, I am ...' and get a greeting."


class Agent(agent_pb2_grpc.AgentEndpointServicer):
    def Describe(self, request, context):
        card = agent_pb2.AgentCard(agent_id="hello", version="1")
        return agent_pb2.DescribeResponse(revision=1, instance_id="1", card=card)

    def Invoke(self, frames, context):
        start = next(frames).start
        # At once, before any model is called: the daemon waits for it.
        yield invoke_pb2.InvokeResponse(seq=1, accepted=invoke_pb2.InvokeAccepted(invocation_id=start.invocation_id))
        text = answer(start.messages[-1].parts[0].text)
        response = values_pb2.Message(role=values_pb2.ROLE_ASSISTANT, parts=[values_pb2.Part(text=text)])
        yield invoke_pb2.InvokeResponse(seq=2, finished=invoke_pb2.InvokeFinished(response=response))


listen = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"
# Without the option two agents would share a port in silence.
server = grpc.server(ThreadPoolExecutor(max_workers=10), options=[("grpc.so_reuseport", 0)])
agent_pb2_grpc.add_AgentEndpointServicer_to_server(Agent(), server)
try:
    port = server.add_insecure_port(listen)
except RuntimeError:
    sys.exit(f"cannot listen on {listen}: is the port taken?")
server.start()
print(f"listening on 127.0.0.1:{port}", flush=True)
server.wait_for_termination()
