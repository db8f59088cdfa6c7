import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_SYSTEM: _ClassVar[Role]
    ROLE_USER: _ClassVar[Role]
    ROLE_ASSISTANT: _ClassVar[Role]
    ROLE_TOOL: _ClassVar[Role]

class FaultOrigin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAULT_ORIGIN_UNSPECIFIED: _ClassVar[FaultOrigin]
    FAULT_ORIGIN_AGENT: _ClassVar[FaultOrigin]
    FAULT_ORIGIN_MODEL: _ClassVar[FaultOrigin]
    FAULT_ORIGIN_TOOL: _ClassVar[FaultOrigin]
    FAULT_ORIGIN_DAEMON: _ClassVar[FaultOrigin]
    FAULT_ORIGIN_TRANSPORT: _ClassVar[FaultOrigin]
ROLE_UNSPECIFIED: Role
ROLE_SYSTEM: Role
ROLE_USER: Role
ROLE_ASSISTANT: Role
ROLE_TOOL: Role
FAULT_ORIGIN_UNSPECIFIED: FaultOrigin
FAULT_ORIGIN_AGENT: FaultOrigin
FAULT_ORIGIN_MODEL: FaultOrigin
FAULT_ORIGIN_TOOL: FaultOrigin
FAULT_ORIGIN_DAEMON: FaultOrigin
FAULT_ORIGIN_TRANSPORT: FaultOrigin

class Json(_message.Message):
    __slots__ = ("raw", "value", "malformed")
    RAW_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    MALFORMED_FIELD_NUMBER: _ClassVar[int]
    raw: bytes
    value: _struct_pb2.Value
    malformed: bytes
    def __init__(self, raw: _Optional[bytes] = ..., value: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., malformed: _Optional[bytes] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("role", "parts", "message_id", "name", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Json
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Json, _Mapping]] = ...) -> None: ...
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    role: Role
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    message_id: str
    name: str
    metadata: _containers.MessageMap[str, Json]
    def __init__(self, role: _Optional[_Union[Role, str]] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., message_id: _Optional[str] = ..., name: _Optional[str] = ..., metadata: _Optional[_Mapping[str, Json]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("text", "blob", "data", "tool_use", "tool_output", "reasoning")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOOL_USE_FIELD_NUMBER: _ClassVar[int]
    TOOL_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    text: str
    blob: Blob
    data: Json
    tool_use: ToolUse
    tool_output: ToolOutput
    reasoning: str
    def __init__(self, text: _Optional[str] = ..., blob: _Optional[_Union[Blob, _Mapping]] = ..., data: _Optional[_Union[Json, _Mapping]] = ..., tool_use: _Optional[_Union[ToolUse, _Mapping]] = ..., tool_output: _Optional[_Union[ToolOutput, _Mapping]] = ..., reasoning: _Optional[str] = ...) -> None: ...

class Blob(_message.Message):
    __slots__ = ("media_type", "name", "size_bytes", "sha256", "inline", "uri", "attachment_id")
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    INLINE_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENT_ID_FIELD_NUMBER: _ClassVar[int]
    media_type: str
    name: str
    size_bytes: int
    sha256: bytes
    inline: bytes
    uri: str
    attachment_id: str
    def __init__(self, media_type: _Optional[str] = ..., name: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ..., inline: _Optional[bytes] = ..., uri: _Optional[str] = ..., attachment_id: _Optional[str] = ...) -> None: ...

class ToolUse(_message.Message):
    __slots__ = ("call_id", "name", "arguments")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    name: str
    arguments: Json
    def __init__(self, call_id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[_Union[Json, _Mapping]] = ...) -> None: ...

class ToolOutput(_message.Message):
    __slots__ = ("call_id", "result", "error")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    result: Json
    error: Fault
    def __init__(self, call_id: _Optional[str] = ..., result: _Optional[_Union[Json, _Mapping]] = ..., error: _Optional[_Union[Fault, _Mapping]] = ...) -> None: ...

class Options(_message.Message):
    __slots__ = ("connector", "mode", "search", "skip", "metadata", "extra")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Json
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Json, _Mapping]] = ...) -> None: ...
    class ExtraEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Json
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Json, _Mapping]] = ...) -> None: ...
    CONNECTOR_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    connector: str
    mode: str
    search: Json
    skip: Json
    metadata: _containers.MessageMap[str, Json]
    extra: _containers.MessageMap[str, Json]
    def __init__(self, connector: _Optional[str] = ..., mode: _Optional[str] = ..., search: _Optional[_Union[Json, _Mapping]] = ..., skip: _Optional[_Union[Json, _Mapping]] = ..., metadata: _Optional[_Mapping[str, Json]] = ..., extra: _Optional[_Mapping[str, Json]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "cost")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_READ_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost: Cost
    def __init__(self, input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., cache_read_tokens: _Optional[int] = ..., cache_write_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., cost: _Optional[_Union[Cost, _Mapping]] = ...) -> None: ...

class Cost(_message.Message):
    __slots__ = ("currency_code", "nano_units", "estimated")
    CURRENCY_CODE_FIELD_NUMBER: _ClassVar[int]
    NANO_UNITS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    currency_code: str
    nano_units: int
    estimated: bool
    def __init__(self, currency_code: _Optional[str] = ..., nano_units: _Optional[int] = ..., estimated: _Optional[bool] = ...) -> None: ...

class Fault(_message.Message):
    __slots__ = ("grpc_code", "reason", "message", "metadata", "origin", "retryable", "retry_after")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GRPC_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    grpc_code: int
    reason: str
    message: str
    metadata: _containers.ScalarMap[str, str]
    origin: FaultOrigin
    retryable: bool
    retry_after: _duration_pb2.Duration
    def __init__(self, grpc_code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., origin: _Optional[_Union[FaultOrigin, str]] = ..., retryable: _Optional[bool] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CallContext(_message.Message):
    __slots__ = ("agent_id", "suite", "repeat", "request_id", "run_id", "case_id", "turn", "attempt", "budget", "trace_context", "seed")
    class TraceContextEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SUITE_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CASE_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    TRACE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    suite: str
    repeat: int
    request_id: str
    run_id: str
    case_id: str
    turn: int
    attempt: int
    budget: _duration_pb2.Duration
    trace_context: _containers.ScalarMap[str, str]
    seed: int
    def __init__(self, agent_id: _Optional[str] = ..., suite: _Optional[str] = ..., repeat: _Optional[int] = ..., request_id: _Optional[str] = ..., run_id: _Optional[str] = ..., case_id: _Optional[str] = ..., turn: _Optional[int] = ..., attempt: _Optional[int] = ..., budget: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., trace_context: _Optional[_Mapping[str, str]] = ..., seed: _Optional[int] = ...) -> None: ...
