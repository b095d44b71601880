from __future__ import annotations

import pytest

from schemas.analysis import HumanReviewReason as Reason
from schemas.analysis import Status
from schemas.taxonomy import Severity
from tests.fakes.memory_catalog import workflow
from tests.fakes.verdicts import DEPLOYMENT, answer
from worker.domain.verdict.answers.answer import InvestigationOutcome, Problem, ProblemKind
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.outcome import ApprovalRule, Ending, Stop, WorkflowFate, conclude
from worker.domain.verdict.verdict import Accepted, Rejected

REVIEW = Status.NEEDS_HUMAN_REVIEW
KEPT, ALTERNATIVE, NONE = WorkflowFate.KEPT, WorkflowFate.ALTERNATIVE, WorkflowFate.NONE
POLICY, REQUIRED, NOT_ASKED = ApprovalRule.POLICY, ApprovalRule.REQUIRED, ApprovalRule.NOT_ASKED
ACTIONABLE, INCONCLUSIVE = InvestigationOutcome.ACTIONABLE, InvestigationOutcome.INCONCLUSIVE
NOT_ACTIONABLE, RESOLVED = InvestigationOutcome.NOT_ACTIONABLE, InvestigationOutcome.PROBLEM_RESOLVED
GONE = factor(FactorCode.RESOURCE_ABSENT, "Pod shop/api")
NO_DATA = InvestigationOutcome.INSUFFICIENT_DATA


def accepted(*, chosen=True, outcome=ACTIONABLE, confidence=0.9, **fields):
    return Accepted(
        answer=answer(rationale="no workflow edits a quota"),
        severity=Severity.HIGH,
        signal_type="",
        affected=DEPLOYMENT,
        root_owner=DEPLOYMENT,
        outcome=outcome,
        workflow=workflow() if chosen else None,
        confidence=confidence,
        **fields,
    )


def nothing(outcome=None, confidence=None, **fields):
    return accepted(chosen=False, outcome=outcome, confidence=confidence, **fields)


def rejected(*kinds):
    return Rejected(tuple(Problem(kind, "path", f"{kind} is wrong") for kind in kinds))


