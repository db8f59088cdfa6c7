import datetime

from forge_daemon.proto import values_pb2 as _values_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TextChannel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TEXT_CHANNEL_UNSPECIFIED: _ClassVar[TextChannel]
    TEXT_CHANNEL_ANSWER: _ClassVar[TextChannel]
    TEXT_CHANNEL_REASONING: _ClassVar[TextChannel]

class ResultSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESULT_SOURCE_UNSPECIFIED: _ClassVar[ResultSource]
    RESULT_SOURCE_LIVE: _ClassVar[ResultSource]
    RESULT_SOURCE_STUB: _ClassVar[ResultSource]
    RESULT_SOURCE_CACHE: _ClassVar[ResultSource]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_COMPLETED: _ClassVar[FinishReason]
    FINISH_REASON_TOOL_CALLS: _ClassVar[FinishReason]
    FINISH_REASON_MAX_MODEL_TURNS: _ClassVar[FinishReason]
    FINISH_REASON_MAX_TOKENS: _ClassVar[FinishReason]
    FINISH_REASON_REFUSED: _ClassVar[FinishReason]
    FINISH_REASON_CANCELLED: _ClassVar[FinishReason]
    FINISH_REASON_BUDGET_EXCEEDED: _ClassVar[FinishReason]
    FINISH_REASON_FAILED: _ClassVar[FinishReason]
    FINISH_REASON_INPUT_REQUIRED: _ClassVar[FinishReason]
TEXT_CHANNEL_UNSPECIFIED: TextChannel
TEXT_CHANNEL_ANSWER: TextChannel
TEXT_CHANNEL_REASONING: TextChannel
RESULT_SOURCE_UNSPECIFIED: ResultSource
RESULT_SOURCE_LIVE: ResultSource
RESULT_SOURCE_STUB: ResultSource
RESULT_SOURCE_CACHE: ResultSource
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_COMPLETED: FinishReason
FINISH_REASON_TOOL_CALLS: FinishReason
FINISH_REASON_MAX_MODEL_TURNS: FinishReason
FINISH_REASON_MAX_TOKENS: FinishReason
FINISH_REASON_REFUSED: FinishReason
FINISH_REASON_CANCELLED: FinishReason
FINISH_REASON_BUDGET_EXCEEDED: FinishReason
FINISH_REASON_FAILED: FinishReason
FINISH_REASON_INPUT_REQUIRED: FinishReason

class InvokeResponse(_message.Message):
    __slots__ = ("seq", "elapsed", "accepted", "text_delta", "tool_started", "tool_finished", "model_turn", "log", "finished")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TEXT_DELTA_FIELD_NUMBER: _ClassVar[int]
    TOOL_STARTED_FIELD_NUMBER: _ClassVar[int]
    TOOL_FINISHED_FIELD_NUMBER: _ClassVar[int]
    MODEL_TURN_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    seq: int
    elapsed: _duration_pb2.Duration
    accepted: InvokeAccepted
    text_delta: TextDelta
    tool_started: ToolCallStarted
    tool_finished: ToolCallFinished
    model_turn: ModelTurn
    log: LogLine
    finished: InvokeFinished
    def __init__(self, seq: _Optional[int] = ..., elapsed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., accepted: _Optional[_Union[InvokeAccepted, _Mapping]] = ..., text_delta: _Optional[_Union[TextDelta, _Mapping]] = ..., tool_started: _Optional[_Union[ToolCallStarted, _Mapping]] = ..., tool_finished: _Optional[_Union[ToolCallFinished, _Mapping]] = ..., model_turn: _Optional[_Union[ModelTurn, _Mapping]] = ..., log: _Optional[_Union[LogLine, _Mapping]] = ..., finished: _Optional[_Union[InvokeFinished, _Mapping]] = ...) -> None: ...

class InvokeAccepted(_message.Message):
    __slots__ = ("invocation_id", "instance_id", "replayed")
    INVOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    invocation_id: str
    instance_id: str
    replayed: bool
    def __init__(self, invocation_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., replayed: _Optional[bool] = ...) -> None: ...

