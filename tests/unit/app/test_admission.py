"""Who may start: the rules that concern all runs of a process."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.fixed_clock import FixedClock
from tests.fakes.handler_rig import until
from worker.app.admission import Admission


@pytest.fixture
def admission():
    return Admission(FixedClock())


class Run:
    """A run that lasts until it is let go."""

    def __init__(self, admission, message, urgency=2, *, alone=False):
        self.go, self.admitted = asyncio.Event(), None
        self.task = asyncio.create_task(self._run(admission, message, urgency, alone=alone))

    async def _run(self, admission, message, urgency, *, alone):
        async with admission.running(message, urgency, alone=alone) as self.admitted:
            if self.admitted:
                await self.go.wait()

    async def end(self):
        self.go.set()
        await self.task


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_suspect_waits_for_the_others_and_nothing_starts_beside_it(admission):
    first, second = Run(admission, 1), Run(admission, 2)
    await settle()
    suspect = Run(admission, 3, alone=True)
    await settle()
    late = Run(admission, 4)
    await settle()
    assert (True, True, None, False) == (first.admitted, second.admitted, suspect.admitted, late.admitted)
    await first.end()
    await settle()
    assert suspect.admitted is None
    await second.end()
    await settle()
    assert suspect.admitted is True
    await suspect.end()
    again = Run(admission, 4)
    await settle()
    assert again.admitted is True
    await again.end()


async def test_suspects_that_wait_go_one_after_the_other_in_their_order(admission):
    suspects = [Run(admission, n, alone=True) for n in range(3)]
    for number, suspect in enumerate(suspects):
        await settle()
        assert [True] * (number + 1) + [None] * (2 - number) == [s.admitted for s in suspects]
        assert await _closed(admission) is True
        await suspect.end()
    assert await _closed(admission) is False


async def _closed(admission, urgency=2):
    asking = asyncio.create_task(admission.admit(urgency))
    await settle()
    closed = not asking.done()
    asking.cancel()
    return closed


async def test_the_most_urgent_wait_for_a_suspect_to_step_aside_and_are_never_beside_it(admission):
    suspect = Run(admission, 1, urgency=3, alone=True)
    await settle()
    assert (False, False, True) == (
        admission.must_yield(1),
        await _closed(admission, 0),
        await _closed(admission, 1),
    )
    urgent, other = Run(admission, 2, urgency=0), Run(admission, 3, urgency=1)
    await settle()
    assert (None, False, True) == (urgent.admitted, other.admitted, admission.must_yield(1))
    assert admission.must_yield(2) is False
    await suspect.end()  # in an orderly way, to come back
    again = Run(admission, 1, urgency=3, alone=True)
    await settle()
    assert (True, None, False) == (urgent.admitted, again.admitted, admission.must_yield(1))
    await urgent.end()
    await settle()
    assert again.admitted is True
    await again.end()


async def test_an_urgent_suspect_makes_a_suspect_step_aside_and_goes_first(admission):
    suspect, other = Run(admission, 1, urgency=3, alone=True), Run(admission, 2, urgency=3, alone=True)
    await settle()
    urgent = Run(admission, 3, urgency=0, alone=True)
    await settle()
    assert (True, None, False) == (admission.must_yield(1), urgent.admitted, await _closed(admission, 0))
    await suspect.end()
    await settle()
    assert (True, None, False) == (urgent.admitted, other.admitted, admission.must_yield(3))
    await urgent.end()
    await settle()
    assert other.admitted is True
    await other.end()


async def test_urgent_requests_that_wait_are_given_back_at_the_end(admission):
    suspect = Run(admission, 1, urgency=3, alone=True)
    await settle()
    urgent = Run(admission, 2, urgency=0)
    await settle()
    admission.stop()
    await urgent.task
    assert urgent.admitted is False
    await suspect.end()


async def test_a_suspect_that_never_may_run_alone_is_given_back():
    admission = Admission(FixedClock(), patience_seconds=0.01, suspect_seconds=0.01)
    urgent = Run(admission, 1, urgency=0)
    await settle()
    suspect = Run(admission, 2, urgency=3, alone=True)
    await suspect.task
    assert (False, False) == (suspect.admitted, await _closed(admission, 3))
    await urgent.end()


async def test_urgent_requests_without_end_do_not_keep_a_suspect_out():
    admission = Admission(FixedClock(), patience_seconds=0.01)
    running = Run(admission, 1, urgency=0)
    await settle()
    suspect = Run(admission, 2, urgency=3, alone=True)
    while not admission._due:  # noqa: ASYNC110 - its patience is real time
        await asyncio.sleep(0.005)
    next_urgent = Run(admission, 3, urgency=0)
    await settle()
    assert (None, None) == (suspect.admitted, next_urgent.admitted)
    await running.end()
    await settle()
    assert (True, None) == (suspect.admitted, next_urgent.admitted)
    assert [False, False, True] == [admission.must_yield(2) for _ in range(3)]
    await suspect.end()
    await settle()
    assert (True, False) == (next_urgent.admitted, await _closed(admission, 3))
    await next_urgent.end()


async def test_a_suspect_that_did_not_have_to_wait_long_yields_at_once(admission):
    suspect = Run(admission, 1, urgency=3, alone=True)
    await settle()
    urgent = Run(admission, 2, urgency=0)
    await settle()
    assert admission.must_yield(1)
    await suspect.end()
    await urgent.end()


async def test_a_suspect_that_is_given_up_leaves_nothing_behind(admission):
    busy = Run(admission, 1)
    suspect = Run(admission, 2, alone=True)
    await settle()
    suspect.task.cancel()
    await settle()
    assert await _closed(admission) is False
    await busy.end()


async def test_a_run_that_fails_makes_room(admission):
    with pytest.raises(LookupError):
        async with admission.running(1, 2, alone=True):
            raise LookupError
    with pytest.raises(LookupError):
        async with admission.running(1, 2, alone=False):
            raise LookupError
    suspect = Run(admission, 2, alone=True)
    await settle()
    assert suspect.admitted is True
    await suspect.end()


async def test_while_blocked_only_the_one_that_is_tried_runs(admission):
    admission.block("401")
    assert await _closed(admission) is False  # nobody is tried yet: one is needed
    assert (1, 2, 0) == tuple(admission.probe_count(message) for message in (1, 1, 2))
    assert await _closed(admission) is True
    other, prober = Run(admission, 2), Run(admission, 1)
    await settle()
    assert (False, True) == (other.admitted, prober.admitted)
    await prober.end()
    admission.release(2)
    assert await _closed(admission) is True
    admission.release(1)
    assert (await _closed(admission), admission.probe_count(2)) == (False, 1)
    assert (True, False) == (admission.unblock(), admission.unblock())
    assert await _closed(admission) is False


async def test_after_stop_nothing_starts_and_no_hold_continues(admission):
    busy = Run(admission, 1)
    await settle()
    suspect = Run(admission, 2, alone=True)
    admission._clock.sleep = lambda seconds: asyncio.sleep(60)
    holding = asyncio.create_task(admission.wait_unless_stopping(30.0))
    await settle()
    admission.stop()
    assert await holding is False
    await suspect.task
    late = Run(admission, 3)
    await late.task
    assert (True, False, False) == (busy.admitted, suspect.admitted, late.admitted)
    assert await _closed(admission) is True
    await busy.end()


async def test_a_hold_lasts_as_long_as_asked(admission):
    before = admission._clock.now()
    assert await admission.wait_unless_stopping(30.0) is True
    assert 30.0 == (admission._clock.now() - before).total_seconds()


async def test_admit_returns_whether_it_had_to_wait(admission):
    assert await admission.admit(2) is False
    admission.block("401")
    admission.probe_count(1)
    asking = asyncio.create_task(admission.admit(2))
    await settle()
    admission.unblock()
    await until(asking.done)
    assert asking.result() is True


async def test_while_paused_nothing_begins_and_what_runs_continues(admission):
    running = Run(admission, 1)
    await settle()
    admission.pause("kubernetes", "401")
    admission.pause("files", "few")
    admission.pause("files", "")
    late = Run(admission, 2)
    await late.task
    assert (True, False, True) == (running.admitted, late.admitted, await _closed(admission, 0))
    admission.pause("kubernetes", "")
    assert await _closed(admission) is False
    await running.end()
