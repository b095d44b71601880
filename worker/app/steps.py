"""Audit events in a few words, and what they add up to, for somebody who follows analyses.

Pure: events go in, values come out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from schemas import audit
from schemas.audit import (
    ENDS,
    AuditEvent,
    LLMResponse,
    LLMToolCall,
    Payload,
    RequestAccepted,
    ResponseComplete,
    ResponseFailed,
)
from schemas.usage import Usage
from worker.domain.untrusted.evidence import one_line

ARGUMENT_CHARS = 60
ERROR_CHARS = 90
ENDED_KEPT = 50
EVENTS_KEPT = 20_000
"""How many ids are kept, to recognise events that are published again."""
IN_FLIGHT_KEPT = 1_000
"""An analysis whose end was missed (a lost connection) is dropped after this many others have begun."""


def step_of(event: AuditEvent) -> str:
    """The event as a line; empty if it needs none. A line that begins with a space belongs to the one
    before.
    """
    return _investigated(event.payload) or _decided(event.payload)


def _investigated(payload: Payload) -> str:
    match payload:
        case audit.RequestAccepted():
            return "request accepted"
        case audit.RequestResumed(replayed_steps=steps):
            return f"resumed by another worker after {steps} journaled step{'' if steps == 1 else 's'}"
        case audit.EnrichmentCompleted(failed_sources=failed) as found:
            unknown = f", unknown: {', '.join(failed)}" if failed else ""
            return f"{len(found.evidence_ids)} facts gathered in {found.duration_seconds:.1f} s{unknown}"
        case audit.LLMResponse(tool_calls=calls) as reply:
            what = f"asks for {calls} tool call{'' if calls == 1 else 's'}" if calls else "answers"
            return f"model {what} (call {reply.call}, {reply.duration_seconds:.1f} s)"
        case audit.LLMToolCall(arguments=given) as call:
            arguments = ", ".join(one_line(str(value), ARGUMENT_CHARS) for value in given.values())
            failed_call = "" if call.succeeded else ": no result"
            return f"  {one_line(call.name, ARGUMENT_CHARS)}({arguments}){failed_call}"
    return ""


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


@dataclass(frozen=True, slots=True)
class InFlight:
    """An analysis that has not ended. Times are those of the workers. Costs before we listened are
    unknown.
    """

    key: str
    began: datetime
    last: AuditEvent
    calls: int = 0
    tools: int = 0
    tokens: int = 0
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """An analysis that has ended. `verdict` is its status, review reason or dead-letter reason."""

    key: str
    at: datetime
    verdict: str
    workflow: str
    approval_required: bool
    usage: Usage


@dataclass(slots=True)
class Board:
    """The state of all known analyses, the oldest first."""

    in_flight: dict[str, InFlight] = field(default_factory=dict)
    ended: deque[Ended] = field(default_factory=lambda: deque(maxlen=ENDED_KEPT))
    _heard: dict[str, None] = field(default_factory=dict)

    def record(self, event: AuditEvent) -> None:
        """Take in the next event. An event that is published again counts once."""
        if event.event_id in self._heard:
            return
        self._heard[event.event_id] = None
        if len(self._heard) > EVENTS_KEPT:
            del self._heard[next(iter(self._heard))]
        if event.event_type in ENDS:
            self.in_flight.pop(event.request_key, None)
            self.ended.append(_end_of(event))
            return
        known = self.in_flight.get(event.request_key)
        if known is None or isinstance(event.payload, RequestAccepted):
            known = InFlight(event.request_key, event.time, event)
        self.in_flight[event.request_key] = _went_on(known, event)
        if len(self.in_flight) > IN_FLIGHT_KEPT:
            del self.in_flight[next(iter(self.in_flight))]


def _went_on(run: InFlight, event: AuditEvent) -> InFlight:
    calls, tools, tokens, cost = run.calls, run.tools, run.tokens, run.cost_usd
    match event.payload:
        case LLMResponse(call=call, usage=usage):
            calls, tokens = call, tokens + usage.input_tokens + usage.output_tokens
            cost = cost if usage.cost_usd is None else (cost or 0.0) + usage.cost_usd
        case LLMToolCall(index=index):
            tools = index
    return InFlight(run.key, run.began, event, calls, tools, tokens, cost)


def _end_of(event: AuditEvent) -> Ended:
    match event.payload:
        case ResponseComplete() as done:
            verdict = str(done.human_review_reason or done.status)
            workflow, usage = done.workflow_id or "", done.usage
            return Ended(event.request_key, event.time, verdict, workflow, done.approval_required, usage)
        case ResponseFailed(reason=reason, usage=usage):
            return Ended(event.request_key, event.time, str(reason), "", approval_required=True, usage=usage)
        case other:
            raise TypeError(f"not the end of an analysis: {type(other).__name__}")
