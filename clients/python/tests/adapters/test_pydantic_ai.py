"""Agents of pydantic-ai, as they are, on its own models for tests. The sample agents show the rest."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from client import LIVE, ROUTING_ONLY, STUB, answering, invoke, start_frame
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from forge_daemon import from_pydantic_ai
from forge_daemon.proto.invoke_pb2 import TEXT_CHANNEL_REASONING

RUNS: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RUNS.clear()


def weather(model: Any, **more: Any) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(model, name="weather", **more)

    @agent.tool_plain
    def look(city: str) -> dict[str, Any]:
        """Looks up the weather of a city."""
        RUNS.append(city)
        return {"city": city, "degrees": 17}

    return agent


@pytest.mark.parametrize("mode", [LIVE, STUB, ROUTING_ONLY])
async def test_the_model_for_tests_of_pydantic_ai(serve, mode):
    served = from_pydantic_ai(weather(TestModel()), version="2")
    assert (served.card.agent_id, served.card.version, served.card.model) == ("weather", "2", "test")
    assert [(one.name, one.description) for one in served.card.tools] == [("look", "Looks up the weather of a city.")]
    on_event = answering({"look": {"degrees": -40}})
    events = await invoke(await serve(served), start_frame(mode=mode), on_event=on_event)
    events.check_rules()
    assert events.tools == ["look"]
    assert events.reason == ("TOOL_CALLS" if mode == ROUTING_ONLY else "COMPLETED")
    assert (["a"] if mode == LIVE else []) == RUNS
    if mode == STUB:
        assert json.loads(events.text) == {"look": '{"degrees": -40}'}


async def test_deps_of_the_turn(serve):
    @dataclass
    class Deps:
        user: str

    agent = Agent(TestModel(), deps_type=Deps)

    @agent.tool
    def who(context: RunContext[Deps]) -> str:
        """Says who asks."""
        return context.deps.user

    for deps in (Deps("Ada"), lambda turn: Deps(turn.user_text)):
        events = await invoke(await serve(from_pydantic_ai(agent, deps=deps)), start_frame("Ada"))
        assert events.text == '{"who":"Ada"}'


@pytest.mark.parametrize("mode", [LIVE, STUB, ROUTING_ONLY])
async def test_structured_output_is_the_answer_and_no_tool(serve, mode):
    class Report(BaseModel):
        degrees: int

    events = await invoke(
        await serve(from_pydantic_ai(weather(TestModel(call_tools=[]), output_type=Report))), start_frame(mode=mode)
    )
    events.check_rules()
    assert (events.reason, events.tools, events.text) == ("COMPLETED", [], '{"degrees":0}')


async def test_streams(serve):
    async def respond(messages: Any, info: Any) -> AsyncIterator[Any]:
        if isinstance(messages[-1].parts[0], ToolReturnPart):
            for word in ("It ", "is ", "17."):
                yield word
        else:
            yield {0: DeltaThinkingPart(content="hm")}
            yield "Let me look. "
            yield {1: DeltaToolCall("look", '{"city": "Paris"}')}

    agent = weather(FunctionModel(stream_function=respond))
    stub = await serve(from_pydantic_ai(agent, stream=True))
    events = await invoke(stub, start_frame())
    events.check_rules()
    assert [delta.text for delta in events.of("text_delta")] == ["hm", "Let me look. ", "It ", "is ", "17."]
    assert events.of("text_delta")[0].channel == TEXT_CHANNEL_REASONING
    assert events.kinds().index("text_delta") < events.kinds().index("tool_started")
    assert (events.text, RUNS) == ("It is 17.", ["Paris"])
    events = await invoke(stub, start_frame(mode=STUB), on_event=answering({"look": 1}))
    events.check_rules()
    assert (events.text, RUNS) == ("It is 17.", ["Paris"])


def calling(name: str, arguments: str = "{}") -> FunctionModel:
    """A model that calls a tool, and says what came back."""

    def respond(messages: Any, info: Any) -> ModelResponse:
        parts = messages[-1].parts
        if isinstance(parts[0], ToolReturnPart):
            return ModelResponse(parts=[TextPart(f"{parts[0].outcome}: {parts[0].model_response_str()}")])
        return ModelResponse(parts=[ToolCallPart(name, arguments)])

    return FunctionModel(respond)


async def test_a_tool_that_throws_fails_the_turn_as_it_fails_the_agent(serve):
    agent = Agent(calling("fail"))

    @agent.tool_plain
    def fail() -> str:
        """Fails."""
        raise RuntimeError("down")

    events = await invoke(await serve(from_pydantic_ai(agent)), start_frame())
    events.check_rules()
    assert (events.reason, events.finished.error.message) == ("FAILED", "RuntimeError: down")
    assert events.of("tool_finished")[0].error.message == "RuntimeError: down"
    assert "Traceback" in events.of("log")[0].message


async def test_a_tool_that_asks_its_model_to_try_again(serve):
    agent = Agent(calling("fail"))

    @agent.tool_plain
    def fail() -> str:
        """Fails."""
        raise ModelRetry("say more")

    events = await invoke(await serve(from_pydantic_ai(agent)), start_frame())
    events.check_rules()
    assert events.reason == "COMPLETED"
    assert events.text == 'retried: {"error":"say more"}'
    assert (events.of("tool_finished")[0].error.message, events.of("log")) == ("say more", [])


def test_what_is_no_agent():
    with pytest.raises(TypeError, match="an Agent of pydantic-ai, not str"):
        from_pydantic_ai("openai:gpt")  # type: ignore[arg-type]
