"""Decides status, review, reason and workflow by how a run ended: one table, as a pure function.

The first row that requires human review decides; if none does, the first of the other rows. Flags are
computed here and never taken from the model.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from schemas.analysis import ApprovalFactor, HumanReviewReason, Status
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.limits import MIN_CONFIDENCE
from worker.domain.verdict.answers.answer import InvestigationOutcome, ProblemKind
from worker.domain.verdict.approval.factors import FactorCode, factor, sentence
from worker.domain.verdict.verdict import NOTHING_TO_DO, Accepted, Rejected, Verdict

DETAIL_CHARS = 600
UNDECIDED = frozenset({InvestigationOutcome.INCONCLUSIVE, InvestigationOutcome.INSUFFICIENT_DATA})
REASON_OF_PROBLEM = {
    ProblemKind.UNREADABLE: HumanReviewReason.LLM_PARSING_ERROR,
    ProblemKind.RCA: HumanReviewReason.RCA_INCOMPLETE,
    ProblemKind.WORKFLOW_UNKNOWN: HumanReviewReason.WORKFLOW_NOT_FOUND,
    ProblemKind.WORKFLOW_MISMATCH: HumanReviewReason.IMAGE_MISMATCH,
    ProblemKind.PARAMETERS: HumanReviewReason.PARAMETER_VALIDATION_FAILED,
    ProblemKind.FORBIDDEN: HumanReviewReason.OPERATOR_ESCALATION,
}


class Stop(enum.StrEnum):
    """Reasons to end a run before its attempts are used up."""

    BUDGET_SPENT = "The budget of the investigation is spent"
    MODELS_DOWN = "No model answered"
    CONTEXT_FULL = "The conversation is too long for the model"
    CATALOG_DOWN = "The workflow catalog could not be read"


class WorkflowFate(enum.StrEnum):
    """The use of the chosen workflow in the result."""

    KEPT = "kept"
    ALTERNATIVE = "alternative"
    NONE = "none"


class ApprovalRule(enum.StrEnum):
    """Who decides about approval: the policy, the checks, or nobody.

    The policy may add reasons to those of the checks. Nobody decides if no workflow is proposed.
    """

    POLICY = "policy"
    REQUIRED = "required"
    NOT_ASKED = "not_asked"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended. Several conditions may hold at once.

    `verdict`: the accepted answer, or the last of as many invalid answers as are allowed. With a `stop`, an
    invalid answer was not the last one allowed, and does not decide. `dead_letter` is the reason of a dead
    letter, else empty. `doubts` are sentences that speak against an answer that finds nothing to do.
    """

    verdict: Verdict | None = None
    stop: Stop | None = None
    stop_detail: str = ""
    expired: bool = False
    cancelled: bool = False
    dead_letter: str = ""
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The content of the result.

    `detail` are sentences for a human. `is_actionable` is None when it was not assessed.
    """

    status: Status
    reason: HumanReviewReason | None = None
    detail: str = ""
    workflow: WorkflowFate = WorkflowFate.NONE
    approval: ApprovalRule = ApprovalRule.NOT_ASKED
    approval_factors: tuple[ApprovalFactor, ...] = ()
    is_actionable: bool | None = None

    @property
    def needs_human_review(self) -> bool:
        """True if a human must review the result."""
        return self.reason is not None


def conclude(ending: Ending, min_confidence: float = MIN_CONFIDENCE) -> Conclusion:
    """The row of the table that applies."""
    accepted = ending.verdict if isinstance(ending.verdict, Accepted) else None
    if ending.dead_letter:
        detail = f"The request became a dead letter (see `rca dlq list`): {ending.dead_letter}"
        return _review(HumanReviewReason.INVESTIGATION_INCONCLUSIVE, detail, Status.FAILED)
    for reason, detail in _reviews(ending, accepted, min_confidence):
        if reason is HumanReviewReason.LOW_CONFIDENCE and accepted is not None:
            return _low_confidence(detail, accepted)
        return _review(reason, detail)
    if accepted is None:
        detail = "The investigation ended without an answer."
        return _review(HumanReviewReason.INVESTIGATION_INCONCLUSIVE, detail)
    return _without_review(accepted)


def _reviews(
    ending: Ending, accepted: Accepted | None, min_confidence: float
) -> Iterator[tuple[HumanReviewReason, str]]:
    """Every reason for a review that holds, in the order of the table."""
    if accepted is not None:
        yield from _doubts(accepted, min_confidence, catalog_was_read=ending.stop is not Stop.CATALOG_DOWN)
    elif isinstance(ending.verdict, Rejected) and ending.stop is None:
        yield _last_rejection(ending.verdict)
    if accepted is not None and accepted.misaligned:
        yield HumanReviewReason.ALIGNMENT_CHECK_FAILED, accepted.misaligned
    if accepted is not None and ending.doubts:
        said = f"The model concluded {accepted.outcome}, which the worker could not confirm."
        yield HumanReviewReason.INVESTIGATION_INCONCLUSIVE, " ".join((said, *ending.doubts))
    if ending.stop is not None:
        detail = f"{ending.stop}: {ending.stop_detail}" if ending.stop_detail else f"{ending.stop}."
        if isinstance(ending.verdict, Rejected) and ending.verdict.problems:
            detail = f"{detail.removesuffix('.')}. {_last_rejection(ending.verdict)[1]}"
        yield HumanReviewReason.INVESTIGATION_INCONCLUSIVE, detail
    if ending.expired:
        yield HumanReviewReason.DECISION_EXPIRED, "The request expired before it was decided (expires_at)."
    if ending.cancelled:
        yield HumanReviewReason.OPERATOR_ESCALATION, "The request was cancelled."


def _doubts(
    accepted: Accepted, min_confidence: float, *, catalog_was_read: bool
) -> Iterator[tuple[HumanReviewReason, str]]:
    """Reasons in the answer itself. If the catalog could not be read, the model could not choose."""
    chosen, outcome, confidence = accepted.workflow, accepted.outcome, accepted.confidence
    decides = chosen is not None or outcome in NOTHING_TO_DO
    if decides and confidence is not None and confidence < min_confidence:
        detail = f"{confidence:g} is under the minimum of {min_confidence:g}"
        yield HumanReviewReason.LOW_CONFIDENCE, detail
    if outcome in UNDECIDED:
        said = f": {accepted.answer.rationale}" if accepted.answer.rationale.strip() else ""
        yield HumanReviewReason.INVESTIGATION_INCONCLUSIVE, f"The model concluded {outcome}{said}"
    elif not decides and catalog_was_read:
        said = accepted.answer.rationale.strip() or "The answer selects no workflow and gives no rationale."
        yield HumanReviewReason.NO_MATCHING_WORKFLOWS, said


def review_reason(rejected: Rejected) -> HumanReviewReason:
    """Return why a human must review the result if this answer is the last one."""
    return _last_rejection(rejected)[0]


def _last_rejection(rejected: Rejected) -> tuple[HumanReviewReason, str]:
    order = list(REASON_OF_PROBLEM)
    first = min(rejected.problems, key=lambda p: order.index(p.kind), default=None)
    if first is None:
        return HumanReviewReason.LLM_PARSING_ERROR, "No answer could be read."
    others = len(rejected.problems) - 1
    where = f"{first.path}: " if first.path else ""
    more = f" (and {others} more problems)" if others else ""
    message = one_line(first.message, DETAIL_CHARS - 200)
    return REASON_OF_PROBLEM[first.kind], f"The last answer was rejected. {where}{message}{more}"


def _review(reason: HumanReviewReason, detail: str, status: Status = Status.NEEDS_HUMAN_REVIEW) -> Conclusion:
    review = factor(FactorCode.HUMAN_REVIEW, reason)
    return Conclusion(status, reason, one_line(detail, DETAIL_CHARS), approval_factors=(review,))


def _low_confidence(detail: str, accepted: Accepted) -> Conclusion:
    low = factor(FactorCode.LOW_CONFIDENCE, detail)
    return Conclusion(
        Status.NEEDS_HUMAN_REVIEW,
        HumanReviewReason.LOW_CONFIDENCE,
        sentence(low),
        WorkflowFate.ALTERNATIVE if accepted.workflow is not None else WorkflowFate.NONE,
        ApprovalRule.REQUIRED,
        (low, *accepted.approval_factors),
    )


def _without_review(accepted: Accepted) -> Conclusion:
    if accepted.workflow is not None:
        rule = ApprovalRule.REQUIRED if accepted.approval_factors else ApprovalRule.POLICY
        return Conclusion(
            Status.COMPLETED,
            workflow=WorkflowFate.KEPT,
            approval=rule,
            approval_factors=accepted.approval_factors,
            is_actionable=True,
        )
    resolved = accepted.outcome is InvestigationOutcome.PROBLEM_RESOLVED
    return Conclusion(Status.RESOLVED if resolved else Status.NOT_ACTIONABLE, is_actionable=False)
