"""One line for each step of a run, from its audit events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from schemas import audit
from worker.domain.untrusted.evidence import one_line

ARGUMENT_CHARS = 60
ERROR_CHARS = 90


def _gathered(found: audit.EnrichmentCompleted) -> str:
    unknown = f", unknown: {', '.join(found.failed_sources)}" if found.failed_sources else ""
    return f"{len(found.evidence_ids)} facts gathered in {found.duration_seconds:.1f} s{unknown}"


def _replied(reply: audit.LLMResponse) -> str:
    what = f"asks for {reply.tool_calls} tool calls" if reply.tool_calls else "answers"
    return f"model {what} (call {reply.call}, {reply.duration_seconds:.1f} s)"


def _tool(call: audit.LLMToolCall) -> str:
    given = ", ".join(one_line(str(value), ARGUMENT_CHARS) for value in call.arguments.values())
    return f"  {one_line(call.name, ARGUMENT_CHARS)}({given}){'' if call.succeeded else ': no result'}"


def _checked(attempt: audit.ValidationAttempted) -> str:
    return (
        "answer accepted"
        if attempt.is_valid
        else f"answer refused: {one_line(attempt.errors[0], ERROR_CHARS)}"
    )


LINES: Mapping[type[Any], Callable[[Any], str]] = {
    audit.RequestAccepted: lambda _: "request accepted",
    audit.EnrichmentCompleted: _gathered,
    audit.LLMResponse: _replied,
    audit.LLMToolCall: _tool,
    audit.ValidationAttempted: _checked,
    audit.PolicyDecided: lambda decided: (
        f"policy: approval {'' if decided.approval.required else 'not '}required"
    ),
    audit.ResponseComplete: lambda done: f"result: {done.status}",
}


def line_of(event: audit.AuditEvent) -> str:
    """What happened, in a few words; empty for steps that need no line."""
    describe = LINES.get(type(event.payload))
    return describe(event.payload) if describe else ""


def waiting_for(event: audit.AuditEvent) -> str:
    """What the run is busy with after the event."""
    match event.payload:
        case audit.RequestAccepted():
            return "gathering facts"
        case audit.LLMRequest():
            return "the model is thinking"
        case audit.LLMResponse(tool_calls=calls) if calls:
            return "reading the cluster"
        case _:
            return "working"
