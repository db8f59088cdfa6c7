// Follows a ProbeScript in place of the agent's code, so that this SDK can be tested without a model. probe.proto
// says what each step means.
import { createHash } from "node:crypto";
import { type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import type { Metadata } from "@grpc/grpc-js";
import { InvocationFailed, ToolFailed } from "./errors.js";
import { ToolMode } from "./gen/forge/agent/v1/agent_pb.js";
import { FinishReason, type InvokeFinishedSchema } from "./gen/forge/agent/v1/invoke_pb.js";
import type { ProbeScript, ProbeStep } from "./gen/forge/agent/v1/probe_pb.js";
import { MessageSchema, type ToolUse } from "./gen/forge/agent/v1/values_pb.js";
import { jsonText } from "./json.js";
import { MAX_TIMEOUT_MS } from "./party.js";
import type { ToolCall } from "./toolcall.js";
import type { Conclusion, Turn } from "./turn.js";
import { millisecondsOf } from "./values.js";

/** Ends the stream without a terminal event. */
export class Crash extends Error {}

/** Ends the turn with exactly these fields. */
export class Exactly {
  constructor(readonly fields: MessageInitShape<typeof InvokeFinishedSchema>) {}
}

/** What a script may see or do beyond its turn. */
interface World {
  metadata: Metadata;
  /** The number of steps that each invocation has run. */
  steps: Map<string, number>;
  /** Begins the agent's graceful shutdown. */
  shutDown: () => void;
}

/** Runs the steps in order. */
export async function follow(script: ProbeScript, turn: Turn, world: World): Promise<Conclusion | Exactly> {
  const results: string[] = [];
  let answer: string | undefined;
  const steps = script.steps.flatMap((step) => Array.from({ length: Math.min(step.repeat || 1, 100_000) }, () => step));
  for (let index = 0; index < steps.length; index += 1) {
    turn.signal.throwIfAborted();
    const { invocationId } = turn.start;
    world.steps.set(invocationId, (world.steps.get(invocationId) ?? 0) + 1);
    const { action } = steps[index] as ProbeStep;
    switch (action.case) {
      case "emitText":
        turn.say(action.value);
        break;
      case "callTool":
        results.push(...(await callTools(turn, [action.value])));
        break;
      case "parallelTools": {
        const uses = steps.slice(index + 1, index + 1 + action.value).map(callOf);
        index += uses.length;
        world.steps.set(invocationId, (world.steps.get(invocationId) ?? 0) + uses.length);
        results.push(...(await callTools(turn, uses)));
        break;
      }
      case "sleep":
        await until(turn.signal, millisecondsOf(action.value));
        break;
      case "waitCancel":
        await until(turn.signal, Number.POSITIVE_INFINITY);
        break;
      case "emitPaddingBytes":
        turn.log("x".repeat(Number(action.value)));
        break;
      case "echoRequest":
        turn.log(JSON.stringify(echo(turn, world.metadata)));
        break;
      case "echoToolResults":
        answer = results.join("");
        break;
      case "fail":
        return { reason: FinishReason.FAILED, error: action.value, ...(answer !== undefined && { text: answer }) };
      case "finish":
        return new Exactly(action.value);
      case "crash":
        throw new Crash();
      case "modelTurn":
        turn._emit({ case: "modelTurn", value: action.value });
        break;
      case "reportStepsOf":
        turn.log(String(world.steps.get(action.value) ?? 0));
        break;
      case "beginDrain":
        world.shutDown();
        break;
      default:
        throw new InvocationFailed("probe: a step that this agent does not know", {
          reason: "UNSUPPORTED_PROBE_STEP",
        });
    }
  }
  const isRouting = turn.toolMode === ToolMode.ROUTING_ONLY && steps.some(({ action }) => action.case === "callTool");
  return { reason: isRouting ? FinishReason.TOOL_CALLS : FinishReason.COMPLETED, text: answer };
}

function callOf({ action }: ProbeStep): ToolUse {
  if (action.case === "callTool") return action.value;
  throw new InvocationFailed("probe: behind parallel_tools stands a step that is no call", {
    reason: "BAD_PROBE_SCRIPT",
  });
}

/** Calls tools as one model turn. A real tool would be a no-op that gives its arguments back. */
async function callTools(turn: Turn, uses: ToolUse[]): Promise<string[]> {
  turn.startModelTurn();
  const calls: [ToolCall, ToolUse][] = uses.map((use) => {
    const text = use.arguments && jsonText(use.arguments);
    return [turn.startTool(use.name, text, { callId: use.callId }), use];
  });
  // Nothing runs, and the script goes on.
  if (turn.toolMode === ToolMode.ROUTING_ONLY) return [];
  return await Promise.all(
    calls.map(async ([call, use]) => {
      try {
        return await call.run(() => new TextEncoder().encode(jsonText(use.arguments) || "null"));
      } catch (error) {
        if (error instanceof ToolFailed) return error.message;
        throw error;
      }
    }),
  );
}

/** What arrived, as JSON: hashes of messages as they are encoded, and of the options' values as texts. */
function echo(turn: Turn, metadata: Metadata): unknown {
  const hash = (bytes: Uint8Array | string) => createHash("sha256").update(bytes).digest("hex");
  const given = Object.entries({ ...turn.options?.metadata, ...turn.options?.extra });
  return {
    messages: turn.messages.map((message) => hash(toBinary(MessageSchema, message))),
    options: Object.fromEntries(given.sort().map(([key, value]) => [key, hash(jsonText(value))])),
    metadata: Object.fromEntries(Object.entries(metadata.getMap()).filter(([, value]) => typeof value === "string")),
    trace_context: turn.traceContext,
  };
}

function until(signal: AbortSignal, ms: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, Math.min(ms, MAX_TIMEOUT_MS));
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });
}
