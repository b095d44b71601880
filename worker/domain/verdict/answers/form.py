"""The form in which a model submits its answer: the schema of the tool `submit_result`.

The models here are only a form to fill in. What comes back is read by `parse.py`, as tolerantly as an answer
in text, and passes the same checks. All fields are required and those that may be absent are nullable or may
be empty, so that providers with a strict mode can guarantee the form.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from worker.domain.values.conversation import ToolSpec
from worker.domain.values.json_schema import compact_schema
from worker.domain.verdict.answers.answer import InvestigationOutcome

SUBMIT_RESULT = "submit_result"
DESCRIPTION = "Submit the answer. Ends the investigation unless it is rejected."
Level = Literal["critical", "high", "medium", "low"]
Risk = Literal["low", "medium", "high"]


class _AffectedResource(BaseModel):
    kind: str
    name: str
    namespace: str = Field(description="empty for cluster scope")
    apiVersion: str  # noqa: N815 - the name in ADR-055 - the name in the contract


class _Claim(BaseModel):
    claim: str
    evidence: list[str] = Field(description="E1, E2, ...")


class _RootCauseAnalysis(BaseModel):
    summary: str
    severity: Level
    signal_type: str
    contributing_factors: list[str]
    causal_chain: list[_Claim] = Field(description="from the cause to the signal")
    affectedResource: _AffectedResource  # noqa: N815


class _ParameterValue(BaseModel):
    name: str
    value: str | float | bool | list[str]


class _SelectedWorkflow(BaseModel):
    workflow_id: str
    version: str
    confidence: float
    rationale: str
    estimated_risk: Risk
    estimated_downtime_seconds: int | None
    impact_on_dependencies: str
    parameters: list[_ParameterValue]


class _AlternativeWorkflow(BaseModel):
    workflow_id: str
    confidence: float
    rationale: str


class _ContextUsed(BaseModel):
    cluster_state: str
    resource_availability: str
    blast_radius: str


class IncidentForm(BaseModel):
    """The answer to an incident."""

    analysis: str
    root_cause_analysis: _RootCauseAnalysis
    confidence: float
    selected_workflow: _SelectedWorkflow | None
    alternative_workflows: list[_AlternativeWorkflow]
    investigation_outcome: InvestigationOutcome
    rationale: str
    warnings: list[str]
    context_used: _ContextUsed


class _PreviousAttemptAssessment(BaseModel):
    failure_understood: bool
    failure_reason_analysis: str
    state_changed: bool
    current_signal_type: str


class _RecoveryAnalysis(BaseModel):
    previous_attempt_assessment: _PreviousAttemptAssessment


class _RecoveryStrategy(BaseModel):
    approach: str
    why_different: str


class RecoveryForm(IncidentForm):
    """The answer to a recovery request."""

    recovery_analysis: _RecoveryAnalysis
    recovery_strategy: _RecoveryStrategy


INCIDENT_ANSWER = ToolSpec(SUBMIT_RESULT, DESCRIPTION, compact_schema(IncidentForm), is_answer=True)
RECOVERY_ANSWER = ToolSpec(SUBMIT_RESULT, DESCRIPTION, compact_schema(RecoveryForm), is_answer=True)
