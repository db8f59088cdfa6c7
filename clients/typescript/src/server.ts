// A gRPC server with the agent, the other parts that it plays, health and reflection.
import type { Server as Listener, Socket } from "node:net";
import { parseArgs } from "node:util";
import * as grpc from "@grpc/grpc-js";
import { type Agent, type Answer, checkAgent } from "./agent.js";
import { Endpoint, MAX_MESSAGE_BYTES } from "./endpoint.js";
import { Health as HealthService } from "./gen/grpc/health/v1/health_pb.js";
import { ServerReflection } from "./gen/grpc/reflection/v1/reflection_pb.js";
import { Health } from "./health.js";
import { CannotListen, type Listening, listenOn } from "./listening.js";
import { partsOf, unary } from "./parts.js";
import { asProcess } from "./process.js";
import { Reflection, V1ALPHA } from "./reflection.js";
import { serviceDefinition } from "./rpc.js";

const DEFAULT_ADDRESS = "127.0.0.1:50051";
const DRAIN_MS = 5000;

/** Where to listen. */
export interface ServeOptions {
  /** HOST:PORT; port 0 is any free one. Left out: `--listen` of the command line, else 127.0.0.1:50051. */
  listen?: string | undefined;
}

/**
 * Serves the agent until the process is asked to end (SIGINT, SIGTERM). Gives the server as soon as it listens.
 *
 * The first line on stdout says where, so that whoever started the process with port 0 can read the port. If the
 * agent is not one, or nobody can listen there, the process ends with a line on stderr.
 */
export async function serve(
  agent: Agent | Answer,
  { listen = listenOfCommandLine() }: ServeOptions = {},
): Promise<Server> {
  return await asProcess(
    CannotListen,
    () => new Server(agent, { listen }),
    (server) => {
      process.stdout.write(`listening on ${server.address}\n`);
    },
  );
}

/** The same for code with an end of its own, such as tests. */
export class Server {
  readonly #listen: string;
  readonly #endpoint: Endpoint;
  readonly #health: Health;
  readonly #server: grpc.Server;
  readonly #sockets = new Set<Socket>();
  #listening: Listening | undefined;
  #stopping: Promise<void> | undefined;

  /** Throws a TypeError if the agent is not one. */
  constructor(agent: Agent | Answer, { listen = DEFAULT_ADDRESS }: ServeOptions = {}) {
    const checked = checkAgent(agent);
    this.#listen = listen;
    this.#endpoint = new Endpoint(checked, () => void this.stop());
    const parts = partsOf(checked, this.#endpoint);
    this.#health = new Health(parts.map(([{ typeName }]) => typeName));
    // Memory of a session is what its open streams need, and these are bounded by the daemon.
    this.#server = new grpc.Server({
      "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
      "grpc.max_send_message_length": MAX_MESSAGE_BYTES,
    });
    const reflection = new Reflection([...parts.map(([service]) => service), HealthService, ServerReflection]);
    const serveReflection = { serverReflectionInfo: reflection.serve.bind(reflection) };
    const health = {
      check: unary(async (request: Parameters<Health["check"]>[0]) => this.#health.check(request)),
      list: unary(async () => this.#health.list()),
      watch: this.#health.watch.bind(this.#health),
    };
    for (const [service, handlers] of [
      ...parts,
      [HealthService, health],
      [ServerReflection, serveReflection],
    ] as const) {
      this.#server.addService(serviceDefinition(service), handlers as grpc.UntypedServiceImplementation);
    }
    this.#server.addService(
      serviceDefinition(ServerReflection, V1ALPHA),
      serveReflection as unknown as grpc.UntypedServiceImplementation,
    );
  }

  /** Begins to listen and to answer. Rejects with CannotListen. */
  async start(): Promise<void> {
    const injector = this.#server.createConnectionInjector(grpc.ServerCredentials.createInsecure());
    this.#listening = await listenOn(this.#listen, (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
      socket.on("error", () => {}); // Whoever is at the other end has gone.
      injector.injectConnection(socket);
    });
  }

  /** Where it can be reached, with the real port if 0 was asked for. */
  get address(): string {
    return this.#listening?.address ?? this.#listen;
  }

  /** Ends as a good neighbour: says so in health, refuses new calls, lets the running ones finish. */
  stop(graceMs = DRAIN_MS): Promise<void> {
    this.#stopping ??= this.#stop(graceMs);
    return this.#stopping;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #stop(graceMs: number): Promise<void> {
    this.#health.shutDown();
    await this.#endpoint.drain(graceMs);
    // Long enough for the last answers to be written.
    await new Promise((resolve) => setTimeout(resolve, 50));
    const closed = (this.#listening?.servers ?? []).map(
      (server: Listener) => new Promise((resolve) => server.close(resolve)),
    );
    this.#server.forceShutdown();
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all(closed);
  }
}

/** What `--listen` says, for programs that read no command line of their own. */
function listenOfCommandLine(): string {
  const { values } = parseArgs({ options: { listen: { type: "string" } }, strict: false });
  return typeof values.listen === "string" ? values.listen : DEFAULT_ADDRESS;
}
