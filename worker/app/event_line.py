"""Audit events in a few words, for somebody who follows an analysis."""

from __future__ import annotations

from schemas import audit
from schemas.audit import AuditEvent, Payload, ResponseComplete, ResponseFailed
from worker.domain.untrusted.evidence import one_line

ARGUMENT_CHARS = 60
ERROR_CHARS = 90


def step_of(event: AuditEvent) -> str:
    """The event as a line; empty if it needs none.

    A line that begins with a space belongs to the one before.
    """
    return _investigated(event.payload) or _decided(event.payload)


def _investigated(payload: Payload) -> str:
    match payload:
        case audit.RequestAccepted():
            return "request accepted"
        case audit.RequestResumed(replayed_steps=steps):
            return f"resumed after {steps} journaled step{'' if steps == 1 else 's'}"
        case audit.EnrichmentCompleted(failed_sources=failed) as found:
            unknown = f", unknown: {', '.join(failed)}" if failed else ""
            return f"{len(found.evidence_ids)} facts gathered in {found.duration_seconds:.1f} s{unknown}"
        case audit.LLMResponse(tool_calls=calls) as reply:
            what = f"asks for {calls} tool call{'' if calls == 1 else 's'}" if calls else "answers"
            return f"model {what} (call {reply.call}, {reply.duration_seconds:.1f} s)"
        case audit.LLMToolCall(arguments=given) as call:
            arguments = ", ".join(one_line(_argument(*item), ARGUMENT_CHARS) for item in given.items())
            failed_call = "" if call.succeeded else ": no result"
            return f"  {one_line(call.name, ARGUMENT_CHARS)}({arguments}){failed_call}"
    return ""


def _argument(name: str, value: object) -> str:
    return value if isinstance(value, str) else f"{name}={value}"


def _decided(payload: Payload) -> str:
    match payload:
        case audit.ValidationAttempted(is_valid=True):
            return "answer accepted"
        case audit.ValidationAttempted(errors=errors):
            return f"answer rejected: {one_line(errors[0] if errors else '', ERROR_CHARS)}"
        case audit.CorroborationChecked(corroboration=found) if found is not None:
            return f"{'not ' if found.by == 'none' else ''}confirmed by the cluster"
        case audit.PolicyDecided(approval=approval):
            return f"policy: approval {'' if approval.required else 'not '}required"
        case audit.ResponseComplete() | audit.ResponseFailed():
            return _ended(payload)
    return ""


def _ended(payload: ResponseComplete | ResponseFailed) -> str:
    if isinstance(payload, ResponseComplete):
        return f"result: {payload.status}"
    return f"dead letter: {payload.reason}"


def work_after(event: AuditEvent) -> str:
    """Return what the analysis does after the event."""
    match event.payload:
        case audit.RequestAccepted():
            return "gathering facts"
        case audit.LLMRequest():
            return "the model is thinking"
        case audit.LLMResponse(tool_calls=calls) if calls:
            return "reading the cluster"
        case audit.LLMResponse():
            return "checking the answer"
        case _:
            return "working"
