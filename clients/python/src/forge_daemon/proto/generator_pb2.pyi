from forge_daemon.proto import agent_pb2 as _agent_pb2
from forge_daemon.proto import values_pb2 as _values_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GenerateRequest(_message.Message):
    __slots__ = ("context", "count", "focus", "target", "options", "existing_case_ids", "suite_schema")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FOCUS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    EXISTING_CASE_IDS_FIELD_NUMBER: _ClassVar[int]
    SUITE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    context: _values_pb2.CallContext
    count: int
    focus: str
    target: _agent_pb2.AgentCard
    options: _values_pb2.Options
    existing_case_ids: _containers.RepeatedScalarFieldContainer[str]
    suite_schema: str
    def __init__(self, context: _Optional[_Union[_values_pb2.CallContext, _Mapping]] = ..., count: _Optional[int] = ..., focus: _Optional[str] = ..., target: _Optional[_Union[_agent_pb2.AgentCard, _Mapping]] = ..., options: _Optional[_Union[_values_pb2.Options, _Mapping]] = ..., existing_case_ids: _Optional[_Iterable[str]] = ..., suite_schema: _Optional[str] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("case", "summary")
    CASE_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    case: _values_pb2.Json
    summary: GenerateSummary
    def __init__(self, case: _Optional[_Union[_values_pb2.Json, _Mapping]] = ..., summary: _Optional[_Union[GenerateSummary, _Mapping]] = ...) -> None: ...

class GenerateSummary(_message.Message):
    __slots__ = ("produced", "discarded", "usage")
    PRODUCED_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    produced: int
    discarded: int
    usage: _values_pb2.Usage
    def __init__(self, produced: _Optional[int] = ..., discarded: _Optional[int] = ..., usage: _Optional[_Union[_values_pb2.Usage, _Mapping]] = ...) -> None: ...