class TextDelta(_message.Message):
    __slots__ = ("message_id", "text", "channel")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    text: str
    channel: TextChannel
    def __init__(self, message_id: _Optional[str] = ..., text: _Optional[str] = ..., channel: _Optional[_Union[TextChannel, str]] = ...) -> None: ...

class ToolCallStarted(_message.Message):
    __slots__ = ("call_id", "name", "params", "awaits_result", "parent_call_id", "model_turn", "type", "params_unknown")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    AWAITS_RESULT_FIELD_NUMBER: _ClassVar[int]
    PARENT_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_TURN_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PARAMS_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    name: str
    params: _values_pb2.Json
    awaits_result: bool
    parent_call_id: str
    model_turn: int
    type: str
    params_unknown: str
    def __init__(self, call_id: _Optional[str] = ..., name: _Optional[str] = ..., params: _Optional[_Union[_values_pb2.Json, _Mapping]] = ..., awaits_result: _Optional[bool] = ..., parent_call_id: _Optional[str] = ..., model_turn: _Optional[int] = ..., type: _Optional[str] = ..., params_unknown: _Optional[str] = ...) -> None: ...

class ToolCallFinished(_message.Message):
    __slots__ = ("call_id", "result", "error", "duration", "source")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    result: _values_pb2.Json
    error: _values_pb2.Fault
    duration: _duration_pb2.Duration
    source: ResultSource
    def __init__(self, call_id: _Optional[str] = ..., result: _Optional[_Union[_values_pb2.Json, _Mapping]] = ..., error: _Optional[_Union[_values_pb2.Fault, _Mapping]] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., source: _Optional[_Union[ResultSource, str]] = ...) -> None: ...

class ModelTurn(_message.Message):
    __slots__ = ("index", "model", "response_id", "finish_reason", "usage", "duration")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    index: int
    model: str
    response_id: str
    finish_reason: str
    usage: _values_pb2.Usage
    duration: _duration_pb2.Duration
    def __init__(self, index: _Optional[int] = ..., model: _Optional[str] = ..., response_id: _Optional[str] = ..., finish_reason: _Optional[str] = ..., usage: _Optional[_Union[_values_pb2.Usage, _Mapping]] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class LogLine(_message.Message):
    __slots__ = ("level", "target", "message")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    level: str
    target: str
    message: str
    def __init__(self, level: _Optional[str] = ..., target: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class InvokeFinished(_message.Message):
    __slots__ = ("finish_reason", "response", "usage", "error", "tool_calls", "duration", "metadata", "spans_flushed", "warnings")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _values_pb2.Json
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_values_pb2.Json, _Mapping]] = ...) -> None: ...
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPANS_FLUSHED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    finish_reason: FinishReason
    response: _values_pb2.Message
    usage: _values_pb2.Usage
    error: _values_pb2.Fault
    tool_calls: int
    duration: _duration_pb2.Duration
    metadata: _containers.MessageMap[str, _values_pb2.Json]
    spans_flushed: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, finish_reason: _Optional[_Union[FinishReason, str]] = ..., response: _Optional[_Union[_values_pb2.Message, _Mapping]] = ..., usage: _Optional[_Union[_values_pb2.Usage, _Mapping]] = ..., error: _Optional[_Union[_values_pb2.Fault, _Mapping]] = ..., tool_calls: _Optional[int] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., metadata: _Optional[_Mapping[str, _values_pb2.Json]] = ..., spans_flushed: _Optional[bool] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ToolCallRecord(_message.Message):
    __slots__ = ("started", "finished", "not_run", "turn")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    NOT_RUN_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    started: ToolCallStarted
    finished: ToolCallFinished
    not_run: bool
    turn: int
    def __init__(self, started: _Optional[_Union[ToolCallStarted, _Mapping]] = ..., finished: _Optional[_Union[ToolCallFinished, _Mapping]] = ..., not_run: _Optional[bool] = ..., turn: _Optional[int] = ...) -> None: ...
