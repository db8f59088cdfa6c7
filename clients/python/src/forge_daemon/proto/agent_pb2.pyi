import datetime

from forge_daemon.proto import invoke_pb2 as _invoke_pb2
from forge_daemon.proto import probe_pb2 as _probe_pb2
from forge_daemon.proto import values_pb2 as _values_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ToolMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_MODE_UNSPECIFIED: _ClassVar[ToolMode]
    TOOL_MODE_LIVE: _ClassVar[ToolMode]
    TOOL_MODE_STUB: _ClassVar[ToolMode]
    TOOL_MODE_ROUTING_ONLY: _ClassVar[ToolMode]

class CancelReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANCEL_REASON_UNSPECIFIED: _ClassVar[CancelReason]
    CANCEL_REASON_USER: _ClassVar[CancelReason]
    CANCEL_REASON_BUDGET: _ClassVar[CancelReason]
    CANCEL_REASON_FAIL_FAST: _ClassVar[CancelReason]
    CANCEL_REASON_PROTOCOL_ERROR: _ClassVar[CancelReason]
    CANCEL_REASON_SHUTDOWN: _ClassVar[CancelReason]
    CANCEL_REASON_MAX_MODEL_TURNS: _ClassVar[CancelReason]
TOOL_MODE_UNSPECIFIED: ToolMode
TOOL_MODE_LIVE: ToolMode
TOOL_MODE_STUB: ToolMode
TOOL_MODE_ROUTING_ONLY: ToolMode
CANCEL_REASON_UNSPECIFIED: CancelReason
CANCEL_REASON_USER: CancelReason
CANCEL_REASON_BUDGET: CancelReason
CANCEL_REASON_FAIL_FAST: CancelReason
CANCEL_REASON_PROTOCOL_ERROR: CancelReason
CANCEL_REASON_SHUTDOWN: CancelReason
CANCEL_REASON_MAX_MODEL_TURNS: CancelReason

class DescribeRequest(_message.Message):
    __slots__ = ("agent_id", "min_revision", "max_revision", "daemon_version", "host_capabilities")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_REVISION_FIELD_NUMBER: _ClassVar[int]
    MAX_REVISION_FIELD_NUMBER: _ClassVar[int]
    DAEMON_VERSION_FIELD_NUMBER: _ClassVar[int]
    HOST_CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    min_revision: int
    max_revision: int
    daemon_version: str
    host_capabilities: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, agent_id: _Optional[str] = ..., min_revision: _Optional[int] = ..., max_revision: _Optional[int] = ..., daemon_version: _Optional[str] = ..., host_capabilities: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("revision", "instance_id", "card", "capabilities", "required_host_capabilities", "limits")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_HOST_CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    instance_id: str
    card: AgentCard
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    required_host_capabilities: _containers.RepeatedScalarFieldContainer[str]
    limits: Limits
    def __init__(self, revision: _Optional[int] = ..., instance_id: _Optional[str] = ..., card: _Optional[_Union[AgentCard, _Mapping]] = ..., capabilities: _Optional[_Iterable[str]] = ..., required_host_capabilities: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_message_bytes", "max_concurrent_invocations", "cancel_grace", "max_attachment_bytes")
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENT_INVOCATIONS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_GRACE_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTACHMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_message_bytes: int
    max_concurrent_invocations: int
    cancel_grace: _duration_pb2.Duration
    max_attachment_bytes: int
    def __init__(self, max_message_bytes: _Optional[int] = ..., max_concurrent_invocations: _Optional[int] = ..., cancel_grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_attachment_bytes: _Optional[int] = ...) -> None: ...

class AgentCard(_message.Message):
    __slots__ = ("agent_id", "name", "version", "description", "provider_name", "model", "tools", "input_media_types", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    INPUT_MEDIA_TYPES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    name: str
    version: str
    description: str
    provider_name: str
    model: str
    tools: _containers.RepeatedCompositeFieldContainer[ToolSpec]
    input_media_types: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, agent_id: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[str] = ..., description: _Optional[str] = ..., provider_name: _Optional[str] = ..., model: _Optional[str] = ..., tools: _Optional[_Iterable[_Union[ToolSpec, _Mapping]]] = ..., input_media_types: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ToolSpec(_message.Message):
    __slots__ = ("name", "version", "description", "input_schema", "type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    description: str
    input_schema: _values_pb2.Json
    type: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., description: _Optional[str] = ..., input_schema: _Optional[_Union[_values_pb2.Json, _Mapping]] = ..., type: _Optional[str] = ...) -> None: ...

class InvokeRequest(_message.Message):
    __slots__ = ("start", "attachment", "tool_result", "cancel")
    START_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENT_FIELD_NUMBER: _ClassVar[int]
    TOOL_RESULT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    start: InvokeStart
    attachment: AttachmentChunk
    tool_result: ToolResult
    cancel: InvokeCancel
    def __init__(self, start: _Optional[_Union[InvokeStart, _Mapping]] = ..., attachment: _Optional[_Union[AttachmentChunk, _Mapping]] = ..., tool_result: _Optional[_Union[ToolResult, _Mapping]] = ..., cancel: _Optional[_Union[InvokeCancel, _Mapping]] = ...) -> None: ...

class InvokeStart(_message.Message):
    __slots__ = ("context", "invocation_id", "conversation_id", "messages", "options", "tool_mode", "max_model_turns", "want_deltas", "attachments", "probe")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    INVOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TOOL_MODE_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_TURNS_FIELD_NUMBER: _ClassVar[int]
    WANT_DELTAS_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENTS_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    context: _values_pb2.CallContext
    invocation_id: str
    conversation_id: str
    messages: _containers.RepeatedCompositeFieldContainer[_values_pb2.Message]
    options: _values_pb2.Options
    tool_mode: ToolMode
    max_model_turns: int
    want_deltas: bool
    attachments: _containers.RepeatedCompositeFieldContainer[_values_pb2.Blob]
    probe: _probe_pb2.ProbeScript
    def __init__(self, context: _Optional[_Union[_values_pb2.CallContext, _Mapping]] = ..., invocation_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_values_pb2.Message, _Mapping]]] = ..., options: _Optional[_Union[_values_pb2.Options, _Mapping]] = ..., tool_mode: _Optional[_Union[ToolMode, str]] = ..., max_model_turns: _Optional[int] = ..., want_deltas: _Optional[bool] = ..., attachments: _Optional[_Iterable[_Union[_values_pb2.Blob, _Mapping]]] = ..., probe: _Optional[_Union[_probe_pb2.ProbeScript, _Mapping]] = ...) -> None: ...

class AttachmentChunk(_message.Message):
    __slots__ = ("attachment_id", "offset", "data", "last")
    ATTACHMENT_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    attachment_id: str
    offset: int
    data: bytes
    last: bool
    def __init__(self, attachment_id: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ("call_id", "result", "error", "unstubbed")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    UNSTUBBED_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    result: _values_pb2.Json
    error: _values_pb2.Fault
    unstubbed: bool
    def __init__(self, call_id: _Optional[str] = ..., result: _Optional[_Union[_values_pb2.Json, _Mapping]] = ..., error: _Optional[_Union[_values_pb2.Fault, _Mapping]] = ..., unstubbed: _Optional[bool] = ...) -> None: ...

class InvokeCancel(_message.Message):
    __slots__ = ("reason", "message", "grace")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    reason: CancelReason
    message: str
    grace: _duration_pb2.Duration
    def __init__(self, reason: _Optional[_Union[CancelReason, str]] = ..., message: _Optional[str] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
