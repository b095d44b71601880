"""Results set against outcomes: the counts of the report, and of the policy input."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.analysis import Approval, Corroboration
from tests.fakes import samples
from tests.fakes.proposals import ACTION, PASSES, WORKFLOW, outcome, result
from worker.domain.values.remediations import TrackRecord
from worker.domain.verdict.approval.track_record import ProposalCounts, ProposalGroup, Proposals

STAGING = ProposalGroup(ACTION, "staging", "rules")
REQUIRES = Approval(required=True)


def collected(*pairs):
    """Proposals from pairs of a result and an outcome; either may be None."""
    made = Proposals()
    for number, (proposed, executed) in enumerate(pairs):
        if proposed is not None:
            made.add_result(f"rr-{number}", proposed)
        if executed is not None:
            made.add_outcome(f"rr-{number}", executed)
    return made


@pytest.mark.parametrize(
    ("executed", "counts"),
    [
        (outcome(), ProposalCounts(1, 1, succeeded=1)),
        (outcome(outcome="failed"), ProposalCounts(1, 1, failed=1)),
        (outcome(signal_resolved=False), ProposalCounts(1, 1, failed=1)),
        (outcome(outcome="cancelled"), ProposalCounts(1, 1, unknown=1)),
        (outcome(signal_resolved=None, effectiveness_score=None), ProposalCounts(1, 1, unknown=1)),
        (outcome(assessment_reason="SpecDrift"), ProposalCounts(1, 1, unknown=1)),
        (outcome(workflow_id="by-hand-v1"), ProposalCounts(1, 1, unknown=1)),
        (outcome(workflow_id="by-hand-v1", outcome="failed"), ProposalCounts(1, 1, unknown=1)),
        (None, ProposalCounts(1, 1, unknown=1)),
    ],
)
def test_only_what_is_known_of_the_proposed_workflow_counts(executed, counts):
    made = collected((result(), executed))
    assert {STAGING: counts} == made.report().groups
    assert {(ACTION, "staging"): TrackRecord(1, counts.succeeded, counts.failed)} == made.track_records()


@pytest.mark.parametrize(
    ("approval", "would_pass"),
    [
        (PASSES, 1),
        (REQUIRES, 0),
        (Approval(required=True, would_require=False), 1),
        (Approval(required=True, would_require=True), 0),
    ],
)
def test_what_would_have_passed_is_known_in_either_mode(approval, would_pass):
    report = collected((result(approval=approval), outcome())).report()
    assert would_pass == report.total.would_pass == report.passing.proposed == report.passing.succeeded


def test_proposals_are_counted_by_action_environment_and_corroboration():
    none = Corroboration(by="none")
    made = collected(
        (result(), outcome()),
        (result(), outcome(outcome="failed")),
        (result(corroboration=none, approval=REQUIRES), outcome()),
        (result(environment="production"), None),
        (result(corroboration=None), None),
    )
    assert {
        ProposalGroup(ACTION, "production", "rules"): ProposalCounts(1, 1, unknown=1),
        ProposalGroup(ACTION, "staging", ""): ProposalCounts(1, 1, unknown=1),
        ProposalGroup(ACTION, "staging", "none"): ProposalCounts(1, 0, succeeded=1),
        STAGING: ProposalCounts(2, 2, succeeded=1, failed=1),
    } == made.report().groups
    assert list(made.report().groups) == sorted(made.report().groups)
    assert ProposalCounts(5, 4, succeeded=2, failed=1, unknown=2) == made.report().total
    assert ProposalCounts(4, 4, succeeded=1, failed=1, unknown=2) == made.report().passing
    assert TrackRecord(4, 2, 1) == made.track_records()[ACTION, "staging"]


def test_a_result_without_a_workflow_proposes_nothing():
    review = samples.REVIEW.model_dump_json().encode()
    report = collected((review, outcome()), (None, outcome())).report()
    assert (ProposalCounts(), {}, 2) == (report.total, report.groups, report.unmatched)


def test_a_workflow_without_an_action_type_is_counted_by_its_id():
    chosen = samples.COMPLETED.selected_workflow.model_copy(update={"action_type": ""})
    assert [ProposalGroup(WORKFLOW, "staging", "rules")] == list(
        collected((result(selected_workflow=chosen), None)).report().groups
    )


def test_the_last_outcome_of_a_request_counts():
    made = Proposals()
    made.add_outcome("rr-1", outcome(outcome="failed"))
    made.add_result("rr-1", result())
    made.add_outcome("rr-1", outcome())
    assert ProposalCounts(1, 1, succeeded=1) == made.report().total


def test_no_more_than_the_newest_are_kept():
    made = collected(*[(result(), outcome(outcome="failed"))] * 3, (result(), outcome()))
    made.forget(None, newest=2)
    assert ProposalCounts(2, 2, succeeded=1, failed=1) == made.report().total
    assert 2 == made.report().unmatched
    made.forget(None)
    assert 2 == made.report().total.proposed


def test_what_is_older_is_left_out_of_the_report_or_forgotten():
    at = samples.COMPLETED.completed_at
    made = collected((result(), outcome()), (result(completed_at=at + timedelta(days=1)), None))
    later = at + timedelta(hours=1)
    assert ProposalCounts(1, 1, unknown=1) == made.report(later).total
    assert 2 == made.report(at).total.proposed
    made.forget(later)
    assert ProposalCounts(1, 1, unknown=1) == made.report().total
    assert 1 == made.report().unmatched


def test_results_of_other_versions_can_be_read():
    old = b'{"completed_at": "2026-03-01T12:00:00Z", "approval": {"required": true}, "selected_workflow": {"workflow_id": "w"}}'
    new = b'{"completed_at": "2026-03-01T12:00:00Z", "approval": {"required": false}, "status": "invented"}'
    report = collected((old, None), (new, None)).report()
    assert {ProposalGroup("w", "", ""): ProposalCounts(1, 0, unknown=1)} == report.groups
    assert 0 == report.unreadable


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=40) | st.just(b"[" * 5_000)), max_size=5))
def test_what_cannot_be_read_is_counted(messages):
    made = Proposals()
    for is_result, body in messages:
        (made.add_result if is_result else made.add_outcome)("rr-1", body)
    assert len(messages) == made.report().unreadable
    assert ProposalCounts() == made.report().total


EXECUTIONS = st.sampled_from([None, outcome(), outcome(outcome="failed"), outcome(outcome="cancelled")])
RESULTS = st.builds(
    lambda environment, approval: result(environment=environment, approval=approval),
    st.sampled_from(["staging", "production"]),
    st.sampled_from([PASSES, REQUIRES]),
)


@given(st.lists(st.tuples(RESULTS, EXECUTIONS), max_size=12))
def test_every_proposal_is_counted_once(pairs):
    made = collected(*pairs)
    report, records = made.report(), made.track_records()
    total = report.total
    assert len(pairs) == total.proposed == total.succeeded + total.failed + total.unknown
    assert total.proposed == sum(counts.proposed for counts in report.groups.values())
    assert total.proposed == sum(record.proposed for record in records.values())
    assert total.would_pass == report.passing.proposed
