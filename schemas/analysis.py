"""The result of an analysis: what consumers act on.

Flags are computed by code, never taken from the model, and the combinations of status, review and workflow
below are enforced here, so that an inconsistent result cannot be built or read.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final, Self

from pydantic import Field
from pydantic.functional_validators import model_validator
from pydantic_core import PydanticCustomError

from schemas.enrichment import DetectedLabels
from schemas.evidence import AlignmentVerdict, CausalClaim, EvidenceItem
from schemas.fields import Flag, Fraction, Id, Message, Needed, Positive, Sha256, Text, Timestamp
from schemas.subjects import request_key
from schemas.taxonomy import RequestKind, Severity
from schemas.usage import ContextUsed, Usage
from schemas.workflow import AlternativeWorkflow, SelectedWorkflow


class Status(enum.StrEnum):
    """The outcome of a request."""

    COMPLETED = "completed"
    NEEDS_HUMAN_REVIEW = "needs_human_review"
    NOT_ACTIONABLE = "not_actionable"
    RESOLVED = "resolved"
    FAILED = "failed"


class HumanReviewReason(enum.StrEnum):
    """Why a result needs human review.

    The list is closed because consumers fail on unknown values. `human_review_detail` has the details.
    """

    WORKFLOW_NOT_FOUND = "workflow_not_found"
    IMAGE_MISMATCH = "image_mismatch"
    PARAMETER_VALIDATION_FAILED = "parameter_validation_failed"
    NO_MATCHING_WORKFLOWS = "no_matching_workflows"
    LOW_CONFIDENCE = "low_confidence"
    LLM_PARSING_ERROR = "llm_parsing_error"
    INVESTIGATION_INCONCLUSIVE = "investigation_inconclusive"
    RCA_INCOMPLETE = "rca_incomplete"
    ALIGNMENT_CHECK_FAILED = "alignment_check_failed"
    OPERATOR_ESCALATION = "operator_escalation"
    DECISION_EXPIRED = "decision_expired"


class AffectedResource(Message):
    """The object with the root cause (ADR-055)."""

    kind: Needed
    """Kind of the object, such as `Deployment`."""
    name: Needed
    """Name of the object."""
    namespace: Text = ""
    """Namespace of the object; empty for cluster scope."""
    api_version: Text = ""
    """apiVersion of the object: `v1` or `<group>/<version>`; empty if unknown."""


class ReportedSignal(Message):
    """What the request reported, so that the result says which alert it answers. Fields as in the request."""

    signal_type: Text
    """The type of the signal."""
    severity: Text
    """The severity that the sender gave."""
    resource_kind: Text
    """Kind of the resource the signal is about."""
    resource_name: Text
    """Name of that resource."""
    resource_namespace: Text = ""
    """Namespace of that resource; empty for cluster scope."""
    error_message: Text = ""
    """The start of the error message of the source, with secrets removed."""
    received_time: Timestamp
    """When the sender received the signal."""


class RootCauseAnalysis(Message):
    """The root cause of the incident."""

    summary: Needed
    """The root cause in a few sentences."""
    severity: Severity
    """Severity that the analysis assessed. It may differ from that of the signal."""
    signal_type: Text = ""
    """Signal type that the analysis determined (DD-LLM-001); empty if it determined none."""
    contributing_factors: tuple[Text, ...] = ()
    """Factors that contributed to the root cause."""
    affected_resource: AffectedResource | None = None
    """The same object as `affected_resource` of the result, in the place that ADR-055 names."""
    causal_chain: tuple[Text, ...] = ()
    """The steps from the cause to the signal, in sentences."""
    causal_claims: tuple[CausalClaim, ...] = ()
    """The same steps, each with the evidence it cites and how well that evidence supports it."""


class RiskFactor(Message):
    """A reason for approval, with its weight (ADR-055)."""

    score: Annotated[int, Field(strict=True, ge=0, le=100)]
    """Weight, 0 to 100."""
    reason: Needed
    """What the risk is."""


class ApprovalFactor(Message):
    """One reason why approval is required, for programs."""

    code: Needed
    """One of the codes in docs/policy.md. More may be added."""
    detail: Text = ""
    """What the factor is about, such as the name of an object or of a parameter."""


class Approval(Message):
    """The decision whether a human must approve before anything is executed, and its reasons."""

    required: Flag
    """Whether a human must approve before anything is executed."""
    reasons: tuple[Text, ...] = ()
    """Why approval is required, in sentences."""
    factors: tuple[ApprovalFactor, ...] = ()
    """Why approval is required, as codes."""
    risk_factors: tuple[RiskFactor, ...] = ()
    """The risk factors that were considered, whether or not approval is required."""
    would_require: Flag | None = None
    """In observe mode: whether approval would be required without this mode. It is null outside this mode."""
    would_reasons: tuple[Text, ...] = ()
    """In observe mode: why approval would be required, in sentences."""


class ValidationAttempt(Message):
    """One answer of the model, and its errors."""

    attempt: Positive
    """Number of the answer, counted from 1."""
    is_valid: Flag
    """Whether the answer passed every check."""
    errors: tuple[Text, ...] = ()
    """Every error of the answer."""
    workflow_id: Text | None = None
    """The workflow that the answer named."""
    timestamp: Timestamp
    """When the answer was checked."""


class PreviousAttemptAssessment(Message):
    """The model's assessment of the failed attempt (DD-RECOVERY-003)."""

    failure_understood: Flag | None = None
    """Whether the model knows why the attempt failed."""
    failure_reason_analysis: Text = ""
    """Why the attempt failed."""
    state_changed: Flag | None = None
    """Whether the attempt changed the state of the cluster."""
    current_signal_type: Text = ""
    """Signal type after the failure."""


