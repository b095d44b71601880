"""What an incident costs in a real worker: CPU, memory, tokens, bytes, and how many one process gets through.

The worker is a process of its own on a real nats-server; the model and the cluster are fakes in other processes, whose
CPU does not count. An incident has 6 model calls and 8 tool calls.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg

from tests.drills.stage import Ground, Stage, stage
from tests.drills.workers import Worker
from tests.fakes.tokens import real_tokens
from tests.processes import rca

NAMESPACE, POD, OWNER = "ml-batch", "ml-worker-5584d8b7cb-rn4jl", "ml-worker"
Turns = Sequence[Sequence[tuple[str, dict[str, Any]]]]
TURNS: Turns = (
    (
        ("get_resource_context", {"kind": "Deployment", "name": OWNER, "namespace": NAMESPACE}),
        ("list_available_actions", {"signal_type": "OOMKilled", "severity": "critical"}),
    ),
    (
        ("get_pod_logs", {"pod": POD, "namespace": NAMESPACE, "previous": True, "tail_lines": 60}),
        ("get_events", {"kind": "Pod", "name": POD, "namespace": NAMESPACE}),
    ),
    (
        ("get_resource", {"kind": "Pod", "name": POD, "namespace": NAMESPACE}),
        ("list_resources", {"kind": "Pod", "namespace": NAMESPACE}),
    ),
    (("list_workflows", {"action_type": "IncreaseMemoryLimits"}),),
    (("get_workflow", {"workflow_id": "increase-memory-limits-v1"}),),
)
WARM_UP = 12
Measured = dict[str, float]


def more_turns(calls: int) -> Turns:
    """Turns of an incident with so many model calls: each further one reads a log."""
    logs = [
        (("get_pod_logs", {"pod": POD, "namespace": NAMESPACE, "tail_lines": 10 + number}),)
        for number in range(calls)
    ]
    return (*TURNS, *logs)[: calls - 1]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of its children, the policy process among them."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    spent = 0
    for one in (str(pid), *children):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        spent += sum(map(int, fields[11:15]))
    return spent / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    [line] = [row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


@dataclass(frozen=True)
class Flow:
    """What many incidents have cost. CPU in seconds an incident, `rate` in incidents a second, `rss` in MiB.

    `ends` are the times of the results, in seconds and in order.
    """

    cpu: float
    rate: float
    rss: float
    first_call_p99: float
    ends: Sequence[float]

    def full_rate(self, slots: int) -> float:
        """Incidents a second while all slots are taken, without the beginning and the end of the load.

        With a result of each slot at both ends of the time, it does not matter in which order they end.
        """
        first, last = statistics.mean(self.ends[:slots]), statistics.mean(self.ends[-slots:])
        return (len(self.ends) - slots) / (last - first)


async def flow(s: Stage, worker: Worker, name: str, incidents: int, *, every: float = 0.0) -> Flow:
    """Publish so many incidents, at once or one `every` so many seconds, and wait for their results."""
    there = await s.count(s.subjects.results_stream)
    asked, spent = len(s.calls()), cpu_seconds(worker.pid)
    published: dict[str, float] = {}
    ends: list[float] = []

    async def note(_message: Msg) -> None:
        ends.append(time.monotonic())

    noting = await s.nc.subscribe(f"{s.subjects.prefix}.result.>", cb=note)
    began, rss = time.monotonic(), [resident_mib(worker.pid)]

    async def publish(number: int) -> None:
        await asyncio.sleep(number * every)
        published[key := f"{name}-{number}"] = time.time()
        await s.publish(key)

    publishing = asyncio.gather(*map(publish, range(incidents)))
    while await s.count(s.subjects.results_stream) < there + incidents:
        rss.append(resident_mib(worker.pid))
        await asyncio.sleep(0.1)
    seconds = time.monotonic() - began
    await publishing
    await noting.unsubscribe()
    first: dict[str, float] = {}
    for call in s.calls()[asked:]:
        first.setdefault(call.key, call.at)
    waits = [first[key] - at for key, at in published.items()]
    return Flow(
        (cpu_seconds(worker.pid) - spent) / incidents,
        incidents / seconds,
        max(rss),
        statistics.quantiles(waits, n=100)[98] if len(waits) > 1 else waits[0],
        ends,
    )


@dataclass(frozen=True)
class Footprint:
    """What one incident sends and stores. Tokens are o200k ones; `prefix` is the least share of a call repeated in the next.

    `kept_bytes` is what the server counts in the streams of results, audit events and the journal afterwards,
    `journal_left` the part of it in the journal: one message, which fences older runs.
    """

    model_calls: int
    tool_calls: int
    cluster_reads: int
    broker_writes: int
    first_tokens: int
    all_tokens: int
    prefix: float
    journal_bytes: int
    audit_bytes: int
    result_bytes: int
    kept_bytes: int
    journal_left: int


def request_text(body: dict[str, Any]) -> str:
    """What the model reads of a request: tools, then messages."""
    return json.dumps([body.get("tools", []), *body["messages"]], separators=(",", ":"), ensure_ascii=False)[
        :-1
    ]


def shared(before: str, after: str) -> float:
    """The share of the first text that the second begins with."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    return sum(1 for _ in same) / len(before)


