// One attached stream, and the calls that are open on it. Its rules stand in attach.proto.
import { EventEmitter } from "node:events";
import { type DescMethod, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { type ClientDuplexStream, Metadata, type StatusObject, status } from "@grpc/grpc-js";
import { Credit, Debt, OURS } from "./credit.js";
import { costOf, type Incoming, type Open, type Outgoing, readFrame, writeFrame, writeReply } from "./frames.js";
import type { HelloSchema, Welcome } from "./gen/forge/attach/v1/attach_pb.js";
import type { Part } from "./parts.js";
import { MAX_TIMEOUT_MS, StatusError, statusOf } from "./party.js";
import { deferred, fault, millisecondsOf } from "./values.js";

/** The path of `AttachService.Attach`. */
export const ATTACH = "/forge.attach.v1.AttachService/Attach";
/** Time for a connection, and for the daemon's welcome. */
const PATIENCE_MS = 10_000;
/** After how many intervals of pings without a frame a stream is lost. */
const SILENT_INTERVALS = 3;
/** Time that the daemon has to take the last frames. */
const CLOSING_MS = 1000;
/** Most calls that are open at a time. */
const MAX_CALLS = 256;

/** A stream to `AttachService.Attach`. */
export type Stream = ClientDuplexStream<Uint8Array, Incoming>;

/** Reads and writes for `Stream`, as grpc-js wants them. */
export const codec = {
  write: (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength),
  read: readFrame,
};

/** An attached stream, from its hello on. */
export class Session {
  /** What the daemon says first; undefined if the stream ends before that. */
  readonly welcomed: Promise<Welcome | undefined>;
  /** Why the stream is over. */
  readonly ended: Promise<StatusError>;
  readonly #stream: Stream;
  readonly #names: ReadonlySet<string>;
  readonly #parts: readonly Part[];
  readonly #calls = new Map<bigint, Call>();
  /** Those that have something to send, and no credit for it. */
  readonly #waiting = new Set<Call>();
  readonly #debt = new Debt(OURS.stream);
  readonly #idle = deferred<void>();
  #credit = new Credit(0);
  #welcome: Welcome | undefined;
  #lastCallNo = 0n;
  #isDraining = false;
  #isAcknowledged = false;
  #broken: StatusError | undefined;

  constructor(stream: Stream, hello: MessageInitShape<typeof HelloSchema>, parts: readonly Part[]) {
    this.#stream = stream;
    this.#names = new Set(hello.agents?.map(({ agentId = "" }) => agentId));
    this.#parts = parts;
    const [welcomed, ended] = [deferred<Welcome | undefined>(), deferred<StatusError>()];
    this.welcomed = welcomed.promise;
    this.ended = ended.promise;
    let silence = this.#breakAfter(PATIENCE_MS, "no welcome within 10 s");
    stream.on("data", (frame: Incoming) => {
      try {
        if (this.#welcome) {
          silence.refresh();
          return this.#take(frame);
        }
        this.#welcome = this.#begin(frame);
        clearTimeout(silence);
        const interval = this.#welcome.pingInterval ? millisecondsOf(this.#welcome.pingInterval) : 0;
        silence = this.#breakAfter(SILENT_INTERVALS * (interval || 20_000), "nothing is heard of the daemon");
        welcomed.resolve(this.#welcome);
      } catch (error) {
        this.#break(statusOf(error));
      }
    });
    stream.on("error", () => {}); // The status says it.
    stream.on("status", ({ code, details }: StatusObject) => {
      clearTimeout(silence);
      // What is open is lost, and stops.
      for (const call of this.#calls.values()) call.cancel();
      const isOk = code === status.OK;
      welcomed.resolve(undefined);
      ended.resolve(
        this.#broken ??
          new StatusError(isOk ? status.UNAVAILABLE : code, isOk ? "the daemon closed the stream" : inWords(details)),
      );
    });
    this.#tell({ case: "hello", value: hello as Extract<Outgoing, { case: "hello" }>["value"] });
  }

  /** Takes no further calls, lets the open ones end within `graceMs`, and closes the stream. */
  async leave(graceMs: number): Promise<void> {
    this.#isDraining = true;
    if (this.#welcome) {
      this.#tell({ case: "drain", value: { reason: "it was asked to end" } });
      await within(graceMs, Promise.race([this.#idle.promise, this.ended]));
    }
    for (const call of this.#calls.values()) call.cancel();
    this.#stream.end();
    await within(this.#welcome ? CLOSING_MS : 0, this.ended);
    this.#stream.cancel();
    await this.ended;
  }

  #begin(frame: Incoming): Welcome {
    if (frame.case !== "welcome") throw broken("its first frame is no welcome");
    this.#credit = new Credit(frame.value.streamWindowBytes);
    return frame.value;
  }

  #take(frame: Incoming): void {
    switch (frame.case) {
      case "open":
        this.#owe(costOf(frame.message));
        return this.#open(frame);
      case "send": {
        this.#owe(costOf(frame.message));
        const back = this.#calls.get(frame.callNo)?.take(frame.message);
        if (back) this.#tell({ case: "window", value: { callNo: frame.callNo, bytes: back } });
        return;
      }
      case "halfClose":
        return void this.#calls.get(frame.value.callNo)?.emit("end");
      case "reset":
        return this.#calls.get(frame.value.callNo)?.cancel();
      case "window": {
        const { callNo, bytes } = frame.value;
        // A call that is over needs none.
        const credit = callNo === 0n ? this.#credit : this.#calls.get(callNo)?.credit;
        if (credit && !credit.add(bytes)) throw broken("more credit was given than there can be");
        return this.#send();
      }
      case "ping":
        return this.#tell({ case: "pong", value: { nonce: frame.value.nonce } });
      case "drainAck":
        this.#isAcknowledged = true;
        return this.#look();
      case "welcome":
        throw broken("a second welcome");
      default: // A frame of a later revision.
    }
  }

  #open({ callNo, agentId, timeout, method, message }: Open): void {
    if (callNo <= this.#lastCallNo) throw broken("a call number came again");
    this.#lastCallNo = callNo;
    const refuse = (code: status, why: string, reason = "") =>
      this.#tell({ case: "end", value: { callNo, fault: fault({ grpcCode: code, message: why, reason }) } });
    // It crossed our drain: nothing of it is done, and another process may have it.
    if (this.#isDraining) return refuse(status.UNAVAILABLE, "the agent is leaving", "NOT_DELIVERED");
    const part = method && this.#parts.find(([service]) => service === method.parent);
    if (!method || !part) {
      const what = method ? `${method.parent.name}.${method.name} is not served here` : "this call is not known";
      return refuse(status.UNIMPLEMENTED, what);
    }
    if (!this.#names.has(agentId)) return refuse(status.NOT_FOUND, `there is no agent ${agentId} here`);
    if (this.#calls.size >= MAX_CALLS) return refuse(status.RESOURCE_EXHAUSTED, "too many calls are open");
    const call = new Call(method, {
      credit: new Credit(this.#welcome?.initialWindowBytes ?? 0),
      most: this.#welcome?.maxMessageBytes ?? 0,
      send: () => this.#sendOf(call),
      over: (end) => {
        this.#calls.delete(callNo);
        this.#waiting.delete(call);
        if (end) this.#tell({ case: "end", value: { callNo, ...(end.fault && { fault: end.fault }) } });
        this.#look();
      },
    });
    call.no = callNo;
    this.#calls.set(callNo, call);
    call.begin(part[1][method.localName] as Handler, message, timeout);
  }

  /** Sends what there is credit for. */
  #send(): void {
    for (const call of [...this.#waiting]) this.#sendOf(call);
  }

  #sendOf(call: Call): void {
    // Whoever has to wait stands behind the others.
    this.#waiting.delete(call);
    while (call.next && this.#credit.isLeft && call.credit.isLeft) {
      const message = call.next;
      this.#credit.spend(costOf(message));
      call.credit.spend(costOf(message));
      this.#stream.write(writeReply(call.no, call.method, message));
      call.sent();
    }
    if (call.next) this.#waiting.add(call);
  }

  #owe(cost: number): void {
    const bytes = this.#debt.owe(cost);
    if (bytes > 0) this.#tell({ case: "window", value: { callNo: 0n, bytes } });
  }

  /** Looks whether nothing more is to be done before the stream may be closed. */
  #look(): void {
    if (this.#isAcknowledged && this.#calls.size === 0) this.#idle.resolve();
  }

  #tell(frame: Outgoing): void {
    this.#stream.write(writeFrame(frame));
  }

  #break(why: StatusError): void {
    this.#broken ??= why;
    this.#stream.cancel();
  }

  #breakAfter(ms: number, why: string): NodeJS.Timeout {
    return setTimeout(() => this.#break(new StatusError(status.UNAVAILABLE, why)), ms);
  }
}

const NOTHING = new Uint8Array();

type Handler = (call: Call, answered: (error: unknown, response?: unknown) => void) => void;

/** What a call needs of its stream. */
interface Carrier {
  credit: Credit;
  /** The largest message that the daemon takes, in bytes. */
  most: number;
  /** Is called when there is something to send. */
  send: () => void;
  /** Is called when the call is over, with its end if the daemon is to be told. */
  over: (end?: End) => void;
}

interface End {
  fault?: ReturnType<typeof fault>;
}

/** A call, in the shape of one of grpc-js: its handlers are the same. */
class Call extends EventEmitter {
  no = 0n;
  /** What came with an attached call stands in its messages. */
  readonly metadata = new Metadata();
  request: unknown;
  readonly credit: Credit;
  readonly #carrier: Carrier;
  readonly #debt = new Debt(OURS.call);
  /** What waits for credit. Whoever writes knows how much that is. */
  #queue: { message: Uint8Array; sent?: (() => void) | undefined }[] = [];
  /** How much of it was sent. */
  #sent = 0;
  #end: End | undefined;
  #isOver = false;
  #deadline: NodeJS.Timeout | undefined;

  constructor(
    readonly method: DescMethod,
    carrier: Carrier,
  ) {
    super();
    this.credit = carrier.credit;
    this.#carrier = carrier;
    this.on("error", (error) => this.#endWith(statusOf(error)));
  }

  begin(handle: Handler, message: Uint8Array, timeout: number | undefined): void {
    const request = this.#read(message);
    if (request === undefined) return;
    this.request = request;
    if (timeout !== undefined) {
      this.#deadline = setTimeout(
        () => this.#breakOff(status.DEADLINE_EXCEEDED, "the time of the call is used up"),
        Math.min(timeout, MAX_TIMEOUT_MS),
      );
    }
    handle(this, (error, response) => {
      if (error) return void this.emit("error", error);
      this.write(response);
      this.end();
    });
    if (this.method.methodKind === "bidi_streaming") this.emit("data", request);
  }

  /** Takes a further message; gives the credit for it that is to be given back. */
  take(message: Uint8Array): number {
    const frame = this.#read(message);
    if (frame !== undefined) this.emit("data", frame);
    return this.#isOver ? 0 : this.#debt.owe(costOf(message));
  }

  /** Sends a message as soon as there is credit; false: `drain` will tell when. */
  write(response: unknown, sent?: () => void): boolean {
    if (this.#isOver || this.#end) return true;
    const message = toBinary(this.method.output, response as Parameters<typeof toBinary>[1]);
    if (message.length > this.#carrier.most) {
      const why = `a message has ${message.length} bytes, and the daemon takes ${this.#carrier.most}`;
      this.#breakOff(status.RESOURCE_EXHAUSTED, why);
      return true;
    }
    this.#queue.push({ message, sent });
    this.#carrier.send();
    return this.next === undefined;
  }

  /** Says that all is sent. */
  end(): void {
    this.#endWith();
  }

  /** The message that is to be sent next. */
  get next(): Uint8Array | undefined {
    return this.#queue[this.#sent]?.message;
  }

  /** The next message was sent. */
  sent(): void {
    this.#queue[this.#sent]?.sent?.();
    this.#queue[this.#sent] = { message: NOTHING };
    this.#sent += 1;
    if (this.#sent < this.#queue.length) return;
    this.#forget();
    this.emit("drain");
    if (this.#end) this.#close(this.#end);
  }

  /** The call is given up, or its stream is lost. */
  cancel(): void {
    if (this.#isOver) return;
    this.#close();
    this.emit("cancelled");
  }

  #read(message: Uint8Array): unknown {
    try {
      return fromBinary(this.method.input, message);
    } catch (error) {
      this.#breakOff(status.INTERNAL, `the message cannot be read: ${error instanceof Error ? error.message : error}`);
      return undefined;
    }
  }

  #endWith(error?: StatusError): void {
    if (this.#isOver || this.#end) return;
    this.#end = error ? { fault: fault({ grpcCode: error.code, message: error.details }) } : {};
    // What was sent before comes before.
    if (this.next === undefined) this.#close(this.#end);
  }

  #breakOff(code: status, why: string): void {
    if (this.#isOver) return;
    this.#close({ fault: fault({ grpcCode: code, message: why }) });
    this.emit("cancelled");
  }

  #close(end?: End): void {
    this.#isOver = true;
    this.#forget();
    clearTimeout(this.#deadline);
    this.#carrier.over(end);
  }

  #forget(): void {
    this.#queue = [];
    this.#sent = 0;
  }
}

/** Without what grpc-js says around the error of a connection. */
function inWords(details: string): string {
  return details.replace(
    /^No connection established\. Last error: (?:Error: )?(.*?)\.?(?: Resolution note: .*)?$/s,
    "$1",
  );
}

function broken(why: string): StatusError {
  return new StatusError(status.INTERNAL, `the daemon broke the rules of the stream: ${why}`);
}

async function within(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([work, new Promise((resolve) => (timer = setTimeout(resolve, ms)))]);
  clearTimeout(timer);
}
