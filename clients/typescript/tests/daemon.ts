// A daemon that is played by hand, for what a real one never does.
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import {
  type AttachRequest,
  type AttachResponse,
  AttachResponseSchema,
  AttachService,
  type Hello,
  type Welcome,
  type WelcomeSchema,
} from "../src/gen/forge/attach/v1/attach_pb.js";
import { InvokeRequestSchema, type InvokeResponse, serviceDefinition, ToolMode } from "../src/proto.js";
import { durationOf } from "../src/values.js";
import { startFrame } from "./client.js";

type Frame = NonNullable<MessageInitShape<typeof AttachResponseSchema>["frame"]>;
type Raw = grpc.ServerDuplexStream<AttachRequest, AttachResponse>;

const WELCOME = {
  revision: 1,
  sessionId: "first",
  initialWindowBytes: 256 * 1024,
  streamWindowBytes: 4 * 1024 * 1024,
  maxMessageBytes: 4 * 1024 * 1024,
} satisfies MessageInitShape<typeof WelcomeSchema>;

/** One stream of an agent. */
export class Stream {
  readonly frames: AttachRequest["frame"][] = [];
  /** How the agent closed its side: true for an orderly end. */
  isEnded = false;
  isGone = false;
  /** Whether it lets the agent leave. */
  lets = true;
  #opened = 0n;
  #heard: () => void = () => {};

  constructor(readonly raw: Raw) {
    raw.on("data", ({ frame }: AttachRequest) => {
      this.frames.push(frame);
      if (frame.case === "drain" && this.lets) this.send({ case: "drainAck", value: { lastCallNo: this.#opened } });
      this.#heard();
    });
    raw.on("end", () => {
      this.isEnded = true;
      raw.end();
      this.#heard();
    });
    raw.on("cancelled", () => {
      this.isGone = true;
      this.#heard();
    });
    raw.on("error", () => {});
  }

  send(frame: Frame): void {
    this.raw.write(create(AttachResponseSchema, { frame }));
  }

  /** Ends the stream with a status. */
  refuse(code: grpc.status, details: string): void {
    this.raw.emit("error", { code, details });
  }

  welcome(more: Partial<Welcome> = {}): void {
    this.send({ case: "welcome", value: { ...WELCOME, ...more } });
  }

  /** Opens an Invoke for the agent `a`; gives its number. */
  invoke(
    text = "Hello",
    more: Partial<{ agentId: string; callNo: bigint; wantDeltas: boolean; timeoutMs: number }> = {},
  ): bigint {
    const { agentId = "a", callNo = this.#opened + 1n, wantDeltas = false, timeoutMs } = more;
    this.#opened = callNo;
    const frame = startFrame(text, { toolMode: ToolMode.LIVE, wantDeltas });
    this.send({
      case: "open",
      value: {
        callNo,
        agentId,
        ...(timeoutMs && { timeout: durationOf(timeoutMs) }),
        call: { case: "invoke", value: create(InvokeRequestSchema, { frame } as never) },
      },
    });
    return callNo;
  }

  /** Gives credit of the stream, or of a call, for what was sent. */
  credit(callNo: bigint, bytes: number): void {
    this.send({ case: "window", value: { callNo, bytes } });
  }

  events(callNo: bigint): InvokeResponse[] {
    return this.frames.flatMap((frame) =>
      frame.case === "reply" && frame.value.callNo === callNo && frame.value.payload.case === "invoke"
        ? [frame.value.payload.value]
        : [],
    );
  }

  /** What a call has cost the agent so far, in credit. */
  cost(callNo: bigint, schema: Parameters<typeof toBinary>[0]): number {
    return this.events(callNo).reduce((sum, event) => sum + toBinary(schema, event).length + 64, 0);
  }

  end(callNo: bigint) {
    return this.frames.flatMap((frame) =>
      frame.case === "end" && frame.value.callNo === callNo ? [frame.value] : [],
    )[0];
  }

  hello(): Hello {
    const [first] = this.frames;
    if (first?.case !== "hello") throw new Error(`the first frame is ${first?.case}`);
    return first.value;
  }

  /** Waits until `look` finds something. */
  async until<T>(look: () => T | undefined | false): Promise<T> {
    for (;;) {
      const found = look();
      if (found !== undefined && found !== false) return found;
      await new Promise<void>((resolve) => {
        this.#heard = resolve;
      });
    }
  }
}

/** Listens, and does with each stream what `begin` says when its hello is there. */
export async function played(
  begin: (stream: Stream, number: number) => void,
  credentials = grpc.ServerCredentials.createInsecure(),
) {
  const streams: Stream[] = [];
  const tokens: (grpc.MetadataValue | undefined)[] = [];
  const server = new grpc.Server();
  server.addService(serviceDefinition(AttachService), {
    attach(raw: Raw) {
      const stream = new Stream(raw);
      tokens.push(raw.metadata.get("authorization")[0]);
      const number = streams.push(stream);
      void stream.until(() => stream.frames.length > 0).then(() => begin(stream, number));
    },
  });
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", credentials, (error, port) => (error ? reject(error) : resolve(port))),
  );
  return {
    address: `127.0.0.1:${port}`,
    streams,
    tokens,
    async [Symbol.asyncDispose]() {
      server.forceShutdown();
    },
  };
}
