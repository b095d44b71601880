"""Results, failures and audit events: what cannot be built, and what consumers can rely on."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from schemas.analysis import AnalysisResult, Approval, HumanReviewReason, RecoveryStrategy, Status
from schemas.audit import AuditEvent, EventType, LLMResponse, Outcome
from schemas.failure import (
    EXCERPT_BYTES,
    DeadLetter,
    DeadLetterReason,
    FieldError,
    ValidationCode,
    ValidationFailure,
    excerpt,
)
from schemas.taxonomy import RequestKind
from tests.fakes import samples

COMPLETED = dict(samples.COMPLETED)
REVIEW = dict(samples.REVIEW)


def broken(fields, **changes) -> str:
    with pytest.raises(ValidationError) as caught:
        AnalysisResult(**fields | changes)
    (error,) = caught.value.errors()
    return error["msg"]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"affected_resource": None}, "has an affected resource and a root cause"),
        ({"root_cause_analysis": None}, "has an affected resource and a root cause"),
        ({"selected_workflow": None}, "has a workflow"),
        ({"needs_human_review": True}, "needs human review"),
        ({"human_review_reason": HumanReviewReason.LOW_CONFIDENCE}, "a review has a reason"),
        ({"is_actionable": False}, "is actionable"),
        ({"status": Status.NEEDS_HUMAN_REVIEW}, "any other has none"),
        ({"status": Status.FAILED}, "any other has none"),
        ({"status": Status.NOT_ACTIONABLE}, "any other has none"),
        ({"status": Status.RESOLVED}, "any other has none"),
        ({"kind": RequestKind.RECOVERY}, "is_recovery_attempt goes with the kind"),
        ({"is_recovery_attempt": True}, "is_recovery_attempt goes with the kind"),
        ({"can_recover": True}, "recovery fields are for recoveries"),
        ({"recovery_strategy": RecoveryStrategy()}, "recovery fields are for recoveries"),
    ],
)
def test_a_completed_result_is_complete(changes, rule):
    assert rule in broken(COMPLETED, **changes)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"needs_human_review": False}, "needs human review"),
        ({"human_review_reason": None}, "a review has a reason"),
        ({"approval": Approval(required=False)}, "a result that needs human review requires approval"),
        ({"status": Status.COMPLETED}, "a completed result has a workflow"),
        ({"status": Status.NOT_ACTIONABLE}, "needs human review"),
        ({"can_recover": True}, "can_recover means that a workflow was selected"),
        ({"analysis_confidence": None}, "has an attempt number, can_recover and a confidence"),
        ({"recovery_attempt_number": None}, "has an attempt number, can_recover and a confidence"),
    ],
)
def test_a_review_is_consistent(changes, rule):
    assert rule in broken(REVIEW, **changes)


@pytest.mark.parametrize("status", [Status.NOT_ACTIONABLE, Status.RESOLVED])
def test_a_result_may_say_that_there_is_nothing_to_do(status):
    changes = {"status": status, "selected_workflow": None, "is_actionable": False}
    assert not AnalysisResult(**COMPLETED | changes).needs_human_review


def test_a_failed_result_needs_a_human():
    changes = {
        "status": Status.FAILED,
        "selected_workflow": None,
        "root_cause_analysis": None,
        "affected_resource": None,
        "is_actionable": None,
        "needs_human_review": True,
        "human_review_reason": HumanReviewReason.INVESTIGATION_INCONCLUSIVE,
    }
    assert AnalysisResult(**COMPLETED | changes).selected_workflow is None


def test_results_know_their_key():
    assert (samples.COMPLETED.request_key, samples.REVIEW.request_key) == ("rr-1", "rr-1.1")
    assert samples.OUTCOME.request_key == "rr-1"


def test_the_reasons_for_review_are_closed():
    assert len(HumanReviewReason) == 11
    with pytest.raises(ValidationError):
        AnalysisResult.model_validate(REVIEW | {"human_review_reason": "catalog_unavailable"})


def test_results_of_a_newer_worker_are_read():
    newer = samples.COMPLETED.model_dump(mode="json") | {"new_field": 1}
    assert samples.COMPLETED == AnalysisResult.model_validate(newer)


@pytest.mark.parametrize("confidence", [-0.1, 1.1, "0.9", True, float("nan")])
def test_confidence_is_a_fraction(confidence):
    result = samples.COMPLETED.model_dump(mode="json")
    result["selected_workflow"]["confidence"] = confidence
    with pytest.raises(ValidationError):
        AnalysisResult.model_validate(result)


def test_field_errors_read_well():
    assert str(FieldError(path="a.b", expected="a number", got="[]")) == "a.b: expected a number, got []"
    assert str(FieldError(path="", expected="JSON")) == "message: expected JSON"


@pytest.mark.parametrize("text", ["x" * EXCERPT_BYTES * 2, "ü" * EXCERPT_BYTES, "x" + "🔥" * EXCERPT_BYTES])
def test_an_excerpt_is_bounded_in_bytes(text):
    part = excerpt(text)
    assert text.startswith(part)
    assert EXCERPT_BYTES - 4 < len(part.encode()) <= EXCERPT_BYTES


def test_an_excerpt_of_unpaired_surrogates_can_be_written():
    assert excerpt("a\ud800b") == "a?b"


def test_a_failure_bounds_its_excerpt_and_has_an_error():
    fields = dict(samples.REJECTED)
    assert len(ValidationFailure(**fields | {"excerpt": "x" * 2 * EXCERPT_BYTES}).excerpt) == EXCERPT_BYTES
    with pytest.raises(ValidationError):
        ValidationFailure(**fields | {"errors": ()})


def test_every_problem_of_an_answer_has_a_code():
    from worker.domain.verdict.answers.answer import ProblemKind

    assert {f"answer_{kind}" for kind in ProblemKind} == {
        c for c in ValidationCode if c.startswith("answer_")
    }


def test_dead_letters_are_headers():
    letter = DeadLetter(
        reason=DeadLetterReason.JOURNAL_GAP,
        origin_stream="RCA_REQUESTS",
        origin_sequence=7,
        origin_subject="rca.request.incident",
        deliveries=3,
        error="step 4 is gone",
    )
    assert letter.headers() == {
        "Rca-Reason": "journal_gap",
        "Rca-Origin-Stream": "RCA_REQUESTS",
        "Rca-Origin-Seq": "7",
        "Rca-Origin-Subject": "rca.request.incident",
        "Rca-Deliveries": "3",
        "Rca-Error": "step 4 is gone",
    }


def test_an_event_of_every_type_survives_a_round_trip():
    events = samples.EVENTS
    assert set(EventType) == set(events)
    for event in events.values():
        assert event == AuditEvent.model_validate_json(event.model_dump_json())


def test_an_event_has_one_type():
    event = dict(samples.EVENTS["llm.request"])
    payload = LLMResponse(call=1, model="m", finish="stop", response_chars=1)
    with pytest.raises(ValidationError, match="event type of the payload"):
        AuditEvent(**event | {"payload": payload})
    assert event["outcome"] is Outcome.SUCCESS
