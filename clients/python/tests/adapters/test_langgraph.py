"""Graphs of LangGraph and agents of LangChain, as they are, on LangChain's own fake model."""

import json
from typing import Any

import pytest
from client import LIVE, ROUTING_ONLY, STUB, answering, cancel_frame, invoke, start_frame
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

from forge_daemon import Turn, from_langgraph
from forge_daemon.proto import values_pb2 as values

RUNS: list[str] = []


@tool
async def look(city: str, units: str = "celsius") -> dict[str, Any]:
    """Looks up the weather of a city."""
    RUNS.append("look")
    return {"city": city, "degrees": 17, "units": units}


@tool
def look_at_once(city: str) -> str:
    """Looks up the weather of a city, and blocks."""
    RUNS.append("look_at_once")
    return f"17 in {city}"


@tool
def fail(why: str) -> str:
    """Fails."""
    RUNS.append("fail")
    raise ValueError(why)


class Fed(GenericFakeChatModel):
    """LangChain's fake model, which takes tools and remembers what it read."""

    read: list[list[AnyMessage]] = []  # noqa: RUF012

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        from langchain_core.utils.function_calling import convert_to_openai_tool

        return self.bind(tools=[convert_to_openai_tool(one) for one in tools])

    def _generate(self, messages: list[AnyMessage], *args: Any, **more: Any) -> Any:
        self.read.append(list(messages))
        more.pop("tools", None)
        return super()._generate(messages, *args, **more)


def fed(*answers: AIMessage | str) -> Fed:
    return Fed(messages=iter([AIMessage(one) if isinstance(one, str) else one for one in answers]), read=[])


def calls(*wanted: tuple[str, dict[str, Any]], text: str = "", **more: Any) -> AIMessage:
    made = [{"name": name, "args": args, "id": f"call_{number}"} for number, (name, args) in enumerate(wanted)]
    return AIMessage(text, tool_calls=made, **more)


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RUNS.clear()


PARIS = ("look", {"city": "Paris"})
OSLO = ("look", {"city": "Oslo"})


async def test_an_agent_of_langchain_live(serve):
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10, "input_token_details": {"cache_read": 2}}
    model = fed(calls(PARIS, text="Let me look. ", usage_metadata=usage), "It is 17.")
    agent = from_langgraph(create_agent(model, [look], name="weather"))
    assert (agent.card.agent_id, [one.name for one in agent.card.tools]) == ("weather", ["look"])
    assert json.loads(agent.card.tools[0].input_schema.raw)["required"] == ["city"]
    events = await invoke(await serve(agent), start_frame("Paris?"))
    events.check_rules()
    assert events.kinds() == [
        "accepted", "model_turn", "tool_started", "tool_finished", "model_turn", "text_delta", "finished",
    ]  # fmt: skip
    (started,), (finished,) = events.of("tool_started"), events.of("tool_finished")
    assert (started.name, json.loads(started.params.raw), started.call_id) == ("look", {"city": "Paris"}, "call_0")
    assert json.loads(finished.result.raw) == {"city": "Paris", "degrees": 17, "units": "celsius"}
    used = events.finished.usage
    assert (used.input_tokens, used.output_tokens, used.cache_read_tokens) == (7, 3, 2)
    assert (events.reason, events.text, RUNS) == ("COMPLETED", "It is 17.", ["look"])
    assert [message.text for message in model.read[0]] == ["Paris?"]


async def test_stubs(serve):
    model = fed(calls(PARIS, OSLO), "Done.")
    stub = await serve(from_langgraph(create_agent(model, [look])))
    events = await invoke(stub, start_frame(mode=STUB), on_event=answering({"look": {"degrees": -40}}))
    events.check_rules()
    assert (events.text, events.tools, RUNS) == ("Done.", ["look", "look"], [])
    results = [message for message in model.read[1] if isinstance(message, ToolMessage)]
    assert [one.content for one in results] == ['{"degrees": -40}', '{"degrees": -40}']
    assert [one.tool_call_id for one in results] == ["call_0", "call_1"]


async def test_a_missing_stub_is_a_failed_tool(serve):
    model = fed(calls(PARIS), "Sorry.")
    events = await invoke(
        await serve(from_langgraph(create_agent(model, [look]))), start_frame(mode=STUB), on_event=answering({})
    )
    assert (events.reason, events.text, RUNS) == ("COMPLETED", "Sorry.", [])
    assert (model.read[1][-1].content, model.read[1][-1].status) == ("no stub for look", "error")


