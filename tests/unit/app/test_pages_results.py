"""Results as rows and figures."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from schemas.analysis import (
    AffectedResource,
    Approval,
    ApprovalFactor,
    HumanReviewReason,
    ReportedSignal,
    RootCauseAnalysis,
    SelectedWorkflow,
    Status,
)
from schemas.usage import Usage
from tests.fakes.messages import NOON, review_result
from worker.app.cli.report import print_result
from worker.app.pages import as_html, as_markdown, incident_page
from worker.app.pages.results import ROWS_KEPT, ResultIndex, figures


def chosen(key, **fields):
    return review_result(
        key,
        status=Status.COMPLETED,
        needs_human_review=False,
        human_review_reason=None,
        is_actionable=True,
        selected_workflow=SelectedWorkflow(workflow_id="undo-rollout", confidence=0.9),
        affected_resource=AffectedResource(kind="Deployment", name="api", namespace="shop"),
        root_cause_analysis=RootCauseAnalysis(summary="it was killed", severity="high"),
        **fields,
    )


def index(*results):
    made = ResultIndex()
    for number, result in enumerate(results):
        made.add(f"rr-{number}", result)
    return made


def test_the_newest_comes_first_and_a_later_result_replaces_the_earlier():
    made = index(review_result("a"), review_result("b"))
    made.add("rr-0", chosen("a"))
    assert [("rr-0", "completed"), ("rr-1", "needs_human_review")] == [
        (row.key, row.status) for row in made.newest()
    ]


@pytest.mark.parametrize(
    ("text", "status", "keys"),
    [
        ("", "", ["rr-1", "rr-0"]),
        ("UNDO shop/api", "", ["rr-1"]),
        ("rr-0", "", ["rr-0"]),
        ("", "completed", ["rr-1"]),
        ("low_confidence", "completed", []),
    ],
)
def test_a_search_needs_every_word_and_the_status(text, status, keys):
    made = index(review_result("a", human_review_reason=HumanReviewReason.LOW_CONFIDENCE), chosen("b"))
    assert keys == [row.key for row in made.search(text, status)]


def test_figures_add_up_what_is_known():
    factor = ApprovalFactor(code="policy_decision")
    made = index(
        chosen("a", usage=Usage(input_tokens=10, cost_usd=0.5, wall_seconds=2.0)),
        chosen("b", usage=Usage(input_tokens=30, wall_seconds=4.0)),
        review_result("c", approval=Approval(required=True, reasons=("x",), factors=(factor,))),
    )
    found = figures(made.newest())
    assert (3, 0.5, 2, 10) == (found.results, found.cost_usd, found.unpriced, found.tokens_median)
    assert {"completed": 2, "needs_human_review": 1} == dict(found.statuses)
    assert ["policy_decision"] == [name for name, count in found.factors if count == 1]


def test_a_result_without_an_answer_says_what_was_reported():
    signal = ReportedSignal(
        signal_type="HighLatency", severity="critical", resource_kind="Deployment", resource_name="api",
        resource_namespace="shop", received_time=NOON, error_message="*2 %* of calls <b>fail</b>",
    )  # fmt: skip
    result, index = review_result("rr-1", signal=signal), ResultIndex()
    index.add("rr-1", result)
    (row,) = index.search("highlatency shop/api")
    assert "HighLatency on Deployment shop/api" == row.reported
    page, out = incident_page("rr-1", result), io.StringIO()
    print_result(result, console=Console(file=out, width=80))
    for text in (as_html(page), as_markdown(page), out.getvalue()):
        assert "HighLatency" in text
        assert "Deployment shop/api" in text
    assert "&lt;b&gt;fail" in as_html(page)
    assert "must approve" not in as_html(page)


def test_no_results_are_no_error():
    assert 0 == figures([]).results


def test_only_the_newest_are_kept():
    made, one = ResultIndex(), review_result("a")
    for number in range(ROWS_KEPT + 3):
        made.add(str(number), one)
    assert ROWS_KEPT == len(made.newest())
    assert "3" == made.newest()[-1].key
