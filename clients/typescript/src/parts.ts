// The services that an agent serves, whatever carries their calls.
import type { DescService } from "@bufbuild/protobuf";
import type * as grpc from "@grpc/grpc-js";
import type { CheckedAgent } from "./agent.js";
import type { Endpoint } from "./endpoint.js";
import { AgentEndpoint, type DescribeRequest, type DescribeResponse } from "./gen/forge/agent/v1/agent_pb.js";
import { type GenerateRequest, type GenerateResponse, Generator } from "./gen/forge/agent/v1/generator_pb.js";
import { type NextInputRequest, type NextInputResponse, Simulator } from "./gen/forge/agent/v1/simulator_pb.js";
import { type CaptureRequest, type CaptureResponse, SnapshotProvider } from "./gen/forge/agent/v1/snapshot_pb.js";
import { type ValidateRequest, type ValidateResponse, Validator } from "./gen/forge/agent/v1/validator_pb.js";
import type { CallContext } from "./gen/forge/agent/v1/values_pb.js";
import { generate } from "./generator.js";
import { type Asked, ask, statusOf } from "./party.js";
import { nextInput } from "./simulator.js";
import { capture } from "./snapshot.js";
import { judge } from "./validator.js";

/** A service, with the handlers that grpc-js wants for its methods. */
export type Part = readonly [DescService, Record<string, unknown>];

/** The services that an agent serves, each with its handlers. */
export function partsOf(agent: CheckedAgent, endpoint: Endpoint): Part[] {
  const { simulator, validator, generator, snapshot } = agent;
  const parts: Part[] = [
    [
      AgentEndpoint,
      {
        describe: unary<DescribeRequest, DescribeResponse>(async (request) => endpoint.describe(request)),
        invoke: endpoint.invoke.bind(endpoint),
      },
    ],
  ];
  if (simulator) {
    parts.push([
      Simulator,
      {
        nextInput: asking(
          (request: NextInputRequest, asked): Promise<NextInputResponse> => nextInput(simulator, request, asked),
        ),
      },
    ]);
  }
  if (validator) {
    parts.push([
      Validator,
      {
        validate: asking(
          (request: ValidateRequest, asked): Promise<ValidateResponse> => judge(validator, request, asked),
        ),
      },
    ]);
  }
  if (generator) {
    parts.push([
      Generator,
      {
        generate: streaming((request: GenerateRequest, asked, send: Send<GenerateResponse>) =>
          generate(generator, request, asked, send),
        ),
      },
    ]);
  }
  if (snapshot) {
    parts.push([
      SnapshotProvider,
      {
        capture: asking(
          (request: CaptureRequest, asked): Promise<CaptureResponse> => capture(snapshot, request, asked),
        ),
      },
    ]);
  }
  return parts;
}

interface WithContext {
  context?: CallContext | undefined;
}
type Send<Res> = (response: Res) => Promise<void>;

/** The handler of a method with one answer. What is thrown becomes the status. */
export function unary<Req, Res>(
  answer: (request: Req, call: grpc.ServerUnaryCall<Req, Res>) => Promise<Res>,
): grpc.handleUnaryCall<Req, Res> {
  return (call, callback) => {
    answer(call.request, call).then(
      (response) => callback(null, response),
      (error) => callback(statusOf(error)),
    );
  };
}

function asking<Req extends WithContext, Res>(
  answer: (request: Req, asked: Asked) => Promise<Res>,
): grpc.handleUnaryCall<Req, Res> {
  return unary((request, call) =>
    ask(request.context, call.metadata, cancelOf(call), (asked) => answer(request, asked)),
  );
}

function streaming<Req extends WithContext, Res>(
  answer: (request: Req, asked: Asked, send: Send<Res>) => Promise<void>,
): grpc.handleServerStreamingCall<Req, Res> {
  return (call) => {
    const cancelled = cancelOf(call);
    // Waits while the daemon does not read, so that cases are made no faster than they are taken.
    const send: Send<Res> = (response) => {
      if (cancelled.aborted || call.write(response)) return Promise.resolve();
      return new Promise((resolve) => {
        call.once("drain", resolve);
        cancelled.addEventListener("abort", () => resolve(), { once: true });
      });
    };
    ask(call.request.context, call.metadata, cancelled, (asked) => answer(call.request, asked, send)).then(
      () => call.end(),
      (error) => call.emit("error", statusOf(error)),
    );
  };
}

function cancelOf(call: { on(event: "cancelled", listener: () => void): unknown }): AbortSignal {
  const controller = new AbortController();
  call.on("cancelled", () => controller.abort(new Error("the call was cancelled")));
  return controller.signal;
}
