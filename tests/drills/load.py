"""Drills about load: a storm in one lane, and a long steady stream."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
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
"""Tasks, threads or files more or less are no leak: how many incidents run at once is left to chance."""


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


@dataclass(frozen=True)
class Sample:
    """A worker at one moment, `at` seconds after the begin. Bytes, numbers, CPU seconds."""

    at: float
    rss: float
    fds: float
    tasks: float
    threads: float
    cpu: float


async def soak(
    ground: Ground, *, warm_up_seconds: float = 120.0, seconds: float = 600.0, per_second: float = 5.0
) -> Outcome:
    """A steady stream; what the worker holds in the first and in the last tenth after the warm-up.

    The warm-up begins with more than the worker can do at once, so that its pools and its memory have the size that
    they will have whenever requests come in a heap.
    """
    async with stage(ground, "soak", ack_wait_seconds=30.0, slots=4) as s:
        await s.plan(latency_seconds=0.2)
        [worker] = await s.start(1)
        await asyncio.gather(
            *(s.publish_all((f"heap-{lane}-{n}" for n in range(HEAP)), lane) for lane in Lane)
        )
        producer = asyncio.create_task(_steady(s, warm_up_seconds + seconds, per_second))
        samples = await _watch(s, worker, producer)
        published = await producer + len(Lane) * HEAP
        settled = await s.settled(published, 120)
        account = await s.account()
    measured = [sample for sample in samples if sample.at >= warm_up_seconds]
    first = [sample for sample in measured if sample.at <= warm_up_seconds + seconds / 10]
    last = [sample for sample in measured if sample.at >= warm_up_seconds + seconds * 0.9]
    rss = [statistics.median(sample.rss for sample in part) / MIB for part in (first, last)]
    slope = statistics.linear_regression([m.at for m in measured], [m.rss for m in measured]).slope
    leaks = {
        name: _growth(name, first, last)
        for name in ("tasks", "threads", "fds")
        if _growth(name, first, last) > FEW
    }
    cpu = (measured[-1].cpu - measured[0].cpu) / (measured[-1].at - measured[0].at) / per_second
    return Outcome(
        settled and account.clean and rss[1] - rss[0] <= MAX_GROWTH_MIB and not leaks,
        f"{published} incidents at {per_second:g}/s, RSS {rss[0]:.1f} to {rss[1]:.1f} MiB "
        f"({rss[1] - rss[0]:+.1f}, slope {slope * 3_600 / MIB:+.1f} MiB/h), "
        + ", ".join(f"{name} {_growth(name, first, last):+.0f}" for name in ("tasks", "threads", "fds"))
        + f", CPU {cpu * 1_000:.0f} ms per incident, {lost_and_twice(account)}",
    )


def _growth(name: str, first: Sequence[Sample], last: Sequence[Sample]) -> float:
    before, after = (statistics.median(getattr(sample, name) for sample in part) for part in (first, last))
    return after - before


async def _watch(s: Stage, worker: Worker, producer: asyncio.Task[int]) -> list[Sample]:
    """What the worker says of itself, every two seconds while requests are published."""
    began, samples = time.monotonic(), list[Sample]()
    while not producer.done():
        m = await worker.metrics()
        samples.append(
            Sample(
                at=time.monotonic() - began,
                rss=m["process_resident_memory_bytes"],
                fds=m["process_open_fds"],
                tasks=m["rca_tasks"],
                threads=m["rca_threads"],
                cpu=m["process_cpu_seconds_total"],
            )
        )
        if len(samples) % 15 == 0:
            now = samples[-1]
            s.tell(
                f"{now.at:.0f} s: RSS {now.rss / MIB:.1f} MiB, tasks {now.tasks:.0f}, threads {now.threads:.0f}, "
                f"files {now.fds:.0f}, {len(s.accepted)} accepted"
            )
        await asyncio.sleep(2)
    return samples


async def _steady(s: Stage, seconds: float, per_second: float) -> int:
    """Publish at a steady rate; how many."""
    began, number = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        await s.publish(f"soak-{number}", list(Lane)[number % 4])
        number += 1
        await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
    return number
