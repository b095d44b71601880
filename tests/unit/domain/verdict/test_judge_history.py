from __future__ import annotations

import pytest

from tests.fakes.messages import NOON
from tests.fakes.verdicts import answer, chosen, facts
from worker.domain.values.remediations import PastRemediation
from worker.domain.verdict.answers.answer import ProblemKind
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.judge import judge
from worker.domain.verdict.verdict import Accepted, Rejected

FAILED = PastRemediation("rr-1", NOON, "restart-v1", "RestartWorkload", "CrashLoopBackOff", outcome="failed")
PAST = "2026-06-04T12:00:00Z RestartWorkload (restart-v1) for CrashLoopBackOff: failed"


def test_what_failed_here_may_be_chosen_again_with_a_reason_by_a_human():
    verdict = judge(answer(), facts(failed_here=(FAILED,)))
    assert isinstance(verdict, Accepted)
    assert PAST in verdict.warnings[0]
    assert (factor(FactorCode.FAILED_BEFORE, PAST),) == verdict.approval_factors


@pytest.mark.parametrize("rationale", ["", "  \n"])
def test_what_failed_here_may_not_be_chosen_again_in_silence(rationale):
    verdict = judge(answer(selected_workflow=chosen(rationale=rationale)), facts(failed_here=(FAILED,)))
    assert isinstance(verdict, Rejected)
    (problem,) = verdict.problems
    assert (ProblemKind.FORBIDDEN, "selected_workflow.rationale") == (problem.kind, problem.path)
    assert PAST in problem.message


def test_a_reason_beside_the_workflow_is_a_reason():
    silent = chosen(rationale="")
    verdict = judge(
        answer(selected_workflow=silent, rationale="the quota was raised"), facts(failed_here=(FAILED,))
    )
    assert isinstance(verdict, Accepted)


@pytest.mark.parametrize(
    ("workflow_id", "action_type", "expected"),
    [
        ("restart-v1", "", True),
        ("restart-v0", "restartworkload", True),
        ("", "RestartWorkload", True),
        ("drain-v1", "DrainNode", False),
        ("", "", False),
    ],
)
def test_the_same_workflow_and_the_same_action_count(workflow_id, action_type, expected):
    past = PastRemediation("rr-1", NOON, workflow_id, action_type, outcome="failed")
    verdict = judge(answer(), facts(failed_here=(past,)))
    assert isinstance(verdict, Accepted)
    assert expected is bool(verdict.warnings)


def test_the_newest_failure_is_reported():
    newer = PastRemediation("rr-2", NOON, "restart-v1", outcome="completed", score=0.1, resolved=False)
    verdict = judge(answer(), facts(failed_here=(FAILED, newer)))
    assert "restart-v1: completed, effectiveness 0.10 poor, signal not resolved)" in verdict.warnings[0]


def test_without_a_reason_but_without_a_past_nothing_is_wrong():
    assert isinstance(judge(answer(selected_workflow=chosen(rationale="")), facts()), Accepted)


def test_a_past_that_is_not_known_needs_a_human_but_is_no_error():
    verdict = judge(answer(), facts(history_problem="the store is down"))
    assert isinstance(verdict, Accepted)
    expected = factor(FactorCode.HISTORY_UNKNOWN, "restart-v1, the store is down")
    assert (expected,) == verdict.approval_factors
    assert () == verdict.warnings


def test_no_workflow_needs_no_past():
    verdict = judge(
        answer(selected_workflow=None, rationale="nothing fits"),
        facts(failed_here=(FAILED,), history_problem="x"),
    )
    assert isinstance(verdict, Accepted)
    assert () == verdict.approval_factors