async def stored(ground: Ground) -> Measured:
    """What one incident sends and stores."""
    found = await footprint(ground)
    written = found.journal_bytes + found.audit_bytes + found.result_bytes
    return {
        "input tokens, first call": found.first_tokens,
        "input tokens, 6 calls": found.all_tokens,
        "prefix of a call that repeats the one before": found.prefix,
        "journal, audit and result, kept, KB": found.kept_bytes / 1_000,
        "of it left in the journal, KB": found.journal_left / 1_000,
        "journal, audit and result, written, KB": written / 1_000,
    }


async def costs(ground: Ground) -> Measured:
    """CPU, with a model that answers at once and 8 incidents at a time."""
    spent = {}
    async with stage(ground, "costs", ack_wait_seconds=30.0, slots=8) as s:
        await s.plan(turns=TURNS)
        [worker] = await s.start(1)
        started, idle = cpu_seconds(worker.pid), resident_mib(worker.pid)
        await flow(s, worker, "warm-up", WARM_UP)
        for calls in (6, 5, 20):
            await s.plan(turns=more_turns(calls))
            spent[calls] = (await flow(s, worker, f"calls-{calls}", 40)).cpu
    return {
        "CPU of an incident, ms": spent[6] * 1_000,
        "CPU of 20 calls to 5": spent[20] / spent[5],
        "start to ready, CPU s": started,
        "rca --help, CPU s": await help_seconds(),
        "RSS idle, MiB": idle,
    }


