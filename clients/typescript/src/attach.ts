// An agent that dials the daemon, and serves calls over the one stream that it opened.
import { randomUUID } from "node:crypto";
import { isIPv4 } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { type Agent, type Answer, checkAgent } from "./agent.js";
import { OURS } from "./credit.js";
import { Endpoint, MAX_MESSAGE_BYTES, REVISION } from "./endpoint.js";
import { DescribeRequestSchema, type DescribeResponse } from "./gen/forge/agent/v1/agent_pb.js";
import { type Part, partsOf } from "./parts.js";
import type { StatusError } from "./party.js";
import { asProcess, endWith } from "./process.js";
import { ATTACH, codec, Session, type Stream } from "./session.js";

/** Where `local` is. */
const LOCAL = "127.0.0.1:7460";
/** Pauses before the stream is opened again: the longest of the first, and the longest. */
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 30_000;
/** Time that open calls have when the agent leaves. */
const LEAVING_MS = 30_000;
/** Most that stands around a message in its frame, in bytes. */
const AROUND_A_MESSAGE = 1024;

/** Under which names, and as whom. */
export interface AttachOptions {
  /** The name by which runs find the agent. Left out: the id on its card. */
  id?: string | undefined;
  /** Several names: an agent can be the simulator of its own cases, too. */
  ids?: readonly string[] | undefined;
  /** Is sent as `authorization: Bearer TOKEN`: over TLS, or on this machine alone. */
  token?: string | undefined;
}

/** It is not attached, and will not be: an address that is none, a token that others could read, or a refusal. */
export class CannotAttach extends Error {
  override readonly name = "CannotAttach";

  constructor(daemon: string, why: string) {
    super(`cannot attach to ${daemon}: ${why}`);
  }
}

/**
 * Attaches the agent to a daemon until the process is asked to end (SIGINT, SIGTERM). Gives what is attached as soon
 * as the daemon takes it; a daemon that is not there is waited for.
 *
 * `daemon` is `http://HOST:PORT`, `https://HOST`, HOST:PORT, or `local`; left out, FORGE_DAEMON says it. A line on
 * stdout says where it is attached and under which names, each time that it is. If it cannot be, the process ends
 * with a line on stderr.
 */
export async function attach(
  agent: Agent | Answer,
  daemon?: string | undefined,
  options: AttachOptions = {},
): Promise<Attached> {
  const make = () => {
    const attached = new Attached(agent, daemon, options);
    attached._onAttached = () =>
      process.stdout.write(`attached to ${attached.daemon} as ${attached.names.join(", ")}\n`);
    attached._onAway = (why, pauseMs) =>
      process.stderr.write(`not attached, trying again in ${Math.round(pauseMs)} ms: ${why}\n`);
    return attached;
  };
  return await asProcess(CannotAttach, make, (attached) => {
    attached.waitForEnd().catch(endWith);
  });
}

/** The same for code with an end of its own, such as tests. */
export class Attached {
  /** HOST:PORT of the daemon. */
  readonly daemon: string;
  /** The names under which it is attached. */
  readonly names: readonly string[];
  readonly #address: Address;
  readonly #metadata = new grpc.Metadata();
  readonly #parts: readonly Part[];
  readonly #description: DescribeResponse;
  readonly #instanceId = randomUUID();
  readonly #stopped = new AbortController();
  #session: Session | undefined;
  #running: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  /** @internal Is called each time that it is attached. */
  _onAttached: () => void = () => {};
  /** @internal Is called each time that it is not: why, and how long the pause is. */
  _onAway: (why: string, pauseMs: number) => void = () => {};

  /** Throws a TypeError if the agent is not one, and CannotAttach for an address or a token that is of no use. */
  constructor(agent: Agent | Answer, daemon?: string | undefined, { id, ids, token }: AttachOptions = {}) {
    const checked = checkAgent(agent);
    this.names = namesOf(id, ids, checked.card.id);
    this.#address = addressOf(daemon ?? process.env.FORGE_DAEMON ?? "");
    this.daemon = `${this.#address.host}:${this.#address.port}`;
    if (token !== undefined) this.#metadata.set("authorization", `Bearer ${this.#checkToken(token)}`);
    const endpoint = new Endpoint(checked, () => void this.stop());
    this.#parts = partsOf(checked, endpoint);
    this.#description = endpoint.describe(create(DescribeRequestSchema));
  }

