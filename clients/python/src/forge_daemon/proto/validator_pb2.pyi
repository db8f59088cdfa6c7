from forge_daemon.proto import invoke_pb2 as _invoke_pb2
from forge_daemon.proto import values_pb2 as _values_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ValidateRequest(_message.Message):
    __slots__ = ("context", "output", "criteria", "conversation", "tool_calls", "metadata", "options", "assertion_name")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _values_pb2.Json
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_values_pb2.Json, _Mapping]] = ...) -> None: ...
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CRITERIA_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ASSERTION_NAME_FIELD_NUMBER: _ClassVar[int]
    context: _values_pb2.CallContext
    output: _values_pb2.Message
    criteria: str
    conversation: _containers.RepeatedCompositeFieldContainer[_values_pb2.Message]
    tool_calls: _containers.RepeatedCompositeFieldContainer[_invoke_pb2.ToolCallRecord]
    metadata: _containers.MessageMap[str, _values_pb2.Json]
    options: _values_pb2.Options
    assertion_name: str
    def __init__(self, context: _Optional[_Union[_values_pb2.CallContext, _Mapping]] = ..., output: _Optional[_Union[_values_pb2.Message, _Mapping]] = ..., criteria: _Optional[str] = ..., conversation: _Optional[_Iterable[_Union[_values_pb2.Message, _Mapping]]] = ..., tool_calls: _Optional[_Iterable[_Union[_invoke_pb2.ToolCallRecord, _Mapping]]] = ..., metadata: _Optional[_Mapping[str, _values_pb2.Json]] = ..., options: _Optional[_Union[_values_pb2.Options, _Mapping]] = ..., assertion_name: _Optional[str] = ...) -> None: ...

class ValidateResponse(_message.Message):
    __slots__ = ("passed", "reason", "score", "label", "usage")
    PASSED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    passed: bool
    reason: str
    score: float
    label: str
    usage: _values_pb2.Usage
    def __init__(self, passed: _Optional[bool] = ..., reason: _Optional[str] = ..., score: _Optional[float] = ..., label: _Optional[str] = ..., usage: _Optional[_Union[_values_pb2.Usage, _Mapping]] = ...) -> None: ...
