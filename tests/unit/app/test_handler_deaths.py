"""Requests whose process dies: an accident, a victim, or poison."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from schemas.analysis import AnalysisResult, Status
from schemas.failure import DeadLetterReason
from tests.fakes.handler_rig import HandlerRig, body, until
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import LOOK, World, answer, incident
from worker.domain.journal.steps import count
from worker.domain.values.delays import DEATH_PAUSES_SECONDS
from worker.domain.values.delivery import ACK, LET_GO, Fate
from worker.domain.values.errors import Unavailable
from worker.domain.values.step_kinds import BEGIN, END


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
        self.deadly, self.running, self.most, self.hold = deadly, 0, 0, asyncio.Event()
        self.hold.set()

    async def ask(self, request):
        if any(name in request.turns[0].text for name in self.deadly):
            raise Killed
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.01)
        await self.hold.wait()
        self.running -= 1
        return await super().ask(request)


async def killed(rig, message, **delivery):
    """Whether the process died of a message; then there is another one. No earlier death makes it wait."""
    rig.world.clock.advance(DEATH_PAUSES_SECONDS[-1])
    try:
        await rig.take(message, **delivery)
    except Killed:
        rig.new_process()
        return True
    return False


def named(name, **fields):
    return body(incident(remediation_id=f"rr-{name}", description=f"about {name}", **fields))


async def test_a_request_that_kills_its_process_is_a_dead_letter_after_three_deaths_alone():
    rig = HandlerRig(World(model=Deadly("poison")))
    message = named("poison")
    assert [True] * 4 == [await killed(rig, message) for _ in range(4)]
    steps = rig.world.journal.steps["rr-poison"]
    assert [False, True, True, True] == [s.notes["alone"] for s in steps if s.kind == BEGIN]
    settled = await rig.take(message)
    assert (Fate.TERMINATE, "dead letter: process_deaths") == (settled.fate, settled.reason)
    assert [(DeadLetterReason.PROCESS_DEATHS, message)] == [
        (d.reason, raw) for d, raw in rig.world.events.dead_letters
    ]
    assert Status.FAILED is rig.result.status
    failed = rig.world.events.audits[-1].payload
    assert ("process_deaths", "claim") == (failed.reason, failed.phase)


async def test_a_process_that_dies_while_it_buries_buries_once():
    rig = HandlerRig(World(model=Deadly("poison")))
    message = named("poison")
    for _ in range(4):
        await killed(rig, message)
    publish, dies = rig.world.events.dead_letter, [True]

    async def dying(letter, raw):
        if dies.pop():
            dies.append(False)
            raise Killed
        dies.append(False)
        await publish(letter, raw)

    rig.world.events.dead_letter = dying
    assert await killed(rig, message) is True
    first = rig.result
    rig.world.clock.advance(5.0)
    settled = await rig.take(message)
    assert "dead letter: process_deaths" == settled.reason
    assert first == rig.result
    [(letter, _)] = rig.world.events.dead_letters
    assert ("the process died 4 times while analysing this request", 5) == (letter.error, letter.deliveries)
    assert 1 == sum(event.event_type == "response.failed" for event in rig.world.events.audits)


async def test_after_a_death_in_isolation_a_request_waits_in_the_queue_for_ever_longer():
    rig = HandlerRig(World(model=Deadly("poison")))
    message, waits = named("poison"), []
    await killed(rig, message)
    for _ in range(3):
        await killed(rig, message)  # alone
        rig.world.clock.advance(1.0)
        settled = await rig.take(message)
        waits.append(settled.after_seconds)
    assert [pause - 1.0 for pause in DEATH_PAUSES_SECONDS] == waits[:2]
    assert (Fate.TERMINATE, 0.0) == (settled.fate, waits[2])  # of the last one it is a dead letter


@pytest.mark.parametrize("deliveries", [1, 2], ids=["frozen before its run", "consumer created anew"])
async def test_a_delivery_that_is_no_later_one_leaves_a_living_run_alone(deliveries):
    deadly = Deadly()
    rig = HandlerRig(World(model=deadly))
    deadly.hold.clear()
    living = asyncio.create_task(rig.take(deliveries=2))
    await until(lambda: deadly.running)
    rig.new_process()
    assert LET_GO == await rig.take(deliveries=deliveries)
    deadly.hold.set()
    assert ACK == await living
    assert 1 == deadly.calls


async def test_a_message_that_is_counted_anew_is_served_once_the_last_run_has_ended():
    """A consumer that was created anew counts its deliveries from 1."""
    rig = HandlerRig()
    rig.says(Unavailable("cut off"))
    assert (await rig.take(deliveries=9)).fate is Fate.RETRY
    rig.says(final(answer()))
    assert ACK == await rig.take(deliveries=1)


async def test_one_death_is_an_accident():
    rig = HandlerRig(World(model=Deadly("poison")))
    assert await killed(rig, named("poison")) is True
    rig.says(final(answer()))
    assert ACK == await rig.take(named("poison"))
    assert Status.COMPLETED is rig.result.status


async def test_what_died_together_runs_alone_and_everybody_gets_a_result_but_the_one_that_kills():
    deadly = Deadly("poison")
    rig = HandlerRig(World(model=deadly))
    names = ["a", "b", "poison", "c"]
    waiting = dict(enumerate(map(named, names), 1))
    for _ in range(10):
        rig.world.clock.advance(DEATH_PAUSES_SECONDS[-1])
        takes = [asyncio.ensure_future(rig.take(message, sequence=n)) for n, message in waiting.items()]
        done, pending = await asyncio.wait(takes, return_when=asyncio.FIRST_EXCEPTION)
        died = any(isinstance(take.exception(), Killed) for take in done)
        for take in pending:  # they die with the process: nothing of theirs runs any more
            take.get_coro().close() if not take.cancel() else None
        settled = {n: t for n, t in zip(waiting, takes, strict=True) if t in done and not t.exception()}
        waiting = {n: m for n, m in waiting.items() if not (n in settled and _gone(settled[n].result()))}
        if not died and not waiting:
            break
        rig.new_process()
    assert [(DeadLetterReason.PROCESS_DEATHS, named("poison"))] == [
        (d.reason, raw) for d, raw in rig.world.events.dead_letters
    ]
    statuses = {
        key: AnalysisResult.model_validate_json(b).status for (_, key), b in rig.world.events.results.items()
    }
    assert {"rr-a", "rr-b", "rr-c", "rr-poison"} == set(statuses)
    assert Status.FAILED is statuses.pop("rr-poison")
    assert {Status.COMPLETED} == set(statuses.values())


def _gone(settled):
    return settled.fate in {Fate.DONE, Fate.TERMINATE}


async def test_suspects_run_alone_and_nothing_new_is_taken_meanwhile():
    deadly = Deadly("victim")
    rig = HandlerRig(World(model=deadly))
    for number in range(4):
        assert await killed(rig, named(f"victim-{number}"), sequence=number) is True
    deadly.deadly = ()
    fresh = asyncio.create_task(rig.take(named("fresh"), sequence=10))
    await until(lambda: deadly.running)
    victims = [asyncio.create_task(rig.take(named(f"victim-{n}"), sequence=n)) for n in range(4)]
    asking = asyncio.create_task(rig.admission.admit(2))
    await asyncio.sleep(0)
    late = await rig.take(named("late"), sequence=11)
    assert (Fate.RETRY, False) == (late.fate, asking.done())
    assert [ACK] * 5 == await asyncio.gather(fresh, *victims)
    assert deadly.most == 1
    assert await asking is True
    others = [rig.take(named(f"other-{number}"), sequence=20 + number) for number in range(4)]
    assert [ACK] * 4 == await asyncio.gather(*others)
    assert deadly.most == 4


class Unhurried(MemoryModel):
    """Looks once before it answers. Calls about `slow` wait for `hold`; their begins and ends are told."""

    def __init__(self, slow):
        super().__init__(lambda request, _: calls(LOOK) if len(request.turns) == 1 else final(answer()))
        self.slow, self.hold, self.told = slow, asyncio.Event(), []

    async def ask(self, request):
        opening = request.turns[0].text
        name = "slow" if self.slow in opening else "urgent"
        self.told.append(f"{name} asks")
        if name == "slow":
            await self.hold.wait()
        else:
            await asyncio.sleep(0)
        self.told.append(f"{name} hears")
        return await super().ask(request)


async def test_an_urgent_request_waits_for_the_call_of_a_suspect_and_not_for_its_run():
    rig = HandlerRig(World(model=Deadly("victim")))
    assert await killed(rig, named("victim"), durable="p3") is True
    model = rig.world.model = Unhurried("victim")
    rig.new_process()
    suspect = asyncio.create_task(rig.take(named("victim"), durable="p3"))
    await until(lambda: model.told)
    urgent = asyncio.create_task(rig.take(named("urgent"), sequence=10, durable="p0"))
    await until(lambda: rig.admission.must_yield(rig.message))
    assert ["slow asks"] == model.told
    model.hold.set()
    assert [ACK, ACK] == await asyncio.gather(urgent, suspect)
    expected = ["slow asks", "slow hears", *["urgent asks", "urgent hears"] * 2, "slow asks", "slow hears"]
    assert expected == model.told  # nothing is beside the suspect, and nothing of its is paid for twice
    steps = rig.world.journal.written["rr-victim"]
    assert [(False, ""), (True, "urgent_request"), (True, "")] == [
        (s.notes["alone"], next((e.notes["reason"] for e in steps if e.kind == END and e.run == s.run), ""))
        for s in steps
        if s.kind == BEGIN
    ]


async def test_a_suspect_that_was_preempted_and_then_kills_has_died_alone():
    rig = HandlerRig(World(model=Deadly("victim")))
    await killed(rig, named("victim"), durable="p3")
    model = rig.world.model = Unhurried("victim")
    rig.new_process()
    suspect = asyncio.create_task(rig.take(named("victim"), durable="p3"))
    await until(lambda: model.told)
    urgent = asyncio.create_task(rig.take(named("urgent"), sequence=10, durable="p0"))
    await until(lambda: rig.admission.must_yield(rig.message))
    model.hold.set()
    assert ACK == await urgent
    await suspect
    steps = rig.world.journal.written["rr-victim"]
    last = max(n for n, step in enumerate(steps) if step.kind == BEGIN)
    counts = count(steps[: last + 1])
    assert (2, 1, True) == (counts.deaths, counts.deaths_alone, counts.suspect)


async def test_a_suspect_that_waits_for_its_turn_is_given_back_when_the_worker_stops():
    deadly = Deadly("victim")
    rig = HandlerRig(World(model=deadly))
    assert await killed(rig, named("victim")) is True
    deadly.deadly = ()
    deadly.hold = asyncio.Event()
    busy = asyncio.create_task(rig.take(named("busy"), sequence=10))
    await until(lambda: deadly.running)
    suspect = asyncio.create_task(rig.take(named("victim")))
    await asyncio.sleep(0)
    rig.admission.stop()
    assert (await suspect).fate is Fate.RETRY
    deadly.hold.set()
    assert ACK == await busy


async def test_a_finished_result_is_published_without_waiting_for_a_turn():
    rig = HandlerRig()
    store, dies = rig.world.events.result, [True]

    async def dying(result, *, replace_failed=False):
        if dies.pop():
            dies.append(False)
            raise Killed
        return await store(result)

    rig.world.events.result = dying
    assert await killed(rig, body()) is True
    rig.says(Killed())
    assert ACK == await rig.take()
    assert [False, False] == [s.notes["alone"] for s in rig.steps if s.kind == BEGIN]


async def test_an_outage_of_the_broker_is_no_death():
    rig = HandlerRig()
    rig.says(*[Unavailable("cut off")] * 9)
    for _ in range(9):
        assert (await rig.take()).fate is Fate.RETRY
    assert [False] * 9 == [s.notes["alone"] for s in rig.steps if s.kind == BEGIN]
    rig.says(final(answer()))
    assert ACK == await rig.take()
