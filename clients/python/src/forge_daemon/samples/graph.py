"""The weather agent once more, on LangGraph: another framework, the same tools, the same rules in place of a model.

There is nothing of Forge in here. The tool calls are in the spans that the public OpenInference instrumentation of
LangChain writes.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.trace import TracerProvider

from forge_daemon.samples import weather
from forge_daemon.samples.offline import Call, Result

MODEL = "weather-rules"

Choose = Callable[[Sequence[str]], list[Call]]
"""Gives the calls for what the user has said so far, the latest last."""


def instrument(provider: TracerProvider) -> None:
    """Lets everything that LangChain runs in this process write spans, with arguments and results in them."""
    LangChainInstrumentor().instrument(tracer_provider=provider)


def tools(delay: float = 0.0) -> list[StructuredTool]:
    """The weather agent's tools for LangChain, each of which takes `delay` seconds."""
    return [StructuredTool.from_function(coroutine=tool.function, name=tool.name) for tool in weather.tools(delay)]


def choose(said: Sequence[str]) -> list[Call]:
    """The weather agent's calls, with the units always said: an only argument would have no name in its span."""
    units = {"get_weather": {"units": "celsius"}, "get_forecast": {"units": "celsius"}}
    return [Call(call.tool, units.get(call.tool, {}) | dict(call.arguments)) for call in weather.choose(said)]


def build(own_tools: Sequence[StructuredTool], rules: Choose = choose) -> CompiledStateGraph:
    """A graph that asks the model, runs what it calls, and asks it again until it calls nothing."""
    model = Rules(rules=rules)

    async def ask(state: MessagesState) -> dict[str, Any]:
        messages = [SystemMessage(weather.INSTRUCTIONS), *state["messages"]]
        return {"messages": [await model.ainvoke(messages)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode(own_tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


async def answer(graph: CompiledStateGraph, messages: Sequence[AnyMessage]) -> str:
    """Runs the graph on a conversation."""
    state = await graph.ainvoke({"messages": list(messages)})
    return state["messages"][-1].text


class Rules(BaseChatModel):
    """A chat model that follows rules. It calls one tool at a time, so that the calls have an order."""

    rules: Choose

    @property
    def _llm_type(self) -> str:
        return MODEL

    def _generate(
        self,
        messages: list[AnyMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        said = [message.text for message in messages if isinstance(message, HumanMessage)]
        latest = max((index for index, message in enumerate(messages) if isinstance(message, HumanMessage)), default=0)
        results = _results(messages[latest:])
        calls = self.rules(said)[len(results) :]
        if calls:
            id = f"call_{len(messages)}"
            message = AIMessage("", tool_calls=[ToolCall(name=calls[0].tool, args=dict(calls[0].arguments), id=id)])
        else:
            message = AIMessage(weather.write(said, results))
        return ChatResult(generations=[ChatGeneration(message=message)])


def _results(messages: Sequence[AnyMessage]) -> list[Result]:
    calls = {call["id"]: call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls}
    return [_result(message, calls) for message in messages if isinstance(message, ToolMessage)]


def _result(message: ToolMessage, calls: dict[str | None, ToolCall]) -> Result:
    call = calls[message.tool_call_id]
    if message.status == "error":
        return Result(call["name"], call["args"], None, error=message.text)
    return Result(call["name"], call["args"], json.loads(message.text))
