"""What becomes of a message when something fails: retries, dead letters, outages, stops, deaths."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from datetime import timedelta

import pytest
import structlog

from schemas.analysis import HumanReviewReason, Status
from schemas.failure import DeadLetterReason
from tests.fakes.handler_rig import HandlerRig, body, until
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.memory_nats import MemoryJournal, MemoryJournalRun
from tests.fakes.scripted import LOOK, World, answer, incident
from worker.app.failed_runs import PERHAPS_OF_ONE
from worker.domain.analyse import Rules
from worker.domain.journal.steps import FAILED, RELEASED, count
from worker.domain.values.delays import NOT_NOW_SECONDS
from worker.domain.values.delivery import ACK, LET_GO, Fate
from worker.domain.values.errors import (
    BLOCKING,
    ClusterReason,
    GiveUp,
    GiveUpReason,
    Retry,
    RetryReason,
    Unavailable,
)
from worker.domain.values.ports import Step
from worker.domain.values.retry import probe_pause
from worker.domain.values.step_kinds import BEGIN, MODEL_OUTAGE

DOWN = Retry(RetryReason.MODEL_UNAVAILABLE, "503")
LEFT_ALONE = Retry(RetryReason.MODEL_UNAVAILABLE, "the model is left alone for a while", 30.0, tried=False)
SECRET = "ghp_FAKE0123456789abcdefghijklmnopqrstuv"


@pytest.fixture(autouse=True)
def logged():
    """What is logged: event names and fields."""
    with structlog.testing.capture_logs() as entries:
        yield entries


@pytest.mark.parametrize(
    ("replies", "fate", "events"),
    [
        ([LEFT_ALONE, final(answer())], ACK.fate, {"run_postponed", "result_published"}),
        ([Unavailable("cut off")], Fate.RETRY, {"broker_unavailable"}),
    ],
)
async def test_every_line_names_the_request_and_no_later_line_does(replies, fate, events):
    rig = HandlerRig(World.saying(*replies))
    merge = structlog.contextvars.merge_contextvars
    with structlog.testing.capture_logs(processors=[merge]) as entries:
        assert fate == (await rig.take()).fate
    assert {"rr-1"} == {entry["request"] for entry in entries}
    assert events <= {entry["event"] for entry in entries}
    assert "request" not in structlog.contextvars.get_contextvars()


# -- What can be tried again


async def test_a_request_that_meets_an_unreadable_cluster_goes_back_unanswered():
    world = World.saying(final(answer()))
    problems = ["the API server cannot be read", ""]

    async def cluster_problem() -> str:
        return problems.pop(0)

    world.cluster_problem = cluster_problem
    rig = HandlerRig(world)
    world.cluster.fail(ClusterReason.UNAVAILABLE)
    assert (Fate.RETRY, NOT_NOW_SECONDS) == ((settled := await rig.take()).fate, settled.after_seconds)
    assert ([(RELEASED, "cluster_unreadable")], {}, 0) == (rig.ends, world.events.results, world.model.calls)
    assert rig.count("rca_retries_total", reason="cluster_unreadable") == 1
    world.cluster.heal()
    assert (ACK, [""]) == (await rig.take(), problems)
    assert Status.COMPLETED is rig.result.status


async def test_gaps_of_a_cluster_that_can_be_read_are_marked_as_unknown():
    world = World.saying(final(answer()))

    async def no_problem() -> str:
        return ""

    world.cluster_problem = no_problem
    world.cluster.fail(ClusterReason.FORBIDDEN, kind="Event")
    rig = HandlerRig(world)
    assert ACK == await rig.take()
    assert any(note.startswith("unknown: events") for note in rig.result.notes)


async def test_a_request_is_held_during_a_short_pause():
    rig = HandlerRig(World.saying(LEFT_ALONE, final(answer())))
    before = rig.world.clock.now()
    assert ACK == await rig.take()
    assert rig.world.clock.now() - before >= timedelta(seconds=30)
    assert ([(FAILED, "model_unavailable")], Status.COMPLETED) == (rig.ends, rig.result.status)
    assert rig.count("rca_retries_total", reason="model_unavailable") == 1
    assert rig.resumed == [1]


async def test_a_request_goes_back_to_the_queue_for_a_long_pause():
    rig = HandlerRig(World.saying(LEFT_ALONE), rules={"hold_seconds": 10.0})
    settled = await rig.take()
    assert settled.fate is Fate.RETRY
    assert settled.after_seconds >= 30.0
    assert ([(FAILED, "model_unavailable")], {}) == (rig.ends, rig.world.events.results)
    rig.says(final(answer()))
    assert ACK == await rig.take()
    assert Status.COMPLETED is rig.result.status


async def test_a_worker_that_stops_gives_back_what_it_only_holds():
    rig = HandlerRig(World.saying(LEFT_ALONE))
    rig.world.clock.sleep = lambda seconds: asyncio.sleep(60)
    taking = asyncio.create_task(rig.take())
    await until(lambda: rig.ends)
    rig.admission.stop()
    assert (Fate.RETRY, 1.0) == ((settled := await taking).fate, settled.after_seconds)
    assert (Fate.RETRY, 1.0) == ((settled := await rig.take()).fate, settled.after_seconds)
    assert [(FAILED, "model_unavailable")] == rig.ends


async def test_each_time_a_request_waits_longer():
    rig = HandlerRig(World.saying(LEFT_ALONE), rules={"hold_seconds": 0.0})
    waits = [(await rig.take()).after_seconds for _ in range(6)]
    assert sorted(waits) == waits
    assert waits[-1] > waits[0]


async def test_no_request_comes_back_before_the_server_wants_it():
    rig = HandlerRig(World.saying(Retry(RetryReason.MODEL_RATE_LIMITED, "429", 90.0, tried=False)))
    assert [True] * 5 == [(await rig.take()).after_seconds >= 90.0 for _ in range(5)]
    assert [(FAILED, "model_rate_limited")] * 5 == rig.ends


async def test_a_model_that_never_answers_is_not_asked_for_ever():
    rig = HandlerRig(World.saying(DOWN))
    while (await rig.take()) != ACK:
        assert rig.deliveries < 10
    assert rig.world.model.calls == 5
    assert HumanReviewReason.INVESTIGATION_INCONCLUSIVE is rig.result.human_review_reason


async def test_after_its_age_a_request_is_escalated():
    rig = HandlerRig(World.saying(LEFT_ALONE), rules={"patience_seconds": 100.0})
    assert ACK == await rig.take()
    result = rig.result
    assert (Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.INVESTIGATION_INCONCLUSIVE) == (
        result.status,
        result.human_review_reason,
    )
    assert "No model answered" in result.human_review_detail


async def test_the_time_in_the_queue_is_no_age():
    rig = HandlerRig(World.saying(LEFT_ALONE, final(answer())), rules={"patience_seconds": 60.0})
    stored_at = rig.world.clock.now()
    rig.world.clock.advance(9_000.0)
    assert ACK == await rig.take(stored_at=stored_at)
    assert Status.COMPLETED is rig.result.status


async def test_a_result_without_an_answer_reports_its_usage():
    rig = HandlerRig(World.saying(calls(LOOK), LEFT_ALONE), rules={"patience_seconds": 1.0})
    assert ACK == await rig.take()
    assert (1, 1, 1_000) == (
        rig.result.usage.llm_calls,
        rig.result.usage.tool_calls,
        rig.result.usage.input_tokens,
    )


# -- The broker, once more


async def test_a_run_that_lost_its_broker_says_so_as_soon_as_it_can_and_is_no_death():
    rig = HandlerRig()
    appends, append = [], MemoryJournalRun.append

    class Failing(MemoryJournal):
        async def open(self, request_key, run):
            opened = await super().open(request_key, run)
            opened.append = lambda *given, **more: failing(opened, *given, **more)
            return opened

    async def failing(run, kind, *given, **more):
        appends.append(kind)
        if 3 <= len(appends) <= 8:  # six times in a row
            raise Unavailable("cut off")
        await append(run, kind, *given, **more)

    rig.world.journal = Failing()
    rig.new_process()
    assert (await rig.take()).fate is Fate.RETRY
    assert ["begin", "opening", "claim", *["end"] * 6] == appends
    assert [(RELEASED, None)] == rig.ends
    assert ACK == await rig.take()
    assert [False, False] == [step.notes["alone"] for step in rig.steps if step.kind == BEGIN]


async def test_a_run_that_has_not_begun_ends_nothing_of_others():
    rig = HandlerRig(World.saying(LEFT_ALONE), rules={"hold_seconds": 0.0})
    await rig.take()
    publish = rig.world.events.audit

    async def unreachable(record):
        raise Unavailable("the audit stream is full")

    rig.world.events.audit = unreachable
    rig.steps[-1] = replace(rig.steps[-1], events=rig.steps[0].events)
    before = len(rig.steps)
    assert (await rig.take()).fate is Fate.RETRY
    assert before == len(rig.steps)
    rig.world.events.audit = publish


# -- What only a person can mend


BLOCKED = GiveUp(GiveUpReason.MODEL_SPEND_CAP, f"429 {SECRET}")


@pytest.mark.parametrize("reason", sorted(BLOCKING - PERHAPS_OF_ONE))
async def test_one_request_is_tried_now_and_then_until_the_model_answers(reason):
    rig = HandlerRig(World.saying(*[GiveUp(reason, f"401 {SECRET}")] * 100, final(answer())))
    before = rig.world.clock.now()
    seen = []
    sleep = rig.world.clock.sleep

    async def noting(seconds):
        seen.append(rig.admission.blocked)
        await sleep(seconds)

    rig.world.clock.sleep = noting
    assert ACK == await rig.take()
    seconds = sum(probe_pause(60.0, tried) for tried in range(1, 101))
    assert (101, timedelta(seconds=seconds)) == (rig.world.model.calls, rig.world.clock.now() - before)
    assert [(RELEASED, reason)] * 100 == rig.ends
    assert all(reason in why and "FAKE" not in why for why in seen)
    assert (rig.admission.blocked, Status.COMPLETED) == ("", rig.result.status)


async def test_while_one_is_tried_the_others_go_back_and_no_more_are_taken():
    rig = HandlerRig(World.saying(BLOCKED))
    asleep, wake = asyncio.Event(), asyncio.Event()

    async def sleep(seconds):
        asleep.set()
        await wake.wait()

    rig.world.clock.sleep = sleep
    prober = asyncio.create_task(rig.take())
    await asleep.wait()
    other = body(incident(remediation_id="rr-2"))
    assert (await rig.take(other, sequence=8)).fate is Fate.RETRY
    assert rig.world.model.calls == 1
    asking = asyncio.create_task(rig.admission.admit(2))
    await asyncio.sleep(0)
    assert asking.done() is False
    rig.world.model.then(final(answer()))
    wake.set()
    assert ACK == await prober
    assert await asking is True
    assert ACK == await rig.take(other, sequence=8)


async def test_another_request_probes_once_the_probing_one_has_gone_back():
    rig = HandlerRig(World.saying(BLOCKED))
    rig.world.clock.sleep = lambda seconds: asyncio.sleep(60)
    prober = asyncio.create_task(rig.take())
    await until(lambda: rig.admission.blocked)
    prober.cancel()
    with pytest.raises(asyncio.CancelledError):
        await prober
    assert await rig.admission.admit(2) is False
    rig.world.model.then(final(answer()))
    assert ACK == await rig.take(body(incident(remediation_id="rr-2")), sequence=8)
    assert rig.admission.blocked == ""


async def test_a_result_without_a_call_says_nothing_about_the_model():
    rig = HandlerRig(World.saying(BLOCKED))
    rig.admission.block("cap")
    expired = incident(expires_at="2020-01-01T00:00:00Z")
    assert ACK == await rig.take(body(expired))
    assert rig.admission.blocked == "cap"


@pytest.mark.parametrize("reason", [GiveUpReason.CONTEXT_OVERFLOW, GiveUpReason.MODEL_REJECTED_REQUEST])
async def test_what_no_retry_fixes_is_escalated(reason):
    rig = HandlerRig(World.saying(GiveUp(reason, "400")))
    assert ACK == await rig.take()
    assert HumanReviewReason.INVESTIGATION_INCONCLUSIVE is rig.result.human_review_reason
    assert rig.admission.blocked == ""


# -- Bugs


async def test_a_bug_is_tried_again_a_few_times_and_then_becomes_a_dead_letter_with_a_failed_result():
    rig = HandlerRig(World.saying(KeyError("boom")))
    message = body()
    for attempt in (1, 2, 3, 4):
        settled = await rig.take(message)
        assert (Fate.RETRY, 2.0**attempt) == (settled.fate, settled.after_seconds)
    settled = await rig.take(message)
    assert (Fate.TERMINATE, "dead letter: internal_error") == (settled.fate, settled.reason)
    [(letter, raw)] = rig.world.events.dead_letters
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
        rig.result.status,
        rig.result.needs_human_review,
        rig.result.human_review_reason,
    )
    assert rig.count("rca_dead_letters_total", reason="internal_error") == 1


async def test_in_observe_mode_a_failed_result_requires_approval_too():
    rig = HandlerRig(World.saying(KeyError("boom"), rules=Rules(observe=True)), rules={"max_failures": 1})
    await rig.take()
    assert (Status.FAILED, True, True) == (
        rig.result.status,
        rig.result.approval.required,
        rig.result.approval.would_require,
    )


async def test_an_outage_of_the_model_is_no_bug_of_the_request():
    rig = HandlerRig(World.saying(LEFT_ALONE))
    for _ in range(6):
        await rig.take()
    rig.says(KeyError("boom"))
    assert (await rig.take()).fate is Fate.RETRY
    assert rig.world.events.dead_letters == []


async def test_an_error_on_one_line_and_without_secrets():
    rig = HandlerRig(
        World.saying(RuntimeError(f"line\nline {SECRET} {'x' * 1_000}")), rules={"max_failures": 1}
    )
    await rig.take()
    [(letter, _)] = rig.world.events.dead_letters
    assert "\n" not in letter.error
    assert "FAKE" not in letter.error
    assert len(letter.error) <= 300


# -- The broker


@pytest.mark.parametrize("what", ["events", "journal"])
async def test_a_broker_that_is_down_leaves_everything_as_it_is(what):
    rig = HandlerRig()
    getattr(rig.world, what).down = True
    settled = await rig.take()
    assert (Fate.RETRY, 5.0) == (settled.fate, settled.after_seconds)
    assert rig.world.model.calls == 0
    getattr(rig.world, what).down = False
    assert ACK == await rig.take()


async def test_a_result_that_cannot_be_stored_is_not_acked_and_not_paid_for_again():
    rig = HandlerRig()
    store = rig.world.events.result
    full = True

    async def result(made, *, replace_failed=False):
        rig.world.events.down = full
        return await store(made, replace_failed=replace_failed)

    rig.world.events.result = result
    for _ in range(6):
        rig.world.events.down = False
        assert (await rig.take()).fate is Fate.RETRY
    full = rig.world.events.down = False
    assert ACK == await rig.take()
    assert rig.world.model.calls == 1
    assert rig.world.events.dead_letters == []


async def test_a_long_outage_does_not_use_up_the_deliveries():
    rig = HandlerRig()
    rig.world.events.down = True
    waits = [(await rig.take()).after_seconds for _ in range(50)]
    assert [5.0, 10.0, 20.0] == waits[:3]
    assert max(waits) == 300.0
    assert sum(waits) > 3 * 3_600


async def test_a_rejection_that_cannot_be_published_is_not_settled_for_good():
    rig = HandlerRig()
    rig.world.events.down = True
    assert (await rig.take(b"junk")).fate is Fate.RETRY


async def test_a_dead_letter_that_cannot_be_published_is_not_settled_for_good():
    rig = HandlerRig(World.saying(KeyError("boom")), rules={"max_failures": 1})
    publish = rig.world.events.dead_letter

    async def unreachable(letter, raw):
        rig.world.events.down = True
        await publish(letter, raw)

    rig.world.events.dead_letter = unreachable
    assert (await rig.take()).fate is Fate.RETRY
    assert rig.world.events.dead_letters == []


async def test_a_run_that_was_replaced_says_nothing():
    rig = HandlerRig()

    def replaced(request, number):
        steps = rig.world.journal.steps["rr-1"]
        steps.append(Step(len(steps) + 1, BEGIN, "newer", b""))
        return final(answer())

    rig.world.model = MemoryModel(replaced)
    rig.new_process()
    assert LET_GO == await rig.take()
    assert ({}, []) == (rig.world.events.results, rig.ends)


@pytest.mark.parametrize("end", [Unavailable("cut off"), asyncio.CancelledError()])
async def test_a_run_that_finds_itself_replaced_as_it_ends_gives_nothing_back(end):
    """The broker would take the nak as that of the run which goes on, and start a third one."""
    rig = HandlerRig()

    def replaced(request, number):
        begun_elsewhere(rig)
        raise end

    rig.world.model = MemoryModel(replaced)
    rig.new_process()
    assert LET_GO == await rig.take()
    assert [] == rig.ends


async def test_a_request_that_was_taken_over_while_it_was_held_is_let_go():
    rig = HandlerRig(World.saying(LEFT_ALONE, final(answer())))
    sleep = rig.world.clock.sleep

    async def cut_off(seconds):
        begun_elsewhere(rig)
        await sleep(seconds)

    rig.world.clock.sleep = cut_off
    assert LET_GO == await rig.take()
    assert (1, "newer") == (rig.world.model.calls, rig.steps[-1].run)


def begun_elsewhere(rig):
    first = next(step for step in rig.steps if step.kind == BEGIN)
    rig.steps.append(Step(len(rig.steps) + 1, BEGIN, "newer", b"", first.notes))


AFRESH = "could not be read, so the analysis started afresh"


@pytest.mark.parametrize("gap", range(7))
async def test_a_journal_with_a_gap_is_started_afresh_and_the_result_says_so(gap, logged):
    rig = HandlerRig(World.saying(calls(LOOK), LEFT_ALONE), rules={"hold_seconds": 0.0})
    await rig.take()
    rig.steps[gap] = None
    rig.says(final(answer()))
    assert ACK == await rig.take()
    assert (Status.COMPLETED, 1) == (rig.result.status, rig.world.model.calls)
    assert any(AFRESH in note for note in rig.result.notes)
    assert "journal_unreadable" in [entry["event"] for entry in logged]
    ids = [event.event_id for event in rig.world.events.audits]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("kind", ["opening", "llm", "tools"])
async def test_a_step_that_makes_no_sense_to_this_version_is_not_continued(kind):
    rig = HandlerRig(World.saying(calls(LOOK), LEFT_ALONE), rules={"hold_seconds": 0.0})
    await rig.take()
    rig.steps[:] = [replace(s, data=b"garbage") if s.kind == kind else s for s in rig.steps if s]
    rig.says(final(answer()))
    assert ACK == await rig.take()
    assert (Status.COMPLETED, 1) == (rig.result.status, rig.world.model.calls)
    assert any(AFRESH in note for note in rig.result.notes)
    assert list(range(1, len(rig.world.events.audits) + 1)) == [e.sequence for e in rig.world.events.audits]


async def test_a_result_that_makes_no_sense_to_this_version_is_made_again():
    rig = HandlerRig()
    store, rig.world.events.result = rig.world.events.result, _unavailable
    assert (await rig.take()).fate is Fate.RETRY
    rig.world.events.result = store
    rig.steps[:] = [replace(s, data=b"{}") if s.kind == "result" else s for s in rig.steps if s]
    assert ACK == await rig.take()
    assert (Status.COMPLETED, 2) == (rig.result.status, rig.world.model.calls)


async def test_what_comes_after_a_fresh_start_is_continued():
    rig = HandlerRig(World.saying(LEFT_ALONE), rules={"hold_seconds": 0.0})
    await rig.take()
    rig.steps[1] = None
    rig.says(calls(LOOK), LEFT_ALONE)
    await rig.take()
    rig.says(final(answer()))
    assert ACK == await rig.take()
    assert (1, 2) == (rig.world.model.calls, rig.result.usage.llm_calls)


async def _unavailable(result, *, replace_failed=False):
    raise Unavailable("the stream is full")


# -- Being stopped


async def test_a_run_that_is_cancelled_is_given_back_in_order():
    rig = HandlerRig()
    started = asyncio.Event()

    class Slow(MemoryModel):
        async def ask(self, request):
            started.set()
            await asyncio.sleep(60)

    rig.world.model = Slow([])
    rig.new_process()
    task = asyncio.create_task(rig.take())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(RELEASED, None)] == rig.ends
    rig.says(final(answer()))
    assert ACK == await rig.take()


async def test_a_run_that_is_cancelled_while_publishing_is_no_death_either():
    rig = HandlerRig()
    publishing = asyncio.Event()
    store = rig.world.events.result

    async def slow(made, *, replace_failed=False):
        publishing.set()
        await asyncio.sleep(60)
        return await store(made)

    rig.world.events.result = slow
    task = asyncio.create_task(rig.take())
    await publishing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(RELEASED, None)] == rig.ends


async def test_a_broker_that_is_down_does_not_hold_up_a_cancelled_run():
    rig = HandlerRig()

    class Stopping(MemoryModel):
        async def ask(self, request):
            rig.world.journal.down = True
            raise asyncio.CancelledError

    rig.world.model = Stopping([])
    rig.new_process()
    with pytest.raises(asyncio.CancelledError):
        await rig.take()


async def test_a_run_is_released_when_the_broker_returns_before_the_worker_must_go():
    rig = HandlerRig()
    tries, returned = [], asyncio.Event()

    async def sleep(seconds):
        tries.append(seconds)
        await returned.wait()

    class Cut(MemoryModel):
        async def ask(self, request):
            rig.world.journal.down, rig.world.clock.sleep = True, sleep
            raise Unavailable("cut off")

    rig.world.model = Cut([])
    rig.new_process()
    task = asyncio.create_task(rig.take())
    await until(lambda: tries)
    task.cancel()  # the drain is over
    await until(lambda: len(tries) > 1 or task.done())
    rig.world.journal.down = False
    returned.set()
    assert Fate.RETRY is (await task).fate
    assert [(RELEASED, None)] == rig.ends
    assert not count(rig.steps).suspect


async def test_a_run_that_is_cancelled_twice_ends_without_the_broker():
    rig = HandlerRig()
    tries = []

    async def sleep(seconds):
        tries.append(seconds)
        await asyncio.Event().wait()

    class Stopping(MemoryModel):
        async def ask(self, request):
            rig.world.journal.down, rig.world.clock.sleep = True, sleep
            raise asyncio.CancelledError

    rig.world.model = Stopping([])
    rig.new_process()
    task = asyncio.create_task(rig.take())
    await until(lambda: tries)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 1 == len(tries)


# -- Failures of every call

REJECTED = GiveUp(GiveUpReason.MODEL_REJECTS_ALL, "400: max_tokens is too large")
UNANSWERED = GiveUp(GiveUpReason.MODEL_UNREACHABLE, "no answer")


async def test_in_an_outage_one_request_probes_and_no_further_one_begins():
    rules = {"patience_seconds": 1.0}
    rig = HandlerRig(World.saying(UNANSWERED), rules=rules)
    wake = asyncio.Event()

    async def sleep(seconds):
        if rig.admission.blocked:
            await wake.wait()

    rig.world.clock.sleep = sleep
    prober = asyncio.create_task(rig.take())
    await until(lambda: rig.admission.blocked)
    rig.world.clock.advance(9_000.0)  # an outage of hours escalates nobody
    asking = asyncio.create_task(rig.admission.admit(2))
    await asyncio.sleep(0)
    assert (False, True) == (asking.done(), bool(rig.admission.blocked))
    rig.world.model.then(final(answer()))
    wake.set()
    assert ACK == await prober
    assert await asking is True
    assert (Status.COMPLETED, [(RELEASED, MODEL_OUTAGE)]) == (rig.result.status, rig.ends)


async def test_a_request_that_runs_when_the_outage_begins_waits_in_hand():
    rig = HandlerRig(World.saying(UNANSWERED))
    wake = asyncio.Event()

    async def sleep(seconds):
        if rig.admission.blocked:
            await wake.wait()

    rig.world.clock.sleep = sleep
    prober, other = (
        asyncio.create_task(rig.take(body(incident(remediation_id=f"rr-{n}")), sequence=n)) for n in (1, 2)
    )
    await until(lambda: rig.admission.blocked)
    assert (False, False) == (prober.done(), other.done())
    rig.world.model.then(final(answer()))
    wake.set()
    settled = [await prober, await other]
    assert ACK in settled


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_held_request_that_nobody_waits_for_is_answered_while_the_model_is_down(is_cancelled):
    rig = HandlerRig(World.saying(UNANSWERED))
    rig.world.clock.sleep = lambda seconds: asyncio.sleep(60)
    expires_at = (rig.world.clock.now() + timedelta(hours=1)).isoformat()
    tasks = [
        asyncio.create_task(
            rig.take(body(incident(remediation_id=f"rr-{n}"), expires_at=expires_at), sequence=n)
        )
        for n in (1, 2)
    ]
    await until(lambda: len(rig.world.journal.steps) == 2 and rig.admission.blocked)
    if is_cancelled:
        rig.cancellations.keys |= {"rr-1", "rr-2"}
    else:
        rig.world.clock.advance(3_600.0)
    paid = rig.world.model.calls
    async with asyncio.timeout(10):
        assert [ACK, ACK] == await asyncio.gather(*tasks)
    assert (2, paid, True) == (
        len(rig.world.events.results),
        rig.world.model.calls,
        bool(rig.admission.blocked),
    )


async def test_a_request_that_probes_in_vain_lets_another_one_probe():
    rig = HandlerRig(World.saying(REJECTED))
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) > 5:
            rig.world.model.then(final(answer()))

    rig.world.clock.sleep = sleep
    assert ACK == await rig.take()
    assert [60.0, 66.0, NOT_NOW_SECONDS] == [round(pauses[n], 3) for n in (0, 1, 5)]
    assert {(RELEASED, "model_rejects_all")} == set(rig.ends)


async def test_pauses_grow_as_long_as_the_outage_lasts_whichever_request_probes():
    """Each probe adds to the journal of its request, which the next one reads."""
    rig = HandlerRig(World.saying(*[UNANSWERED] * 50, final(answer())))
    before = rig.world.clock.now()
    assert ACK == await rig.take()
    assert timedelta(hours=2) < rig.world.clock.now() - before
    rig.world.model.then(UNANSWERED, final(answer()))
    before = rig.world.clock.now()
    assert ACK == await rig.take(body(incident(remediation_id="rr-2")), sequence=8)
    assert timedelta(seconds=probe_pause(60.0, 1, outage=True)) == rig.world.clock.now() - before


# -- A process without file descriptors


async def test_a_lack_of_files_is_no_failure_of_the_request(logged):
    rig = HandlerRig(World.saying(OSError(errno.EMFILE, "Too many open files")), rules={"max_failures": 1})
    assert (Fate.RETRY, NOT_NOW_SECONDS) == (
        (settled := await rig.take()).fate,
        settled.after_seconds,
    )
    assert [(RELEASED, "open_files")] == rig.ends
    assert "run_released" in [entry["event"] for entry in logged]
    rig.says(final(answer()))
    assert ACK == await rig.take()


async def test_a_failed_call_for_lack_of_files_is_no_failure_of_the_model():
    failed = Retry(RetryReason.MODEL_UNAVAILABLE, "cannot connect")
    failed.__cause__ = OSError(errno.EMFILE, "Too many open files")
    rig = HandlerRig(World.saying(*[failed] * 30))
    for _ in range(4):
        assert Fate.RETRY is (await rig.take()).fate
    assert {(RELEASED, "open_files")} == set(rig.ends)
    rig.says(final(answer()))
    assert ACK == await rig.take()


async def test_while_few_files_are_left_a_run_ends_before_its_next_call():
    rig = HandlerRig(World.saying(calls(LOOK), final(answer())))
    ask = rig.world.model.ask

    async def then_few(request):
        reply = await ask(request)
        rig.admission.pause("files", "2 are left")
        return reply

    rig.world.model.ask = then_few
    assert (Fate.RETRY, NOT_NOW_SECONDS) == ((settled := await rig.take()).fate, settled.after_seconds)
    assert [(RELEASED, "open_files")] == rig.ends
    rig.says(final(answer()))  # another process
    assert ACK == await rig.take()


async def test_an_uncertain_clock_lets_no_request_expire():
    rig = HandlerRig()
    rig.world.clock.has_passed = lambda moment: False
    message = body(incident(expires_at=rig.world.clock.now() - timedelta(hours=1)))
    assert ACK == await rig.take(message)
    assert Status.COMPLETED is rig.result.status
