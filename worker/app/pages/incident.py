"""What a page about one request shows, as values: the verdict first, then cause, evidence, remediation and what it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from schemas.analysis import AnalysisResult
from schemas.audit import AuditEvent, LLMResponse
from schemas.evidence import EvidenceItem
from worker.app.steps import step_of
from worker.app.verdict_line import confirmation_line, decision_line

LINES_KEPT = 400
TONES = {"completed": "good", "needs_human_review": "warn", "failed": "bad"}


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of the timeline. `offset` is the time since the first event, in seconds."""

    at: datetime
    offset: float
    text: str
    nested: bool


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of the model, and what it cost. `cost_usd` is None where the price is not known."""

    number: int
    seconds: float
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """Everything a template needs. Texts are as hostile as their sources: templates escape them."""

    key: str
    result: AnalysisResult
    verdict: str
    tone: str
    """`good`, `warn`, `bad` or `calm`: how the verdict is coloured."""
    confirmation: str
    cited: Sequence[EvidenceItem]
    """Evidence that the causal chain cites; `uncited` is what else the model saw."""
    uncited: Sequence[EvidenceItem]
    confirming: Sequence[EvidenceItem]
    """What rules read to confirm the answer."""
    timeline: Sequence[Moment]
    calls: Sequence[ModelCall]


def incident_page(key: str, result: AnalysisResult, events: Sequence[AuditEvent] = ()) -> IncidentPage:
    """The page of a result. `events` are its audit events, oldest first; without them it has no timeline."""
    cited, confirming = _cited(result), _confirming(result)
    return IncidentPage(
        key=key,
        result=result,
        verdict=decision_line(result),
        tone=tone_of(result),
        confirmation=confirmation_line(found) if (found := result.corroboration) else "",
        cited=[item for item in result.evidence if item.id in cited],
        uncited=[item for item in result.evidence if item.id not in cited | confirming],
        confirming=[item for item in result.evidence if item.id in confirming - cited],
        timeline=_timeline(events),
        calls=_calls(events),
    )


def tone_of(result: AnalysisResult) -> str:
    """How the verdict is coloured: `good`, `warn`, `bad` or `calm`."""
    tone = TONES.get(result.status, "calm")
    return "warn" if tone == "good" and result.approval.required else tone


def _cited(result: AnalysisResult) -> set[str]:
    cause = result.root_cause_analysis
    return {id_ for claim in (cause.causal_claims if cause else ()) for id_ in claim.evidence}


def _confirming(result: AnalysisResult) -> set[str]:
    return set(result.corroboration.evidence) if result.corroboration else set()


def _timeline(events: Sequence[AuditEvent]) -> list[Moment]:
    told = [(event, step_of(event)) for event in events]
    shown = [(event, step) for event, step in told if step][:LINES_KEPT]
    if not shown:
        return []
    first = shown[0][0].time
    return [
        Moment(event.time, (event.time - first).total_seconds(), step.strip(), step.startswith(" "))
        for event, step in shown
    ]


def _calls(events: Sequence[AuditEvent]) -> list[ModelCall]:
    replies = (event.payload for event in events)
    return [
        ModelCall(
            reply.call,
            reply.duration_seconds,
            reply.usage.input_tokens,
            reply.usage.output_tokens,
            reply.usage.cost_usd,
        )
        for reply in replies
        if isinstance(reply, LLMResponse)
    ]