TABLE = [
    # condition, ending, status, reason, workflow, approval
    ("valid", Ending(accepted()), Status.COMPLETED, None, KEPT, POLICY),
    ("valid, outcome absent", Ending(accepted(outcome=None)), Status.COMPLETED, None, KEPT, POLICY),
    ("at the minimum", Ending(accepted(confidence=0.7)), Status.COMPLETED, None, KEPT, POLICY),
    ("factors", Ending(accepted(approval_factors=(GONE,))), Status.COMPLETED, None, KEPT, REQUIRED),
    ("low", Ending(accepted(confidence=0.69)), REVIEW, Reason.LOW_CONFIDENCE, ALTERNATIVE, REQUIRED),
    ("not actionable", Ending(nothing(NOT_ACTIONABLE)), Status.NOT_ACTIONABLE, None, NONE, NOT_ASKED),
    ("sure: nothing", Ending(nothing(NOT_ACTIONABLE, 0.9)), Status.NOT_ACTIONABLE, None, NONE, NOT_ASKED),
    ("resolved", Ending(nothing(RESOLVED)), Status.RESOLVED, None, NONE, NOT_ASKED),
    ("unsure: resolved", Ending(nothing(RESOLVED, 0.3)), REVIEW, Reason.LOW_CONFIDENCE, NONE, REQUIRED),
    (
        "inconclusive",
        Ending(nothing(INCONCLUSIVE)),
        REVIEW,
        Reason.INVESTIGATION_INCONCLUSIVE,
        NONE,
        NOT_ASKED,
    ),
    ("no data", Ending(nothing(NO_DATA)), REVIEW, Reason.INVESTIGATION_INCONCLUSIVE, NONE, NOT_ASKED),
    (
        "inconclusive with a workflow",
        Ending(accepted(outcome=INCONCLUSIVE)),
        REVIEW,
        Reason.INVESTIGATION_INCONCLUSIVE,
        NONE,
        NOT_ASKED,
    ),
    ("none, actionable", Ending(nothing(ACTIONABLE)), REVIEW, Reason.NO_MATCHING_WORKFLOWS, NONE, NOT_ASKED),
    ("none, absent", Ending(nothing()), REVIEW, Reason.NO_MATCHING_WORKFLOWS, NONE, NOT_ASKED),
    ("none, unsure", Ending(nothing(None, 0.2)), REVIEW, Reason.NO_MATCHING_WORKFLOWS, NONE, NOT_ASKED),
    (
        "unreadable",
        Ending(rejected(ProblemKind.UNREADABLE)),
        REVIEW,
        Reason.LLM_PARSING_ERROR,
        NONE,
        NOT_ASKED,
    ),
    ("rca", Ending(rejected(ProblemKind.RCA)), REVIEW, Reason.RCA_INCOMPLETE, NONE, NOT_ASKED),
    (
        "workflow unknown",
        Ending(rejected(ProblemKind.WORKFLOW_UNKNOWN)),
        REVIEW,
        Reason.WORKFLOW_NOT_FOUND,
        NONE,
        NOT_ASKED,
    ),
    (
        "image differs",
        Ending(rejected(ProblemKind.WORKFLOW_MISMATCH)),
        REVIEW,
        Reason.IMAGE_MISMATCH,
        NONE,
        NOT_ASKED,
    ),
    (
        "parameters",
        Ending(rejected(ProblemKind.PARAMETERS)),
        REVIEW,
        Reason.PARAMETER_VALIDATION_FAILED,
        NONE,
        NOT_ASKED,
    ),
    (
        "forbidden",
        Ending(rejected(ProblemKind.FORBIDDEN)),
        REVIEW,
        Reason.OPERATOR_ESCALATION,
        NONE,
        NOT_ASKED,
    ),
    (
        "injection",
        Ending(accepted(misaligned="planted")),
        REVIEW,
        Reason.ALIGNMENT_CHECK_FAILED,
        NONE,
        NOT_ASKED,
    ),
    (
        "injection, nothing to do",
        Ending(nothing(NOT_ACTIONABLE, misaligned="planted")),
        REVIEW,
        Reason.ALIGNMENT_CHECK_FAILED,
        NONE,
        NOT_ASKED,
    ),
    ("budget", Ending(stop=Stop.BUDGET_SPENT), REVIEW, Reason.INVESTIGATION_INCONCLUSIVE, NONE, NOT_ASKED),
    ("models", Ending(stop=Stop.MODELS_DOWN), REVIEW, Reason.INVESTIGATION_INCONCLUSIVE, NONE, NOT_ASKED),
    ("catalog", Ending(stop=Stop.CATALOG_DOWN), REVIEW, Reason.INVESTIGATION_INCONCLUSIVE, NONE, NOT_ASKED),
    ("expired", Ending(expired=True), REVIEW, Reason.DECISION_EXPIRED, NONE, NOT_ASKED),
    ("cancelled", Ending(cancelled=True), REVIEW, Reason.OPERATOR_ESCALATION, NONE, NOT_ASKED),
    (
        "dead-lettered",
        Ending(dead_letter="poison"),
        Status.FAILED,
        Reason.INVESTIGATION_INCONCLUSIVE,
        NONE,
        NOT_ASKED,
    ),
    ("nothing at all", Ending(), REVIEW, Reason.INVESTIGATION_INCONCLUSIVE, NONE, NOT_ASKED),
]


@pytest.mark.parametrize(
    ("ending", "status", "reason", "fate", "approval"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_every_row_of_the_table(ending, status, reason, fate, approval):
    found = conclude(ending)
    assert (status, reason, fate, approval) == (found.status, found.reason, found.workflow, found.approval)
    assert found.needs_human_review == (status in {REVIEW, Status.FAILED})
    assert bool(found.detail) == found.needs_human_review


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (Ending(accepted(confidence=0.1), cancelled=True), Reason.LOW_CONFIDENCE),
        (Ending(accepted(confidence=0.1, misaligned="x")), Reason.LOW_CONFIDENCE),
        (Ending(accepted(outcome=INCONCLUSIVE, confidence=0.1)), Reason.LOW_CONFIDENCE),
        (Ending(accepted(misaligned="x"), expired=True, cancelled=True), Reason.ALIGNMENT_CHECK_FAILED),
        (Ending(accepted(), expired=True, cancelled=True), Reason.DECISION_EXPIRED),
        (Ending(accepted(), cancelled=True), Reason.OPERATOR_ESCALATION),
        (Ending(nothing(NOT_ACTIONABLE), cancelled=True), Reason.OPERATOR_ESCALATION),
        (Ending(rejected(ProblemKind.PARAMETERS), expired=True), Reason.PARAMETER_VALIDATION_FAILED),
        (Ending(rejected(ProblemKind.RCA), stop=Stop.BUDGET_SPENT), Reason.INVESTIGATION_INCONCLUSIVE),
        (Ending(stop=Stop.MODELS_DOWN, expired=True), Reason.INVESTIGATION_INCONCLUSIVE),
        (Ending(nothing(), stop=Stop.CATALOG_DOWN), Reason.INVESTIGATION_INCONCLUSIVE),
    ],
)
def test_the_first_row_that_needs_a_human_decides(ending, reason):
    assert reason is conclude(ending).reason