  /** Dials until the daemon has taken it. Rejects with CannotAttach if it never will. */
  async start(): Promise<void> {
    const attached = new Promise<void>((resolve) => {
      this.#running ??= this.#run(resolve);
    });
    // Whoever waits for the end hears of it there.
    this.#running?.catch(() => {});
    await Promise.race([attached, this.#running]);
  }

  /** Waits until it was stopped. Rejects with CannotAttach if the daemon does not take it any more. */
  async waitForEnd(): Promise<void> {
    await this.#running;
    await this.#stopping;
  }

  /** Takes no further calls, lets the open ones end, and leaves. */
  stop(graceMs = LEAVING_MS): Promise<void> {
    this.#stopping ??= this.#stop(graceMs);
    return this.#stopping;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #stop(graceMs: number): Promise<void> {
    this.#stopped.abort();
    await this.#session?.leave(graceMs);
    await this.#running?.catch(() => {});
  }

  async #run(attached: () => void): Promise<void> {
    let previousSessionId = "";
    let longest = FIRST_PAUSE_MS;
    while (!this.#stopped.signal.aborted) {
      const client = this.#client();
      const session = new Session(this.#dial(client), this.#hello(previousSessionId), this.#parts);
      this.#session = session;
      const welcome = await session.welcomed;
      if (welcome) {
        previousSessionId = welcome.sessionId;
        longest = FIRST_PAUSE_MS;
        this._onAttached();
        attached();
      }
      const end = await session.ended;
      this.#session = undefined;
      client.close();
      if (this.#stopped.signal.aborted) return;
      if (isFinal(end)) throw new CannotAttach(this.daemon, `${grpc.status[end.code]}: ${end.details}`);
      const pause = Math.random() * longest;
      longest = Math.min(2 * longest, LONGEST_PAUSE_MS);
      this._onAway(end.details, pause);
      await sleep(pause, undefined, { signal: this.#stopped.signal }).catch(() => {});
    }
  }

  #client(): grpc.Client {
    const { host, port, isTls, isLoopback } = this.#address;
    const credentials = isTls ? grpc.credentials.createSsl() : grpc.credentials.createInsecure();
    return new grpc.Client(`dns:${host}:${port}`, credentials, {
      "grpc.max_receive_message_length": MAX_MESSAGE_BYTES + AROUND_A_MESSAGE,
      // Each attempt is a connection of its own, at once: the pauses are ours.
      "grpc.use_local_subchannel_pool": 1,
      "grpc.service_config_disable_resolution": 1,
      "grpc.enable_channelz": 0,
      "grpc.enable_http_proxy": isLoopback ? 0 : 1,
    });
  }

  #dial(client: grpc.Client): Stream {
    return client.makeBidiStreamRequest(ATTACH, codec.write, codec.read, this.#metadata.clone());
  }

  #hello(previousSessionId: string) {
    return {
      minRevision: REVISION,
      maxRevision: REVISION,
      agents: this.names.map((agentId) => ({ agentId, describe: this.#description })),
      instanceId: this.#instanceId,
      previousSessionId,
      initialWindowBytes: OURS.call,
      streamWindowBytes: OURS.stream,
    };
  }

  /** Nothing here says the token itself. */
  #checkToken(token: string): string {
    if (typeof token !== "string" || token === "") throw new CannotAttach(this.daemon, "the token is empty");
    if (!/^[\x21-\x7e]+$/.test(token)) {
      throw new CannotAttach(this.daemon, "the token has characters that a header cannot hold");
    }
    if (!this.#address.isTls && !this.#address.isLoopback) {
      const why = "over plain text others could read the token; use https://, or a tunnel to 127.0.0.1";
      throw new CannotAttach(this.daemon, why);
    }
    return token;
  }
}

interface Address {
  /** An IPv6 address stands in brackets. */
  host: string;
  port: number;
  isTls: boolean;
  isLoopback: boolean;
}

function addressOf(text: string): Address {
  if (text === "") {
    throw new CannotAttach(
      "a daemon",
      "none is named; give its address, such as http://127.0.0.1:7460, or set FORGE_DAEMON",
    );
  }
  const [, scheme = "http", host = "", digits] =
    /^(?:([a-z]+):\/\/)?(\[[\da-f:.]+\]|[^\s:/@?#[\]]+)(?::(\d{1,5}))?\/?$/i.exec(text === "local" ? LOCAL : text) ??
    [];
  const isTls = scheme === "https" || scheme === "grpcs";
  const port = Number(digits ?? (isTls ? 443 : 0));
  const isKnown = isTls || scheme === "http" || scheme === "grpc";
  if (!isKnown || host === "" || port < 1 || port > 65535) {
    // A name and password of a user are not for others.
    const shown = text.replace(/^([a-z]+:\/\/)?.*@/i, "$1…@");
    throw new CannotAttach(shown, "write the address like http://127.0.0.1:7460");
  }
  const bare = host.toLowerCase();
  const isLoopback = bare === "localhost" || bare === "[::1]" || (isIPv4(bare) && bare.startsWith("127."));
  return { host, port, isTls, isLoopback };
}

function namesOf(id: string | undefined, ids: readonly string[] | undefined, ofCard: string): readonly string[] {
  if (id !== undefined && ids !== undefined) throw new TypeError("attach: give id or ids, not both");
  const names = ids ?? [id ?? ofCard];
  if (!Array.isArray(names) || names.length === 0 || names.some((name) => typeof name !== "string" || name === "")) {
    throw new TypeError("attach: ids: one name or more, as texts");
  }
  return [...names];
}

const FINAL: readonly grpc.status[] = [
  grpc.status.INVALID_ARGUMENT,
  grpc.status.FAILED_PRECONDITION,
  grpc.status.PERMISSION_DENIED,
  grpc.status.UNAUTHENTICATED,
  grpc.status.ALREADY_EXISTS,
  grpc.status.UNIMPLEMENTED,
  grpc.status.ABORTED,
];

/** Whether the same would happen again. */
function isFinal({ code, details }: StatusError): boolean {
  return FINAL.includes(code) || (code === grpc.status.RESOURCE_EXHAUSTED && details.startsWith("WINDOW_"));
}