async def test_a_tool_that_does_not_exist(serve):
    stub = await serve(from_langgraph(create_agent(fed(calls(("lok", {})), "Sorry."), [look])))
    events = await invoke(stub, start_frame())
    events.check_rules()
    assert "not a valid tool" in events.of("tool_finished")[0].error.message
    assert events.tools == ["lok"]
    stub = await serve(from_langgraph(create_agent(fed(calls(("lok", {})), "Good."), [look])))
    events = await invoke(stub, start_frame(mode=STUB), on_event=answering({"lok": 5}))
    assert (events.of("tool_finished")[0].result.raw, events.text) == (b"5", "Good.")


async def test_routing_only(serve):
    model = fed(calls(PARIS, OSLO, text="Let me look."), "never")
    events = await invoke(await serve(from_langgraph(create_agent(model, [look]))), start_frame(mode=ROUTING_ONLY))
    events.check_rules()
    assert (events.reason, events.tools, events.text, RUNS) == ("TOOL_CALLS", ["look", "look"], "Let me look.", [])


async def test_model_turns_are_limited(serve):
    model = fed(*[calls(PARIS, text=f"{number}") for number in range(9)])
    events = await invoke(await serve(from_langgraph(create_agent(model, [look]))), start_frame(max_model_turns=3))
    events.check_rules()
    assert (events.reason, len(events.tools), len(model.read)) == ("MAX_MODEL_TURNS", 3, 3)


async def test_a_tool_that_throws_fails_as_the_graph_wants_it(serve):
    events = await invoke(
        await serve(from_langgraph(create_agent(fed(calls(("fail", {"why": "down"}))), [fail]))), start_frame()
    )
    events.check_rules()
    assert (events.reason, events.of("tool_finished")[0].error.message) == ("FAILED", "ValueError: down")
    assert "ValueError: down" in events.of("log")[0].message
    graph = with_node(fed(calls(("fail", {"why": "down"})), "Sorry."), ToolNode([fail], handle_tool_errors=True))
    events = await invoke(await serve(from_langgraph(graph)), start_frame())
    events.check_rules()
    assert (events.reason, events.text) == ("COMPLETED", "Sorry.")
    assert "down" in events.of("tool_finished")[0].error.message


def with_node(model: Fed, tools: Any, **options: Any) -> Any:
    """A graph as one writes it by hand, with a plain function that asks the model."""

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(**options)


@pytest.mark.parametrize("mode", [LIVE, STUB, ROUTING_ONLY])
async def test_a_graph_of_plain_functions(serve, mode):
    stub = await serve(from_langgraph(with_node(fed(calls(PARIS), "Done."), ToolNode([look]))))
    events = await invoke(stub, start_frame(mode=mode), on_event=answering({"look": 1}))
    events.check_rules()
    assert (events.reason, events.tools) == ("TOOL_CALLS" if mode == ROUTING_ONLY else "COMPLETED", ["look"])
    assert (["look"] if mode == LIVE else []) == RUNS


@pytest.mark.parametrize("mode", [LIVE, STUB])
async def test_a_wrapper_that_blocks(serve, mode):
    def wrap(request: Any, execute: Any) -> Any:
        return execute(request)

    graph = with_node(
        fed(calls(("look_at_once", {"city": "Paris"})), "Done."), ToolNode([look_at_once], wrap_tool_call=wrap)
    )
    events = await invoke(
        await serve(from_langgraph(graph)), start_frame(mode=mode), on_event=answering({"look_at_once": 1})
    )
    events.check_rules()
    if mode == LIVE:
        assert (events.text, RUNS) == ("Done.", ["look_at_once"])
    else:
        # Better than to wait for ever.
        assert (events.reason, events.finished.error.reason, RUNS) == ("FAILED", "TOOL_NOT_WRAPPED", [])
        assert "give it awrap_tool_call, too" in events.finished.error.message

    async def wrap_async(request: Any, execute: Any) -> Any:
        return await execute(request)

    RUNS.clear()
    node = ToolNode([look_at_once], wrap_tool_call=wrap, awrap_tool_call=wrap_async)
    stub = await serve(from_langgraph(with_node(fed(calls(("look_at_once", {"city": "Paris"})), "Done."), node)))
    events = await invoke(stub, start_frame(mode=mode), on_event=answering({"look_at_once": 1}))
    assert (events.text, RUNS) == ("Done.", ["look_at_once"] if mode == LIVE else [])


async def run_tools(state: MessagesState) -> dict[str, Any]:
    """Runs tools without a tool node."""
    return {
        "messages": [await look.ainvoke({**call, "type": "tool_call"}) for call in state["messages"][-1].tool_calls]
    }


