"""What operators and the server's limits do to a request: cancelled, published twice, out of deliveries, sent again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
import structlog

from schemas.analysis import HumanReviewReason, Status
from schemas.failure import DeadLetterReason, ValidationCode
from schemas.subjects import REPLAY_HEADER, Subjects
from tests.fakes.desk import Desk, body
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import LOOK, World, answer, incident
from worker.app.stranded import StrandedRequests, SweepReport
from worker.domain.values.delivery import ACK, Delivery, Fate
from worker.domain.values.errors import Retry, RetryReason
from worker.domain.values.ports import StoredRequest
from worker.domain.values.step_kinds import RESULT

LEFT_ALONE = Retry(RetryReason.MODEL_UNAVAILABLE, "the model is left alone for a while", 90.0, tried=False)


@pytest.fixture(autouse=True)
def logged():
    """What is logged: event names and fields."""
    with structlog.testing.capture_logs() as entries:
        yield entries


def queued(desk, message, sequence=7, subject="rca.request.incident", **headers):
    """The message is in the queue."""
    stored = StoredRequest(subject, sequence, desk.world.clock.now(), message, headers)
    desk.requests.stored[sequence] = stored
    return stored


# -- Cancelled


async def test_a_cancelled_request_that_still_waits_costs_nothing():
    desk = Desk()
    desk.cancellations.keys.add("rr-1")
    assert ACK == await desk.take()
    assert (Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.OPERATOR_ESCALATION, 0) == (
        desk.result.status,
        desk.result.human_review_reason,
        desk.world.model.calls,
    )
    assert "cancelled" in desk.result.human_review_detail
    assert [] == desk.world.cluster.calls


@pytest.mark.parametrize("during", [1, 2])
async def test_a_running_one_stops_at_its_next_step_with_what_it_has_spent(during):
    desk = Desk()

    def cancel(request, number):
        if number == during:
            desk.cancellations.keys.add("rr-1")
        return calls(LOOK) if number == 1 else final(answer())

    desk.world.model = MemoryModel(cancel)
    desk.new_process()
    assert ACK == await desk.take()
    assert HumanReviewReason.OPERATOR_ESCALATION is desk.result.human_review_reason
    assert (during, during) == (desk.world.model.calls, desk.result.usage.llm_calls)
    assert desk.result.selected_workflow is None


async def test_the_key_of_a_flag_is_written_as_buckets_want_it():
    desk = Desk()
    desk.cancellations.keys.add("rr=2E1")
    await desk.take(body(incident(remediation_id="rr.1")))
    assert HumanReviewReason.OPERATOR_ESCALATION is desk.result.human_review_reason


async def test_a_request_that_expires_while_it_runs_makes_no_further_call():
    desk = Desk()
    expires_at = "2026-06-04T15:35:00Z"

    def slow(request, number):
        desk.world.clock.advance(120.0)
        return calls(LOOK)

    desk.world.model = MemoryModel(slow)
    desk.new_process()
    assert ACK == await desk.take(body(incident(expires_at=expires_at)))
    assert (HumanReviewReason.DECISION_EXPIRED, 1) == (
        desk.result.human_review_reason,
        desk.world.model.calls,
    )


# -- Published twice


async def test_a_second_message_with_the_same_question_leaves_it_to_the_first():
    desk = Desk(World.saying(LEFT_ALONE))
    queued(desk, body())
    await desk.take()
    desk.says(final(answer()))
    assert ACK == await desk.take(sequence=9)
    assert (0, {}) == (desk.world.model.calls, desk.world.events.results)
    assert ACK == await desk.take()
    assert Status.COMPLETED is desk.result.status


@pytest.mark.parametrize("there", [None, b"junk", body(incident(remediation_id="rr-2"))])
async def test_where_the_first_is_gone_the_second_takes_over(there):
    desk = Desk(World.saying(calls(LOOK), LEFT_ALONE))
    await desk.take()
    if there:  # another message has the number of the first: the stream was made anew
        queued(desk, there)
    desk.says(final(answer()))
    assert ACK == await desk.take(sequence=9)
    assert (1, 2) == (desk.world.model.calls, desk.result.usage.llm_calls)


async def test_deaths_and_errors_of_another_message_do_not_count():
    desk = Desk(World.saying(KeyError("boom")), rules={"max_failures": 2})
    await desk.take()
    assert (await desk.take(sequence=9)).fate is Fate.RETRY
    assert (await desk.take(sequence=9)).fate is Fate.TERMINATE


# -- Out of deliveries


def exhausted_desk(desk):
    return StrandedRequests(desk.requests, desk.handler, Subjects(), SweepReport())


ADVISORY = {
    "type": "io.nats.jetstream.advisory.v1.max_deliver",
    "stream": "RCA_REQUESTS",
    "consumer": "p2",
    "stream_seq": 7,
    "deliveries": 50,
}


async def advise(desk, **fields):
    delivery = Delivery("$JS.EVENT", "RCA_DLQ", "exhausted", 1, 1, desk.world.clock.now())
    return await exhausted_desk(desk)(json.dumps({**ADVISORY, **fields}).encode(), {}, delivery)


async def test_a_request_out_of_deliveries_is_a_dead_letter_and_out_of_the_queue():
    desk, message = Desk(World.saying(LEFT_ALONE)), body()
    queued(desk, message)
    await desk.take()
    assert ACK == await advise(desk)
    [(letter, raw)] = desk.world.events.dead_letters
    assert (DeadLetterReason.MAX_DELIVERIES, message, 7, 50) == (
        letter.reason,
        raw,
        letter.origin_sequence,
        letter.deliveries,
    )
    assert (Status.FAILED, {}) == (desk.result.status, desk.requests.stored)
    assert "response.failed" == desk.world.events.audits[-1].event_type


async def test_one_that_was_answered_is_only_taken_out():
    desk = Desk()
    queued(desk, body())
    await desk.take()
    assert ACK == await advise(desk)
    assert (Status.COMPLETED, [], {}) == (
        desk.result.status,
        desk.world.events.dead_letters,
        desk.requests.stored,
    )


async def test_one_with_a_finished_result_in_its_journal_is_answered():
    desk = Desk()
    queued(desk, body())
    store, desk.world.events.result = desk.world.events.result, None
    await desk.take()
    desk.world.events.result = store
    assert ACK == await advise(desk)
    assert (Status.COMPLETED, 1, []) == (
        desk.result.status,
        desk.world.model.calls,
        desk.world.events.dead_letters,
    )


async def test_one_whose_finished_result_makes_no_sense_to_this_version_is_a_dead_letter():
    desk = Desk()
    queued(desk, body())
    store, desk.world.events.result = desk.world.events.result, None
    await desk.take()
    desk.world.events.result = store
    [at] = [n for n, step in enumerate(desk.steps) if step.kind == RESULT]
    desk.steps[at] = replace(desk.steps[at], data=b"{}")
    assert ACK == await advise(desk)
    [(letter, _)] = desk.world.events.dead_letters
    assert (DeadLetterReason.MAX_DELIVERIES, Status.FAILED, {}) == (
        letter.reason,
        desk.result.status,
        desk.requests.stored,
    )


async def test_one_that_cannot_be_read_is_reported():
    desk = Desk()
    queued(desk, b"junk")
    assert ACK == await advise(desk)
    assert [ValidationCode.NOT_JSON] == [failure.code for failure in desk.world.events.rejections]
    assert {} == desk.requests.stored


async def test_nothing_is_taken_out_while_the_broker_is_down():
    desk = Desk()
    queued(desk, body())
    desk.world.events.down = True
    assert (await advise(desk)).fate is Fate.RETRY
    assert 7 in desk.requests.stored


async def test_a_younger_request_is_not_meant_though_a_stream_made_anew_has_given_it_the_number():
    desk = Desk()
    told = desk.world.clock.now()
    desk.world.clock.advance(1.0)
    queued(desk, body())
    delivery = Delivery("$JS.EVENT", "RCA_DLQ", "exhausted", 1, 1, told)
    assert ACK == await exhausted_desk(desk)(json.dumps(ADVISORY).encode(), {}, delivery)
    assert ([], 7) == (desk.world.events.dead_letters, *desk.requests.stored)


@pytest.mark.parametrize("fields", [{"stream_seq": 8}, {"stream_seq": "7"}, {"consumer": None}])
async def test_an_advisory_about_nothing_is_done_with(fields):
    desk = Desk()
    queued(desk, body())
    assert ACK == await advise(desk, **fields)
    assert ([], 7) == (desk.world.events.dead_letters, *desk.requests.stored)


# -- Sent again


REPLAY = {REPLAY_HEADER: "3"}


async def buried(desk, message):
    for _ in range(5):
        await desk.take(message)
    assert Status.FAILED is desk.result.status


@pytest.mark.parametrize("lingers", [False, True])
async def test_a_dead_letter_that_is_sent_again_replaces_its_failed_result(lingers):
    desk, message = Desk(World.saying(calls(LOOK), KeyError("boom"))), body()
    await buried(desk, message)
    if lingers:  # on replicas a settled message can be read for a moment
        queued(desk, message)
    desk.says(final(answer()))
    assert ACK == await desk.take(message, sequence=20, headers=REPLAY)
    assert (Status.COMPLETED, 1, 2) == (
        desk.result.status,
        desk.world.model.calls,
        desk.result.usage.llm_calls,
    )
    assert ACK == await desk.take(message, sequence=20, headers=REPLAY)
    assert desk.world.model.calls == 1


async def test_without_the_mark_a_failed_result_stays():
    desk, message = Desk(World.saying(KeyError("boom"))), body()
    await buried(desk, message)
    desk.says(final(answer()))
    assert ACK == await desk.take(message, sequence=20, deliveries=1)
    assert (Status.FAILED, 0) == (desk.result.status, desk.world.model.calls)


async def test_the_mark_replaces_nothing_but_a_failed_result_of_the_same_question():
    desk = Desk()
    await desk.take()
    first = desk.result
    assert ACK == await desk.take(sequence=20, headers=REPLAY)
    settled = await desk.take(body(description="other"), sequence=21, headers=REPLAY)
    assert ("rejected: key_conflict", first) == (settled.reason, desk.result)


async def test_what_fails_again_is_a_dead_letter_again():
    desk, message = Desk(World.saying(KeyError("boom"))), body()
    await buried(desk, message)
    desk.world.clock.advance(60.0)
    for _ in range(5):
        settled = await desk.take(message, sequence=20, headers=REPLAY)
    assert "dead letter: internal_error" == settled.reason
    assert [7, 20] == [letter.origin_sequence for letter, _ in desk.world.events.dead_letters]
    assert desk.world.clock.now() >= desk.result.completed_at
    assert Status.FAILED is desk.result.status


# -- Streams created anew


async def test_a_request_in_the_place_of_the_one_that_owns_its_journal_is_served():
    """Both streams count from 1. The first message is gone, and the one in its place must not be acked for it."""
    desk = Desk(World.saying(LEFT_ALONE))
    await desk.take()
    desk.world.clock.advance(3_600.0)
    stored = queued(desk, body())
    desk.says(final(answer()))
    assert ACK == await desk.take(stored_at=stored.stored_at)
    assert Status.COMPLETED is desk.result.status


async def test_messages_with_the_same_sequence_are_rejected_each_for_itself():
    desk = Desk()
    for hours in range(2):
        await desk.take(b"{", stored_at=desk.world.clock.now() + timedelta(hours=hours))
    assert 2 == len(desk.world.events.rejections)


# -- Stranded requests


async def test_a_stranded_request_becomes_a_dead_letter_and_leaves_the_queue():
    desk, report = Desk(), SweepReport()
    queued(desk, body())
    desk.requests.given_up.add(7)
    await StrandedRequests(desk.requests, desk.handler, Subjects(), report).sweep()
    [(letter, _)] = desk.world.events.dead_letters
    assert (DeadLetterReason.MAX_DELIVERIES, {}) == (letter.reason, desk.requests.stored)
    assert (Status.FAILED, SweepReport()) == (desk.result.status, report)


async def test_a_stranded_request_that_cannot_be_dead_lettered_is_reported_until_it_can():
    desk, report = Desk(), SweepReport()
    queued(desk, body())
    desk.requests.given_up.add(7)
    stranded = StrandedRequests(desk.requests, desk.handler, Subjects(), report)
    desk.world.events.down = True
    await stranded.sweep()
    assert (1, True, 1) == (report.count, bool(report.problem), len(desk.requests.stored))
    desk.world.events.down = False
    await stranded.sweep()
    assert (SweepReport(), {}) == (report, desk.requests.stored)
    assert 1 == len(desk.world.events.dead_letters)


async def test_a_letter_that_was_not_written_before_the_journal_was_gone_is_written():
    desk = Desk(World.saying(KeyError("boom")), rules={"max_failures": 1})
    assert (await desk.take()).fate is Fate.TERMINATE
    desk.world.events.dead_letters.clear()
    desk.world.events._seen.clear()
    desk.world.journal.steps.clear()
    assert (await desk.take()).fate is Fate.TERMINATE
    [(letter, _)] = desk.world.events.dead_letters
    assert DeadLetterReason.INTERNAL_ERROR is letter.reason


async def test_a_request_that_is_sent_again_after_its_failure_gets_no_second_letter():
    desk = Desk(World.saying(KeyError("boom")), rules={"max_failures": 1})
    await desk.take()
    assert ACK == await desk.take(sequence=9, deliveries=1)
    assert 1 == len(desk.world.events.dead_letters)
