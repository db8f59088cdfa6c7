"""Agents of the OpenAI Agents SDK, as they are, on the SDK's own scripted model."""

import asyncio
import json
from typing import Any

import pytest
from agents import Agent, RunContextWrapper, function_tool, handoff, input_guardrail, set_tracing_disabled
from agents.guardrail import GuardrailFunctionOutput
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.tool import FunctionTool, WebSearchTool
from agents.usage import Usage
from client import LIVE, ROUTING_ONLY, STUB, answering, cancel_frame, invoke, start_frame
from pydantic import BaseModel

from forge_daemon import from_openai_agents
from forge_daemon.proto import values_pb2 as values

RUNS: list[str] = []
set_tracing_disabled(True)


@function_tool
def look(city: str) -> dict[str, Any]:
    """Looks up the weather of a city.

    Args:
        city: Its name.
    """
    RUNS.append(city)
    return {"city": city, "degrees": 17}


@function_tool
def fail(why: str) -> str:
    """Fails."""
    raise ValueError(why)


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RUNS.clear()


def call(name: str, arguments: str, number: int = 1) -> Any:
    return function_call(name, arguments, call_id=f"call_{number}")


def step(*output: Any, **more: Any) -> ModelStep:
    return ModelStep(output=[assistant_message(one) if isinstance(one, str) else one for one in output], **more)


PARIS = call("look", '{ "city": "Paris"}')
OSLO = call("look", '{"city": "Oslo"}', 2)


def weather(*steps: ModelStep, **more: Any) -> Agent[Any]:
    return Agent(name="Weather", model=ScriptedModel(steps), tools=more.pop("tools", [look]), **more)


def read(agent: Agent[Any], number: int) -> Any:
    """What the model read."""
    return agent.model.calls[number].input


async def test_live(serve):
    usage = Usage(requests=1, input_tokens=7, output_tokens=3, total_tokens=10)
    agent = weather(step("Let me look. ", PARIS, usage=usage), step("It is 17."))
    served = from_openai_agents(agent)
    assert (served.card.agent_id, [one.name for one in served.card.tools]) == ("Weather", ["look"])
    assert served.card.tools[0].description == "Looks up the weather of a city."
    events = await invoke(await serve(served), start_frame("Paris?"))
    events.check_rules()
    assert events.kinds() == [
        "accepted", "model_turn", "tool_started", "tool_finished", "model_turn", "text_delta", "finished",
    ]  # fmt: skip
    (started,), (finished,) = events.of("tool_started"), events.of("tool_finished")
    assert (started.params.raw, started.call_id) == (b'{ "city": "Paris"}', "call_1")
    assert json.loads(finished.result.raw) == {"city": "Paris", "degrees": 17}
    assert (events.finished.usage.input_tokens, events.finished.usage.output_tokens) == (7, 3)
    assert (events.reason, events.text, RUNS) == ("COMPLETED", "It is 17.", ["Paris"])


async def test_stubs(serve):
    agent = weather(step(PARIS, OSLO), step("Done."))
    on_event = answering({"look": {"degrees": -40}})
    events = await invoke(await serve(from_openai_agents(agent)), start_frame(mode=STUB), on_event=on_event)
    events.check_rules()
    assert (events.text, events.tools, RUNS) == ("Done.", ["look", "look"], [])
    outputs = [item["output"] for item in read(agent, 1) if item.get("type") == "function_call_output"]
    assert outputs == ['{"degrees": -40}', '{"degrees": -40}']


async def test_a_missing_stub_is_a_failed_tool(serve):
    agent = weather(step(PARIS), step("Sorry."))
    events = await invoke(await serve(from_openai_agents(agent)), start_frame(mode=STUB), on_event=answering({}))
    events.check_rules()
    assert (events.reason, events.text, RUNS) == ("COMPLETED", "Sorry.", [])
    assert read(agent, 1)[-1]["output"] == "no stub for look"


async def test_routing_only(serve):
    agent = weather(step("Let me look.", PARIS, OSLO), step("never"))
    events = await invoke(await serve(from_openai_agents(agent)), start_frame(mode=ROUTING_ONLY))
    events.check_rules()
    assert (events.reason, events.tools, events.text, RUNS) == ("TOOL_CALLS", ["look", "look"], "Let me look.", [])


async def test_model_turns_are_limited(serve):
    agent = weather(*[step("Looking.", call("look", '{"city": "x"}', number)) for number in range(9)])
    events = await invoke(await serve(from_openai_agents(agent)), start_frame(max_model_turns=3))
    events.check_rules()
    assert (events.reason, len(events.tools), len(agent.model.calls)) == ("MAX_MODEL_TURNS", 3, 3)


async def test_a_tool_that_throws_fails_its_call(serve):
    agent = weather(step(call("fail", '{"why": "down"}')), step("Sorry."), tools=[fail])
    events = await invoke(await serve(from_openai_agents(agent)), start_frame())
    events.check_rules()
    assert (events.reason, events.text) == ("COMPLETED", "Sorry.")
    assert events.of("tool_finished")[0].error.message == "ValueError: down"
    assert "An error occurred" in read(agent, 1)[-1]["output"]


