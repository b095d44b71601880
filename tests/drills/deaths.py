"""Drills in which worker processes die, freeze or are asked to stop."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Sequence

from schemas.subjects import Lane
from tests.drills.accounts import interrupted, stream_messages, until
from tests.drills.proxy import wire
from tests.drills.stage import Ground, Stage, stage
from tests.drills.table import Outcome, lost_and_twice
from tests.drills.workers import Worker
from worker.domain.journal.steps import count

LANES = list(Lane)


async def many_incidents(ground: Ground, *, incidents: int = 1_000, workers: int = 4) -> Outcome:
    """Load over all lanes, nothing goes wrong."""
    async with stage(ground, "many", slots=4) as s:
        await s.plan(latency_seconds=0.2)
        await s.start(workers)
        began = time.monotonic()
        keys = [f"many-{n}" for n in range(incidents)]
        await asyncio.gather(*(s.publish_all(keys[n::4], lane) for n, lane in enumerate(LANES)))
        settled = await s.settled(incidents, 300)
        took = time.monotonic() - began
        account = await s.account()
    repaid = account.journaled_paid_again + account.outstanding_paid_again
    return Outcome(
        settled and account.clean and not repaid and not account.dead,
        f"{lost_and_twice(account)}, calls repeated {repaid}; {incidents / took:.0f} incidents/s",
    )


async def killed_workers(
    ground: Ground,
    *,
    incidents: int = 500,
    kills: int = 20,
    workers: int = 4,
    latency_seconds: float = 0.6,
    ack_wait_seconds: float = 4.0,
) -> Outcome:
    """SIGKILL a random worker again and again; it is started again each time, as a Deployment would."""
    async with stage(ground, "kills", ack_wait_seconds=ack_wait_seconds) as s:
        await s.plan(latency_seconds=latency_seconds, looks=2)
        await s.start(workers)
        await s.publish_all(f"kill-{n}" for n in range(incidents))
        chosen, in_flight = random.Random(7), 0
        for number in range(kills):
            victim = await _busy_worker(s, chosen)
            if victim is None:
                break  # all work is done: not all kills were possible
            in_flight += await _running(victim)
            await victim.kill()
            await victim.start()
            s.tell(f"kill {number + 1} of {kills}")
            await asyncio.sleep(chosen.uniform(0.5, 1.5))
        done = number + 1 if victim else number
        settled = await s.settled(incidents, 300)
        account = await s.account()
    return Outcome(
        settled and account.clean and done == kills and not account.dead,
        f"{lost_and_twice(account)}, journaled steps paid again {account.journaled_paid_again}, outstanding calls "
        f"paid again {account.outstanding_paid_again} for {in_flight} runs in flight; {done} kills",
    )


async def _busy_worker(s: Stage, chosen: random.Random) -> Worker | None:
    """A worker that has something in flight; None when the queue is empty."""
    while await s.count(s.subjects.requests_stream):
        for worker in chosen.sample(s.workers, len(s.workers)):
            if await worker.readiness() == 200 and await _running(worker):
                return worker
        await asyncio.sleep(0.1)
    return None


async def _running(worker: Worker) -> int:
    return int((await worker.metrics()).get("rca_running", 0))


async def crash_before_ack(ground: Ground) -> Outcome:
    """The result is stored and confirmed, the ack does not leave the worker any more."""
    async with stage(ground, "before-ack", ack_wait_seconds=2.0) as s:
        async with wire(s.servers[0].url, stop_at=b"+ACK") as line:
            [first] = await s.start(1, RCA_NATS__SERVERS=line.url)
            await s.publish("ack-0")
            await asyncio.wait_for(line.stopped.wait(), 60)
            await first.kill()
        stored, queued = await s.count(s.subjects.results_stream), await s.count(s.subjects.requests_stream)
        calls = len(s.calls())
        await s.start(1)
        settled = await s.settled(1, 60)
        account, extra = await s.account(), len(s.calls()) - calls
    return Outcome(
        settled and (stored, queued) == (1, 1) and account.clean and not extra,
        f"extra LLM calls {extra}, results {stored}, not acked {queued}, {lost_and_twice(account)}",
    )


async def frozen_worker(ground: Ground, *, incidents: int = 4, ack_wait_seconds: float = 2.0) -> Outcome:
    """A worker that is frozen in a call, and one that is frozen while it writes its result; both wake up too late."""
    async with stage(ground, "frozen", ack_wait_seconds=ack_wait_seconds, slots=incidents + 1) as s:
        keys = [f"frozen-{n}" for n in range(incidents)]
        await s.plan(holds=dict.fromkeys(keys, (1, 5 * ack_wait_seconds)))
        async with wire(s.servers[0].url, stop_at=b"PUB rca.result.") as line:
            [caller] = await s.start(1)
            await s.publish_all(keys)
            await until(lambda: sum(call.step == 1 for call in s.calls()) == incidents, 30)
            caller.send(signal.SIGSTOP)
            [writer] = await s.start(1, RCA_NATS__SERVERS=line.url)
            await s.publish("frozen-writer")
            await asyncio.wait_for(line.stopped.wait(), 60)
            writer.send(signal.SIGSTOP)
            await s.start(1)
            await asyncio.sleep(3 * ack_wait_seconds)
            settled = await s.settled(incidents + 1, 60)
            calls = len(s.calls())
            for worker in (caller, writer):
                worker.send(signal.SIGCONT)
            line.released.set()
            refused = await until(lambda: b'"err_code":10071' in line.heard, 20)
            gone = await until(lambda: len(caller.events("run_taken_over")) >= incidents, 20)
            extra = len(s.calls()) - calls
        account = await s.account()
    return Outcome(
        settled and refused and gone and account.clean and not extra,
        f"results {account.expected - len(account.lost)} of {account.expected}, {lost_and_twice(account)}; stale result "
        f"write refused {'yes' if refused else 'NO'}, stale runs stopped before paying {'all' if gone else 'NOT ALL'}",
    )


async def stopped_worker(
    ground: Ground, *, incidents: int = 4, drain_seconds: float = 2.0, grace_seconds: float = 5.0
) -> Outcome:
    """SIGTERM in the middle of runs that take longer than the drain."""
    async with stage(ground, "sigterm", ack_wait_seconds=30.0, slots=incidents) as s:
        keys = [f"term-{n}" for n in range(incidents)]
        await s.plan(holds=dict.fromkeys(keys, (1, 60.0)))
        [first] = await s.start(1, RCA_WORKER__DRAIN_SECONDS=str(drain_seconds))
        await s.publish_all(keys)
        await until(lambda: sum(call.step == 1 for call in s.calls()) == incidents, 30)
        [second] = await s.start(1)
        told = time.monotonic()
        first.send(signal.SIGTERM)
        not_ready = await until(lambda: _is_not_ready(first), 30, every=0.05)
        code = await first.ended(60)
        took, gone = time.monotonic() - told, time.time()
        settled = await s.settled(incidents, 60)
        account = await s.account()
        taken = [call.at for call in s.calls() if call.worker == second.name]
        again = [call for call in s.calls() if call.worker == second.name and call.step == 0]
    wait = max((at - gone for at in taken), default=99.0)
    return Outcome(
        settled
        and not_ready
        and code == 0
        and took <= drain_seconds + grace_seconds
        and wait <= grace_seconds
        and not again
        and account.clean,
        f"exit {code} after {took:.1f} s (drain {drain_seconds:.0f} s), taken over {max(wait, 0.0):.1f} s later, journaled "
        f"calls repeated {len(again)}, {lost_and_twice(account)}",
    )


async def _is_not_ready(worker: Worker) -> bool:
    return await worker.readiness() != 200


async def suspect_steps_aside(
    ground: Ground, *, looks: int = 4, latency_seconds: float = 1.5, suspects: int = 1, lane: Lane = Lane.P3
) -> Outcome:
    """Requests whose worker was killed run alone in the next one; then a P0 arrives."""
    async with stage(ground, f"aside-{lane}", ack_wait_seconds=2.0, slots=suspects) as s:
        await s.plan(latency_seconds=latency_seconds, looks=looks)
        [worker] = await s.start(1)
        keys = [f"aside-suspect-{n}" for n in range(suspects)]
        await s.publish_all(keys, lane)
        await until(lambda: all(_asked(s, key) for key in keys), 30)
        await worker.kill()
        await worker.start()
        await until(lambda: len(_suspected(s, keys)) > suspects, 60)
        before, came = len(_suspected(s, keys)), time.time()
        await s.publish("aside-urgent", Lane.P0)
        settled = await s.settled(suspects + 1, 240)
        account = await s.account()
        urgent = _asked(s, "aside-urgent")
        later = _suspected(s, keys)[before:]
        beside = [at for at in later if urgent[0] < at < urgent[-1]]
        waited = len([at for at in later if at < urgent[0]])
    return Outcome(
        settled and account.clean and not account.dead and not beside and waited <= 1,
        f"the P0 waited for {waited} calls of {suspects} suspects, {urgent[0] - came:.1f} s in all, beside it "
        f"{len(beside)}, outstanding calls paid again {account.outstanding_paid_again} for 1 death, "
        f"{lost_and_twice(account)}",
    )


async def p0_suspects(ground: Ground) -> Outcome:
    """Eight suspects of the same lane as the request that arrives."""
    return await suspect_steps_aside(ground, suspects=8, looks=2, lane=Lane.P0)


def _suspected(s: Stage, keys: Sequence[str]) -> list[float]:
    """When the model was asked about any of the suspects, in order."""
    return sorted(at for key in keys for at in _asked(s, key))


def _asked(s: Stage, key: str) -> list[float]:
    """When the model was asked about a request."""
    return [call.at for call in s.calls() if call.key == key]


async def poison(ground: Ground, *, neighbours: int = 12, workers: int = 2, deaths: int = 3) -> Outcome:
    """A request whose calls kill the process that makes them, among healthy ones."""
    allowed = {"RCA_WORKER__MAX_DEATHS": str(deaths)}
    async with stage(ground, "poison", ack_wait_seconds=2.0, **allowed) as s:
        await s.plan(latency_seconds=0.4, unanswered=["poison"])
        await s.start(workers)
        keys = [f"neighbour-{n}" for n in range(neighbours)]
        await s.publish_all([*keys[: neighbours // 2], "poison", *keys[neighbours // 2 :]])
        murders = asyncio.create_task(_kill_whoever_calls(s, "poison"))
        settled = await s.settled(neighbours + 1, 300)
        murders.cancel()
        account = await s.account()
        journal = (await s.journal_steps()).get("poison", [])
        died = interrupted(journal)
        alone = count(journal).deaths_alone
        letters = [
            m.subject async for m in stream_messages(s.nc, s.subjects.dlq_stream, s.subjects.dead_letter(">"))
        ]
        failed = [
            m.subject async for m in stream_messages(s.nc, s.subjects.results_stream) if b'"failed"' in m.data
        ]
    right = letters == [s.subjects.dead_letter("process_deaths")] and [
        f.endswith(".poison") for f in failed
    ] == [True]
    return Outcome(
        settled and right and alone == deaths and not account.lost and not account.duplicates,
        f"dead letters {len(letters)} after {alone} deaths alone ({died} in all), neighbours with a result "
        f"{neighbours - len(set(account.lost) - {'poison'})} of {neighbours}, {lost_and_twice(account)}",
    )


async def _kill_whoever_calls(s: Stage, key: str) -> None:
    """The worker that makes a call for the key dies at once, and is started again."""
    seen = 0
    while True:
        calls = [call for call in s.calls() if call.key == key]
        for call in calls[seen:]:
            victim = next(worker for worker in s.workers if worker.name == call.worker)
            s.tell(f"{victim.name} is killed by {key}")
            await victim.kill()
            await victim.start()
        seen = len(calls)
        await asyncio.sleep(0.02)
