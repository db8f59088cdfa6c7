import datetime

from forge_daemon.proto import values_pb2 as _values_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CaptureRequest(_message.Message):
    __slots__ = ("context", "paths")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    context: _values_pb2.CallContext
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, context: _Optional[_Union[_values_pb2.CallContext, _Mapping]] = ..., paths: _Optional[_Iterable[str]] = ...) -> None: ...

class CaptureResponse(_message.Message):
    __slots__ = ("data", "captured_at", "unresolved")
    class UnresolvedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _values_pb2.Fault
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_values_pb2.Fault, _Mapping]] = ...) -> None: ...
    DATA_FIELD_NUMBER: _ClassVar[int]
    CAPTURED_AT_FIELD_NUMBER: _ClassVar[int]
    UNRESOLVED_FIELD_NUMBER: _ClassVar[int]
    data: _values_pb2.Json
    captured_at: _timestamp_pb2.Timestamp
    unresolved: _containers.MessageMap[str, _values_pb2.Fault]
    def __init__(self, data: _Optional[_Union[_values_pb2.Json, _Mapping]] = ..., captured_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., unresolved: _Optional[_Mapping[str, _values_pb2.Fault]] = ...) -> None: ...
