"""What operators and the server's limits do to a request: cancelled, published twice, out of deliveries, sent again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
import structlog

from schemas.analysis import HumanReviewReason, Status
from schemas.failure import DeadLetterReason, ValidationCode
from schemas.subjects import REPLAY_HEADER
from tests.fakes.handler_rig import HandlerRig, body
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import LOOK, World, answer, incident
from worker.app.stranded import StrandedRequests, SweepReport
from worker.domain.values.delivery import ACK, LET_GO, Delivery, Fate
from worker.domain.values.errors import Retry, RetryReason
from worker.domain.values.ports import StoredRequest
from worker.domain.values.step_kinds import RESULT

LEFT_ALONE = Retry(RetryReason.MODEL_UNAVAILABLE, "the model is left alone for a while", 90.0, tried=False)


@pytest.fixture(autouse=True)
def logged():
    """What is logged: event names and fields."""
    with structlog.testing.capture_logs() as entries:
        yield entries


def queued(rig, message, sequence=7, subject="rca.request.incident", **headers):
    """The message is in the queue."""
    stored = StoredRequest(subject, sequence, rig.world.clock.now(), message, headers)
    rig.requests.stored[sequence] = stored
    return stored


# -- Cancelled


async def test_a_cancelled_request_that_still_waits_costs_nothing():
    rig = HandlerRig()
    rig.cancellations.keys.add("rr-1")
    assert ACK == await rig.take()
    assert (Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.OPERATOR_ESCALATION, 0) == (
        rig.result.status,
        rig.result.human_review_reason,
        rig.world.model.calls,
    )
    assert "cancelled" in rig.result.human_review_detail
    assert [] == rig.world.cluster.calls


@pytest.mark.parametrize("during", [1, 2])
async def test_a_cancelled_run_stops_before_its_next_step_and_reports_its_usage(during):
    rig = HandlerRig()

    def cancel(request, number):
        if number == during:
            rig.cancellations.keys.add("rr-1")
        return calls(LOOK) if number == 1 else final(answer())

    rig.world.model = MemoryModel(cancel)
    rig.new_process()
    assert ACK == await rig.take()
    assert HumanReviewReason.OPERATOR_ESCALATION is rig.result.human_review_reason
    assert (during, during) == (rig.world.model.calls, rig.result.usage.llm_calls)
    assert rig.result.selected_workflow is None


async def test_a_flag_has_the_key_of_its_request():
    rig = HandlerRig()
    rig.cancellations.keys.add("rr%2E1")
    await rig.take(body(incident(remediation_id="rr.1")))
    assert HumanReviewReason.OPERATOR_ESCALATION is rig.result.human_review_reason


async def test_a_request_that_expires_while_it_runs_makes_no_further_call():
    rig = HandlerRig()
    expires_at = "2026-06-04T15:35:00Z"

    def slow(request, number):
        rig.world.clock.advance(120.0)
        return calls(LOOK)

    rig.world.model = MemoryModel(slow)
    rig.new_process()
    assert ACK == await rig.take(body(incident(expires_at=expires_at)))
    assert (HumanReviewReason.DECISION_EXPIRED, 1) == (
        rig.result.human_review_reason,
        rig.world.model.calls,
    )


# -- Published twice


async def test_a_second_message_with_the_same_question_leaves_it_to_the_first():
    rig = HandlerRig(World.saying(LEFT_ALONE))
    queued(rig, body())
    await rig.take()
    rig.says(final(answer()))
    assert ACK == await rig.take(sequence=9)
    assert (0, {}) == (rig.world.model.calls, rig.world.events.results)
    assert ACK == await rig.take()
    assert Status.COMPLETED is rig.result.status


@pytest.mark.parametrize("there", [None, b"junk", body(incident(remediation_id="rr-2"))])
async def test_where_the_first_is_gone_the_second_takes_over(there):
    rig = HandlerRig(World.saying(calls(LOOK), LEFT_ALONE))
    await rig.take()
    if there:  # another message has the number of the first: the stream was made anew
        queued(rig, there)
    rig.says(final(answer()))
    assert ACK == await rig.take(sequence=9)
    assert (1, 2) == (rig.world.model.calls, rig.result.usage.llm_calls)


async def test_a_second_message_is_not_served_when_the_first_ends_while_it_is_looked_up():
    rig = HandlerRig()
    results, found = rig.handler.ports.results, rig.handler.ports.results.find

    async def slowly(key):
        there = await found(key)
        results.find = found
        assert ACK == await rig.take(sequence=7)
        return there

    results.find = slowly
    assert LET_GO == await rig.take(sequence=8)
    assert ACK == await rig.take(sequence=8)
    assert 1 == rig.world.model.calls


async def test_deaths_and_errors_of_another_message_do_not_count():
    rig = HandlerRig(World.saying(KeyError("boom")), rules={"max_failures": 2})
    await rig.take()
    assert (await rig.take(sequence=9)).fate is Fate.RETRY
    assert (await rig.take(sequence=9)).fate is Fate.TERMINATE


# -- Out of deliveries


def exhausted_desk(rig):
    return StrandedRequests(rig.requests, rig.handler, SweepReport())


ADVISORY = {
    "type": "io.nats.jetstream.advisory.v1.max_deliver",
    "stream": "RCA_REQUESTS",
    "consumer": "p2",
    "stream_seq": 7,
    "deliveries": 50,
}


async def advise(rig, **fields):
    delivery = Delivery("$JS.EVENT", "RCA_DLQ", "exhausted", 1, 1, rig.world.clock.now())
    return await exhausted_desk(rig)(json.dumps({**ADVISORY, **fields}).encode(), {}, delivery)


async def test_a_request_out_of_deliveries_is_a_dead_letter_and_out_of_the_queue():
    rig, message = HandlerRig(World.saying(LEFT_ALONE)), body()
    queued(rig, message)
    await rig.take()
    assert ACK == await advise(rig)
    [(letter, raw)] = rig.world.events.dead_letters
    assert (DeadLetterReason.MAX_DELIVERIES, message, 7, 50) == (
        letter.reason,
        raw,
        letter.origin_sequence,
        letter.deliveries,
    )
    assert (Status.FAILED, {}) == (rig.result.status, rig.requests.stored)
    assert "response.failed" == rig.world.events.audits[-1].event_type


async def test_an_answered_request_out_of_deliveries_is_only_removed():
    rig = HandlerRig()
    queued(rig, body())
    await rig.take()
    assert ACK == await advise(rig)
    assert (Status.COMPLETED, [], {}) == (
        rig.result.status,
        rig.world.events.dead_letters,
        rig.requests.stored,
    )


async def test_a_journaled_result_of_a_request_out_of_deliveries_is_published():
    rig = HandlerRig()
    queued(rig, body())
    store, rig.world.events.result = rig.world.events.result, None
    await rig.take()
    rig.world.events.result = store
    assert ACK == await advise(rig)
    assert (Status.COMPLETED, 1, []) == (
        rig.result.status,
        rig.world.model.calls,
        rig.world.events.dead_letters,
    )


async def test_a_journaled_result_that_cannot_be_read_leads_to_a_dead_letter():
    rig = HandlerRig()
    queued(rig, body())
    store, rig.world.events.result = rig.world.events.result, None
    await rig.take()
    rig.world.events.result = store
    [at] = [n for n, step in enumerate(rig.steps) if step.kind == RESULT]
    rig.steps[at] = replace(rig.steps[at], data=b"{}")
    assert ACK == await advise(rig)
    [(letter, _)] = rig.world.events.dead_letters
    assert (DeadLetterReason.MAX_DELIVERIES, Status.FAILED, {}) == (
        letter.reason,
        rig.result.status,
        rig.requests.stored,
    )


async def test_an_unreadable_request_out_of_deliveries_is_rejected():
    rig = HandlerRig()
    queued(rig, b"junk")
    assert ACK == await advise(rig)
    assert [ValidationCode.NOT_JSON] == [failure.code for failure in rig.world.events.rejections]
    assert {} == rig.requests.stored


async def test_nothing_is_removed_while_the_broker_is_down():
    rig = HandlerRig()
    queued(rig, body())
    rig.world.events.down = True
    assert (await advise(rig)).fate is Fate.RETRY
    assert 7 in rig.requests.stored


async def test_an_advisory_of_a_deleted_stream_does_not_concern_a_new_request_with_its_sequence():
    rig = HandlerRig()
    told = rig.world.clock.now()
    rig.world.clock.advance(1.0)
    queued(rig, body())
    delivery = Delivery("$JS.EVENT", "RCA_DLQ", "exhausted", 1, 1, told)
    assert ACK == await exhausted_desk(rig)(json.dumps(ADVISORY).encode(), {}, delivery)
    assert ([], 7) == (rig.world.events.dead_letters, *rig.requests.stored)


@pytest.mark.parametrize("fields", [{"stream_seq": 8}, {"stream_seq": "7"}, {"consumer": None}])
async def test_an_advisory_about_a_missing_request_is_settled(fields):
    rig = HandlerRig()
    queued(rig, body())
    assert ACK == await advise(rig, **fields)
    assert ([], 7) == (rig.world.events.dead_letters, *rig.requests.stored)


# -- Sent again


REPLAY = {REPLAY_HEADER: "3"}


async def buried(rig, message):
    for _ in range(5):
        await rig.take(message)
    assert Status.FAILED is rig.result.status


@pytest.mark.parametrize("lingers", [False, True])
async def test_a_dead_letter_that_is_sent_again_replaces_its_failed_result(lingers):
    rig, message = HandlerRig(World.saying(calls(LOOK), KeyError("boom"))), body()
    await buried(rig, message)
    if lingers:  # on replicas a settled message can be read for a moment
        queued(rig, message)
    rig.says(final(answer()))
    assert ACK == await rig.take(message, sequence=20, headers=REPLAY)
    assert (Status.COMPLETED, 1, 2) == (
        rig.result.status,
        rig.world.model.calls,
        rig.result.usage.llm_calls,
    )
    assert ACK == await rig.take(message, sequence=20, headers=REPLAY)
    assert rig.world.model.calls == 1


async def test_a_failed_result_is_replaced_only_by_a_replay():
    rig, message = HandlerRig(World.saying(KeyError("boom"))), body()
    await buried(rig, message)
    rig.says(final(answer()))
    assert ACK == await rig.take(message, sequence=20, deliveries=1)
    assert (Status.FAILED, 0) == (rig.result.status, rig.world.model.calls)


async def test_a_replay_replaces_only_a_failed_result_of_the_same_request():
    rig = HandlerRig()
    await rig.take()
    first = rig.result
    assert ACK == await rig.take(sequence=20, headers=REPLAY)
    settled = await rig.take(body(description="other"), sequence=21, headers=REPLAY)
    assert ("rejected: key_conflict", first) == (settled.reason, rig.result)


async def test_a_replay_that_fails_becomes_a_dead_letter_again():
    rig, message = HandlerRig(World.saying(KeyError("boom"))), body()
    await buried(rig, message)
    rig.world.clock.advance(60.0)
    for _ in range(5):
        settled = await rig.take(message, sequence=20, headers=REPLAY)
    assert "dead letter: internal_error" == settled.reason
    assert [7, 20] == [letter.origin_sequence for letter, _ in rig.world.events.dead_letters]
    assert rig.world.clock.now() >= rig.result.completed_at
    assert Status.FAILED is rig.result.status


# -- Streams created anew


async def test_a_request_in_the_place_of_the_one_that_owns_its_journal_is_served():
    """Both streams count from 1. The first message is gone, and the one in its place must not be acked for it."""
    rig = HandlerRig(World.saying(LEFT_ALONE))
    await rig.take()
    rig.world.clock.advance(3_600.0)
    stored = queued(rig, body())
    rig.says(final(answer()))
    assert ACK == await rig.take(stored_at=stored.stored_at)
    assert Status.COMPLETED is rig.result.status


async def test_messages_with_the_same_sequence_are_rejected_each_for_itself():
    rig = HandlerRig()
    for hours in range(2):
        await rig.take(b"{", stored_at=rig.world.clock.now() + timedelta(hours=hours))
    assert 2 == len(rig.world.events.rejections)


# -- Stranded requests


async def test_a_stranded_request_becomes_a_dead_letter_and_leaves_the_queue():
    rig, report = HandlerRig(), SweepReport()
    queued(rig, body())
    rig.requests.given_up.add(7)
    await StrandedRequests(rig.requests, rig.handler, report).sweep()
    [(letter, _)] = rig.world.events.dead_letters
    assert (DeadLetterReason.MAX_DELIVERIES, {}) == (letter.reason, rig.requests.stored)
    assert (Status.FAILED, SweepReport()) == (rig.result.status, report)


async def test_a_stranded_request_that_cannot_be_dead_lettered_is_reported_until_it_can():
    rig, report = HandlerRig(), SweepReport()
    queued(rig, body())
    rig.requests.given_up.add(7)
    stranded = StrandedRequests(rig.requests, rig.handler, report)
    rig.world.events.down = True
    await stranded.sweep()
    assert (1, True, 1) == (report.count, bool(report.problem), len(rig.requests.stored))
    rig.world.events.down = False
    await stranded.sweep()
    assert (SweepReport(), {}) == (report, rig.requests.stored)
    assert 1 == len(rig.world.events.dead_letters)


async def test_a_stranded_request_that_meets_a_defect_keeps_no_other_one_from_its_dead_letter(logged):
    rig, report = HandlerRig(), SweepReport()
    for sequence in (7, 8):
        queued(rig, body(incident(remediation_id=f"rr-{sequence}")), sequence)
        rig.requests.given_up.add(sequence)
    rig.break_journal_of("rr-7")
    stranded = StrandedRequests(rig.requests, rig.handler, report)
    await stranded.sweep()
    assert ([7], 1) == (sorted(rig.requests.stored), len(rig.world.events.dead_letters))
    assert (1, True) == (report.count, "a defect" in report.problem)
    assert ["handler_failed"] == [each["event"] for each in logged if each.get("exc_info")]


async def test_a_letter_that_was_not_written_before_the_journal_was_gone_is_written():
    rig = HandlerRig(World.saying(KeyError("boom")), rules={"max_failures": 1})
    assert (await rig.take()).fate is Fate.TERMINATE
    rig.world.events.dead_letters.clear()
    rig.world.events._seen.clear()
    rig.world.journal.steps.clear()
    assert (await rig.take()).fate is Fate.TERMINATE
    [(letter, _)] = rig.world.events.dead_letters
    assert DeadLetterReason.INTERNAL_ERROR is letter.reason


async def test_a_request_that_is_sent_again_after_its_failure_gets_no_second_letter():
    rig = HandlerRig(World.saying(KeyError("boom")), rules={"max_failures": 1})
    await rig.take()
    assert ACK == await rig.take(sequence=9, deliveries=1)
    assert 1 == len(rig.world.events.dead_letters)


async def test_a_failed_request_that_is_sent_again_and_redelivered_gets_no_second_letter():
    rig = HandlerRig(World.saying(KeyError("boom")), rules={"max_failures": 1})
    await rig.take()
    assert ACK == await rig.take(sequence=9, deliveries=2)
    assert 1 == len(rig.world.events.dead_letters)


async def test_a_failed_request_whose_journal_is_gone_gets_no_second_letter():
    rig = HandlerRig(World.saying(KeyError("boom")), rules={"max_failures": 1})
    await rig.take()
    rig.world.journal.steps.clear()
    rig.world.clock.advance(86_400.0)
    assert ACK == await rig.take(sequence=9, deliveries=2)
    assert 1 == len(rig.world.events.dead_letters)
