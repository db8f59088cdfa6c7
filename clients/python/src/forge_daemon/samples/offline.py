"""A model that follows rules: no network, no key, the same answer every time.

pydantic-ai runs it like any other model: it sees the conversation, asks for tools with arguments as JSON text, gets
their results, and writes an answer from what they say, whatever that is.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

MODEL_VARIABLE = "FORGE_SAMPLE_MODEL"


@dataclass(frozen=True)
class Line:
    """Something that was said in a conversation."""

    speaker: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class Call:
    """A tool that the rules want to call."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """What came back for a call."""

    tool: str
    arguments: Mapping[str, Any]
    #: The tool's JSON: usually an object, but a stub may say anything.
    data: Any
    #: Why the tool failed; None if it did not.
    error: str | None = None


Choose = Callable[[Sequence[str]], list[Call]]
"""Gives the calls for a conversation: what the user has said so far, the latest last."""

Write = Callable[[Sequence[str], list[Result]], str]
"""Gives the answer from the results, of which there may be none."""


def real_model() -> str | None:
    """The model that FORGE_SAMPLE_MODEL names; None if the rules shall play it.

    The name is pydantic-ai's, for example `openai-chat:NAME` for any server that speaks the chat completions of OpenAI;
    OPENAI_BASE_URL says where it is.
    """
    return os.environ.get(MODEL_VARIABLE) or None


def model(name: str, choose: Choose, write: Write) -> FunctionModel | str:
    """The model of a sample whose rules look at the user's texts alone; the real one if there is one."""
    return dialogue_model(
        name,
        lambda lines: choose(texts_of("user", lines)),
        lambda lines, results: write(texts_of("user", lines), results),
    )


def dialogue_model(
    name: str,
    choose: Callable[[Sequence[Line]], list[Call]],
    write: Callable[[Sequence[Line], list[Result]], str],
) -> FunctionModel | str:
    """As `model`, for rules that also look at what the assistant said earlier, for example what it asked."""
    if real := real_model():
        return real

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        lines = [line for message in messages for line in _lines(message)]
        results = _latest_results(messages)
        calls = [] if results else choose(lines)
        parts = [ToolCallPart(call.tool, json.dumps(call.arguments, ensure_ascii=False)) for call in calls]
        return ModelResponse(
            parts=parts or [TextPart(write(lines, results))],
            finish_reason="tool_call" if parts else "stop",
            # Rules consume no tokens; without this pydantic-ai would make up a number.
            usage=RequestUsage(unmeasured_requests=1),
        )

    return FunctionModel(respond, model_name=name)


def texts_of(speaker: str, lines: Sequence[Line]) -> list[str]:
    """What one of the two has said, oldest first."""
    return [line.text for line in lines if line.speaker == speaker]


def _lines(message: ModelMessage) -> list[Line]:
    if isinstance(message, ModelResponse):
        return [Line("assistant", part.content) for part in message.parts if isinstance(part, TextPart)]
    return [Line("user", text) for text in _user_texts(message)]


def _user_texts(message: ModelMessage) -> list[str]:
    parts = message.parts if isinstance(message, ModelRequest) else []
    return [part.content for part in parts if isinstance(part, UserPromptPart) and isinstance(part.content, str)]


def _latest_results(messages: list[ModelMessage]) -> list[Result]:
    """The results of the calls that were made since the user spoke last."""
    arguments: dict[str, Mapping[str, Any]] = {}
    results: list[Result] = []
    for message in messages:
        if _user_texts(message):
            results.clear()
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                arguments[part.tool_call_id] = part.args_as_dict()
            elif isinstance(part, ToolReturnPart):
                results.append(_result(part, arguments.get(part.tool_call_id, {})))
    return results


def _result(part: ToolReturnPart, arguments: Mapping[str, Any]) -> Result:
    text = part.model_response_str(wrap_if_error=False)
    if part.outcome != "success":
        return Result(part.tool_name, arguments, None, error=text)
    try:
        return Result(part.tool_name, arguments, json.loads(text))
    except ValueError:
        return Result(part.tool_name, arguments, text)
