// The daemon's side of a turn, with nothing but generated code.
import { randomUUID } from "node:crypto";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";
import * as grpc from "@grpc/grpc-js";
import { type Agent, type Answer, Server } from "../src/index.js";
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
) {
  const Client = grpc.makeClientConstructor(serviceDefinition(service, name), "client");
  // biome-ignore lint/suspicious/noExplicitAny: grpc-js types no method of a client that is made at run time.
  return new Client(address, grpc.credentials.createInsecure(), { "grpc.use_local_subchannel_pool": 1 }) as any;
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
  if (frames.length === 0) call.end();
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
