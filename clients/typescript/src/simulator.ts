// The server side of `Simulator`: plays the user in dynamic cases.
import { create, isMessage } from "@bufbuild/protobuf";
import {
  type NextInputRequest,
  type NextInputResponse,
  NextInputResponseSchema,
} from "./gen/forge/agent/v1/simulator_pb.js";
import { type Message, MessageSchema, Role } from "./gen/forge/agent/v1/values_pb.js";
import type { Asked } from "./party.js";
import { type Tokens, usageOf } from "./values.js";

/** What the user does next: says something, or ends the conversation. */
export interface UserTurn {
  /** What the user says; a message may hold more than text. Ignored if the conversation ends. */
  input?: string | Message;
  /** The user has got what they wanted: the conversation ends. */
  goalAchieved?: boolean;
  /** The user leaves without it: the conversation ends. */
  gaveUp?: boolean;
  /** Why, for people who read reports. */
  reasoning?: string;
  /** What it consumed. */
  usage?: Tokens;
}

/**
 * Plays one turn of the user: gives what they do, or the text that they say. `request.conversation` holds everything
 * that was said; remember nothing else. `request.context.agentId` says which simulator is asked, if the process plays
 * several.
 */
export type Simulate = (request: NextInputRequest, asked: Asked) => UserTurn | string | Promise<UserTurn | string>;

/** Asks the function, and refuses what says neither that the user speaks nor that they leave. */
export async function nextInput(
  simulate: Simulate,
  request: NextInputRequest,
  asked: Asked,
): Promise<NextInputResponse> {
  const given = await simulate(request, asked);
  const turn = typeof given === "string" ? { input: given } : given;
  if (typeof turn !== "object" || turn === null)
    throw new TypeError(`a simulator gives { input } or a text, not ${typeof turn}`);
  const { input = "", goalAchieved = false, gaveUp = false, reasoning = "" } = turn;
  if (goalAchieved && gaveUp)
    throw new Error("the simulator says both that the goal is achieved and that the user gave up");
  const usage = usageOf(turn.usage);
  return create(NextInputResponseSchema, {
    goalAchieved,
    gaveUp,
    reasoning: reasoning.toWellFormed(),
    ...(!goalAchieved && !gaveUp && { input: message(input) }),
    ...(usage && { usage }),
  });
}

function message(input: string | Message): Message {
  const said = isMessage(input, MessageSchema)
    ? create(MessageSchema, { ...input, role: Role.USER })
    : create(MessageSchema, {
        role: Role.USER,
        parts: input.trim() === "" ? [] : [{ content: { case: "text", value: input } }],
      });
  if (said.parts.length === 0) throw new Error("the simulator gave neither an input nor an end");
  return said;
}
