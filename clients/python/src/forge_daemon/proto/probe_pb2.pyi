import datetime

from forge_daemon.proto import invoke_pb2 as _invoke_pb2
from forge_daemon.proto import values_pb2 as _values_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProbeScript(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[ProbeStep]
    def __init__(self, steps: _Optional[_Iterable[_Union[ProbeStep, _Mapping]]] = ...) -> None: ...

class ProbeStep(_message.Message):
    __slots__ = ("emit_text", "call_tool", "sleep", "emit_padding_bytes", "echo_request", "echo_tool_results", "fail", "wait_cancel", "finish", "parallel_tools", "crash", "model_turn", "report_steps_of", "begin_drain", "repeat")
    EMIT_TEXT_FIELD_NUMBER: _ClassVar[int]
    CALL_TOOL_FIELD_NUMBER: _ClassVar[int]
    SLEEP_FIELD_NUMBER: _ClassVar[int]
    EMIT_PADDING_BYTES_FIELD_NUMBER: _ClassVar[int]
    ECHO_REQUEST_FIELD_NUMBER: _ClassVar[int]
    ECHO_TOOL_RESULTS_FIELD_NUMBER: _ClassVar[int]
    FAIL_FIELD_NUMBER: _ClassVar[int]
    WAIT_CANCEL_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_TOOLS_FIELD_NUMBER: _ClassVar[int]
    CRASH_FIELD_NUMBER: _ClassVar[int]
    MODEL_TURN_FIELD_NUMBER: _ClassVar[int]
    REPORT_STEPS_OF_FIELD_NUMBER: _ClassVar[int]
    BEGIN_DRAIN_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    emit_text: str
    call_tool: _values_pb2.ToolUse
    sleep: _duration_pb2.Duration
    emit_padding_bytes: int
    echo_request: bool
    echo_tool_results: bool
    fail: _values_pb2.Fault
    wait_cancel: bool
    finish: _invoke_pb2.InvokeFinished
    parallel_tools: int
    crash: bool
    model_turn: _invoke_pb2.ModelTurn
    report_steps_of: str
    begin_drain: bool
    repeat: int
    def __init__(self, emit_text: _Optional[str] = ..., call_tool: _Optional[_Union[_values_pb2.ToolUse, _Mapping]] = ..., sleep: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., emit_padding_bytes: _Optional[int] = ..., echo_request: _Optional[bool] = ..., echo_tool_results: _Optional[bool] = ..., fail: _Optional[_Union[_values_pb2.Fault, _Mapping]] = ..., wait_cancel: _Optional[bool] = ..., finish: _Optional[_Union[_invoke_pb2.InvokeFinished, _Mapping]] = ..., parallel_tools: _Optional[int] = ..., crash: _Optional[bool] = ..., model_turn: _Optional[_Union[_invoke_pb2.ModelTurn, _Mapping]] = ..., report_steps_of: _Optional[str] = ..., begin_drain: _Optional[bool] = ..., repeat: _Optional[int] = ...) -> None: ...
