"""The activity of workers, by their audit events: analyses in flight and those that have ended.

Pure: events go in, values come out. `rca watch` shows it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from schemas import audit
from schemas.usage import Usage
from worker.domain.values.bounded import BoundedDict

ENDED_KEPT = 50
EVENTS_KEPT = 20_000
"""How many ids are kept, to recognise events that are published again."""
IN_FLIGHT_KEPT = 1_000
"""An analysis whose end was missed (a lost connection) is dropped after this many others have begun."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """An analysis that has not ended.

    Times are those of the workers. Costs before we listened are unknown.
    """

    key: str
    began: datetime
    last: audit.AuditEvent
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
class Activity:
    """The state of all known analyses, the oldest first."""

    in_flight: BoundedDict[str, InFlight] = field(default_factory=lambda: BoundedDict(IN_FLIGHT_KEPT))
    ended: deque[Ended] = field(default_factory=lambda: deque(maxlen=ENDED_KEPT))
    _heard: BoundedDict[str, None] = field(default_factory=lambda: BoundedDict(EVENTS_KEPT))

    def record(self, event: audit.AuditEvent) -> None:
        """Take in the next event. An event that is published again counts once."""
        if event.event_id in self._heard:
            return
        self._heard[event.event_id] = None
        if event.event_type in audit.ENDS:
            self.in_flight.pop(event.request_key, None)
            self.ended.append(_ended(event))
            return
        known = self.in_flight.get(event.request_key)
        if known is None or isinstance(event.payload, audit.RequestAccepted):
            known = InFlight(event.request_key, event.time, event)
        self.in_flight[event.request_key] = _went_on(known, event)


def _went_on(run: InFlight, event: audit.AuditEvent) -> InFlight:
    calls, tools, tokens, cost = run.calls, run.tools, run.tokens, run.cost_usd
    match event.payload:
        case audit.LLMResponse(call=call, usage=usage):
            calls, tokens = call, tokens + usage.input_tokens + usage.output_tokens
            cost = cost if usage.cost_usd is None else (cost or 0.0) + usage.cost_usd
        case audit.LLMToolCall(index=index):
            tools = index
    return InFlight(run.key, run.began, event, calls, tools, tokens, cost)


def _ended(event: audit.AuditEvent) -> Ended:
    match event.payload:
        case audit.ResponseComplete() as done:
            verdict = str(done.human_review_reason or done.status)
            workflow, usage = done.workflow_id or "", done.usage
            return Ended(event.request_key, event.time, verdict, workflow, done.approval_required, usage)
        case audit.ResponseFailed(reason=reason, usage=usage):
            return Ended(event.request_key, event.time, str(reason), "", approval_required=True, usage=usage)
        case other:
            raise TypeError(f"not the end of an analysis: {type(other).__name__}")
