"""Suspects in a steady flow of other requests: how long each waits, and everybody else, in simulated time."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from tests.fakes.fixed_clock import FixedClock
from tests.fakes.virtual_time import run_quickly
from worker.app.admission import Admission
from worker.domain.values.delays import SUSPECTS_WAIT_SECONDS

CALL, RUN = 5.0, 20.0
CALLS = 5
"""What each suspect has to do."""
P0, P3 = 0, 3


@dataclass
class Flow:
    """One process. Every lane gets more than it can take, from the start to the end."""

    admission: Admission = field(default_factory=lambda: Admission(FixedClock()))
    running: set[int] = field(default_factory=set)
    waits: dict[int, list[float]] = field(default_factory=lambda: {P0: [], P3: []})
    starts: dict[int, list[float]] = field(default_factory=lambda: {P0: [], P3: []})
    done: dict[int, float] = field(default_factory=dict)
    _numbers: int = 1_000

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def lane(self, urgency: int) -> None:
        """One slot of a lane: as the pump and the handler do it."""
        while True:
            await self.admission.admit(urgency)
            self._numbers += 1
            message, came = self._numbers, self.now()
            async with self.admission.running(message, urgency, alone=False) as admitted:
                if admitted:
                    self.waits[urgency].append(self.now() - came)
                    self.starts[urgency].append(self.now())
                    assert all(other >= 1_000 for other in self.running)
                    self.running.add(message)
                    await asyncio.sleep(RUN)
                    self.running.discard(message)
            if not admitted:
                await asyncio.sleep(1.0)

    async def suspect(self, message: int, urgency: int = P3) -> None:
        """As the handler runs it: asked before the first look and before each call, in hand until it is done."""
        left = CALLS
        while left:
            async with self.admission.running(message, urgency, alone=True) as admitted:
                if admitted:
                    assert not self.running
                    self.running.add(message)
                    aside = self.admission.must_yield(message)
                    while left and not aside and not self.admission.must_yield(message):
                        await asyncio.sleep(CALL)
                        left -= 1
                    self.running.discard(message)
            await asyncio.sleep(0.0 if admitted else 1.0)
        self.done[message] = self.now()


async def play(suspects, *, urgency=P3, urgent_slots=2, other_slots=4):
    flow = Flow()
    slots = [asyncio.create_task(flow.lane(P0)) for _ in range(urgent_slots)]
    slots += [asyncio.create_task(flow.lane(P3)) for _ in range(other_slots)]
    for _ in slots:
        await asyncio.sleep(RUN / 2 / len(slots))  # so that they do not all end together
    began = flow.now()
    await asyncio.gather(*(flow.suspect(message, urgency) for message in range(suspects)))
    took = flow.now() - began
    await asyncio.sleep(5 * RUN)
    for slot in slots:
        slot.cancel()
    for slot in slots:
        with contextlib.suppress(asyncio.CancelledError):
            await slot
    return flow, took


@pytest.mark.parametrize("suspects", [1, 4, 16])
def test_urgent_requests_without_end_wait_for_one_call_and_the_other_lanes_continue(suspects):
    flow, took = run_quickly(play(suspects))
    assert suspects == len(flow.done)
    assert (
        max(flow.waits[P0]) <= RUN + CALL
    )  # for who was there before, and one call; however many suspects there are
    starts = flow.starts[P3]
    assert max(after - before for before, after in pairwise(starts)) <= 2 * RUN + CALL
    assert took <= suspects * CALLS * (SUSPECTS_WAIT_SECONDS + 2 * RUN + CALL)


@pytest.mark.parametrize("suspects", [1, 4])
def test_where_nothing_is_urgent_the_suspects_go_at_once_and_the_rest_waits_for_them(suspects):
    flow, took = run_quickly(play(suspects, urgent_slots=0))
    assert took <= RUN + suspects * CALLS * CALL
    assert not [at for at in flow.starts[P3] if RUN < at < max(flow.done.values())]


@pytest.mark.parametrize("suspects", [1, 8])
def test_p0_requests_wait_for_one_call_of_p0_suspects_too(suspects):
    flow, _ = run_quickly(play(suspects, urgency=P0))
    assert suspects == len(flow.done)
    assert max(flow.waits[P0]) <= RUN + CALL
