"""The verdict of a result in one line, for terminals, pages and chats."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.analysis import AffectedResource, AnalysisResult, CorroborationSource
from worker.domain.untrusted.evidence import one_line

LINE_CHARS = 400
TONES = {"completed": "good", "needs_human_review": "warn", "failed": "bad"}
CONFIRMED = {
    CorroborationSource.RULES: "The cluster confirms the answer: {reason}",
    CorroborationSource.SECOND_VIEW: "The second view agrees: {reason}",
    CorroborationSource.NONE: "Not confirmed by the cluster: {reason}",
}


def decision_line(result: AnalysisResult) -> str:
    """The verdict in one line, such as `APPROVAL NEEDED  undo-rollout on Deployment shop/api (0.92)`."""
    workflow = result.selected_workflow
    if result.needs_human_review:
        verdict, what = "HUMAN REVIEW NEEDED", str(result.human_review_reason).replace("_", " ")
    elif workflow is None:
        verdict, what = "NO REMEDIATION NEEDED", str(result.status).replace("_", " ")
    else:
        verdict = "APPROVAL NEEDED" if result.approval.required else "MAY RUN"
        what = f"{workflow.workflow_id}{_on(result.affected_resource)} ({workflow.confidence:.2f})"
    return f"{verdict}  {one_line(what, LINE_CHARS)}"


def tone_of(result: AnalysisResult) -> str:
    """Return how the verdict is coloured: `good`, `warn`, `bad` or `calm`."""
    tone = TONES.get(result.status, "calm")
    return "warn" if tone == "good" and result.approval.required else tone


def _on(resource: AffectedResource | None) -> str:
    return f" on {where(resource)}" if resource else ""


def where(found: AffectedResource | None) -> str:
    """An object as one writes it: `Deployment shop/api`; empty for none."""
    return _named(found.kind, found.namespace, found.name) if found else ""


def _named(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def reported(result: AnalysisResult) -> str:
    """The object that the signal named; empty in results of earlier versions."""
    told = result.signal
    return _named(told.resource_kind, told.resource_namespace, told.resource_name) if told else ""


def approval_reasons(result: AnalysisResult) -> Sequence[str]:
    """Why a human must approve, or what to do, as far as the detail of the review does not say it."""
    said = result.human_review_detail
    return [reason for reason in result.approval.reasons if result.approval.required and reason not in said]


def cause_text(result: AnalysisResult) -> str:
    """Every text about the root cause."""
    cause = result.root_cause_analysis
    claims = [claim.claim for claim in cause.causal_claims] if cause else []
    return "\n".join([cause.summary, *claims, *cause.contributing_factors]) if cause else ""


def no_cause_line(result: AnalysisResult) -> str:
    """Why a result has no root cause."""
    if not result.usage.llm_calls:
        return "No root cause: no model has analysed the request."
    return "No root cause that could be checked."


def confirmation_line(result: AnalysisResult) -> str:
    """Whether the cluster confirms the answer, and why, without repeating the root cause."""
    found = result.corroboration
    if found is None:
        return ""
    reason = found.reason
    if found.object and found.finding and reason in cause_text(result):
        reason = f"{found.finding.replace('_', ' ')}, {where(found.object)}"
    return CONFIRMED[found.by].format(reason=one_line(reason, LINE_CHARS)).removesuffix(": ")
