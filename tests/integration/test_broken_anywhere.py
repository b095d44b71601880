"""The process dies, or its connection breaks, at every single message that a request costs.

The promise is the same each time: one result, a whole audit chain, no journaled reply paid for again, nothing left over.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import nats
import pytest
import structlog

from schemas.analysis import AnalysisResult, Status
from schemas.subjects import Subjects
from tests.drills.breaking_wire import Break, breaking_wire
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.handler_rig import body
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import LOOK, World, answer, chosen, tokens
from tests.nats_servers import Case, one_server
from tests.waiting import until
from worker.adapters.nats.journal import NatsJournal
from worker.adapters.nats.journal_format import INLINE_BYTES, read_head
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.adapters.nats.publish import NatsEvents, NatsResults
from worker.adapters.nats.pump import LaneConsumer, Pump
from worker.adapters.nats.stored import NatsCancellations, NatsRequests
from worker.adapters.nats.stream import FencedStream
from worker.app.admission import Admission
from worker.app.handler import Ports, RequestHandler
from worker.app.metrics import WorkerMetrics
from worker.app.operations import Operations
from worker.app.settings.groups import WorkerSettings
from worker.domain.audit.check import AuditCheck
from worker.domain.audit.findings import AuditFacts, StoredResult
from worker.domain.values.conversation import Reply
from worker.domain.values.step_kinds import DEAD_LETTERED, FINISHED, LLM

ACK_WAIT_SECONDS = 1.0
AT_ONCE = 20
PAUSE_AFTER_DEATHS_SECONDS = 1_000.0
THAWED_SECONDS = 1.5
LATE_SECONDS = 0.2
"""For what a worker does after it has settled the message."""
CALLS = 3


@pytest.fixture(autouse=True)
def logged():
    """What is logged, not printed: tracebacks take seconds."""
    with structlog.testing.capture_logs() as entries:
        yield entries


def in_three_calls(request, number, thinking=""):
    """Looks once, gives an answer that is rejected, then a good one: by what was said, not by how often it is asked."""
    said = sum(isinstance(turn, Reply) for turn in request.turns)
    replies = [calls(LOOK, text=thinking), final(chosen(workflow_id="invented-v1")), final(answer())]
    return replies[min(said, 2)]


def fails(request, number):
    raise KeyError("boom")


class PassingClock(FixedClock):
    """Its wall time only moves when a test moves it."""

    def monotonic(self):
        return time.monotonic()

    async def sleep(self, seconds):
        await asyncio.sleep(0.05)
        await super().sleep(seconds)


@dataclass
class Scene:
    """A request under a prefix of its own, and the workers that serve it."""

    case: Case
    world: World
    settings: Mapping[str, Any] = field(default_factory=dict)
    new_token: Callable[[], str] = field(default_factory=tokens)

    @property
    def subjects(self):
        return self.case.subjects

    def handler(self, nc):
        subjects, clock = self.subjects, self.world.clock
        ports = Ports(
            events=NatsEvents(partial(FencedStream, nc), subjects),
            results=NatsResults(FencedStream(nc, subjects.results_stream), subjects),
            journal=NatsJournal(FencedStream(nc, f"KV_{subjects.journal_bucket}"), nc),
            requests=NatsRequests(FencedStream(nc, subjects.requests_stream), subjects),
            cancellations=NatsCancellations(FencedStream(nc, f"KV_{subjects.cancel_bucket}")),
            clock=clock,
        )
        return RequestHandler(
            ports,
            analysis=self.world.analysis(),
            settings=WorkerSettings(**self.settings),
            subjects=subjects,
            metrics=WorkerMetrics(),
            admission=Admission(clock),
            new_token=self.new_token,
            jitter=lambda: 0.5,
        )

    @asynccontextmanager
    async def worker(self, url, *, reconnects=True):
        """A worker that says nothing at its end, as if its process was killed."""

        async def quiet(error):
            pass

        nc = await nats.connect(
            url,
            allow_reconnect=reconnects,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.05,
            connect_timeout=60,
            error_cb=quiet,
        )
        handler, stream = self.handler(nc), self.subjects.requests_stream
        pump = partial(Pump, ack_wait_seconds=ACK_WAIT_SECONDS, pull_seconds=1.0, grace_seconds=0.1)
        pumps = [pump(nc, stream, LaneConsumer(lane, (), 1), handler) for lane in ("p0", "p2")]
        try:
            await asyncio.gather(*(pump.start() for pump in pumps))
            yield
        finally:
            while tasks := [t for p in pumps for t in (*p._tasks, *p.loops.values()) if not t.done()]:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=1)
            await nc.close()

    async def settled(self):
        return await self.case.count(self.subjects.requests_stream) == 0

    async def served(self, url):
        """Served by a worker until nothing is queued."""
        async with self.worker(url):
            await until(self.settled)
            await asyncio.sleep(LATE_SECONDS)

    async def served_or_broken(self, wire):
        """The same, but the worker dies when the wire breaks."""
        async with self.worker(wire.url, reconnects=False):
            waits = [asyncio.create_task(wire.broken.wait()), asyncio.create_task(until(self.settled))]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        self.world.clock.advance(PAUSE_AFTER_DEATHS_SECONDS)

    async def served_by_two(self, wire, url):
        """Another worker comes when the first one freezes; both go on until nothing is queued and the first one is back."""
        async with self.worker(wire.url):
            await asyncio.wait(
                {asyncio.create_task(wire.broken.wait()), asyncio.create_task(until(self.settled))},
                return_when=asyncio.FIRST_COMPLETED,
            )
            async with self.worker(url):
                await until(self.settled)
                await wire.flows.wait()
                await asyncio.sleep(THAWED_SECONDS)


# -- What happens to the request


async def published(scene):
    await scene.case.js.publish(scene.subjects.request("incident"), body())


async def published_under_two_lanes(scene):
    await published(scene)
    await scene.case.js.publish(f"{scene.subjects.request('incident')}.p0", body() + b"\n")


async def junk_published(scene):
    await scene.case.js.publish(scene.subjects.request("incident"), b"no request")


async def published_and_cancelled(scene):
    await published(scene)
    await Operations(scene.case.nc, scene.subjects).cancel("rr-1", at=scene.world.clock.now(), token="t")


async def replayed(scene):
    """Sent again after it has become a dead letter."""
    script, scene.world.model, scene.settings = scene.world.model, MemoryModel(fails), ONCE
    await published(scene)
    await scene.served(scene.case.servers[0].url)
    scene.world.clock.advance(60.0)
    scene.world.model = script
    await Operations(scene.case.nc, scene.subjects).replay(1)


@dataclass(frozen=True)
class Scenario:
    """A request, and what must be there in the end.

    `paid`: the calls that it costs, `outstanding`: how many may be on their way beside any message, `kept`: what is left of
    its journal.
    """

    begin: Callable[[Scene], Awaitable[None]] = published
    script: Any = in_three_calls
    settings: Mapping[str, Any] = field(default_factory=dict)
    statuses: tuple[Status, ...] = (Status.COMPLETED,)
    paid: int = CALLS
    outstanding: int = 0
    letters: int = 0
    rejections: int = 1
    kept: tuple[str, ...] | None = (FINISHED,)


LARGE = random.Random(0).randbytes(INLINE_BYTES).hex()
ONCE = {"max_failures": 1}
DEAD = {"script": fails, "settings": ONCE, "paid": 1, "letters": 1, "rejections": 0, "kept": None}
SCENARIOS = {
    "answered": Scenario(),
    "large steps": Scenario(script=partial(in_three_calls, thinking=LARGE)),
    "dead letter": Scenario(**DEAD, statuses=(Status.FAILED,)),
    "replayed": Scenario(begin=replayed, statuses=(Status.FAILED, Status.COMPLETED)),
    "replayed in vain": Scenario(begin=replayed, **DEAD, statuses=(Status.FAILED, Status.FAILED)),
    "under two lanes": Scenario(begin=published_under_two_lanes, outstanding=1),
    "cancelled": Scenario(
        begin=published_and_cancelled, statuses=(Status.NEEDS_HUMAN_REVIEW,), paid=0, rejections=0
    ),
    "rejected": Scenario(begin=junk_published, statuses=(), paid=0, kept=()),
}


# -- What is there in the end


def step_kind(sent):
    """The kind of a journal step that a client sent; empty for any other message."""
    if not (sent.subject.startswith("$KV.") and "_JOURNAL." in sent.subject):
        return ""
    return read_head(sent.payload.partition(b"\r\n\r\n")[2]).kind


def is_of_object(sent):
    """Whether it belongs to the data of a large step, in the object store."""
    return sent.subject.startswith("$O.") or ".OBJ_" in sent.subject


def holds_a_reply(sent):
    """Whether a reply of the model is lost with it: it was paid for, and is in no journal yet."""
    return step_kind(sent) in {LLM, DEAD_LETTERED} or is_of_object(sent)


async def problems_of(scene, scenario, lost_replies, *, is_kept):
    """What does not hold: empty if everything does."""
    subjects, read, prefix = scene.subjects, scene.case.messages, scene.subjects.prefix
    results = await read(subjects.results_stream, f"{prefix}.result.>")
    letters = await read(subjects.dlq_stream, subjects.dead_letter(">"))
    rejections = await read(subjects.validation_stream, f"{prefix}.validation.>")
    journal = await read(f"KV_{subjects.journal_bucket}", f"$KV.{subjects.journal_bucket}.>")
    kinds = tuple(read_head(message.data).kind for message in journal)
    statuses = tuple(AnalysisResult.model_validate_json(message.data).status for message in results)
    found = {
        "statuses": (statuses, scenario.statuses),
        "letters": (len(letters), scenario.letters),
        "rejections": (len(rejections), scenario.rejections),
        "journal": (kinds, scenario.kept if not is_kept and scenario.kept is not None else kinds),
        "paid": (scene.world.model.calls - lost_replies > scenario.paid, False),
        **await audit_of(scene, results),
    }
    return {what: seen for what, seen in found.items() if seen[0] != seen[1]}


async def audit_of(scene, results):
    check, subjects = AuditCheck(), scene.subjects
    events = await scene.case.messages(subjects.audit_stream, f"{subjects.prefix}.audit.>")
    for position, event in enumerate(events, start=1):
        check.add(position, event.data)
    facts = {}
    for message in results:
        failed = AnalysisResult.model_validate_json(message.data).status is Status.FAILED
        facts["rr-1"] = StoredResult(hashlib.sha256(message.data).hexdigest(), failed)
    report = check.finish(AuditFacts(scene.world.clock.now(), facts))
    return {
        "findings": (list(report.findings), []),
        "chains": ({s.name: n for s, n in report.chains.items()}, {"COMPLETE": 1} if results else {}),
        "published twice": (report.republished, 0),
        "first event": (bool(events) and b'"request.accepted"' in events[0].data, bool(results)),
    }


async def played(server, prefix, scenario, *breaks):
    """One request with workers that break one after the other, then one that does not.

    Each break is the number of a message, how, and whether the worker dies. Returns what does not hold, and what the
    first worker sent.
    """
    subjects = Subjects(prefix)
    async with AsyncExitStack() as stack:
        nc = await nats.connect(server.url)
        stack.push_async_callback(nc.close)
        await provision(nc, wanted(subjects, ack_wait_seconds=ACK_WAIT_SECONDS))
        world = World(model=MemoryModel(scenario.script), clock=PassingClock())
        scene = Scene(Case([server], nc, subjects), world, scenario.settings)
        await scenario.begin(scene)
        wires = []
        for at, how, dies in breaks:
            async with breaking_wire(server.url, at=at, how=how, for_good=dies) as wire:
                if how is Break.FROZEN:
                    await scene.served_by_two(wire, server.url)
                else:
                    await (scene.served_or_broken(wire) if dies else scene.served(wire.url))
            wires.append(wire)
        await scene.served(server.url)
        where = [w.sent[w.at - 1] for w in wires if w.broken.is_set()]
        lost = sum(
            max(holds_a_reply(s), scenario.outstanding)
            for s, (_, how, dies) in zip(where, breaks, strict=False)
            if dies or how is Break.FROZEN
        )
        is_kept = any(is_of_object(s) for s in where)
        problems = await problems_of(scene, scenario, lost, is_kept=is_kept)
        return problems and {**problems, "at": [(s.subject, step_kind(s)) for s in where]}, wires[0].sent


async def wrong_of(server, scenario, plans):
    """What does not hold, by plan. Some are played at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number, plan):
        async with slots:
            return (await played(server, f"s{number}", scenario, *plan))[0]

    found = await asyncio.gather(*(one(n, plan) for n, plan in enumerate(plans)))
    return {str(plan): problems for plan, problems in zip(plans, found, strict=True) if problems}


