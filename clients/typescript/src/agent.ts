// What a process serves, as its author writes it, and the checks of it at start.
import type { MessageInitShape } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import { type AgentCard, AgentCardSchema, type ToolSpecSchema } from "./gen/forge/agent/v1/agent_pb.js";
import type { Generate } from "./generator.js";
import type { Simulate } from "./simulator.js";
import type { Capture } from "./snapshot.js";
import { type Tool, toolSpec } from "./tool.js";
import type { Turn } from "./turn.js";
import type { Validate } from "./validator.js";

/**
 * An agent: gives the answer, or nothing if it has said everything with `turn.say`. Pieces of text that come one by
 * one are said as they come.
 */
export type Answer = (turn: Turn) => Reply | Promise<Reply>;

/** What an agent gives. */
// biome-ignore lint/suspicious/noConfusingVoidType: a function that returns nothing is one of them.
export type Reply = string | AsyncIterable<string> | undefined | null | void;

/** What an agent can do beyond the smallest one; see `capabilities` in agent.proto. */
export type Capability = "tools.stub" | "tools.routing" | "text.delta" | "cancel" | "spans.export" | (string & {});

/** What every agent can do whose tool calls go through its `Turn`. */
export const CAPABILITIES: readonly Capability[] = ["tools.stub", "tools.routing", "text.delta", "cancel"];

/** Who an agent is. Reports show it. */
export interface Card {
  /** Unique within the process, for example `shop.orders`. */
  id: string;
  /** SHOULD change with every change of code or prompt. `0` if it is left out. */
  version?: string | undefined;
  name?: string | undefined;
  description?: string | undefined;
  /** Who provides its model, in the words of OpenTelemetry, for example `openai`. */
  provider?: string | undefined;
  model?: string | undefined;
  /** The tools that its model can call. `turn.call` finds those made by `tool()` by their names. */
  tools?: readonly (Tool | MessageInitShape<typeof ToolSpecSchema>)[] | undefined;
  labels?: Record<string, string> | undefined;
  /** What it takes besides text, for example `image/*`. */
  inputMediaTypes?: string[] | undefined;
}

/** All that a process serves. `answer` may be left out if it only plays other parts. */
export interface Agent {
  card: Card;
  answer?: Answer;
  capabilities?: readonly Capability[];
  /** How many turns may run at the same time; further ones wait. 0, or left out: no limit. */
  maxConcurrent?: number;
  /** Plays the user in dynamic cases. */
  simulator?: Simulate;
  /** Judges answers. */
  validator?: Validate;
  /** Writes cases. */
  generator?: Generate;
  /** Gives today's values for the `{{snapshot:path}}` tokens of suites. */
  snapshot?: Capture;
}

/** The agent as it was checked. */
export interface CheckedAgent extends Agent {
  maxConcurrent: number;
  capabilities: readonly Capability[];
  agentCard: AgentCard;
  tools: ReadonlyMap<string, Tool>;
}

const CARD_KEYS = ["id", "version", "name", "description", "provider", "model", "tools", "labels", "inputMediaTypes"];
const PARTS = ["answer", "simulator", "validator", "generator", "snapshot"] as const;
const AGENT_KEYS: readonly string[] = [...PARTS, "card", "capabilities", "maxConcurrent"];

/** Refuses with a TypeError what could only fail later. A bare function is an agent, too. */
export function checkAgent(given: Agent | Answer): CheckedAgent {
  checkNode(process.versions.node);
  const agent = typeof given === "function" ? { card: { id: given.name || "agent" }, answer: given } : given;
  if (typeof agent !== "object" || agent === null) {
    throw new TypeError(`agent: a function or { card, answer }, not ${agent === null ? "null" : typeof agent}`);
  }
  known("agent", agent, AGENT_KEYS);
  const tools = checkCard(agent.card);
  checkParts(agent);
  const { maxConcurrent = 0 } = agent;
  if (!Number.isInteger(maxConcurrent) || maxConcurrent < 0) {
    throw new TypeError(`agent.maxConcurrent: a number of turns, and 0 for no limit, not ${maxConcurrent}`);
  }
  const { id, provider, ...rest } = agent.card;
  const agentCard = create(AgentCardSchema, {
    ...Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined)),
    agentId: id,
    version: agent.card.version ?? "0",
    providerName: provider ?? "",
    tools: (agent.card.tools ?? []).map(toolSpec),
  });
  const capabilities = [...(agent.capabilities ?? CAPABILITIES), ...(isProbed() ? ["probe"] : [])];
  return { ...agent, agentCard, capabilities, maxConcurrent, tools };
}

/** npm does no more than warn. */
export function checkNode(version: string): void {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major < 20 || (major === 20 && minor < 15)) {
    throw new TypeError(`forge-daemon needs Node.js 20.15 or later, and this is ${version}`);
  }
}

/** Whether scripts of the daemon are obeyed: nobody shall use them against a production agent. */
export function isProbed(): boolean {
  return process.env.FORGE_PROBE === "1";
}

function checkCard(card: Card): ReadonlyMap<string, Tool> {
  if (typeof card !== "object" || card === null || !card.id) {
    throw new TypeError('card.id: missing; give the agent one, for example "shop.orders"');
  }
  known("card", card, CARD_KEYS);
  for (const key of ["id", "version", "name", "description", "provider", "model"] as const) {
    const value: unknown = card[key];
    if (value !== undefined && typeof value !== "string")
      throw new TypeError(`card.${key}: a text, not ${typeof value}`);
  }
  const names = new Set<string>();
  for (const { name = "" } of card.tools ?? []) {
    if (name === "") throw new TypeError("card.tools: one has no name");
    if (names.has(name)) throw new TypeError(`card.tools: two are called "${name}"`);
    names.add(name);
  }
  return new Map((card.tools ?? []).flatMap((tool) => ("invoke" in tool ? [[tool.name, tool]] : [])));
}

function checkParts(agent: Agent): void {
  for (const part of PARTS) {
    const value: unknown = agent[part];
    if (value === undefined) continue;
    if (typeof value !== "function")
      throw new TypeError(`${part}: a function, not ${value === null ? "null" : typeof value}`);
    const [most, takes] =
      part === "answer"
        ? [1, "the turn"]
        : part === "snapshot"
          ? [2, "the path and { signal }"]
          : [2, "the request and { signal }"];
    if (value.length > most) {
      throw new TypeError(
        `${part}: takes ${takes} and nothing else, but ${value.name || "the function"} takes ${value.length} arguments`,
      );
    }
  }
  if (!PARTS.some((part) => agent[part])) {
    throw new TypeError("agent.answer: missing; give a function that takes the turn and gives the answer");
  }
}

function known(what: string, given: object, keys: readonly string[]): void {
  const unknown = Object.keys(given).find((key) => !keys.includes(key));
  if (unknown !== undefined)
    throw new TypeError(`${what}.${unknown}: there is no such key; known are ${keys.join(", ")}`);
}
