"""Frames of an attached stream, as attach.proto has them, whose messages of forge.agent.v1 stay bytes.

On the wire a message inside of another is its bytes. As bytes it costs what came, and not what it would be if this
process encoded it; and one that cannot be read breaks its call alone.
"""

from typing import Any

from google.protobuf import descriptor_pool, duration_pb2, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from forge_daemon.proto import attach_pb2

__all__ = ["METHOD", "AttachRequest", "AttachResponse"]

METHOD = "/forge.attach.v1.AttachService/Attach"


def _with_bytes() -> descriptor_pool.DescriptorPool:
    file = FileDescriptorProto.FromString(attach_pb2.DESCRIPTOR.serialized_pb)
    file.ClearField("service")
    kept = [name for name in file.dependency if name == duration_pb2.DESCRIPTOR.name]
    file.ClearField("dependency")
    file.dependency.extend(kept)
    for message in file.message_type:
        for field in message.field:
            if field.type_name.startswith(".forge.agent.v1."):
                field.type = FieldDescriptorProto.TYPE_BYTES
                field.ClearField("type_name")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(duration_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _with_bytes()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"forge.attach.v1.{name}"))


AttachRequest, AttachResponse = _message("AttachRequest"), _message("AttachResponse")
