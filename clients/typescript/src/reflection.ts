// grpc.reflection.v1 and v1alpha, whose messages are the same: generic clients learn from it what a server speaks.
import {
  create,
  createRegistry,
  type DescFile,
  type DescService,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { type ServerDuplexStream, status } from "@grpc/grpc-js";
import {
  type ServerReflectionRequest,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
} from "./gen/grpc/reflection/v1/reflection_pb.js";

export const V1ALPHA = "grpc.reflection.v1alpha.ServerReflection";

type Answer = NonNullable<MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"]>;

/** Answers from the descriptors of the services. */
export class Reflection {
  readonly #names: readonly string[];
  readonly #files = new Map<string, DescFile>();
  readonly #registry: ReturnType<typeof createRegistry>;

  constructor(services: readonly DescService[]) {
    this.#names = [...services.map(({ typeName }) => typeName), V1ALPHA];
    for (const { file } of services) for (const each of withDependencies(file)) this.#files.set(each.proto.name, each);
    this.#registry = createRegistry(...this.#files.values());
  }

  serve(call: ServerDuplexStream<ServerReflectionRequest, ServerReflectionResponse>): void {
    call.on("data", (originalRequest: ServerReflectionRequest) => {
      const messageResponse = this.#answer(originalRequest);
      call.write(
        create(ServerReflectionResponseSchema, { validHost: originalRequest.host, originalRequest, messageResponse }),
      );
    });
    call.on("end", () => call.end());
  }

  #answer({ messageRequest: { case: what, value } }: ServerReflectionRequest): Answer {
    switch (what) {
      case "listServices":
        return { case: "listServicesResponse", value: { service: this.#names.map((name) => ({ name })) } };
      case "fileByFilename":
        return answerWith(this.#files.get(value), value);
      case "fileContainingSymbol":
        return answerWith(this.#fileOf(value), value);
      case "fileContainingExtension":
        return missing(`${value.containingType} has no extension ${value.extensionNumber}`);
      case "allExtensionNumbersOfType":
        if (!this.#registry.getMessage(value)) return missing(value);
        return { case: "allExtensionNumbersResponse", value: { baseTypeName: value } };
      default:
        return {
          case: "errorResponse",
          value: { errorCode: status.INVALID_ARGUMENT, errorMessage: "message_request: must be set" },
        };
    }
  }

  #fileOf(symbol: string): DescFile | undefined {
    // What stands inside another thing, such as a method, is in the file of that thing.
    const outer = symbol.slice(0, Math.max(symbol.lastIndexOf("."), 0));
    const name = symbol === V1ALPHA ? "grpc.reflection.v1.ServerReflection" : symbol;
    return (this.#registry.get(name) ?? this.#registry.get(outer))?.file;
  }
}

function answerWith(file: DescFile | undefined, name: string): Answer {
  if (!file) return missing(name);
  const fileDescriptorProto = [...withDependencies(file)].map(({ proto }) =>
    toBinary(FileDescriptorProtoSchema, proto),
  );
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto } };
}

function missing(name: string): Answer {
  return { case: "errorResponse", value: { errorCode: status.NOT_FOUND, errorMessage: `not found: ${name}` } };
}

function withDependencies(file: DescFile, found = new Set<DescFile>()): Set<DescFile> {
  found.add(file);
  for (const dependency of file.dependencies) if (!found.has(dependency)) withDependencies(dependency, found);
  return found;
}
