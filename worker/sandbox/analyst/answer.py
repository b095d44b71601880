"""The final answer: a few sentences, then one JSON object in the form that the worker asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst import past
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.selection import Choice, Selection
from worker.sandbox.analyst.transcript import FailedAttempt, Incident

RISK = {
    RemedyKind.RESTART: "low", RemedyKind.RESTART_POD: "low", RemedyKind.CORDON: "low", RemedyKind.FIX_PULL_SECRET: "low",
    RemedyKind.RAISE_HPA: "low", RemedyKind.ADD_NODE: "low", RemedyKind.EXPAND_CLAIM: "low", RemedyKind.MORE_MEMORY: "low",
    RemedyKind.DRAIN: "high", RemedyKind.RECREATE_CLAIM: "high", RemedyKind.SCALE_DOWN: "medium", RemedyKind.REMOVE_FINALIZER: "high",
}  # fmt: skip
MAX_FACTORS = 7
DOUBLE_STOP = re.compile(r"(?<!\.)\.\.(?!\.)")


@dataclass(frozen=True, slots=True)
class AnswerParts:
    """Everything the answer is made of."""

    incident: Incident
    finding: Finding | None
    selection: Selection
    severity: str
    signal_type: str
    warnings: Sequence[str]
    failed: FailedAttempt | None
    evidence: int


def write(verdict: AnswerParts) -> str:
    """The answer's text."""
    body = json.dumps(_body(verdict), ensure_ascii=False, indent=1)
    return f"{_prose(verdict)}\n\n```json\n{body}\n```\n"


def _prose(verdict: AnswerParts) -> str:
    lines = [_summary(verdict)]
    choice = verdict.selection.choice
    if choice is not None:
        lines.append(
            f"Workflow {choice.candidate.workflow_id} acts on {choice.target}: {_rationale(verdict, choice)}"
        )
    else:
        lines.append(f"No workflow is chosen: {_why_not(verdict)}.")
    return "\n\n".join(lines)


def _summary(verdict: AnswerParts) -> str:
    if verdict.finding is not None:
        return DOUBLE_STOP.sub(".", verdict.finding.summary)
    return f"The rules do not explain {verdict.incident.signal_type} of {verdict.incident.resource}: what was read shows no cause. A person must look."


def _body(verdict: AnswerParts) -> dict[str, Any]:
    finding, choice = verdict.finding, verdict.selection.choice
    target = finding.target if finding is not None else verdict.incident.resource
    cause: dict[str, Any] = {
        "summary": _summary(verdict),
        "severity": verdict.severity,
        "contributing_factors": list(dict.fromkeys(f for f in (finding.factors if finding else ()) if f))[
            :MAX_FACTORS
        ],
        "affectedResource": _resource(target),
    }
    if verdict.signal_type:
        cause["signal_type"] = verdict.signal_type
    body: dict[str, Any] = {
        "root_cause_analysis": cause,
        "selected_workflow": _workflow(verdict, choice) if choice else None,
        "alternative_workflows": [_alternative(verdict, o) for o in choice.others] if choice else [],
        "investigation_outcome": _outcome(verdict),
        "confidence": round(finding.certainty, 2) if finding else 0.2,
        "warnings": list(dict.fromkeys(_warnings(verdict))),
        "context_used": _context(verdict),
    }
    if choice is None:
        body["rationale"] = _why_not(verdict)
    if verdict.failed is not None:
        body |= _recovery(verdict)
    return body


def _warnings(verdict: AnswerParts) -> list[str]:
    finding = verdict.finding
    history = past.told(verdict.selection.context)[: past.MAX_TOLD]
    return [
        *verdict.warnings,
        *(finding.warnings if finding else ()),
        *(f"earlier remediations: {line}" for line in history),
    ]


def _resource(ref: ObjectRef) -> dict[str, str]:
    found = {"kind": ref.kind, "name": ref.name, "namespace": ref.namespace}
    return found | ({"apiVersion": ref.api_version} if ref.api_version else {})


def _workflow(verdict: AnswerParts, choice: Choice) -> dict[str, Any]:
    return {
        "workflow_id": choice.candidate.workflow_id,
        "confidence": confidence(verdict.finding, choice),
        "rationale": _rationale(verdict, choice),
        "estimated_risk": RISK.get(choice.candidate.remedy, "medium"),
        "parameters": choice.values,
    }


def confidence(finding: Finding | None, choice: Choice) -> float:
    """How sure the choice is: the certainty of the cause, less when the workflow's texts do not name it."""
    certainty = finding.certainty if finding else 0.0
    named = bool(choice.candidate.reasons)
    return round(min(0.95, max(certainty if named else certainty - 0.08, 0.0)), 2)


def _rationale(verdict: AnswerParts, choice: Choice) -> str:
    finding, candidate = verdict.finding, choice.candidate
    fits = (
        f"its conditions hold ({'; '.join(reason.rstrip('. ') for reason in candidate.reasons)})"
        if candidate.reasons
        else "it is the kind of help that the cause needs"
    )
    cause = finding.family.replace("-", " ") if finding else "unknown"
    return f"the cause is of the kind '{cause}' and calls for: {candidate.remedy.value}; {fits}."


def _alternative(verdict: AnswerParts, candidate: Any) -> dict[str, Any]:
    certainty = verdict.finding.certainty if verdict.finding else 0.0
    return {
        "workflow_id": candidate.workflow_id,
        "confidence": round(max(0.1, certainty - 0.2), 2),
        "rationale": f"would help by: {candidate.remedy.value}; less direct than the chosen one",
    }


def _outcome(verdict: AnswerParts) -> str:
    finding = verdict.finding
    if finding is None:
        return "insufficient_data" if verdict.evidence < 2 else "inconclusive"
    if finding.outcome:
        return finding.outcome
    return "actionable" if finding.certainty >= 0.55 else "inconclusive"


def _why_not(verdict: AnswerParts) -> str:
    if verdict.finding is None:
        return "the cause is not known"
    if verdict.finding.outcome in {"not_actionable", "problem_resolved"}:
        return "there is nothing left to repair"
    return verdict.selection.why_not or "no workflow fits"


def _context(verdict: AnswerParts) -> dict[str, str]:
    finding = verdict.finding
    labels = verdict.selection.context.get("detected_labels") or {}
    flags = ", ".join(k for k, v in labels.items() if v is True) if isinstance(labels, dict) else ""
    state = finding.factors[0] if finding and finding.factors else "no trouble was seen"
    return {
        "cluster_state": state[:300],
        "resource_availability": f"detected for the target: {flags or 'nothing special'}",
        "blast_radius": f"{finding.target if finding else verdict.incident.resource} in {verdict.incident.environment or 'an unknown environment'}",
    }


def _recovery(verdict: AnswerParts) -> dict[str, Any]:
    failed = verdict.failed
    choice = verdict.selection.choice
    chosen = choice.candidate.workflow_id if choice else "no workflow"
    reason = failed.reason if failed else ""
    workflow = failed.workflow_id if failed else ""
    changed = bool(
        failed and failed.signal_type and verdict.signal_type and failed.signal_type != verdict.signal_type
    )
    return {
        "recovery_analysis": {
            "previous_attempt_assessment": {
                "failure_understood": bool(reason),
                "failure_reason_analysis": f"{workflow or 'the workflow'} failed: {reason or 'reason not stated'}",
                "state_changed": changed,
                "current_signal_type": verdict.signal_type,
            }
        },
        "recovery_strategy": {
            "approach": f"{chosen}, chosen from the present state of the cluster",
            "why_different": f"{workflow or 'the failed workflow'} is not tried again",
        },
    }
