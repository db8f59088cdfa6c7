import datetime

from forge_daemon.proto import agent_pb2 as _agent_pb2
from forge_daemon.proto import generator_pb2 as _generator_pb2
from forge_daemon.proto import invoke_pb2 as _invoke_pb2
from forge_daemon.proto import simulator_pb2 as _simulator_pb2
from forge_daemon.proto import snapshot_pb2 as _snapshot_pb2
from forge_daemon.proto import validator_pb2 as _validator_pb2
from forge_daemon.proto import values_pb2 as _values_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttachRequest(_message.Message):
    __slots__ = ("hello", "reply", "end", "window", "pong", "drain")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    reply: Reply
    end: EndCall
    window: WindowUpdate
    pong: Pong
    drain: Drain
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., reply: _Optional[_Union[Reply, _Mapping]] = ..., end: _Optional[_Union[EndCall, _Mapping]] = ..., window: _Optional[_Union[WindowUpdate, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("welcome", "open", "send", "half_close", "reset", "window", "ping", "drain_ack")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    HALF_CLOSE_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    DRAIN_ACK_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    open: OpenCall
    send: SendFrame
    half_close: HalfClose
    reset: ResetCall
    window: WindowUpdate
    ping: Ping
    drain_ack: DrainAck
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., open: _Optional[_Union[OpenCall, _Mapping]] = ..., send: _Optional[_Union[SendFrame, _Mapping]] = ..., half_close: _Optional[_Union[HalfClose, _Mapping]] = ..., reset: _Optional[_Union[ResetCall, _Mapping]] = ..., window: _Optional[_Union[WindowUpdate, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., drain_ack: _Optional[_Union[DrainAck, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("min_revision", "max_revision", "agents", "instance_id", "previous_session_id", "initial_window_bytes", "stream_window_bytes", "temporary")
    MIN_REVISION_FIELD_NUMBER: _ClassVar[int]
    MAX_REVISION_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    INITIAL_WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    STREAM_WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_FIELD_NUMBER: _ClassVar[int]
    min_revision: int
    max_revision: int
    agents: _containers.RepeatedCompositeFieldContainer[AttachedAgent]
    instance_id: str
    previous_session_id: str
    initial_window_bytes: int
    stream_window_bytes: int
    temporary: bool
    def __init__(self, min_revision: _Optional[int] = ..., max_revision: _Optional[int] = ..., agents: _Optional[_Iterable[_Union[AttachedAgent, _Mapping]]] = ..., instance_id: _Optional[str] = ..., previous_session_id: _Optional[str] = ..., initial_window_bytes: _Optional[int] = ..., stream_window_bytes: _Optional[int] = ..., temporary: _Optional[bool] = ...) -> None: ...

class AttachedAgent(_message.Message):
    __slots__ = ("agent_id", "describe")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    describe: _agent_pb2.DescribeResponse
    def __init__(self, agent_id: _Optional[str] = ..., describe: _Optional[_Union[_agent_pb2.DescribeResponse, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("revision", "session_id", "ping_interval", "initial_window_bytes", "stream_window_bytes", "max_message_bytes")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PING_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    INITIAL_WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    STREAM_WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    revision: int
    session_id: str
    ping_interval: _duration_pb2.Duration
    initial_window_bytes: int
    stream_window_bytes: int
    max_message_bytes: int
    def __init__(self, revision: _Optional[int] = ..., session_id: _Optional[str] = ..., ping_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., initial_window_bytes: _Optional[int] = ..., stream_window_bytes: _Optional[int] = ..., max_message_bytes: _Optional[int] = ...) -> None: ...

class OpenCall(_message.Message):
    __slots__ = ("call_no", "agent_id", "timeout", "invoke", "next_input", "validate", "generate", "capture", "describe")
    CALL_NO_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    INVOKE_FIELD_NUMBER: _ClassVar[int]
    NEXT_INPUT_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_FIELD_NUMBER: _ClassVar[int]
    GENERATE_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    call_no: int
    agent_id: str
    timeout: _duration_pb2.Duration
    invoke: _agent_pb2.InvokeRequest
    next_input: _simulator_pb2.NextInputRequest
    validate: _validator_pb2.ValidateRequest
    generate: _generator_pb2.GenerateRequest
    capture: _snapshot_pb2.CaptureRequest
    describe: _agent_pb2.DescribeRequest
    def __init__(self, call_no: _Optional[int] = ..., agent_id: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., invoke: _Optional[_Union[_agent_pb2.InvokeRequest, _Mapping]] = ..., next_input: _Optional[_Union[_simulator_pb2.NextInputRequest, _Mapping]] = ..., validate: _Optional[_Union[_validator_pb2.ValidateRequest, _Mapping]] = ..., generate: _Optional[_Union[_generator_pb2.GenerateRequest, _Mapping]] = ..., capture: _Optional[_Union[_snapshot_pb2.CaptureRequest, _Mapping]] = ..., describe: _Optional[_Union[_agent_pb2.DescribeRequest, _Mapping]] = ...) -> None: ...

class SendFrame(_message.Message):
    __slots__ = ("call_no", "invoke")
    CALL_NO_FIELD_NUMBER: _ClassVar[int]
    INVOKE_FIELD_NUMBER: _ClassVar[int]
    call_no: int
    invoke: _agent_pb2.InvokeRequest
    def __init__(self, call_no: _Optional[int] = ..., invoke: _Optional[_Union[_agent_pb2.InvokeRequest, _Mapping]] = ...) -> None: ...

class HalfClose(_message.Message):
    __slots__ = ("call_no",)
    CALL_NO_FIELD_NUMBER: _ClassVar[int]
    call_no: int
    def __init__(self, call_no: _Optional[int] = ...) -> None: ...

class ResetCall(_message.Message):
    __slots__ = ("call_no",)
    CALL_NO_FIELD_NUMBER: _ClassVar[int]
    call_no: int
    def __init__(self, call_no: _Optional[int] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("call_no", "invoke", "next_input", "validate", "generate", "capture", "describe")
    CALL_NO_FIELD_NUMBER: _ClassVar[int]
    INVOKE_FIELD_NUMBER: _ClassVar[int]
    NEXT_INPUT_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_FIELD_NUMBER: _ClassVar[int]
    GENERATE_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    call_no: int
    invoke: _invoke_pb2.InvokeResponse
    next_input: _simulator_pb2.NextInputResponse
    validate: _validator_pb2.ValidateResponse
    generate: _generator_pb2.GenerateResponse
    capture: _snapshot_pb2.CaptureResponse
    describe: _agent_pb2.DescribeResponse
    def __init__(self, call_no: _Optional[int] = ..., invoke: _Optional[_Union[_invoke_pb2.InvokeResponse, _Mapping]] = ..., next_input: _Optional[_Union[_simulator_pb2.NextInputResponse, _Mapping]] = ..., validate: _Optional[_Union[_validator_pb2.ValidateResponse, _Mapping]] = ..., generate: _Optional[_Union[_generator_pb2.GenerateResponse, _Mapping]] = ..., capture: _Optional[_Union[_snapshot_pb2.CaptureResponse, _Mapping]] = ..., describe: _Optional[_Union[_agent_pb2.DescribeResponse, _Mapping]] = ...) -> None: ...

class EndCall(_message.Message):
    __slots__ = ("call_no", "fault")
    CALL_NO_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    call_no: int
    fault: _values_pb2.Fault
    def __init__(self, call_no: _Optional[int] = ..., fault: _Optional[_Union[_values_pb2.Fault, _Mapping]] = ...) -> None: ...

class WindowUpdate(_message.Message):
    __slots__ = ("call_no", "bytes")
    CALL_NO_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    call_no: int
    bytes: int
    def __init__(self, call_no: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class DrainAck(_message.Message):
    __slots__ = ("last_call_no",)
    LAST_CALL_NO_FIELD_NUMBER: _ClassVar[int]
    last_call_no: int
    def __init__(self, last_call_no: _Optional[int] = ...) -> None: ...
