"""Builds the published result from the verdict, the conclusion, the approval and the usage.

The catalog's description of a workflow replaces the model's; flags come from `outcome`; all free text is
redacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from schemas import analysis
from schemas.analysis import Approval
from schemas.enrichment import DetectedLabels
from schemas.evidence import EXCERPT_BYTES, AlignmentVerdict, EvidenceItem
from schemas.failure import excerpt
from schemas.incident import Signal
from schemas.recovery import RecoveryRequest
from schemas.taxonomy import RequestKind, normalize_risk
from schemas.usage import ContextUsed
from schemas.workflow import AlternativeWorkflow, RequiredObject, SelectedWorkflow, WorkflowDependencies
from worker.domain.cluster.fields import mapping
from worker.domain.intake.accepted import failed_execution
from worker.domain.untrusted.evidence import Evidence, EvidenceKind, make_visible, one_line
from worker.domain.untrusted.redaction.redact import redact, redact_json
from worker.domain.values.limits import Spent, usage_of
from worker.domain.verdict.approval.policy import decided_environment
from worker.domain.verdict.checks.workflow import repeats
from worker.domain.verdict.corroboration import Corroborated
from worker.domain.verdict.outcome import Conclusion, WorkflowFate
from worker.domain.verdict.verdict import NO_OBJECT, Accepted, Attempt, Rejected, actionable, named

SUMMARY_CHARS = 240
TEXT_CHARS = 4_000
MAX_EXCERPTS_BYTES = 256 * 1024
"""For all pieces of evidence together, so that the result fits into a message."""
REPEATED_CHARS = 200
"""From here on, an excerpt refers to an earlier one with the same text instead of repeating it."""
CUT = "..."


@dataclass(frozen=True, slots=True)
class Ingredients:
    """The ingredients of a result. `accepted` is the accepted answer, or the valid part of a rejected one."""

    request: Signal
    digest: str
    conclusion: Conclusion
    approval: analysis.Approval
    completed_at: datetime
    prompt_version: str
    accepted: Accepted | None = None
    attempts: Sequence[Attempt] = ()
    evidence: Sequence[Evidence] = ()
    detected_labels: DetectedLabels | None = None
    corroborated: Corroborated = field(default_factory=Corroborated)
    spent: Spent = field(default_factory=Spent)
    model: str = ""
    alignment: AlignmentVerdict | None = None
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()


def build(parts: Ingredients) -> analysis.AnalysisResult:
    """Build the result.

    Raises pydantic's ValidationError when the parts contradict each other, which is a bug.
    """
    accepted, conclusion = parts.accepted, parts.conclusion
    last = parts.attempts[-1] if parts.attempts else None
    kept = accepted if conclusion.workflow is WorkflowFate.KEPT else None
    return analysis.AnalysisResult(
        kind=RequestKind.RECOVERY if isinstance(parts.request, RecoveryRequest) else RequestKind.INCIDENT,
        incident_id=parts.request.incident_id,
        remediation_id=parts.request.remediation_id,
        status=conclusion.status,
        analysis=redact(accepted.answer.prose or accepted.answer.summary) if accepted else "",
        root_cause_analysis=_root_cause(accepted) if accepted else None,
        affected_resource=_affected(accepted) if accepted else None,
        confidence=accepted.confidence if accepted else None,
        selected_workflow=_workflow(kept) if kept else None,
        alternative_workflows=_alternatives(accepted, conclusion) if accepted else (),
        needs_human_review=conclusion.needs_human_review,
        human_review_reason=conclusion.reason,
        human_review_detail=redact(conclusion.detail),
        is_actionable=conclusion.is_actionable,
        signal=_reported(parts.request),
        environment=_word(decided_environment(parts.request)),
        approval=_without_secrets(parts.approval),
        warnings=_texts([*parts.warnings, *(accepted.warnings if accepted else ())]),
        alignment_verdict=parts.alignment,
        corroboration=parts.corroborated.corroboration,
        parameter_origins=dict(parts.corroborated.origins) if kept else {},
        diagnosis=parts.corroborated.causes,
        detected_labels=parts.detected_labels,
        evidence=_evidence(parts.evidence),
        validation_attempts=tuple(_attempt(a, parts.completed_at) for a in parts.attempts),
        usage=usage_of(parts.spent),
        context_used=ContextUsed(**redact_json(dict(accepted.answer.context_used))) if accepted else None,
        model=parts.model,
        prompt_version=parts.prompt_version,
        request_digest=parts.digest,
        notes=_texts([*parts.notes, *_resolution_notes(accepted), *(accepted.notes if accepted else ())]),
        raw_analysis=excerpt(redact(last.text)) if last else "",
        completed_at=parts.completed_at,
        **_recovery(parts),
    )


def _reported(request: Signal) -> analysis.ReportedSignal:
    said: dict[str, Any] = {name: getattr(request, name) for name in analysis.ReportedSignal.model_fields}
    return analysis.ReportedSignal(**{n: _word(v) if isinstance(v, str) else v for n, v in said.items()})


def _resolution_notes(accepted: Accepted | None) -> list[str]:
    if accepted is None or actionable(accepted) == accepted.affected:
        return []
    return [f"{accepted.root_owner} is named as the affected resource, because it owns {accepted.affected}"]


def _affected(accepted: Accepted) -> analysis.AffectedResource | None:
    found = actionable(accepted)
    return None if found == NO_OBJECT else named(found)


def _root_cause(accepted: Accepted) -> analysis.RootCauseAnalysis | None:
    answer = accepted.answer
    if not answer.summary.strip():
        return None
    claims = tuple(claim.model_copy(update={"claim": redact(claim.claim)}) for claim in accepted.claims)
    return analysis.RootCauseAnalysis(
        summary=redact(answer.summary),
        severity=accepted.severity,
        signal_type=_word(accepted.signal_type),
        contributing_factors=_texts(answer.contributing_factors),
        affected_resource=_affected(accepted),
        causal_chain=tuple(claim.claim for claim in claims),
        causal_claims=claims,
    )


def _evidence(items: Sequence[Evidence]) -> tuple[EvidenceItem, ...]:
    limit = min(EXCERPT_BYTES, MAX_EXCERPTS_BYTES // max(1, len(items)))
    made, first = list[EvidenceItem](), dict[str, str]()
    for item in items:
        said = _excerpt(item, limit)
        seen = first.setdefault(said, item.id)
        if seen != item.id and len(said) >= REPEATED_CHARS:
            said = f"same text as {seen}"
        summary = _word(item.scope)
        made.append(
            EvidenceItem(id=item.id, source=item.source, summary=summary, seen_at=item.seen_at, excerpt=said)
        )
    return tuple(made)


def _excerpt(item: Evidence, limit: int) -> str:
    """At most `limit` bytes of the item's text: the end of a log, where the last words are, else the start."""
    said = make_visible(redact(item.body)).encode("utf-8", "replace")
    if len(said) <= limit:
        return said.decode()
    room = limit - len(CUT)
    if item.kind is EvidenceKind.LOG:
        return CUT + said[-room:].decode("utf-8", "ignore")
    return said[:room].decode("utf-8", "ignore") + CUT


