from __future__ import annotations

import asyncio

import pytest

from worker.domain.investigation.models.gate import ModelGate


class Calls:
    """Calls that hold their slots until the test lets them go."""

    def __init__(self, gate):
        self.gate, self.order, self.running, self.most = gate, [], {}, 0
        self.tasks = {}

    async def start(self, name, urgency=2):
        self.tasks[name] = asyncio.create_task(self._run(name, urgency))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _run(self, name, urgency):
        async with self.gate.slot(urgency):
            self.order.append(name)
            self.running[name] = asyncio.Event()
            self.most = max(self.most, len(self.running))
            try:
                await self.running[name].wait()
            finally:
                del self.running[name]

    async def end(self, name):
        self.running[name].set()
        await self.tasks[name]
        await asyncio.sleep(0)


async def test_no_more_than_the_slots_are_out():
    calls = Calls(ModelGate(1))
    for name in "abc":
        await calls.start(name)
    assert calls.order == ["a"]
    for name in "abc":
        await calls.end(name)
    assert (["a", "b", "c"], 1) == (calls.order, calls.most)


async def test_the_most_urgent_goes_first_whoever_came_first():
    calls = Calls(ModelGate(1))
    await calls.start("running")
    for name, urgency in [("p3", 3), ("p2", 2), ("p0", 0), ("p2 again", 2)]:
        await calls.start(name, urgency)
    for name in ("running", "p0", "p2", "p2 again", "p3"):
        await calls.end(name)
    assert calls.order == ["running", "p0", "p2", "p2 again", "p3"]


async def test_a_part_is_kept_for_the_most_urgent():
    calls = Calls(ModelGate(4))
    for number in range(6):
        await calls.start(f"p3 {number}", 3)
    assert len(calls.running) == 3
    await calls.start("p0", 0)
    assert calls.order[-1] == "p0"
    await calls.start("second p0", 0)
    assert len(calls.running) == 4
    await calls.end("p3 0")
    assert calls.order[-1] == "second p0"


@pytest.mark.parametrize("moment", ["waiting", "handed out", "running"])
async def test_a_call_that_is_cancelled_leaves_its_slot(moment):
    calls = Calls(ModelGate(1))
    await calls.start("first")
    await calls.start("cancelled")
    if moment == "running":
        await calls.end("first")
    elif moment == "handed out":
        calls.running["first"].set()
        await calls.tasks["first"]
    calls.tasks["cancelled"].cancel()
    await asyncio.gather(calls.tasks["cancelled"], return_exceptions=True)
    if moment == "waiting":
        await calls.end("first")
    await calls.start("last")
    assert "last" in calls.running
    await calls.end("last")