ORDERED = [
    (ProblemKind.UNREADABLE, Reason.LLM_PARSING_ERROR),
    (ProblemKind.RCA, Reason.RCA_INCOMPLETE),
    (ProblemKind.WORKFLOW_UNKNOWN, Reason.WORKFLOW_NOT_FOUND),
    (ProblemKind.WORKFLOW_MISMATCH, Reason.IMAGE_MISMATCH),
    (ProblemKind.PARAMETERS, Reason.PARAMETER_VALIDATION_FAILED),
    (ProblemKind.FORBIDDEN, Reason.OPERATOR_ESCALATION),
]


@pytest.mark.parametrize("first", range(len(ORDERED)))
def test_among_several_problems_the_first_kind_decides_whatever_their_order(first):
    kinds = [kind for kind, _ in ORDERED[first:]]
    found = conclude(Ending(rejected(*reversed(kinds))))
    assert ORDERED[first][1] is found.reason
    assert f"{kinds[0]} is wrong" in found.detail


def test_the_minimum_confidence_is_a_setting():
    assert Status.COMPLETED is conclude(Ending(accepted(confidence=0.5)), min_confidence=0.5).status
    assert Reason.LOW_CONFIDENCE is conclude(Ending(accepted(confidence=0.95)), min_confidence=0.96).reason


def test_details_name_what_happened():
    assert (
        "llm calls used up"
        in conclude(Ending(stop=Stop.BUDGET_SPENT, stop_detail="llm calls used up")).detail
    )
    assert conclude(Ending(nothing())).detail == "no workflow edits a quota"
    assert "0.1" in conclude(Ending(accepted(confidence=0.1))).detail
    assert len(conclude(Ending(dead_letter="x" * 5000)).detail) <= 600


@pytest.mark.parametrize(
    ("ending", "actionable"),
    [
        (Ending(accepted()), True),
        (Ending(nothing(NOT_ACTIONABLE)), False),
        (Ending(nothing(RESOLVED)), False),
        (Ending(nothing(INCONCLUSIVE)), None),
    ],
)
def test_whether_something_can_be_done(ending, actionable):
    assert actionable is conclude(ending).is_actionable


def test_reasons_for_approval_are_passed_on():
    assert conclude(Ending(accepted(approval_factors=(GONE,)))).approval_factors == (GONE,)
    low = conclude(Ending(accepted(confidence=0.1, approval_factors=(GONE,))))
    detail = "0.1 is under the minimum of 0.7"
    assert low.approval_factors == (factor(FactorCode.LOW_CONFIDENCE, detail), GONE)


def test_doubts_escalate_an_answer_that_finds_nothing_to_do():
    found = conclude(Ending(nothing(RESOLVED, 0.9), doubts=("a pod still crashes",)))
    assert (REVIEW, Reason.INVESTIGATION_INCONCLUSIVE) == (found.status, found.reason)
    assert "a pod still crashes" in found.detail
    unsure = conclude(Ending(nothing(RESOLVED, 0.3), doubts=("a pod still crashes",)))
    assert Reason.LOW_CONFIDENCE is unsure.reason
    planted = conclude(Ending(nothing(RESOLVED, 0.9, misaligned="planted"), doubts=("x",)))
    assert Reason.ALIGNMENT_CHECK_FAILED is planted.reason


def test_a_rejection_without_a_problem_is_an_unreadable_answer():
    assert Reason.LLM_PARSING_ERROR is conclude(Ending(Rejected(()))).reason
