// Services of protobuf-es on grpc-js.
import {
  create,
  type DescMessage,
  type DescMethod,
  type DescService,
  fromBinary,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import type { ServiceDefinition } from "@grpc/grpc-js";

/** A service as grpc-js wants it, for servers and clients. Its methods have the names of protobuf-es. */
export function serviceDefinition(service: DescService, typeName = service.typeName): ServiceDefinition {
  return Object.fromEntries(service.methods.map((method) => [method.localName, methodDefinition(typeName, method)]));
}

function methodDefinition(
  typeName: string,
  { name, methodKind, input, output }: DescMethod,
): ServiceDefinition[string] {
  return {
    path: `/${typeName}/${name}`,
    requestStream: methodKind === "client_streaming" || methodKind === "bidi_streaming",
    responseStream: methodKind === "server_streaming" || methodKind === "bidi_streaming",
    requestSerialize: serializer(input),
    requestDeserialize: (bytes: Buffer) => fromBinary(input, bytes),
    responseSerialize: serializer(output),
    responseDeserialize: (bytes: Buffer) => fromBinary(output, bytes),
  };
}

/** Takes a message, or an object with the fields of one. */
function serializer(schema: DescMessage): (message: MessageInitShape<DescMessage>) => Buffer {
  return (message) => Buffer.from(toBinary(schema, create(schema, message)));
}
