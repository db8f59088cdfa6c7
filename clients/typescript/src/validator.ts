// The server side of `Validator`: judges answers by criteria in plain words.
import { create } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { InvocationFailed } from "./errors.js";
import {
  type ValidateRequest,
  type ValidateResponse,
  ValidateResponseSchema,
} from "./gen/forge/agent/v1/validator_pb.js";
import type { Asked } from "./party.js";
import { type Tokens, usageOf } from "./values.js";

/** A judgement. */
export interface Verdict {
  /** Whether the answer meets the criteria. */
  passed: boolean;
  /** Why, for people who read reports. */
  reason?: string;
  /** How well it meets them, from 0 to 1. Left out: not measured. */
  score?: number;
  /** A short name for the result, such as `off_topic`. */
  label?: string;
  /** What it consumed. */
  usage?: Tokens;
}

/**
 * Judges one answer. What it reads in `output`, `conversation` and `toolCalls` was written by the party that is judged.
 * `request.context.agentId` says which validator is asked, if the process has several.
 */
export type Validate = (request: ValidateRequest, asked: Asked) => Verdict | boolean | Promise<Verdict | boolean>;

/** Asks the function, and takes nothing for a verdict that is none. */
export async function judge(validate: Validate, request: ValidateRequest, asked: Asked): Promise<ValidateResponse> {
  if (request.criteria.trim() === "") {
    throw new InvocationFailed("criteria: there is nothing to judge by", { status: status.INVALID_ARGUMENT });
  }
  const given = await validate(request, asked);
  const verdict = typeof given === "boolean" ? { passed: given } : given;
  if (typeof verdict !== "object" || verdict === null)
    throw new TypeError(`a validator gives { passed, reason } or a boolean, not ${typeof verdict}`);
  const { passed, reason = "", score, label = "" } = verdict as Verdict;
  if (typeof passed !== "boolean") throw new TypeError(`passed: ${JSON.stringify(passed)} is neither true nor false`);
  if (score !== undefined && !(score >= 0 && score <= 1))
    throw new RangeError(`score: ${score} is not between 0 and 1`);
  const usage = usageOf((verdict as Verdict).usage);
  return create(ValidateResponseSchema, {
    passed,
    reason: reason.toWellFormed(),
    label: label.toWellFormed(),
    ...(score !== undefined && { score }),
    ...(usage && { usage }),
  });
}