def _workflow(accepted: Accepted) -> SelectedWorkflow | None:
    workflow, chosen = accepted.workflow, accepted.answer.selected_workflow
    if workflow is None or chosen is None:
        return None
    downtime = workflow.estimated_downtime_seconds
    return SelectedWorkflow(
        workflow_id=workflow.workflow_id,
        version=workflow.version,
        title=workflow.title,
        action_type=workflow.action_type,
        container_image=workflow.container_image,
        execution_bundle=workflow.container_image,
        execution_bundle_digest=workflow.container_image.partition("@")[2],
        execution_engine=workflow.engine,
        service_account_name=workflow.service_account,
        dependencies=WorkflowDependencies(
            secrets=tuple(RequiredObject(name=name) for name in workflow.secrets),
            config_maps=tuple(RequiredObject(name=name) for name in workflow.config_maps),
        ),
        confidence=accepted.confidence or 0.0,
        rationale=redact(chosen.rationale),
        estimated_risk=normalize_risk(chosen.estimated_risk),
        declared_risk=workflow.risk,
        estimated_downtime_seconds=chosen.estimated_downtime_seconds if downtime is None else downtime,
        impact_on_dependencies=redact(chosen.impact_on_dependencies),
        parameters=dict(accepted.parameters),
    )


def _alternatives(accepted: Accepted, conclusion: Conclusion) -> tuple[AlternativeWorkflow, ...]:
    kept = [
        AlternativeWorkflow(workflow_id=a.workflow_id, confidence=a.confidence, rationale=redact(a.rationale))
        for a in accepted.alternatives
    ]
    if conclusion.workflow is WorkflowFate.ALTERNATIVE and (chosen := _workflow(accepted)):
        moved = AlternativeWorkflow(
            workflow_id=chosen.workflow_id, confidence=chosen.confidence, rationale=chosen.rationale
        )
        kept.insert(0, moved)
    return tuple(kept)


