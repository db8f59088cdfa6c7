// Frames of an attached stream. The messages of calls stay bytes in them: what a frame costs is what came, and a
// message that cannot be read is the trouble of its call alone.
import { create, type DescMethod, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { DurationSchema } from "@bufbuild/protobuf/wkt";
import { AgentEndpoint } from "./gen/forge/agent/v1/agent_pb.js";
import { Generator } from "./gen/forge/agent/v1/generator_pb.js";
import { Simulator } from "./gen/forge/agent/v1/simulator_pb.js";
import { SnapshotProvider } from "./gen/forge/agent/v1/snapshot_pb.js";
import { Validator } from "./gen/forge/agent/v1/validator_pb.js";
import { AttachRequestSchema, type AttachResponse, AttachResponseSchema } from "./gen/forge/attach/v1/attach_pb.js";
import { millisecondsOf } from "./values.js";

/** The calls that go over a stream, in the order of their fields in `open` and in `reply`. */
const METHODS: readonly DescMethod[] = [
  AgentEndpoint.method.invoke,
  Simulator.method.nextInput,
  Validator.method.validate,
  Generator.method.generate,
  SnapshotProvider.method.capture,
  AgentEndpoint.method.describe,
];
const [OPEN, SEND, REPLY] = [2, 3, 2];
const [FIRST_OF_OPEN, FIRST_OF_REPLY] = [4, 2];
/** Bytes that a frame with a message costs besides that message. */
const COST_OF_A_FRAME = 64;

/** A call begins. */
export interface Open {
  case: "open";
  callNo: bigint;
  agentId: string;
  /** When it is given up, in milliseconds from now on. */
  timeout?: number;
  /** What is called, with the first message. Left out: a call of a later revision. */
  method?: DescMethod;
  message: Uint8Array;
}

/** A further message of an Invoke. */
export interface Send {
  case: "send";
  callNo: bigint;
  message: Uint8Array;
}

/** A frame of the daemon. */
export type Incoming = Open | Send | Exclude<AttachResponse["frame"], { case: "open" | "send" }>;
/** A frame of ours without a message of a call. */
export type Outgoing = Exclude<NonNullable<MessageInitShape<typeof AttachRequestSchema>["frame"]>, { case: "reply" }>;

/** What a frame with this message costs, in bytes of credit. */
export function costOf(message: Uint8Array): number {
  return message.length + COST_OF_A_FRAME;
}

/** Reads a frame. Throws if it is none. */
export function readFrame(bytes: Uint8Array): Incoming {
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === OPEN && wireType === WireType.LengthDelimited) return readOpen(reader.bytes());
    if (field === SEND && wireType === WireType.LengthDelimited) return readSend(reader.bytes());
    reader.skip(wireType, field);
  }
  return fromBinary(AttachResponseSchema, bytes).frame as Incoming;
}

function readOpen(bytes: Uint8Array): Open {
  const open: Open = { case: "open", callNo: 0n, agentId: "", message: new Uint8Array() };
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    const method = METHODS[field - FIRST_OF_OPEN];
    if (field === 1) open.callNo = BigInt(reader.uint64());
    else if (field === 2) open.agentId = reader.string();
    else if (field === 3) open.timeout = millisecondsOf(fromBinary(DurationSchema, reader.bytes()));
    else if (method) Object.assign(open, { method, message: reader.bytes() });
    else reader.skip(wireType, field);
  }
  return open;
}

function readSend(bytes: Uint8Array): Send {
  const send: Send = { case: "send", callNo: 0n, message: new Uint8Array() };
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === 1) send.callNo = BigInt(reader.uint64());
    else if (field === 2) send.message = reader.bytes();
    else reader.skip(wireType, field);
  }
  return send;
}

/** Writes a frame. */
export function writeFrame(frame: Outgoing): Uint8Array {
  return toBinary(AttachRequestSchema, create(AttachRequestSchema, { frame }));
}

/** Writes a frame with a message of a call. */
export function writeReply(callNo: bigint, method: DescMethod, message: Uint8Array): Uint8Array {
  const writer = new BinaryWriter().tag(REPLY, WireType.LengthDelimited).fork();
  writer.tag(1, WireType.Varint).uint64(callNo);
  writer.tag(FIRST_OF_REPLY + METHODS.indexOf(method), WireType.LengthDelimited).bytes(message);
  return writer.join().finish();
}