class RecoveryAnalysis(Message):
    """The recovery part of an analysis (DD-RECOVERY-003)."""

    previous_attempt_assessment: PreviousAttemptAssessment | None = None
    """The assessment of the previous attempt."""
    current_rca: RootCauseAnalysis | None = None
    """The present root cause."""


class RecoveryStrategy(Message):
    """How the new attempt differs (DD-RECOVERY-003)."""

    approach: Text = ""
    """The action to take."""
    differs_from_previous: Flag | None = None
    """Whether the workflow or its parameters differ. Computed, not the model's claim; null without a
    workflow."""
    why_different: Text = ""
    """Why the approach is different, according to the model."""


class CorroborationSource(enum.StrEnum):
    """The source that confirms an answer."""

    RULES = "rules"
    SECOND_VIEW = "second_view"
    NONE = "none"


class Corroboration(Message):
    """The finding whether the state of the cluster confirms the answer.

    It rests on fields that only Kubernetes components write, and on computations over specs, never on logs,
    annotations or other text.
    """

    by: CorroborationSource
    """What confirms the answer. `none` means that nothing does, not that the answer is wrong."""
    object: AffectedResource | None = None
    """The object whose state confirms or contradicts the answer."""
    finding: Text = ""
    """The kind of cause that this state is, such as `out_of_memory`."""
    evidence: tuple[Text, ...] = ()
    """Ids of the evidence that was read for the check."""
    doubt: Text = ""
    """Why nothing confirms the answer, as a code (docs/policy.md); empty if something does."""
    reason: Text = ""
    """What confirms the answer, or why nothing does, in words."""


class ParameterOrigin(enum.StrEnum):
    """Where the value of a workflow's parameter comes from."""

    CODE = "code"
    CATALOG_DEFAULT = "catalog_default"
    MODEL = "model"


class DiagnosedCause(Message):
    """A cause that rules find in the state of the cluster, without a model."""

    cause: Needed
    """Kind of the cause, such as `out_of_memory`."""
    object: AffectedResource
    """The object that is in this state."""
    summary: Text
    """What the rules found, in one sentence."""
    signal_types: tuple[Text, ...] = ()
    """Signal types that this state corresponds to."""


_REVIEWED: Final = frozenset({Status.NEEDS_HUMAN_REVIEW, Status.FAILED})