async def help_seconds() -> float:
    """CPU time of `rca --help`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    await rca("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def throughput(ground: Ground) -> Measured:
    """50 incidents in flight, 0.2 s a call."""
    found = await _load(ground, in_flight=50, seconds=0.2, incidents=150)
    return {"incidents/s, 50 in flight, 200 ms a call": found.rate}


async def slow_model(ground: Ground) -> Measured:
    """100 incidents in flight, 2 s a call."""
    found = await _load(ground, in_flight=100, seconds=2.0, incidents=600)
    ideal = 100 / (2.0 * (len(TURNS) + 1))
    return {
        "share of ideal, 100 in flight, 2 s a call": found.full_rate(100) / ideal,
        "share of ideal, 600 incidents from the first to the last": found.rate / ideal,
        "RSS, 100 in flight, MiB": found.rss,
    }


async def _load(ground: Ground, *, in_flight: int, seconds: float, incidents: int) -> Flow:
    """Many incidents at once in one lane."""
    async with stage(
        ground, f"load-{in_flight}", ack_wait_seconds=60.0, RCA_WORKER__SLOTS_P2=str(in_flight)
    ) as s:
        await s.plan(turns=TURNS)
        [worker] = await s.start(1)
        await flow(s, worker, "warm-up", WARM_UP)
        await s.plan(turns=TURNS, latency_seconds=seconds)
        return await flow(s, worker, "load", incidents)


async def arrivals(ground: Ground, *, incidents: int = 120) -> Measured:
    """Incidents that arrive so that 50 are in flight."""
    async with stage(ground, "arrivals", ack_wait_seconds=60.0, RCA_WORKER__SLOTS_P2="100") as s:
        await s.plan(turns=TURNS)
        [worker] = await s.start(1)
        await flow(s, worker, "warm-up", WARM_UP)
        await s.plan(turns=TURNS, latency_seconds=2.0)
        found = await flow(s, worker, "arrival", incidents, every=2.0 * (len(TURNS) + 1) / 50)
    return {"publish to first call, p99, 50 in flight, ms": found.first_call_p99 * 1_000}


async def footprint(ground: Ground) -> Footprint:
    """One incident in a worker of its own."""
    async with stage(ground, "footprint", slots=1) as s:
        await s.plan(turns=TURNS, keeps_bodies=True)
        await s.start(1)
        written = {name: await _counted(s, f"{subject}.>") for name, subject in _subjects(s).items()}
        read = len(ground.api.requests)
        await s.publish("footprint-0")
        assert await s.settled(1, 60)
        bodies = (ground.directory / "footprint.bodies").read_text().splitlines()
        texts = [request_text(json.loads(line)) for line in bodies]
        return Footprint(
            model_calls=len(texts),
            tool_calls=sum(map(len, TURNS)),
            cluster_reads=len(ground.api.requests) - read,
            broker_writes=sum(map(len, written.values())),
            first_tokens=real_tokens(texts[0]),
            all_tokens=sum(map(real_tokens, texts)),
            prefix=min(shared(one, other) for one, other in pairwise(texts)),
            journal_bytes=sum(written["journal"]),
            audit_bytes=sum(written["audit"]),
            result_bytes=sum(written["result"]),
            kept_bytes=sum([await _stored(s, name) for name in _streams(s)]),
            journal_left=await _stored(s, _streams(s)[0]),
        )


def _subjects(s: Stage) -> dict[str, str]:
    prefix = s.subjects.prefix
    return {
        "journal": f"$KV.{s.subjects.journal_bucket}",
        "audit": f"{prefix}.audit",
        "result": f"{prefix}.result",
    }


def _streams(s: Stage) -> tuple[str, str, str]:
    return f"KV_{s.subjects.journal_bucket}", s.subjects.audit_stream, s.subjects.results_stream


async def _stored(s: Stage, stream: str) -> int:
    """Bytes that the server counts in a stream."""
    return int((await s.nc.jetstream(timeout=10).stream_info(stream)).state.bytes)


async def _counted(s: Stage, subject: str) -> list[int]:
    """The size of each message that is published on a subject from now on."""
    sizes: list[int] = []

    async def note(message: Msg) -> None:
        headers = message.headers or {}
        sizes.append(len(message.data) + sum(len(name) + len(value) + 4 for name, value in headers.items()))

    await s.nc.subscribe(subject, cb=note)
    await s.nc.flush()
    return sizes


async def longest_stretch(ground: Ground) -> int:
    """How many functions the event loop calls at most between two looks at its sockets, over a few incidents."""
    file = ground.directory / "longest-stretch"
    async with stage(ground, "stretch", slots=4) as s:
        await s.plan(turns=TURNS)
        worker = s.worker(sys.executable, "-m", "tests.bench.watched_worker", str(file))
        await worker.start()
        await worker.ready()
        await flow(s, worker, "warm-up", 4)
        file.touch()
        await flow(s, worker, "watched", 8)
        await worker.stop()
    return int(file.read_text())
