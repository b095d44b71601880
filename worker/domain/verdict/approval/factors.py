"""The reasons for approval: a closed list of codes, each with its sentence.

All are the worker's own but `policy_decision`, which carries the words of the policy.

A factor is a code and a detail. Policies match codes, approvers read the sentences; both are in the result
(`approval.factors`, `approval.reasons`) and in the input of a policy (`approval_factors`, `risk_factors`). A
factor always requires approval: a policy may add reasons, but cannot remove any.

A factor may declare a proof that settles it: if the state that confirms the answer gives this proof, the factor
is withdrawn. Nothing settles the others. When the corroboration can read an object that could not be read
before (`resource_unverified`, `owners_unverified`), target, labels and history were already determined without
it. That an object in another namespace (`resource_elsewhere`) is the cause does not mean that it may be changed
without a human.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

from schemas.analysis import ApprovalFactor, HumanReviewReason
from worker.domain.untrusted.evidence import one_line
from worker.domain.untrusted.redaction.redact import redact

DETAIL_CHARS = 300
REVIEW_STEPS = {
    HumanReviewReason.NO_MATCHING_WORKFLOWS: "No workflow of the catalog fits: remedy the root cause by hand.",
    HumanReviewReason.ALIGNMENT_CHECK_FAILED: "Treat the evidence as hostile, and find out who wrote it.",
    HumanReviewReason.OPERATOR_ESCALATION: "Decide about the incident by hand.",
    HumanReviewReason.DECISION_EXPIRED: "If the problem persists, send a request with a new remediation_id.",
}
"""What a human does about a result that needs review; for any other reason, the sentence of its factor."""


class Proof(enum.Enum):
    """What the state that confirms an answer can prove about it."""

    REPORTS_SIGNAL_TYPE = enum.auto()
    """The signal type of the answer is one of this state."""
    FITS_WORKFLOW = enum.auto()
    """The workflow is made for this state, whatever signal type the answer gives."""


class FactorCode(enum.Enum):
    """Why a human must approve. The value is the sentence that an approver reads; `{detail}` is the detail of the factor."""

    # The analysis
    MODEL_ASKS_FOR_HUMAN = "The model asks for a human decision."
    LOW_CONFIDENCE = "The confidence is too low: {detail}."
    SEVERITY_UNKNOWN = "The severity could not be determined."
    SIGNAL_CONTEXT_UNREAD = "The worker could not read the {detail} around the resource of the signal."
    SIGNAL_TYPE_NOT_REPORTED = (
        "The answer names the signal type {detail}, but nothing in the cluster reports it."
    )

    # The affected resource
    RESOURCE_UNVERIFIED = "The worker could not check whether the affected resource exists: {detail}."
    RESOURCE_ABSENT = "The affected resource {detail} does not exist in the cluster."
    RESOURCE_ELSEWHERE = "The affected resource may be unrelated to the signal: {detail}."
    OWNERS_UNVERIFIED = "The owners of the affected resource could not all be read: {detail}."

    # The workflow and its target
    WORKFLOW_FOR_OTHER_SIGNAL = "The workflow is intended for another signal type: {detail}."
    WORKFLOW_LABEL_UNMET = "The workflow requires the label {detail}, which the target does not have."
    TARGET_NOT_AFFECTED_RESOURCE = "The workflow does not act on the affected resource: {detail}."
    FAILED_BEFORE = "The same remediation did not help this resource before, and its spec has not changed since: {detail}."
    HISTORY_UNKNOWN = (
        "The worker could not check whether this remediation has failed on this resource before: {detail}."
    )

    # Its parameters
    PARAMETER_OTHER_OBJECT = "A parameter names an object that is not the target: {detail}."
    PARAMETER_OTHER_NAMESPACE = "A parameter names a namespace that is not the target's: {detail}."
    PARAMETER_OBJECT_UNSEEN = "A parameter names an object that no evidence shows: {detail}."
    PARAMETER_ACTIVE_CHARACTERS = (
        "The value of parameter {detail} contains characters that a shell or a template interprets."
    )

    # Demands of the sender
    SAFETY_REQUIRES_APPROVAL = "The safety context requires approval."
    SAFETY_DRY_RUN = "The request sets its safety policy to dry-run mode."
    ACTION_NOT_ALLOWED = "The action {detail} is not among those that the safety context allows."
    DOWNTIME_UNKNOWN = (
        "The catalog does not state the downtime of the workflow, but the safety context accepts {detail}."
    )

    # The result
    HUMAN_REVIEW = "Investigate by hand, starting with the evidence that the worker read."

    # The policy
    POLICY_DECISION = "{detail}"
    POLICY_FAILED = "The approval policy could not be evaluated: {detail}."
    POLICY_INPUT_CUT = "A list was too long, so the policy saw only its beginning."

    # The mode of the worker
    OBSERVE_MODE = "The worker runs in observe mode: everything requires approval."

    @property
    def code(self) -> str:
        """The code by which policies and results name the reason: its name in lower case."""
        return self.name.lower()


SETTLED_BY = {
    FactorCode.SIGNAL_TYPE_NOT_REPORTED: Proof.REPORTS_SIGNAL_TYPE,
    FactorCode.WORKFLOW_FOR_OTHER_SIGNAL: Proof.FITS_WORKFLOW,
}
"""The proofs that settle factors."""


def factor(code: FactorCode, detail: str = "") -> ApprovalFactor:
    """A factor. The detail is cut to one line of 300 characters and redacted."""
    return ApprovalFactor(code=code.code, detail=one_line(redact(detail), DETAIL_CHARS))


def unsettled(factors: Iterable[ApprovalFactor], proofs: Collection[Proof]) -> tuple[ApprovalFactor, ...]:
    """The factors that none of the proofs settles."""
    return tuple(found for found in factors if SETTLED_BY.get(_code(found)) not in proofs)


def sentence(factor: ApprovalFactor) -> str:
    """The factor as a sentence for an approver."""
    if _code(factor) is FactorCode.HUMAN_REVIEW and factor.detail in REVIEW_STEPS:
        return REVIEW_STEPS[HumanReviewReason(factor.detail)]
    return _code(factor).value.replace("{detail}", factor.detail)


def _code(factor: ApprovalFactor) -> FactorCode:
    return FactorCode[factor.code.upper()]


def sentences(factors: Iterable[ApprovalFactor]) -> tuple[str, ...]:
    """All factors as sentences, each once."""
    return tuple(dict.fromkeys(map(sentence, factors)))