async def test_a_tool_made_by_hand(serve):
    async def run(context: Any, arguments: str) -> str:
        RUNS.append(arguments)
        return "17"

    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    by_hand = FunctionTool(name="look", description="", params_json_schema=schema, on_invoke_tool=run)
    for mode, ran in ((LIVE, ["{}"]), (STUB, [])):
        RUNS.clear()
        agent = weather(step(call("look", "{}")), step("Done."), tools=[by_hand])
        on_event = answering({"look": 5})
        events = await invoke(await serve(from_openai_agents(agent)), start_frame(mode=mode), on_event=on_event)
        events.check_rules()
        assert (events.text, RUNS) == ("Done.", ran)


@pytest.mark.parametrize("mode", [LIVE, STUB])
async def test_handoffs(serve, mode):
    second = Agent(name="Second", model=ScriptedModel([step(PARIS), step("It is 17.")]), tools=[look])
    model = ScriptedModel([step(call("transfer_to_second", "{}", 9))])
    first = Agent(name="First", model=model, handoffs=[handoff(second)])
    served = from_openai_agents(first)
    assert [one.name for one in served.card.tools] == ["look"]
    events = await invoke(await serve(served), start_frame(mode=mode), on_event=answering({"look": 1}))
    events.check_rules()
    assert (events.tools, events.text) == (["look"], "It is 17.")
    assert events.of("log")[0].message == "First hands off to Second"
    assert (["Paris"] if mode == LIVE else []) == RUNS


async def test_structured_output(serve):
    class Report(BaseModel):
        degrees: int

    agent = weather(step('{"degrees": 17}'), output_type=Report)
    assert json.loads((await invoke(await serve(from_openai_agents(agent)), start_frame())).text) == {"degrees": 17}


async def test_streams(serve):
    agent = weather(step("Let me look. ", PARIS), step("It is seventeen."))
    events = await invoke(await serve(from_openai_agents(agent, stream=True)), start_frame())
    events.check_rules()
    assert (events.text, events.tools) == ("It is seventeen.", ["look"])
    assert events.kinds().index("text_delta") < events.kinds().index("tool_started")
    agent = weather(step("Let me look. ", PARIS), step("never"))
    events = await invoke(await serve(from_openai_agents(agent, stream=True)), start_frame(mode=ROUTING_ONLY))
    assert (events.reason, events.tools, RUNS) == ("TOOL_CALLS", ["look"], ["Paris"])


async def test_the_conversation(serve):
    use = values.ToolUse(call_id="1", name="look", arguments=values.Json(raw=b'{"a":1.0}'))
    output = values.ToolOutput(call_id="1", result=values.Json(raw=b"[1.0]"))
    said = [
        values.Message(role=values.ROLE_SYSTEM, parts=[values.Part(text="Be brief.")]),
        values.Message(role=values.ROLE_USER, parts=[values.Part(text="Look!")]),
        values.Message(role=values.ROLE_ASSISTANT, parts=[values.Part(tool_use=use)]),
        values.Message(role=values.ROLE_TOOL, parts=[values.Part(tool_output=output)]),
    ]
    agent = weather(step("Done."))
    await invoke(await serve(from_openai_agents(agent)), start_frame(messages=said))
    assert read(agent, 0) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look!"},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": '{"a":1.0}'},
        {"type": "function_call_output", "call_id": "1", "output": "[1.0]"},
    ]


async def test_a_guardrail_refuses(serve):
    @input_guardrail
    def never(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    events = await invoke(await serve(from_openai_agents(weather(step("x"), input_guardrails=[never]))), start_frame())
    assert (events.reason, events.text) == ("REFUSED", "")


async def test_context_of_the_turn(serve):
    @function_tool
    def who(context: RunContextWrapper[Any]) -> str:
        """Says who asks."""
        return str(context.context)

    agent = weather(step(call("who", "{}")), step("x"), tools=[who])
    await invoke(await serve(from_openai_agents(agent, context=lambda turn: turn.user_text)), start_frame("Ada"))
    assert read(agent, 1)[-1]["output"] == "Ada"


def test_tools_that_run_at_the_host_cannot_be_stubbed():
    served = from_openai_agents(weather(tools=[look, WebSearchTool()]))
    assert served.capabilities == ("text.delta", "cancel")


async def test_cancel(serve):
    @function_tool
    async def wait() -> str:
        """Waits."""
        await asyncio.sleep(60)
        return ""

    async def on_event(event, call):
        if event.WhichOneof("event") == "tool_started":
            await call.write(cancel_frame())

    for stream in (False, True):
        served = from_openai_agents(weather(step(call("wait", "{}")), tools=[wait]), stream=stream)
        events = await invoke(await serve(served), start_frame(), on_event=on_event)
        events.check_rules()
        assert events.reason == "CANCELLED"


def test_what_is_no_agent():
    with pytest.raises(TypeError, match="an Agent of the OpenAI Agents SDK, not str"):
        from_openai_agents("gpt")  # type: ignore[arg-type]
