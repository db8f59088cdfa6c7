from forge_daemon.proto import values_pb2 as _values_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Checkpoint(_message.Message):
    __slots__ = ("checkpoint_id", "description", "after", "reached_at_turn")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REACHED_AT_TURN_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: str
    description: str
    after: _containers.RepeatedScalarFieldContainer[str]
    reached_at_turn: int
    def __init__(self, checkpoint_id: _Optional[str] = ..., description: _Optional[str] = ..., after: _Optional[_Iterable[str]] = ..., reached_at_turn: _Optional[int] = ...) -> None: ...

class NextInputRequest(_message.Message):
    __slots__ = ("context", "persona", "goal", "conversation", "turn_number", "max_turns", "reached", "pending", "options")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PERSONA_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    TURN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    MAX_TURNS_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    context: _values_pb2.CallContext
    persona: str
    goal: str
    conversation: _containers.RepeatedCompositeFieldContainer[_values_pb2.Message]
    turn_number: int
    max_turns: int
    reached: _containers.RepeatedCompositeFieldContainer[Checkpoint]
    pending: _containers.RepeatedCompositeFieldContainer[Checkpoint]
    options: _values_pb2.Options
    def __init__(self, context: _Optional[_Union[_values_pb2.CallContext, _Mapping]] = ..., persona: _Optional[str] = ..., goal: _Optional[str] = ..., conversation: _Optional[_Iterable[_Union[_values_pb2.Message, _Mapping]]] = ..., turn_number: _Optional[int] = ..., max_turns: _Optional[int] = ..., reached: _Optional[_Iterable[_Union[Checkpoint, _Mapping]]] = ..., pending: _Optional[_Iterable[_Union[Checkpoint, _Mapping]]] = ..., options: _Optional[_Union[_values_pb2.Options, _Mapping]] = ...) -> None: ...

class NextInputResponse(_message.Message):
    __slots__ = ("input", "goal_achieved", "reasoning", "gave_up", "usage")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    GOAL_ACHIEVED_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    GAVE_UP_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    input: _values_pb2.Message
    goal_achieved: bool
    reasoning: str
    gave_up: bool
    usage: _values_pb2.Usage
    def __init__(self, input: _Optional[_Union[_values_pb2.Message, _Mapping]] = ..., goal_achieved: _Optional[bool] = ..., reasoning: _Optional[str] = ..., gave_up: _Optional[bool] = ..., usage: _Optional[_Union[_values_pb2.Usage, _Mapping]] = ...) -> None: ...
