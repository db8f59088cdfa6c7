"""Agents of Google's ADK, as they are, on a model of the ADK's own kind that is fed with answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from client import LIVE, ROUTING_ONLY, STUB, answering, cancel_frame, invoke, start_frame
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.tools import google_search
from google.genai import types
from pydantic import BaseModel

from forge_daemon import from_google_adk
from forge_daemon.proto import values_pb2 as values

RUNS: list[str] = []


def look(city: str, units: str = "celsius") -> dict[str, Any]:
    """Looks up the weather of a city."""
    RUNS.append(city)
    return {"city": city, "degrees": 17, "units": units}


def fail(why: str) -> str:
    """Fails."""
    raise ValueError(why)


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RUNS.clear()


class Fed(BaseLlm):
    """A model that gives the answers it was fed with, and remembers what it read."""

    model: str = "fed"
    answers: list[list[Any]]
    usage: Any = None
    read: list[Any] = []  # noqa: RUF012

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        self.read.append(llm_request.model_copy(deep=True))
        parts = [types.Part(text=one) if isinstance(one, str) else one for one in self.answers.pop(0)]
        if stream:
            for part in parts:
                for word in (part.text or "").split(" "):
                    if word:
                        piece = types.Content(role="model", parts=[types.Part(text=f"{word} ")])
                        yield LlmResponse(content=piece, partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=self.usage)


def call(name: str, **arguments: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=arguments))


def weather(*answers: Any, **more: Any) -> LlmAgent:
    model = Fed(
        answers=[list(one) if isinstance(one, tuple) else [one] for one in answers], read=[], **more.pop("feed", {})
    )
    return LlmAgent(name=more.pop("name", "weather"), model=model, tools=more.pop("tools", [look]), **more)


PARIS, OSLO = call("look", city="Paris"), call("look", city="Oslo")


def results(agent: LlmAgent, number: int) -> list[Any]:
    """The results that the model read."""
    parts = [part for content in agent.model.read[number].contents for part in content.parts]
    return [part.function_response.response for part in parts if part.function_response]


async def test_live(serve):
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=7, candidates_token_count=3, thoughts_token_count=1
    )
    agent = weather(("Let me look. ", PARIS), "It is 17.", feed={"usage": usage})
    served = from_google_adk(agent)
    assert (served.card.agent_id, served.card.model) == ("weather", "fed")
    (declared,) = served.card.tools
    schema = json.loads(declared.input_schema.raw)
    assert (declared.name, declared.description, schema["required"]) == (
        "look",
        "Looks up the weather of a city.",
        ["city"],
    )
    assert schema["properties"]["city"]["type"] == "string"
    events = await invoke(await serve(served), start_frame("Paris?"))
    events.check_rules()
    assert events.kinds() == [
        "accepted", "model_turn", "tool_started", "tool_finished", "model_turn", "text_delta", "finished",
    ]  # fmt: skip
    (started,), (finished,) = events.of("tool_started"), events.of("tool_finished")
    assert json.loads(started.params.raw) == {"city": "Paris"}
    assert json.loads(finished.result.raw) == {"city": "Paris", "degrees": 17, "units": "celsius"}
    used = events.finished.usage
    assert (used.input_tokens, used.output_tokens, used.reasoning_tokens) == (14, 8, 2)
    assert (events.reason, events.text, RUNS) == ("COMPLETED", "It is 17.", ["Paris"])


async def test_stubs(serve):
    agent = weather((PARIS, OSLO), "Done.")
    on_event = answering({"look": {"degrees": -40}})
    events = await invoke(await serve(from_google_adk(agent)), start_frame(mode=STUB), on_event=on_event)
    events.check_rules()
    assert (events.text, events.tools, RUNS) == ("Done.", ["look", "look"], [])
    assert results(agent, 1) == [{"degrees": -40}, {"degrees": -40}]


async def test_a_stub_that_is_no_object_and_one_that_is_missing(serve):
    agent = weather((call("look", city="x"), call("lok")), "Done.")
    events = await invoke(await serve(from_google_adk(agent)), start_frame(mode=STUB), on_event=answering({"look": 5}))
    events.check_rules()
    assert (events.reason, RUNS) == ("COMPLETED", [])
    assert results(agent, 1) == [{"result": 5}, {"error": "no stub for lok"}]


async def test_a_tool_that_does_not_exist(serve):
    agent = weather(call("lok"), "Sorry.")
    events = await invoke(await serve(from_google_adk(agent)), start_frame())
    events.check_rules()
    assert (events.reason, events.text) == ("COMPLETED", "Sorry.")
    assert events.of("tool_finished")[0].error.message == "Tool 'lok' not found."


async def test_routing_only(serve):
    agent = weather(("Let me look.", PARIS, OSLO), "never")
    events = await invoke(await serve(from_google_adk(agent)), start_frame(mode=ROUTING_ONLY))
    events.check_rules()
    assert (events.reason, events.tools, events.text, RUNS) == ("TOOL_CALLS", ["look", "look"], "Let me look.", [])


async def test_model_turns_are_limited(serve):
    agent = weather(*[("Looking.", call("look", city=str(number))) for number in range(9)])
    events = await invoke(await serve(from_google_adk(agent)), start_frame(max_model_turns=3))
    events.check_rules()
    assert (events.reason, len(events.tools), len(agent.model.read)) == ("MAX_MODEL_TURNS", 3, 3)


async def test_a_tool_that_throws_fails_the_turn_as_it_fails_the_agent(serve):
    events = await invoke(await serve(from_google_adk(weather(call("fail", why="down"), tools=[fail]))), start_frame())
    events.check_rules()
    assert events.reason == "FAILED"
    assert events.of("tool_finished")[0].error.message == "ValueError: down"


@pytest.mark.parametrize("mode", [LIVE, STUB])
async def test_agents_below_agents(serve, mode):
    below = weather(PARIS, "It is 17.", name="below")
    above = weather(call("transfer_to_agent", agent_name="below"), tools=[], name="above", sub_agents=[below])
    served = from_google_adk(above)
    assert [one.name for one in served.card.tools] == ["look"]
    events = await invoke(await serve(served), start_frame(mode=mode), on_event=answering({"look": {}}))
    events.check_rules()
    assert (events.tools, events.text) == (["look"], "It is 17.")
    assert (["Paris"] if mode == LIVE else []) == RUNS


async def test_agents_one_after_the_other(serve):
    steps = [weather("First.", name="a"), weather(PARIS, "Second.", name="b")]
    events = await invoke(await serve(from_google_adk(SequentialAgent(name="all", sub_agents=steps))), start_frame())
    events.check_rules()
    assert (events.tools, events.text) == (["look"], "Second.")


async def test_structured_output(serve):
    class Report(BaseModel):
        degrees: int

    agent = weather('{"degrees": 17}', tools=[], output_schema=Report)
    assert json.loads((await invoke(await serve(from_google_adk(agent)), start_frame())).text) == {"degrees": 17}


async def test_streams(serve):
    agent = weather(("Let me look. ", PARIS), "It is seventeen.")
    events = await invoke(await serve(from_google_adk(agent, stream=True)), start_frame())
    assert len(events.of("text_delta")) > 3
    assert (events.text, events.tools) == ("It is seventeen.", ["look"])


async def test_the_conversation_is_kept_and_nothing_else(serve):
    use = values.ToolUse(call_id="1", name="look", arguments=values.Json(raw=b'{"city":"x"}'))
    output = values.ToolOutput(call_id="1", result=values.Json(raw=b"[1.5]"))
    said = [
        values.Message(role=values.ROLE_SYSTEM, parts=[values.Part(text="Be brief.")]),
        values.Message(role=values.ROLE_USER, parts=[values.Part(text="Look!")]),
        values.Message(role=values.ROLE_ASSISTANT, parts=[values.Part(tool_use=use)]),
        values.Message(role=values.ROLE_TOOL, parts=[values.Part(tool_output=output)]),
        values.Message(role=values.ROLE_USER, parts=[values.Part(text="And?")]),
    ]
    agent = weather("One.", "Two.", instruction="You know the weather.")
    stub = await serve(from_google_adk(agent))
    for _ in range(2):
        await invoke(stub, start_frame(messages=said, conversation_id="same"))
    for read in agent.model.read:
        parts = [part for content in read.contents for part in content.parts]
        assert [part.text for part in parts if part.text] == ["Look!", "And?"]
        assert [part.function_call.args for part in parts if part.function_call] == [{"city": "x"}]
        (response,) = [one.function_response for one in parts if one.function_response]
        assert (response.name, response.response) == ("look", {"result": [1.5]})
        assert "You know the weather." in read.config.system_instruction
        assert "Be brief." in read.config.system_instruction


async def test_an_app_with_a_plugin_of_its_own(serve):
    class Cache(BasePlugin):
        async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> Any:
            return {"cached": True}

    agent = weather(PARIS, "Done.")
    served = from_google_adk(App(name="weather_app", root_agent=agent, plugins=[Cache("cache")]))
    events = await invoke(await serve(served), start_frame())
    events.check_rules()
    assert (json.loads(events.of("tool_finished")[0].result.raw), RUNS) == ({"cached": True}, [])


async def test_a_model_that_fails(serve):
    class Failing(BaseLlm):
        model: str = "failing"

        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
            yield LlmResponse(error_code="429", error_message="quota")

    events = await invoke(await serve(from_google_adk(LlmAgent(name="a", model=Failing()))), start_frame())
    assert (events.reason, events.finished.error.message) == ("FAILED", "quota")


def test_tools_that_run_at_google_cannot_be_stubbed():
    assert from_google_adk(weather(tools=[google_search])).capabilities == ("text.delta", "cancel")


async def test_cancel(serve):
    async def wait() -> str:
        """Waits."""
        await asyncio.sleep(60)
        return ""

    async def on_event(event, call):
        if event.WhichOneof("event") == "tool_started":
            await call.write(cancel_frame())

    events = await invoke(
        await serve(from_google_adk(weather(call("wait"), tools=[wait]))), start_frame(), on_event=on_event
    )
    events.check_rules()
    assert events.reason == "CANCELLED"


def test_what_is_no_agent():
    with pytest.raises(TypeError, match="an agent or an App of Google's ADK, not int"):
        from_google_adk(7)  # type: ignore[arg-type]
