// grpc.health.v1, for one set of services that all serve or all do not.
import { create } from "@bufbuild/protobuf";
import { type ServerWritableStream, status } from "@grpc/grpc-js";
import {
  type HealthCheckRequest,
  type HealthCheckResponse,
  HealthCheckResponseSchema,
  type HealthListResponse,
  HealthListResponseSchema,
  HealthCheckResponse_ServingStatus as ServingStatus,
} from "./gen/grpc/health/v1/health_pb.js";
import { StatusError } from "./party.js";

/** Who watches at most: each is a stream that stays open. */
const MAX_WATCHERS = 1000;

type Watcher = ServerWritableStream<HealthCheckRequest, HealthCheckResponse>;

/** Says whether the process takes calls. */
export class Health {
  readonly #names: readonly string[];
  readonly #watchers = new Set<Watcher>();
  #status = ServingStatus.SERVING;

  /** The names of the services; the empty one, which stands for the process, is added. */
  constructor(names: readonly string[]) {
    this.#names = ["", ...names];
  }

  check({ service }: HealthCheckRequest): HealthCheckResponse {
    if (!this.#names.includes(service)) throw new StatusError(status.NOT_FOUND, `there is no service ${service}`);
    return create(HealthCheckResponseSchema, { status: this.#status });
  }

  list(): HealthListResponse {
    return create(HealthListResponseSchema, {
      statuses: Object.fromEntries(this.#names.map((name) => [name, { status: this.#status }])),
    });
  }

  watch(call: Watcher): void {
    if (this.#watchers.size >= MAX_WATCHERS) {
      call.emit("error", new StatusError(status.RESOURCE_EXHAUSTED, "too many watch already"));
      return;
    }
    this.#watchers.add(call);
    call.on("cancelled", () => this.#watchers.delete(call));
    this.#tell(call);
  }

  /** The process is about to end. Whoever watches is told so, and their streams end. */
  shutDown(): void {
    this.#status = ServingStatus.NOT_SERVING;
    for (const call of this.#watchers) {
      this.#tell(call);
      call.end();
    }
    this.#watchers.clear();
  }

  #tell(call: Watcher): void {
    const isKnown = this.#names.includes(call.request.service);
    call.write(create(HealthCheckResponseSchema, { status: isKnown ? this.#status : ServingStatus.SERVICE_UNKNOWN }));
  }
}