def _attempt(attempt: Attempt, completed_at: datetime) -> analysis.ValidationAttempt:
    problems = attempt.verdict.problems if isinstance(attempt.verdict, Rejected) else ()
    return analysis.ValidationAttempt(
        attempt=attempt.number,
        is_valid=not problems,
        errors=_texts(f"{p.path}: {p.message}" if p.path else p.message for p in problems),
        workflow_id=_word(attempt.workflow_id) or None,
        timestamp=attempt.at or completed_at,
    )


def _texts(texts: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(redact(text) for text in texts))


def _word(text: str) -> str:
    return one_line(redact(text[:TEXT_CHARS]), SUMMARY_CHARS)


def _recovery(parts: Ingredients) -> dict[str, Any]:
    if not isinstance(parts.request, RecoveryRequest):
        return {}
    accepted = parts.accepted
    kept = accepted if parts.conclusion.workflow is WorkflowFate.KEPT else None
    return {
        "is_recovery_attempt": True,
        "recovery_attempt_number": parts.request.recovery_attempt_number,
        "can_recover": kept is not None,
        "analysis_confidence": (kept.confidence or 0.0) if kept else 0.0,
        "recovery_analysis": _recovery_analysis(accepted) if accepted else None,
        "recovery_strategy": _recovery_strategy(accepted, kept, parts.request) if accepted else None,
    }


def _recovery_analysis(accepted: Accepted) -> analysis.RecoveryAnalysis:
    said = mapping((accepted.answer.recovery_analysis or {}).get("previous_attempt_assessment"))
    assessment = analysis.PreviousAttemptAssessment(
        failure_understood=_flag(said.get("failure_understood")),
        failure_reason_analysis=_text(said.get("failure_reason_analysis")),
        state_changed=_flag(said.get("state_changed")),
        current_signal_type=_text(said.get("current_signal_type")),
    )
    return analysis.RecoveryAnalysis(
        previous_attempt_assessment=assessment, current_rca=_root_cause(accepted)
    )


def _recovery_strategy(
    accepted: Accepted, kept: Accepted | None, request: RecoveryRequest
) -> analysis.RecoveryStrategy:
    said = accepted.answer.recovery_strategy or {}
    differs, failed = None, failed_execution(request)
    if kept is not None and kept.workflow is not None and failed is not None:
        differs = not repeats(kept.workflow, kept.parameters, failed)
    return analysis.RecoveryStrategy(
        approach=_text(said.get("approach")),
        differs_from_previous=differs,
        why_different=_text(said.get("why_different")),
    )


def _flag(value: object) -> bool | None:
    """A flag, possibly written as a word; None for anything else."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _text(value: object) -> str:
    return redact(value[:TEXT_CHARS]) if isinstance(value, str) else ""


def _without_secrets(approval: Approval) -> Approval:
    """The same approval with every reason, factor and risk factor redacted."""
    factors = (f.model_copy(update={"detail": redact(f.detail)}) for f in approval.factors)
    risks = (f.model_copy(update={"reason": redact(f.reason)}) for f in approval.risk_factors)
    return approval.model_copy(
        update={
            "reasons": tuple(map(redact, approval.reasons)),
            "factors": tuple(factors),
            "risk_factors": tuple(risks),
            "would_reasons": tuple(map(redact, approval.would_reasons)),
        }
    )
