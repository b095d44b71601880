"""What an incident costs in a real worker: CPU, memory, tokens, bytes, and how many one process gets through.

The worker is a process of its own on a real nats-server; the model and the cluster are fakes in other processes, whose
CPU does not count. An incident has 6 model calls and 8 tool calls.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
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
MIB = 1 << 20


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
    """What many incidents have cost. CPU in seconds an incident, `rate` in incidents a second, `rss` in MiB."""

    cpu: float
    rate: float
    rss: float
    first_call_p99: float


async def flow(s: Stage, worker: Worker, name: str, incidents: int) -> Flow:
    """Publish so many incidents at once and wait for their results."""
    there = await s.count(s.subjects.results_stream)
    asked, spent = len(s.calls()), cpu_seconds(worker.pid)
    published: dict[str, float] = {}
    began, rss = time.monotonic(), [resident_mib(worker.pid)]

    async def publish(key: str) -> None:
        published[key] = time.time()
        await s.publish(key)

    await asyncio.gather(*(publish(f"{name}-{n}") for n in range(incidents)))
    while await s.count(s.subjects.results_stream) < there + incidents:
        rss.append(resident_mib(worker.pid))
        await asyncio.sleep(0.05)
    seconds = time.monotonic() - began
    first: dict[str, float] = {}
    for call in s.calls()[asked:]:
        first.setdefault(call.key, call.at)
    waits = [first[key] - at for key, at in published.items()]
    return Flow(
        (cpu_seconds(worker.pid) - spent) / incidents,
        incidents / seconds,
        max(rss),
        statistics.quantiles(waits, n=100)[98] if len(waits) > 1 else waits[0],
    )


@dataclass(frozen=True)
class Footprint:
    """What one incident sends and stores. Tokens are o200k ones; `prefix` is the least share of a call repeated in the next."""

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


def request_text(body: dict[str, Any]) -> str:
    """What the model reads of a request: tools, then messages."""
    return json.dumps([body.get("tools", []), *body["messages"]], separators=(",", ":"), ensure_ascii=False)[
        :-1
    ]


def shared(before: str, after: str) -> float:
    """The share of the first text that the second begins with."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    return sum(1 for _ in same) / len(before)


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
        )


def _subjects(s: Stage) -> dict[str, str]:
    prefix = s.subjects.prefix
    return {
        "journal": f"$KV.{s.subjects.journal_bucket}",
        "audit": f"{prefix}.audit",
        "result": f"{prefix}.result",
    }


async def _counted(s: Stage, subject: str) -> list[int]:
    """The size of each message that is published on a subject from now on."""
    sizes: list[int] = []

    async def note(message: Msg) -> None:
        headers = message.headers or {}
        sizes.append(len(message.data) + sum(len(name) + len(value) + 4 for name, value in headers.items()))

    await s.nc.subscribe(subject, cb=note)
    await s.nc.flush()
    return sizes