async def test_tools_outside_of_a_tool_node(serve):
    agent = from_langgraph(with_node(fed(calls(PARIS), "Done."), run_tools))
    stub = await serve(agent)
    assert "tools.stub" not in agent.capabilities
    events = await invoke(stub, start_frame())
    events.check_rules()
    assert (events.text, events.tools, RUNS) == ("Done.", ["look"], ["look"])
    assert json.loads(events.of("tool_finished")[0].result.raw)["degrees"] == 17
    # One that has a tool node besides fails rather than fire a real tool.
    graph = StateGraph(MessagesState)
    graph.add_node("both", run_tools)
    graph.add_node("tools", ToolNode([look]))
    graph.add_node("model", with_node(fed(calls(PARIS)), run_tools).nodes["model"].bound)
    graph.add_edge(START, "model")
    graph.add_edge("model", "both")
    graph.add_edge("both", "tools")
    RUNS.clear()
    events = await invoke(await serve(from_langgraph(graph.compile())), start_frame(mode=STUB), on_event=answering({}))
    assert (events.reason, events.finished.error.reason, RUNS) == ("FAILED", "TOOL_NOT_WRAPPED", [])


async def test_structured_output_is_the_answer_and_no_tool(serve):
    class Report(BaseModel):
        city: str
        degrees: int

    model = fed(calls(PARIS), calls(("Report", {"city": "Paris", "degrees": 17})))
    graph = create_agent(model, [look], response_format=ToolStrategy(Report))
    events = await invoke(await serve(from_langgraph(graph)), start_frame())
    events.check_rules()
    assert (events.tools, json.loads(events.text)) == (["look"], {"city": "Paris", "degrees": 17})


async def test_streams(serve):
    stub = await serve(from_langgraph(create_agent(fed("It is seventeen."), [look]), stream=True))
    events = await invoke(stub, start_frame())
    events.check_rules()
    assert len(events.of("text_delta")) > 2
    assert events.text == "It is seventeen."


async def test_the_conversation_is_kept_and_nothing_else(serve):
    model = fed("One.", "Two.")
    stub = await serve(from_langgraph(with_node(model, ToolNode([look]), checkpointer=InMemorySaver())))
    use = values.ToolUse(call_id="1", name="look", arguments=values.Json(raw=b'{"city":"x"}'))
    output = values.ToolOutput(call_id="1", result=values.Json(raw=b"[1.0]"))
    said: list[values.Message] = [
        values.Message(role=values.ROLE_SYSTEM, parts=[values.Part(text="Be brief.")]),
        values.Message(role=values.ROLE_USER, parts=[values.Part(text="Weather?")]),
        values.Message(role=values.ROLE_ASSISTANT, parts=[values.Part(tool_use=use)]),
        values.Message(role=values.ROLE_TOOL, parts=[values.Part(tool_output=output)]),
    ]
    for _ in range(2):
        await invoke(stub, start_frame(messages=said, conversation_id="same"))
    for read in model.read:
        assert [message.type for message in read] == ["system", "human", "ai", "tool"]
        assert (read[2].tool_calls[0]["args"], read[3].content) == ({"city": "x"}, "[1.0]")


async def test_other_states(serve):
    def shout(state: dict[str, Any]) -> dict[str, Any]:
        return {"text": state["text"].upper()}

    graph = StateGraph(dict[str, Any])
    graph.add_node("shout", shout)
    graph.add_edge(START, "shout")
    graph.add_edge("shout", END)
    compiled = graph.compile()

    async def text(turn: Turn) -> dict[str, Any]:
        return {"text": turn.user_text}

    stub = await serve(from_langgraph(compiled, input=text, output=lambda state: state["text"]))
    assert (await invoke(stub, start_frame("ping"))).text == "PING"
    events = await invoke(await serve(from_langgraph(compiled, input=text)), start_frame("ping"))
    assert "say with `output`" in events.finished.error.message


async def test_cancel(serve):
    @tool
    async def wait() -> str:
        """Waits."""
        import asyncio

        await asyncio.sleep(60)
        return ""

    async def on_event(event, call):
        if event.WhichOneof("event") == "tool_started":
            await call.write(cancel_frame())

    stub = await serve(from_langgraph(create_agent(fed(calls(("wait", {}))), [wait])))
    events = await invoke(stub, start_frame(), on_event=on_event)
    events.check_rules()
    assert events.reason == "CANCELLED"


def test_what_is_no_graph():
    with pytest.raises(TypeError, match=r"a compiled graph, not a StateGraph; call \.compile\(\) on it"):
        from_langgraph(StateGraph(MessagesState))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a compiled graph of LangGraph, not int"):
        from_langgraph(7)  # type: ignore[arg-type]


async def test_a_graph_is_what_it_was_outside_of_a_turn():
    graph = create_agent(fed(calls(PARIS), "It is 17."), [look])
    from_langgraph(graph)
    state = await graph.ainvoke({"messages": [("user", "Paris?")]})
    assert (state["messages"][-1].text, RUNS) == ("It is 17.", ["look"])