async def messages_of(server, scenario):
    """How many messages it takes when nothing breaks."""
    problems, sent = await played(server, "plain", scenario, (0, Break.BEFORE, False))
    assert not problems
    return range(1, len(sent) + 1)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_process_that_is_killed_at_any_message_loses_nothing(tmp_path, scenario):
    async with one_server(tmp_path) as server:
        plans = [[(at, Break.BEFORE, True)] for at in await messages_of(server, scenario)]
        plans.append([(len(plans), Break.AFTER, True)])
        assert {} == await wrong_of(server, scenario, plans)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_connection_that_breaks_before_an_answer_loses_nothing(tmp_path, scenario):
    """The server has the message, and its answer is lost."""
    async with one_server(tmp_path) as server:
        plans = [[(at, Break.AFTER, False)] for at in await messages_of(server, scenario)]
        assert {} == await wrong_of(server, scenario, plans)


async def test_a_connection_that_breaks_before_a_message_loses_nothing(tmp_path):
    scenario = Scenario()
    async with one_server(tmp_path) as server:
        plans = [[(at, Break.BEFORE, False)] for at in await messages_of(server, scenario)]
        assert {} == await wrong_of(server, scenario, plans)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_worker_that_freezes_at_any_message_loses_nothing(tmp_path, scenario):
    """Its messages are redelivered meanwhile, and it goes on as if nothing had happened."""
    async with one_server(tmp_path) as server:
        plans = [[(at, Break.FROZEN, False)] for at in await messages_of(server, scenario)]
        assert {} == await wrong_of(server, scenario, plans)
