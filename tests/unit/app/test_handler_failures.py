"""What becomes of a message when something fails: retries, dead letters, outages, stops, deaths."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import structlog

from schemas.analysis import HumanReviewReason, Status
from schemas.failure import DeadLetterReason
from tests.fakes.desk import Desk, body
from tests.fakes.memory_model import MemoryModel, final
from tests.fakes.scripted import World, answer, incident
from worker.domain.delivery import ACK, LET_GO, Fate
from worker.domain.errors import GiveUp, GiveUpReason, Retry, RetryReason
from worker.domain.journal import BEGIN, FAILED, RELEASED
from worker.domain.ports import Step
from worker.domain.retry import RetryPolicy

DOWN = Retry(RetryReason.MODEL_UNAVAILABLE, "503")
LEFT_ALONE = Retry(RetryReason.MODEL_UNAVAILABLE, "the model is left alone for a while", 30.0, tried=False)
SECRET = "ghp_FAKE0123456789abcdefghijklmnopqrstuv"


@pytest.fixture(autouse=True)
def logged():
    """What is logged: event names and fields."""
    with structlog.testing.capture_logs() as entries:
        yield entries


# -- What can be tried again


async def test_a_model_that_is_down_is_asked_later():
    desk = Desk(World.saying(DOWN))
    settled = await desk.take()
    assert settled.fate is Fate.RETRY
    assert settled.after_seconds >= 1.0
    assert [(FAILED, "model_unavailable")] == desk.ends
    assert {} == desk.world.events.results
    assert desk.count("rca_retries_total", reason="model_unavailable") == 1
    desk.says(final(answer()))
    assert ACK == await desk.take()
    assert Status.COMPLETED is desk.result.status


async def test_each_time_a_request_waits_longer():
    desk = Desk(World.saying(LEFT_ALONE))
    waits = [(await desk.take()).after_seconds for _ in range(6)]
    assert sorted(waits) == waits
    assert waits[-1] > waits[0]


async def test_no_request_comes_back_before_the_server_wants_it():
    desk = Desk(World.saying(Retry(RetryReason.MODEL_RATE_LIMITED, "429", 90.0, tried=False)))
    assert [True] * 5 == [(await desk.take()).after_seconds >= 90.0 for _ in range(5)]
    assert [(FAILED, "model_rate_limited")] * 5 == desk.ends


async def test_a_model_that_never_answers_is_not_asked_for_ever():
    desk = Desk(World.saying(DOWN))
    asked = 0
    for _ in range(10):
        settled = await desk.take()
        asked += desk.world.model.calls
        desk.says(DOWN)
        if settled == ACK:
            break
    assert asked == 5
    assert HumanReviewReason.INVESTIGATION_INCONCLUSIVE is desk.result.human_review_reason


async def test_after_its_age_a_request_goes_to_a_person():
    desk = Desk(World.saying(DOWN), rules={"retries": RetryPolicy(max_age_seconds=60.0)})
    stored_at = desk.world.clock.now()
    desk.world.clock.advance(61.0)
    assert ACK == await desk.take(stored_at=stored_at)
    result = desk.result
    assert (Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.INVESTIGATION_INCONCLUSIVE) == (
        result.status,
        result.human_review_reason,
    )
    assert "no model could be reached" in result.human_review_detail


@pytest.mark.parametrize("reason", [GiveUpReason.MODEL_REFUSED_CREDENTIALS, GiveUpReason.MODEL_SPEND_CAP])
async def test_what_only_a_person_can_mend_blocks_and_keeps_the_request(reason):
    desk = Desk(World.saying(GiveUp(reason, f"401 {SECRET}")))
    settled = await desk.take()
    assert (Fate.RETRY, 60.0) == (settled.fate, settled.after_seconds)
    assert [(RELEASED, reason)] == desk.ends
    assert reason in desk.handler.blocked
    assert "FAKE" not in desk.handler.blocked
    assert {} == desk.world.events.results


async def test_a_long_block_does_not_use_up_the_deliveries():
    desk = Desk(World.saying(GiveUp(GiveUpReason.MODEL_SPEND_CAP, "cap")))
    waits = [(await desk.take()).after_seconds for _ in range(50)]
    assert sorted(waits) == waits
    assert sum(waits) > 10 * 3_600


async def test_a_model_that_answers_again_ends_the_block():
    desk = Desk(World.saying(GiveUp(GiveUpReason.MODEL_SPEND_CAP, "cap"), final(answer())))
    await desk.take()
    assert desk.handler.blocked
    expired = incident(remediation_id="rr-2", expires_at="2020-01-01T00:00:00Z")
    await desk.take(body(expired))
    assert desk.handler.blocked  # nothing was asked
    assert ACK == await desk.take()
    assert desk.handler.blocked == ""


@pytest.mark.parametrize("reason", [GiveUpReason.CONTEXT_OVERFLOW, GiveUpReason.MODEL_REJECTED_REQUEST])
async def test_what_no_retry_mends_goes_to_a_person(reason):
    desk = Desk(World.saying(GiveUp(reason, "400")))
    assert ACK == await desk.take()
    assert HumanReviewReason.INVESTIGATION_INCONCLUSIVE is desk.result.human_review_reason
    assert desk.handler.blocked == ""


# -- Bugs


async def test_a_bug_is_tried_again_a_few_times_and_then_becomes_a_dead_letter_with_a_failed_result():
    desk = Desk(World.saying(KeyError("boom")))
    message = body()
    for attempt in (1, 2, 3, 4):
        settled = await desk.take(message)
        assert (Fate.RETRY, 2.0**attempt) == (settled.fate, settled.after_seconds)
    settled = await desk.take(message)
    assert (Fate.TERMINATE, "dead letter: internal_error") == (settled.fate, settled.reason)
    [(letter, raw)] = desk.world.events.dead_letters
    assert message == raw
    assert (DeadLetterReason.INTERNAL_ERROR, "RCA_REQUESTS", 7, "rca.request.incident", 5) == (
        letter.reason,
        letter.origin_stream,
        letter.origin_sequence,
        letter.origin_subject,
        letter.deliveries,
    )
    assert "boom" in letter.error
    assert (Status.FAILED, True, HumanReviewReason.INVESTIGATION_INCONCLUSIVE) == (
        desk.result.status,
        desk.result.needs_human_review,
        desk.result.human_review_reason,
    )
    assert desk.count("rca_dead_letters_total", reason="internal_error") == 1


async def test_an_outage_of_the_model_is_no_bug_of_the_request():
    desk = Desk(World.saying(LEFT_ALONE))
    for _ in range(6):
        await desk.take()
    desk.says(KeyError("boom"))
    assert (await desk.take()).fate is Fate.RETRY
    assert desk.world.events.dead_letters == []


async def test_an_error_on_one_line_and_without_secrets():
    desk = Desk(World.saying(RuntimeError(f"line\nline {SECRET} {'x' * 1_000}")), rules={"max_failures": 1})
    await desk.take()
    [(letter, _)] = desk.world.events.dead_letters
    assert "\n" not in letter.error
    assert "FAKE" not in letter.error
    assert len(letter.error) <= 300


# -- The broker


@pytest.mark.parametrize("what", ["events", "journal"])
async def test_a_broker_that_is_down_leaves_everything_as_it_is(what):
    desk = Desk()
    getattr(desk.world, what).down = True
    settled = await desk.take()
    assert (Fate.RETRY, 5.0) == (settled.fate, settled.after_seconds)
    assert desk.world.model.calls == 0
    getattr(desk.world, what).down = False
    assert ACK == await desk.take()


async def test_a_result_that_cannot_be_stored_is_not_acked_and_not_paid_for_again():
    desk = Desk()
    store = desk.world.events.result
    full = True

    async def result(made, *, replace_failed=False):
        desk.world.events.down = full
        return await store(made, replace_failed=replace_failed)

    desk.world.events.result = result
    for _ in range(6):
        desk.world.events.down = False
        assert (await desk.take()).fate is Fate.RETRY
    full = desk.world.events.down = False
    assert ACK == await desk.take()
    assert desk.world.model.calls == 1
    assert desk.world.events.dead_letters == []


async def test_a_long_outage_does_not_use_up_the_deliveries():
    desk = Desk()
    desk.world.events.down = True
    waits = [(await desk.take()).after_seconds for _ in range(50)]
    assert [5.0, 10.0, 20.0] == waits[:3]
    assert max(waits) == 300.0
    assert sum(waits) > 3 * 3_600


async def test_a_rejection_that_cannot_be_published_is_not_settled_for_good():
    desk = Desk()
    desk.world.events.down = True
    assert (await desk.take(b"junk")).fate is Fate.RETRY


async def test_a_dead_letter_that_cannot_be_published_is_not_settled_for_good():
    desk = Desk(World.saying(KeyError("boom")), rules={"max_failures": 1})
    publish = desk.world.events.dead_letter

    async def unreachable(letter, raw):
        desk.world.events.down = True
        await publish(letter, raw)

    desk.world.events.dead_letter = unreachable
    assert (await desk.take()).fate is Fate.RETRY
    assert desk.world.events.dead_letters == []


async def test_a_run_that_was_replaced_says_nothing():
    desk = Desk()

    def replaced(request, number):
        steps = desk.world.journal.steps["rr-1"]
        steps.append(Step(len(steps) + 1, BEGIN, "newer", b""))
        return final(answer())

    desk.world.model = MemoryModel(replaced)
    desk.new_process()
    assert LET_GO == await desk.take()
    assert ({}, []) == (desk.world.events.results, desk.ends)


@pytest.mark.parametrize("gap", [0, 1, 2])
async def test_a_journal_with_a_gap_is_a_dead_letter_and_not_paid_for_again(gap):
    desk = Desk(World.saying(DOWN))
    await desk.take()
    desk.world.journal.steps["rr-1"][gap] = None
    desk.says(final(answer()))
    message = body()
    settled = await desk.take(message)
    assert (Fate.TERMINATE, "dead letter: journal_gap") == (settled.fate, settled.reason)
    assert [(DeadLetterReason.JOURNAL_GAP, message)] == [
        (d.reason, raw) for d, raw in desk.world.events.dead_letters
    ]
    assert (Status.FAILED, 0) == (desk.result.status, desk.world.model.calls)


async def test_a_step_that_cannot_be_read_is_a_gap():
    desk = Desk(World.saying(DOWN))
    await desk.take()
    steps = desk.world.journal.steps["rr-1"]
    steps[1] = replace(steps[1], data=b"garbage")
    assert (await desk.take()).reason == "dead letter: journal_gap"


# -- Being stopped


async def test_a_run_that_is_cancelled_is_given_back_in_order():
    desk = Desk()
    started = asyncio.Event()

    class Slow(MemoryModel):
        async def ask(self, request):
            started.set()
            await asyncio.sleep(60)

    desk.world.model = Slow([])
    desk.new_process()
    task = asyncio.create_task(desk.take())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(RELEASED, None)] == desk.ends
    desk.says(final(answer()))
    assert ACK == await desk.take()


async def test_a_run_that_is_cancelled_while_publishing_is_no_death_either():
    desk = Desk()
    publishing = asyncio.Event()
    store = desk.world.events.result

    async def slow(made, *, replace_failed=False):
        publishing.set()
        await asyncio.sleep(60)
        return await store(made)

    desk.world.events.result = slow
    task = asyncio.create_task(desk.take())
    await publishing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(RELEASED, None)] == desk.ends


async def test_a_broker_that_is_down_does_not_hold_up_a_cancelled_run():
    desk = Desk()

    class Stopping(MemoryModel):
        async def ask(self, request):
            desk.world.journal.down = True
            raise asyncio.CancelledError

    desk.world.model = Stopping([])
    desk.new_process()
    with pytest.raises(asyncio.CancelledError):
        await desk.take()
