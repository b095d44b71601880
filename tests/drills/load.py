"""Drills about load: a storm in one lane, and a long steady stream."""

from __future__ import annotations

import asyncio
import statistics
import time

from schemas.subjects import Lane
from tests.drills.accounts import until
from tests.drills.stage import Ground, Stage, stage
from tests.drills.table import Outcome, lost_and_twice
from tests.drills.workers import Worker

MIB = 1 << 20


async def storm(ground: Ground, *, queued: int = 2_000, urgent: int = 5, workers: int = 2) -> Outcome:
    """A full P3 lane, all its slots busy; then a P0 arrives. Several times, the slowest counts."""
    storming = {"RCA_WORKER__SLOTS_P3": "16", "RCA_LLM__MAX_CONCURRENT": "8"}
    async with stage(ground, "storm", ack_wait_seconds=30.0, slots=2, **storming) as s:
        await s.plan(latency_seconds=0.5)
        await s.publish_all((f"storm-{n}" for n in range(queued)), Lane.P3, at_once=50)
        await s.start(workers)
        await until(lambda: len(s.calls()) >= 6 * workers, 60)
        waits = [await _time_to_first_call(s, f"urgent-{number}") for number in range(urgent)]
        waiting = await s.count(s.subjects.requests_stream)
    return Outcome(
        max(waits) <= 1.0 and waiting > queued // 2,
        f"first call of a P0 after {max(waits):.2f} s at most, {statistics.median(waits):.2f} s in the middle of "
        f"{urgent}; {waiting} P3 waiting",
    )


async def _time_to_first_call(s: Stage, key: str) -> float:
    """Seconds from the producer's publish to the first call of the model. Past decoding, journal and first look."""
    began = time.time()
    await s.publish(key, Lane.P0)
    await until(lambda: any(call.key == key for call in s.calls()), 30, every=0.05)
    await asyncio.sleep(0.5)
    return min((call.at for call in s.calls() if call.key == key), default=began + 99.0) - began


async def soak(
    ground: Ground, *, warm_up_seconds: float = 120.0, seconds: float = 600.0, per_second: float = 5.0
) -> Outcome:
    """A steady stream; memory, files and tasks of the worker at the end and after the warm-up."""
    async with stage(ground, "soak", ack_wait_seconds=30.0, slots=4) as s:
        await s.plan(latency_seconds=0.2)
        [worker] = await s.start(1)
        await _few(s)
        before = await _held(worker)
        began, samples = time.monotonic(), list[tuple[float, int]]()
        producer = asyncio.create_task(_steady(s, warm_up_seconds + seconds, per_second))
        while not producer.done():
            samples.append((time.monotonic() - began, worker.rss_bytes()))
            if len(samples) % 15 == 0:
                s.tell(
                    f"{samples[-1][0]:.0f} s: RSS {samples[-1][1] / MIB:.1f} MiB, {len(s.accepted)} accepted"
                )
            await asyncio.sleep(2)
        published = await producer
        settled = await s.settled(published, 120)
        warm = [rss for at, rss in samples if warm_up_seconds <= at <= warm_up_seconds + seconds / 10]
        end = [rss for at, rss in samples if at >= warm_up_seconds + seconds * 0.9]
        growth = (statistics.median(end) - statistics.median(warm)) / MIB
        held = await _held(worker)
        account = await s.account()
    return Outcome(
        settled
        and account.clean
        and growth <= 2.0
        and all(h <= b for h, b in zip(held, before, strict=True)),
        f"{published} incidents at {per_second:g}/s, RSS growth {growth:+.1f} MiB, (tasks, files) of the idle worker {before} "
        f"before and {held} after, {lost_and_twice(account)}",
    )


async def _steady(s: Stage, seconds: float, per_second: float) -> int:
    """Publish at a steady rate; how many."""
    began, number = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        await s.publish(f"soak-{number}", list(Lane)[number % 4])
        number += 1
        await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
    return number


async def _few(s: Stage) -> None:
    """A few incidents, so that every connection of the worker has been opened once."""
    await s.publish_all(f"first-{n}" for n in range(8))
    await s.settled(8, 60)


async def _held(worker: Worker) -> tuple[int, int]:
    """Tasks and open files of a worker that has nothing to do. Connections that rest are closed after a while."""
    await asyncio.sleep(20)
    return int((await worker.metrics())["rca_tasks"]), worker.open_files()
