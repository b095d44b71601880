"""Requests whose process dies: an accident, a victim, or poison."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from schemas.analysis import Status
from schemas.failure import DeadLetterReason
from tests.fakes.desk import Desk, body
from tests.fakes.memory_model import MemoryModel, final
from tests.fakes.scripted import World, answer, incident
from worker.domain.delivery import ACK, Fate
from worker.domain.errors import Unavailable
from worker.domain.journal import BEGIN


@pytest.fixture(autouse=True)
def logged():
    """What is logged: event names and fields."""
    with structlog.testing.capture_logs() as entries:
        yield entries


class Killed(BaseException):
    """The process dies: nothing in it has a chance to react."""


class Deadly(MemoryModel):
    """A model whose answers kill the process, for some requests."""

    def __init__(self, *deadly):
        super().__init__([final(answer())])
        self.deadly, self.running, self.most = deadly, 0, 0

    async def ask(self, request):
        if any(name in request.turns[0].text for name in self.deadly):
            raise Killed
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        return await super().ask(request)


async def killed(desk, message):
    """Whether the process died of a message; then there is another one."""
    try:
        await desk.take(message)
    except Killed:
        desk.new_process()
        return True
    return False


def named(name, **fields):
    return body(incident(remediation_id=f"rr-{name}", description=f"about {name}", **fields))


async def test_a_request_that_kills_its_process_is_a_dead_letter_at_the_sixth_attempt():
    desk = Desk(World(model=Deadly("poison")))
    message = named("poison")
    assert [True] * 5 == [await killed(desk, message) for _ in range(5)]
    steps = desk.world.journal.steps["rr-poison"]
    assert [False, True, True, True, True] == [s.notes["alone"] for s in steps if s.kind == BEGIN]
    settled = await desk.take(message)
    assert (Fate.TERMINATE, "dead letter: process_deaths") == (settled.fate, settled.reason)
    assert [(DeadLetterReason.PROCESS_DEATHS, message)] == [
        (d.reason, raw) for d, raw in desk.world.events.dead_letters
    ]
    assert Status.FAILED is desk.result.status


async def test_one_death_is_an_accident():
    desk = Desk(World(model=Deadly("poison")))
    assert await killed(desk, named("poison")) is True
    desk.says(final(answer()))
    assert ACK == await desk.take(named("poison"))
    assert Status.COMPLETED is desk.result.status


async def test_what_died_with_others_runs_one_at_a_time_and_new_requests_beside_it():
    deadly = Deadly("victim")
    desk = Desk(World(model=deadly))
    for number in range(4):
        assert await killed(desk, named(f"victim-{number}")) is True
    deadly.deadly = ()
    victims = [desk.take(named(f"victim-{number}")) for number in range(4)]
    assert [ACK] * 4 == await asyncio.gather(*victims)
    assert deadly.most == 1
    fresh = [desk.take(named(f"fresh-{number}")) for number in range(4)]
    assert [ACK] * 4 == await asyncio.gather(*fresh)
    assert deadly.most == 4


async def test_an_outage_of_the_broker_is_no_death():
    desk = Desk()
    desk.says(*[Unavailable("cut off")] * 9)
    for _ in range(9):
        assert (await desk.take()).fate is Fate.RETRY
    assert [False] * 9 == [s.notes["alone"] for s in desk.steps if s.kind == BEGIN]
    desk.says(final(answer()))
    assert ACK == await desk.take()