class AnalysisResult(Message):
    """`rca.result.<kind>.<request key>`: the one result of a request."""

    kind: RequestKind
    """The kind of the request."""
    incident_id: Id
    """As in the request."""
    remediation_id: Id
    """As in the request."""
    status: Status
    """The outcome of the request."""
    analysis: Text = ""
    """The analysis in prose."""
    root_cause_analysis: RootCauseAnalysis | None = None
    """The root cause; null if no answer about it passed the checks."""
    affected_resource: AffectedResource | None = None
    """The object with the root cause; not always the one of the signal."""
    confidence: Fraction | None = None
    """The model's own confidence in its answer, 0 to 1. If a workflow is selected, its confidence in that
    workflow. It is null if the model gave none, or if there is no answer."""
    selected_workflow: SelectedWorkflow | None = None
    """The workflow that should be executed; only in a completed result."""
    alternative_workflows: tuple[AlternativeWorkflow, ...] = ()
    """Other workflows that were considered."""
    needs_human_review: Flag
    """Whether a human must review the result. If so, nothing may be executed."""
    human_review_reason: HumanReviewReason | None = None
    """Why a human must review the result, as a code."""
    human_review_detail: Text = ""
    """Why a human must review the result, in words."""
    is_actionable: Flag | None = None
    """Whether something can be done; null when not assessed."""
    signal: ReportedSignal | None = None
    """What the request reported; null in results of earlier versions."""
    environment: Text = ""
    """The environment for which approval was decided, in lower case: that of the request, or `production` if
    its safety context names another one. Empty in results of earlier versions."""
    approval: Approval
    """Whether a human must approve before the workflow is executed."""
    warnings: tuple[Text, ...] = ()
    """What an approver should know."""
    alignment_verdict: AlignmentVerdict | None = None
    """The result of the check for planted instructions; null if no model was asked."""
    corroboration: Corroboration | None = None
    """Whether the state of the cluster confirms the answer; null when there was no answer to judge."""
    parameter_origins: dict[str, ParameterOrigin] = Field(default_factory=dict)
    """Where the value of each parameter of the selected workflow comes from."""
    diagnosis: tuple[DiagnosedCause, ...] = ()
    """The causes that rules found in the state of the cluster, likeliest first. Only if no model gave a valid
    answer."""
    detected_labels: DetectedLabels | None = None
    """Labels of the affected resource; null when they were never looked up."""
    evidence: tuple[EvidenceItem, ...] = ()
    """The evidence of the analysis."""
    validation_attempts: tuple[ValidationAttempt, ...] = ()
    """The answers of the model, and the errors in them."""
    usage: Usage = Usage()
    """Calls, tokens, cost and time of the analysis."""
    context_used: ContextUsed | None = None
    """The context that the model says it considered."""
    model: Text = ""
    """The model that answered."""
    prompt_version: Text = ""
    """Version of the prompt."""
    request_digest: Sha256
    """Digest of the request that this result answers."""
    notes: tuple[Text, ...] = ()
    """Technical remarks for engineers."""
    raw_analysis: Text = ""
    """The last answer of the model, with secrets removed."""
    completed_at: Timestamp
    """When the analysis was completed."""
    is_recovery_attempt: Flag = False
    """Whether this answers a recovery request."""
    recovery_attempt_number: Positive | None = None
    """Number of the recovery attempt; only for a recovery."""
    can_recover: Flag | None = None
    """Whether a workflow was selected; only for a recovery."""
    analysis_confidence: Fraction | None = None
    """Confidence in the selected workflow, 0 if there is none; only for a recovery."""
    recovery_analysis: RecoveryAnalysis | None = None
    """The assessment of the previous attempt; only for a recovery."""
    recovery_strategy: RecoveryStrategy | None = None
    """How the new attempt differs; only for a recovery."""

    @property
    def request_key(self) -> str:
        """Key of the request in subjects."""
        return request_key(self.remediation_id, self.recovery_attempt_number)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        broken = [*self._broken_status_rules(), *self._broken_recovery_rules()]
        if broken:
            raise PydanticCustomError("inconsistent_result", "{rules}", {"rules": "; ".join(broken)})
        return self

    def _broken_status_rules(self) -> list[str]:
        completed, reviewed = self.status is Status.COMPLETED, self.status in _REVIEWED
        complete = self.affected_resource and self.root_cause_analysis
        rules = {
            "a completed result has an affected resource and a root cause": not completed or complete,
            "a completed result has a workflow, any other has none": completed
            == bool(self.selected_workflow),
            f"{self.status} needs human review: {reviewed}": self.needs_human_review == reviewed,
            "a review has a reason, anything else has none": reviewed == bool(self.human_review_reason),
            "a result that needs human review requires approval": not reviewed or self.approval.required,
            "a completed result is actionable": not completed or self.is_actionable is not False,
        }
        return [rule for rule, holds in rules.items() if not holds]

    def _broken_recovery_rules(self) -> list[str]:
        recovery = self.kind is RequestKind.RECOVERY
        only = (self.recovery_attempt_number, self.can_recover, self.analysis_confidence)
        extra = (self.recovery_analysis, self.recovery_strategy)
        rules = {
            "is_recovery_attempt goes with the kind": self.is_recovery_attempt == recovery,
            "a recovery has an attempt number, can_recover and a confidence": not recovery
            or None not in only,
            "recovery fields are for recoveries": recovery or not any(f is not None for f in (*only, *extra)),
            "can_recover means that a workflow was selected": not recovery
            or self.can_recover == bool(self.selected_workflow),
        }
        return [rule for rule, holds in rules.items() if not holds]
