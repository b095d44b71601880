"""Drills about load: a storm in one lane, and a long steady stream."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Coroutine
from dataclasses import dataclass

from schemas.subjects import Lane
from tests.drills.accounts import until
from tests.drills.stage import Ground, Stage, stage
from tests.drills.table import Outcome, lost_and_twice
from tests.drills.workers import Worker

MIB = 1 << 20
MAX_GROWTH_MIB = 2.0
HEAP = 50
FEW = 5.0
"""Tasks, threads or files more are no leak: connections come and go."""


async def storm(ground: Ground, *, queued: int = 2_000, urgent: int = 5, workers: int = 2) -> Outcome:
    """A full P3 lane, all its slots busy; then a P0 arrives. Several times, the slowest counts.

    What it waits for in an idle worker is the machine's, and is measured before.
    """
    storming = {"RCA_WORKER__SLOTS_P3": "16", "RCA_LLM__MAX_CONCURRENT": "8"}
    async with stage(ground, "storm", ack_wait_seconds=30.0, slots=2, **storming) as s:
        await s.plan(latency_seconds=0.5)
        await s.start(workers)
        idle = [await _time_to_first_call(s, f"idle-{number}") for number in range(urgent)]
        await s.publish_all((f"storm-{n}" for n in range(queued)), Lane.P3, at_once=50)
        calls = len(s.calls())
        await until(lambda: len(s.calls()) >= calls + 6 * workers, 60)
        waits = [await _time_to_first_call(s, f"urgent-{number}") for number in range(urgent)]
        waiting = await s.count(s.subjects.requests_stream)
    return Outcome(
        max(waits) <= max(idle) + 1.0 and waiting > queued // 2,
        f"first call of a P0 after {max(waits):.2f} s at most, {statistics.median(waits):.2f} s in the middle of "
        f"{urgent}, idle {max(idle):.2f} s; {waiting} P3 waiting",
    )


async def _time_to_first_call(s: Stage, key: str) -> float:
    """Seconds from the producer's publish to the first call of the model. Past decoding, journal and first look."""
    began = time.time()
    await s.publish(key, Lane.P0)
    await until(lambda: any(call.key == key for call in s.calls()), 30, every=0.05)
    await asyncio.sleep(0.5)
    return min((call.at for call in s.calls() if call.key == key), default=began + 99.0) - began


@dataclass(frozen=True)
class Sample:
    """A worker at one moment, `at` seconds after the begin of the stream. Bytes, numbers, CPU seconds."""

    at: float
    rss: float
    fds: float
    tasks: float
    threads: float
    cpu: float


async def soak(
    ground: Ground, *, warm_up_seconds: float = 120.0, seconds: float = 600.0, per_second: float = 5.0
) -> Outcome:
    """A steady stream: memory in the first and in the last tenth after the warm-up, the rest while idle before and after.

    Before the stream comes more than the worker can do at once, so that its pools and its memory have the size that
    they will have whenever requests come in a heap.
    """
    async with stage(ground, "soak", ack_wait_seconds=30.0, slots=4) as s:
        await s.plan(latency_seconds=0.2)
        [worker] = await s.start(1)
        await asyncio.gather(
            *(s.publish_all([f"heap-{lane}-{n}" for n in range(HEAP)], lane) for lane in Lane)
        )
        before = await _idle(s, worker)
        samples = await _watch(s, worker, _steady(s, warm_up_seconds + seconds, per_second))
        after = await _idle(s, worker)
        account = await s.account()
    measured = [sample for sample in samples if sample.at >= warm_up_seconds]
    start, end = (
        statistics.median(sample.rss for sample in measured if first <= sample.at <= first + seconds / 10)
        / MIB
        for first in (warm_up_seconds, warm_up_seconds + seconds * 0.9)
    )
    slope = statistics.linear_regression([m.at for m in measured], [m.rss for m in measured]).slope
    more = {name: getattr(after, name) - getattr(before, name) for name in ("tasks", "threads", "fds")}
    per_incident = (after.cpu - before.cpu) / (len(s.accepted) - len(Lane) * HEAP)
    return Outcome(
        account.clean and end - start <= MAX_GROWTH_MIB and max(more.values()) <= FEW,
        f"{len(s.accepted)} incidents at {per_second:g}/s, RSS {start:.1f} to {end:.1f} MiB ({end - start:+.1f}, slope "
        f"{slope * 3_600 / MIB:+.1f} MiB/h), {', '.join(f'{name} {n:+.0f}' for name, n in more.items())}, "
        f"CPU {per_incident * 1_000:.0f} ms per incident, {lost_and_twice(account)}",
    )


async def _idle(s: Stage, worker: Worker) -> Sample:
    """The worker when all is done, and what rests has been closed."""
    await s.settled(len(s.accepted), 240)
    await asyncio.sleep(10)
    return await _sample(worker, 0.0)


async def _sample(worker: Worker, at: float) -> Sample:
    m = await worker.metrics()
    return Sample(
        at,
        rss=m["process_resident_memory_bytes"],
        fds=m["process_open_fds"],
        tasks=m["rca_tasks"],
        threads=m["rca_threads"],
        cpu=m["process_cpu_seconds_total"],
    )


async def _watch(s: Stage, worker: Worker, stream: Coroutine[None, None, None]) -> list[Sample]:
    """What the worker says of itself, every two seconds while requests are published."""
    producer = asyncio.create_task(stream)
    began, samples = time.monotonic(), list[Sample]()
    while not producer.done():
        now = await _sample(worker, time.monotonic() - began)
        samples.append(now)
        if len(samples) % 15 == 0:
            s.tell(
                f"{now.at:.0f} s: RSS {now.rss / MIB:.1f} MiB, tasks {now.tasks:.0f}, threads {now.threads:.0f}, "
                f"files {now.fds:.0f}, {len(s.accepted)} accepted"
            )
        await asyncio.sleep(2)
    await producer
    return samples


async def _steady(s: Stage, seconds: float, per_second: float) -> None:
    """Publish at a steady rate."""
    began, number = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        await s.publish(f"soak-{number}", list(Lane)[number % 4])
        number += 1
        await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
