/**
 * Put a TypeScript agent under test with Forge.
 *
 * Write a function that takes a `Turn` and gives the answer, run its tools through `turn.call`, and give it to
 * `serve` with a card. The messages of the protocol are in `forge-daemon/proto`; everything here can also be done
 * with them alone.
 */
export { status } from "@grpc/grpc-js";
export { type Agent, type Answer, CAPABILITIES, type Capability, type Card, type Reply } from "./agent.js";
export { Attached, type AttachOptions, attach, CannotAttach } from "./attach.js";
export { currentTurn } from "./endpoint.js";
export { EndOfTurn, InvocationFailed, ToolFailed, TurnCancelled } from "./errors.js";
export { ToolMode } from "./gen/forge/agent/v1/agent_pb.js";
export type { GenerateRequest } from "./gen/forge/agent/v1/generator_pb.js";
export type { NextInputRequest } from "./gen/forge/agent/v1/simulator_pb.js";
export type { ValidateRequest } from "./gen/forge/agent/v1/validator_pb.js";
export { type Json, type Message, Role } from "./gen/forge/agent/v1/values_pb.js";
export type { Case, Generate } from "./generator.js";
export { jsonOf, jsonText, jsonValue } from "./json.js";
export { CannotListen } from "./listening.js";
export type { Asked } from "./party.js";
export { type ServeOptions, Server, serve } from "./server.js";
export type { Simulate, UserTurn } from "./simulator.js";
export type { Capture } from "./snapshot.js";
export { type StandardSchema, type Tool, type ToolInit, tool, wrapTools } from "./tool.js";
export type { ToolCall } from "./toolcall.js";
export type { CallOptions, ModelTurn, ModelTurnRecord, Turn } from "./turn.js";
export type { Validate, Verdict } from "./validator.js";
export { type Tokens, textOf } from "./values.js";
