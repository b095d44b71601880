"""The content of a page about one request: the verdict first, then cause, evidence, remediation and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.analysis import AnalysisResult
from schemas.audit import AuditEvent
from schemas.evidence import EvidenceItem
from worker.app.pages.history import Moment, in_the_cluster, in_the_investigation
from worker.app.verdict_line import CONFIRMED, confirmation_line, decision_line, where

TONES = {"completed": "good", "needs_human_review": "warn", "failed": "bad"}


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
    cluster: Sequence[Moment]
    """What happened in the cluster, as far as evidence tells."""
    timeline: Sequence[Moment]
    """The steps of the investigation."""
    cause: str
    """Every text about the root cause, to find what it quotes."""


def incident_page(key: str, result: AnalysisResult, events: Sequence[AuditEvent] = ()) -> IncidentPage:
    """The page of a result. `events` are its audit events, oldest first; without them it has no timeline."""
    cited, cause = _cited(result), _cause_text(result)
    confirming = set(result.corroboration.evidence) if result.corroboration else set()
    return IncidentPage(
        key=key,
        result=result,
        verdict=decision_line(result),
        tone=tone_of(result),
        confirmation=_confirmation(result, cause),
        cited=[item for item in result.evidence if item.id in cited],
        uncited=[item for item in result.evidence if item.id not in cited | confirming],
        confirming=[item for item in result.evidence if item.id in confirming - cited],
        cluster=in_the_cluster(result.evidence),
        timeline=in_the_investigation(events),
        cause=cause,
    )


def tone_of(result: AnalysisResult) -> str:
    """Return how the verdict is coloured: `good`, `warn`, `bad` or `calm`."""
    tone = TONES.get(result.status, "calm")
    return "warn" if tone == "good" and result.approval.required else tone


def _cited(result: AnalysisResult) -> set[str]:
    cause = result.root_cause_analysis
    return {id_ for claim in (cause.causal_claims if cause else ()) for id_ in claim.evidence}


def _cause_text(result: AnalysisResult) -> str:
    cause = result.root_cause_analysis
    claims = [claim.claim for claim in cause.causal_claims] if cause else []
    return "\n".join([cause.summary, *claims, *cause.contributing_factors]) if cause else ""


def _confirmation(result: AnalysisResult, said: str) -> str:
    """Return what confirms the answer, without repeating what the root cause says."""
    found = result.corroboration
    if found and found.object and found.finding and found.reason in said:
        at = where(found.object.kind, found.object.namespace, found.object.name)
        return CONFIRMED[found.by].format(reason=f"{found.finding.replace('_', ' ')}, {at}")
    return confirmation_line(found) if found else ""
