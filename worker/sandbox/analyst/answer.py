"""The final answer: one JSON object in the requested form, submitted through the tool or as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from worker.domain.diagnosis.actions import remedies_of
from worker.domain.diagnosis.causes import Basis, Cause, Diagnosis, Remedy, Strength
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst import past
from worker.sandbox.analyst.choose import Choice, Selection
from worker.sandbox.analyst.transcript import FailedAttempt, Incident

RISK = {Remedy.RESTART: "low", Remedy.CORDON: "low", Remedy.REFRESH_PULL_SECRET: "low", Remedy.RAISE_AUTOSCALER: "low",
        Remedy.ADD_CAPACITY: "low", Remedy.EXPAND_VOLUME: "low", Remedy.INCREASE_MEMORY: "low", Remedy.DRAIN: "high",
        Remedy.RECREATE_CLAIM: "high", Remedy.REMOVE_FINALIZER: "high"}  # fmt: skip
CONFIDENCE = {Strength.DIRECT: 0.9, Strength.TIMED: 0.8, Strength.SYMPTOM: 0.5}
TOLD = 0.76  # confidence in what only a program says
MAX_FACTORS = 7


@dataclass(frozen=True, slots=True)
class AnalystAnswer:
    """The parts of the answer. `said`: statements about the finding. `recovered`: why the problem is over."""

    incident: Incident
    target: ObjectRef
    finding: Diagnosis | None
    said: Sequence[str]
    recovered: str
    selection: Selection
    severity: str
    signal_type: str
    warnings: Sequence[str]
    failed: FailedAttempt | None
    looked: bool
    chain: Sequence[tuple[str, Sequence[str]]] = ()
    """The steps from the cause to the signal, with the ids of the evidence."""

    @property
    def confidence(self) -> float:
        """How sure the cause is."""
        if self.finding is None:
            return 0.75 if self.recovered else 0.2
        sure = CONFIDENCE[self.finding.strength]
        return min(sure, TOLD) if self.finding.basis is Basis.TEXT else sure

    @property
    def outcome(self) -> str:
        """The outcome of the investigation, in the words of the contract."""
        if self.finding is None:
            unsolved = "inconclusive" if self.looked else "insufficient_data"
            return "problem_resolved" if self.recovered else unsolved
        return "actionable" if self.finding.strength is not Strength.SYMPTOM or self.said else "inconclusive"

    @property
    def summary(self) -> str:
        """The cause in sentences: the finding, then what components and programs say."""
        if self.recovered:
            return f"{self.recovered}: what {self.incident.signal_type} reported has ended."
        if self.finding is None:
            return f"The rules do not explain {self.incident.signal_type} of {self.incident.resource}: what was read shows no cause. A person must look."
        told = self.finding.sentence
        start = self.finding.path[0].to if self.finding.path else self.target
        if start not in self.finding.subjects:
            told = f"{told} {start} suffers from it."
        reported = f" Reported: {'; '.join(line.rstrip('.') for line in self.said)}." if self.said else ""
        return f"{told[:1].upper()}{told[1:]}{reported}"

    @property
    def why_not(self) -> str:
        """Why no workflow is chosen."""
        if self.recovered:
            return "there is nothing left to repair"
        unknown = "the cause is not known" if self.finding is None else ""
        return unknown or self.selection.why_not or "no workflow fits"


def write(answer: AnalystAnswer) -> str:
    """The answer as text: the prose, then the JSON object."""
    body = body_of(answer)
    return f"{body.pop('analysis')}\n\n```json\n{json.dumps(body, ensure_ascii=False, indent=1)}\n```\n"


def _prose(answer: AnalystAnswer) -> str:
    choice = answer.selection.choice
    if choice is None:
        return f"{answer.summary}\n\nNo workflow is chosen: {answer.why_not}."
    return f"{answer.summary}\n\nWorkflow {choice.workflow.workflow_id} acts on {choice.target}: {_rationale(choice)}"


def body_of(answer: AnalystAnswer) -> dict[str, Any]:
    """The JSON object of the answer."""
    cause: dict[str, Any] = {
        "summary": answer.summary,
        "severity": answer.severity,
        "contributing_factors": list(answer.said)[:MAX_FACTORS],
        "affectedResource": _resource(answer.target),
        "causal_chain": [{"claim": claim, "evidence": list(ids)} for claim, ids in answer.chain],
    }
    if answer.signal_type:
        cause["signal_type"] = answer.signal_type
    choice = answer.selection.choice
    body: dict[str, Any] = {
        "analysis": _prose(answer),
        "root_cause_analysis": cause,
        "selected_workflow": _workflow(answer, choice) if choice else None,
        "alternative_workflows": _alternatives(answer),
        "investigation_outcome": answer.outcome,
        "confidence": answer.confidence,
        "warnings": list(dict.fromkeys([*answer.warnings, *_history(answer)])),
        "context_used": _context(answer),
    }
    if choice is None:
        body["rationale"] = answer.why_not
    return body | (_recovery(answer, answer.failed) if answer.failed else {})


def _history(answer: AnalystAnswer) -> list[str]:
    return [f"earlier remediations: {line}" for line in past.told(answer.selection.context)[: past.MAX_TOLD]]


def _resource(ref: ObjectRef) -> dict[str, str]:
    found = {"kind": ref.kind, "name": ref.name, "namespace": ref.namespace}
    return found | ({"apiVersion": ref.api_version} if ref.api_version else {})


def _workflow(answer: AnalystAnswer, choice: Choice) -> dict[str, Any]:
    risks = [RISK[r] for r in remedies_of(choice.workflow.action_type) if r in RISK]
    return {
        "workflow_id": choice.workflow.workflow_id,
        "confidence": answer.confidence,
        "rationale": _rationale(choice),
        "estimated_risk": risks[0] if risks else "medium",
        "parameters": choice.values,
    }


def _rationale(choice: Choice) -> str:
    cause = choice.finding.cause.replace("_", " ")
    return f"{choice.workflow.action_type} remedies the cause '{cause}' of {choice.finding.object}."


def _alternatives(answer: AnalystAnswer) -> list[dict[str, Any]]:
    choice = answer.selection.choice
    less = round(max(0.1, answer.confidence - 0.2), 2)
    return [
        {"workflow_id": w.workflow_id, "confidence": less, "rationale": f"{w.action_type} would help too; less direct than the chosen one"}
        for w in (choice.others if choice else ())
    ]  # fmt: skip


def _context(answer: AnalystAnswer) -> dict[str, str]:
    labels = answer.selection.context.get("detected_labels") or {}
    flags = ", ".join(k for k, v in labels.items() if v is True) if isinstance(labels, dict) else ""
    state = answer.finding.sentence if answer.finding else answer.recovered or "no trouble was seen"
    return {
        "cluster_state": state[:300],
        "resource_availability": f"detected for the target: {flags or 'nothing special'}",
        "blast_radius": f"{answer.target} in {answer.incident.environment or 'an unknown environment'}",
    }


def _recovery(answer: AnalystAnswer, failed: FailedAttempt) -> dict[str, Any]:
    choice = answer.selection.choice
    chosen, workflow = choice.workflow.workflow_id if choice else "no workflow", failed.workflow_id
    return {
        "recovery_analysis": {
            "previous_attempt_assessment": {
                "failure_understood": bool(failed.reason),
                "failure_reason_analysis": f"{workflow or 'the workflow'} failed: {failed.reason or 'reason not stated'}",
                "state_changed": bool(failed.signal_type and answer.signal_type and failed.signal_type != answer.signal_type),
                "current_signal_type": answer.signal_type,
            }
        },
        "recovery_strategy": {
            "approach": f"{chosen}, chosen from the present state of the cluster",
            "why_different": f"{workflow or 'the failed workflow'} is not tried again",
        },
    }  # fmt: skip


def severity_of(incident: Incident, finding: Diagnosis | None) -> str:
    """The signal's severity where it states one, else by environment and by what was found."""
    stated = {"warning": "medium", "info": "low", "error": "high"}.get(incident.severity, incident.severity)
    if stated in {"critical", "high", "medium", "low"}:
        return stated
    if incident.environment.startswith("prod"):
        grave = {Cause.NODE, Cause.OUT_OF_MEMORY, Cause.VOLUME_FULL, Cause.CONNECTIONS}
        return "critical" if finding is not None and finding.cause in grave else "high"
    return "low" if incident.environment.startswith("dev") else "medium"
