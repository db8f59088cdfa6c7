"""What the samples write into spans themselves, because no framework does it for them.

Without a tracer provider nothing is written.
"""

from contextlib import AbstractContextManager

from opentelemetry import trace
from opentelemetry.trace import Span

from forge_daemon import Verdict

tracer = trace.get_tracer("forge_daemon.samples")


def of_agent(name: str) -> AbstractContextManager[Span]:
    """A span around what an agent does, in the words of OpenTelemetry's GenAI conventions."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return tracer.start_as_current_span(f"invoke_agent {name}", attributes=attributes)


def add_verdict(span: Span, criteria: str, verdict: Verdict) -> None:
    """Writes a judgement on a span."""
    attributes = {
        "gen_ai.evaluation.name": criteria,
        "gen_ai.evaluation.score.label": "pass" if verdict.passed else "fail",
        "gen_ai.evaluation.explanation": verdict.reason,
    }
    if verdict.score is not None:
        attributes["gen_ai.evaluation.score.value"] = verdict.score
    span.add_event("gen_ai.evaluation.result", attributes)
