"""Enough of the Eval Runner Contract to see that the samples and the eval files fit together."""

import json
import re
from pathlib import Path
from typing import Any

from client import LIVE, STUB, Events, answering, invoke, start_frame

from forge_daemon.proto.agent_pb2_grpc import AgentEndpointStub

EVALS = Path(__file__).parents[3] / "evals"


def cases(path: Path) -> list[dict[str, Any]]:
    """The cases of an eval file, an envelope or a bare list."""
    file = json.loads(path.read_text("utf-8"))
    return file["cases"] if isinstance(file, dict) else file


async def run(stub: AgentEndpointStub, case: dict[str, Any]) -> Events:
    """Runs a case as the daemon does: with stubs if it has any."""
    stubs = case.get("stubs")
    frame = start_frame(case["input"]["message"], mode=LIVE if stubs is None else STUB, max_model_turns=5)
    events = await invoke(stub, frame, on_event=answering(stubs or {}))
    events.check_rules()
    return events


def failures(case: dict[str, Any], events: Events) -> list[str]:
    """Everything that a case expects and that did not happen."""
    return [
        f"{name}: {value!r}, but called {events.tools} and answered {events.text!r}"
        for name, value in case["expect"].items()
        if not _holds(name, value, events)
    ]


def _resolved(values: list[str]) -> list[str]:
    """Template tokens replaced by the values of the seed manifest; what needs a snapshot is left out."""
    seed = json.loads((EVALS / "seed-manifest.json").read_text("utf-8"))

    def value(token: re.Match[str]) -> str:
        found = seed
        for key, index in re.findall(r"(\w+)(?:\[(\d+)\])?", token[1]):
            found = found[key][int(index)] if index else found[key]
        return str(found)

    return [re.sub(r"\{\{seed:(.*?)\}\}", value, text) for text in values if "{{snapshot:" not in text]


def _holds(name: str, value: Any, events: Events) -> bool:
    match name:
        case "toolParams":
            return True  # how parameters are compared is the daemon's business, and tested there
        case "toolsCalled":
            return events.tools == value
        case "toolsAcceptable":
            return set(events.tools) in [set(tools) - {"__none__"} for tools in value]
        case "toolsNotCalled":
            return not set(value) & set(events.tools)
        case "noToolErrors":
            return all(call.HasField("result") for call in events.of("tool_finished"))
        case "responseNonEmpty":
            return events.text.strip() != ""
        case "responseContains":
            return all(text in events.text for text in _resolved(value))
        case "responseContainsAny":
            return all(any(text in events.text for text in group) for group in value)
        case "responseNotContains":
            return not any(text in events.text for text in _resolved(value))
        case "maxLatencyMs":
            return events.finished.duration.ToMilliseconds() <= value
    raise AssertionError(f"{name} is no assertion of these files")
