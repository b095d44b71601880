"""Scores of results: what counts as right, best, acceptable and wrong."""

from datetime import UTC, datetime

import pytest

from schemas.analysis import (
    AffectedResource,
    AnalysisResult,
    Approval,
    HumanReviewReason,
    RootCauseAnalysis,
    Status,
)
from schemas.taxonomy import RequestKind
from schemas.workflow import SelectedWorkflow
from worker.app.cli.evaluate import score, total

EXPECTED = {
    "signal_type": "OOMKilled",
    "affected_resource": {"kind": "ConfigMap", "name": "settings", "namespace": "shop"},
    "acceptable_affected_resources": [{"kind": "Deployment", "name": "api", "namespace": "shop"}],
    "workflows": {"acceptable": ["right-v1"], "wrong": ["wrong-v1"]},
}
COMMON = {
    "kind": RequestKind.INCIDENT,
    "incident_id": "i",
    "remediation_id": "r",
    "request_digest": "0" * 64,
    "completed_at": datetime(2026, 1, 1, tzinfo=UTC),
}


def completed(kind="ConfigMap", name="settings", workflow="right-v1", *, approval=False, signal="OOMKilled"):
    return AnalysisResult(
        **COMMON,
        status=Status.COMPLETED,
        root_cause_analysis=RootCauseAnalysis(summary="s", severity="high", signal_type=signal),
        affected_resource=AffectedResource(kind=kind, name=name, namespace="shop"),
        selected_workflow=SelectedWorkflow(workflow_id=workflow, confidence=0.9),
        needs_human_review=False,
        approval=Approval(required=approval),
    )


def reviewed():
    return AnalysisResult(
        **COMMON,
        status=Status.NEEDS_HUMAN_REVIEW,
        needs_human_review=True,
        human_review_reason=HumanReviewReason.NO_MATCHING_WORKFLOWS,
        approval=Approval(required=True),
    )


def with_workflows(**workflows):
    return {**EXPECTED, "workflows": workflows}


def test_other_signal_types_may_be_right():
    expected = {**EXPECTED, "acceptable_signal_types": ["OOMKilled", "NodePressure"]}
    right = [
        score("c", expected, completed(signal=s)).signal_type_right
        for s in ("OOMKilled", "NodePressure", "Evicted")
    ]
    assert [True, True, False] == right


@pytest.mark.parametrize(
    ("kind", "name", "right", "best"),
    [
        ("ConfigMap", "settings", True, True),
        ("configmap", "settings", True, True),
        ("Deployment", "api", True, False),
        ("Deployment", "settings", False, False),
    ],
)
def test_the_best_target_is_right_and_others_may_be(kind, name, right, best):
    found = score("c", EXPECTED, completed(kind, name))
    assert (right, best) == (found.target_right, found.target_best)


@pytest.mark.parametrize(
    ("result", "expected", "acceptable", "required", "wrong", "none"),
    [
        (completed(), EXPECTED, True, True, False, False),
        (completed(workflow="wrong-v1"), EXPECTED, False, True, True, False),
        (completed(workflow="other-v1"), EXPECTED, False, True, False, False),
        (reviewed(), EXPECTED, False, True, False, True),
        (reviewed(), with_workflows(acceptable=["(none)"], wrong=[]), True, False, False, True),
        (reviewed(), with_workflows(acceptable=[], wrong=["x"]), True, False, False, True),
        (completed(), with_workflows(acceptable=["right-v1", "(none)"]), True, False, False, False),
        (None, EXPECTED, False, True, False, True),
        (None, with_workflows(acceptable=["(none)"]), False, False, False, True),
    ],
)
def test_workflows_are_acceptable_wrong_or_none(result, expected, acceptable, required, wrong, none):
    found = score("c", expected, result)
    assert (acceptable, required, wrong, none) == (
        found.workflow_acceptable,
        found.workflow_required,
        found.workflow_wrong,
        found.workflow_none,
    )


@pytest.mark.parametrize(
    ("result", "human"),
    [(completed(), False), (completed(approval=True), True), (reviewed(), True), (None, True)],
)
def test_review_and_approval_both_mean_a_human(result, human):
    assert human == score("c", EXPECTED, result).human_review


def test_totals_are_counts_and_medians():
    scores = [
        score("a", EXPECTED, completed()),
        score("b", EXPECTED, completed("Deployment", "api", signal="Evicted")),
        score("c", EXPECTED, None),
    ]
    found = total(scores)
    assert (3, 2, 1, 1) == (
        found["cases"],
        found["target_right"],
        found["target_best"],
        found["signal_type_right"],
    )
    assert (3, 2) == (found["workflow_required"], found["workflow_required_right"])
    assert 0.0 == found["llm_calls_median"]
