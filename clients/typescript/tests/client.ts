// The daemon's side of a turn, with nothing but generated code.
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";
import * as grpc from "@grpc/grpc-js";
import { type Agent, type Answer, Attached, type AttachOptions, Server } from "../src/index.js";
import {
  AgentEndpoint,
  type DescribeResponse,
  type InvokeRequest,
  InvokeRequestSchema,
  type InvokeResponse,
  type InvokeStartSchema,
  Role,
  serviceDefinition,
  ToolMode,
} from "../src/proto.js";

export type Frame = MessageInitShape<typeof InvokeRequestSchema>["frame"];
export type StartInit = MessageInitShape<typeof InvokeStartSchema>;

/** A start frame with one message of the user. */
export function startFrame(text = "Hello", fields: StartInit = {}): Frame {
  const messages = [{ role: Role.USER, parts: [{ content: { case: "text" as const, value: text } }] }];
  return {
    case: "start",
    value: { invocationId: randomUUID(), messages, wantDeltas: true, toolMode: ToolMode.LIVE, ...fields },
  };
}

/** A client of one service. */
export function connect(
  address: string,
  service = AgentEndpoint as Parameters<typeof serviceDefinition>[0],
  name?: string,
  options: grpc.ClientOptions = {},
) {
  const Client = grpc.makeClientConstructor(serviceDefinition(service, name), "client");
  const credentials = grpc.credentials.createInsecure();
  // biome-ignore lint/suspicious/noExplicitAny: grpc-js types no method of a client that is made at run time.
  return new Client(address, credentials, { "grpc.use_local_subchannel_pool": 1, ...options }) as any;
}

export type Call = grpc.ClientDuplexStream<InvokeRequest, InvokeResponse>;

/** Sends frames of a call. */
export function write(call: Call, frame: Frame): void {
  call.write(create(InvokeRequestSchema, { frame } as MessageInitShape<typeof InvokeRequestSchema>));
}

/** Sends a frame of a kind that a later revision may know. */
export function writeUnknown(call: Call): void {
  const frame = create(InvokeRequestSchema);
  frame.$unknown = [{ no: 500, wireType: WireType.LengthDelimited, data: Uint8Array.of(1, 65) }];
  call.write(frame);
}

/** All that came back, and how it ended. */
export interface Outcome {
  events: InvokeResponse[];
  status: grpc.StatusObject;
}

/** Sends the frames, keeps its side open, and reads all events of a turn. */
export function invoke(
  client: { invoke(): Call },
  frames: Frame[],
  onEvent: (event: InvokeResponse, call: Call, number: number) => void = () => {},
): Promise<Outcome> {
  const call = client.invoke();
  const events: InvokeResponse[] = [];
  for (const frame of frames) write(call, frame);
  if (!frames.some((frame) => frame?.case)) call.end();
  return new Promise((resolve) => {
    call.on("data", (event: InvokeResponse) => {
      events.push(event);
      onEvent(event, call, events.filter(({ event: { case: kind } }) => kind === event.event.case).length);
    });
    call.on("error", () => {}); // The status says it.
    call.on("status", (status: grpc.StatusObject) => resolve({ events, status }));
  });
}

export function describeAgent(
  client: {
    describe(request: object, done: (error: grpc.ServiceError | null, response: DescribeResponse) => void): void;
  },
  request: object,
) {
  return new Promise<DescribeResponse>((resolve, reject) =>
    client.describe(request, (error, response) => (error ? reject(error) : resolve(response))),
  );
}

/** Serves an agent for a test, and gives a client of it. */
export async function served(agent: Agent | Answer) {
  const server = new Server(agent, { listen: "127.0.0.1:0" });
  await server.start();
  const client = connect(server.address);
  return {
    client,
    server,
    async [Symbol.asyncDispose]() {
      client.close();
      await server.stop(0);
    },
  };
}

/** A real daemon whose attached agents can be called: clients/shared/attach_door.rs. */
export async function door() {
  const program = join(dirname(process.env.FORGECTL ?? ""), "examples/attach-door");
  const child = spawn(program, { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, RUST_LOG: "off" } });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const [daemon, calls] = [await lines.next(), await lines.next()].map(({ value }) => String(value).split(" ").pop());
  let names = 0;
  return {
    daemon: daemon as string,
    /** Where attached agents can be called. */
    calls: calls as string,
    /** Attaches an agent for a test, and gives a client of it. */
    async attached(agent: Agent | Answer, options: AttachOptions = {}) {
      names += 1;
      const server = new Attached(agent, daemon, { id: `agent-${names}`, ...options });
      await server.start();
      const authority = { "grpc.default_authority": server.names[0] as string };
      const client = connect(calls as string, AgentEndpoint, undefined, authority);
      return {
        client,
        server,
        async [Symbol.asyncDispose]() {
          client.close();
          await server.stop(0);
        },
      };
    },
    async close() {
      child.kill("SIGTERM");
      await once(child, "exit");
    },
  };
}
