// The smallest agent: nothing but gRPC and the generated code. It says back what it was told.
//
// Run it with `npx tsx samples/minimal.ts --listen 127.0.0.1:50051`.
import { parseArgs } from "node:util";
import * as grpc from "@grpc/grpc-js";
import { AgentEndpoint, FinishReason, type InvokeRequest, Role, serviceDefinition, ToolMode } from "forge-daemon/proto";

function invoke(call: grpc.ServerDuplexStream<InvokeRequest, object>): void {
  const refuse = (code: grpc.status, details: string) => call.emit("error", { code, details });
  call.once("data", ({ frame }: InvokeRequest) => {
    const start = frame.case === "start" ? frame.value : undefined;
    if (!start?.invocationId || !(start.toolMode in ToolMode) || start.toolMode === ToolMode.UNSPECIFIED) {
      return refuse(grpc.status.INVALID_ARGUMENT, "start, with invocation_id and tool_mode, expected");
    }
    if (start.toolMode !== ToolMode.LIVE) {
      return refuse(grpc.status.FAILED_PRECONDITION, "tool_mode: there are no tools, so LIVE only");
    }
    call.write({ seq: 1n, event: { case: "accepted", value: { invocationId: start.invocationId } } });
    const said = start.messages.at(-1)?.parts[0]?.content.value ?? "";
    const parts = [{ content: { case: "text", value: `You said: ${said}` } }];
    const value = { finishReason: FinishReason.COMPLETED, response: { role: Role.ASSISTANT, parts } };
    call.write({ seq: 2n, event: { case: "finished", value } });
    call.end();
  });
}

const { values } = parseArgs({ options: { listen: { type: "string", default: "127.0.0.1:50051" } } });
const server = new grpc.Server();
server.addService(serviceDefinition(AgentEndpoint), { invoke });
server.bindAsync(values.listen, grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(`listening on ${values.listen.replace(/:\d+$/, `:${port}`)}`);
});
