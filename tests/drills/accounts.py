"""What happened, from the outside: results and dead letters per request, journal steps, calls that were paid for."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from schemas.subjects import Subjects
from worker.domain.journal.steps import FAILED
from worker.domain.values.step_kinds import BEGIN, END, LLM


@dataclass(frozen=True)
class Call:
    """One line of the model's ledger. `at` is wall time in seconds."""

    at: float
    worker: str
    key: str
    step: int
    event: str


def read_ledger(path: Path) -> list[Call]:
    """All calls so far, oldest first."""
    if not path.exists():
        return []
    return [Call(*json.loads(line)) for line in path.read_text().splitlines() if line.endswith("]")]


@dataclass(frozen=True)
class JournalStep:
    """One step of the journal. `at` is the server's time of storing it."""

    at: float
    key: str
    number: int
    kind: str
    run: str
    notes: dict[str, Any]


async def stream_messages(nc: Client, stream: str, subject: str = ">") -> AsyncIterator[Msg]:
    """Everything on a subject of a stream."""
    js = nc.jetstream(timeout=10)
    info = await js.stream_info(stream)
    if not info.state.messages:
        return
    subscription = await js.subscribe(subject, stream=stream, ordered_consumer=True)
    try:
        consumer = await subscription.consumer_info()
        while (
            consumer.num_pending or consumer.delivered.consumer_seq
        ):  # else there is nothing on this subject
            message = await subscription.next_msg(timeout=30)
            yield message
            if message.metadata.num_pending == 0:
                return
    finally:
        await subscription.unsubscribe()


async def subject_counts(nc: Client, stream: str) -> Counter[str]:
    """Messages per subject of a stream."""
    counts: Counter[str] = Counter()
    while True:
        ask = json.dumps({"subjects_filter": ">", "offset": len(counts)}).encode()
        reply = json.loads((await nc.request(f"$JS.API.STREAM.INFO.{stream}", ask, timeout=10)).data)
        page = reply["state"].get("subjects") or {}
        counts.update(page)
        if not page or len(counts) >= reply.get("total", 0):
            return counts


async def journal_steps(nc: Client, subjects: Subjects) -> dict[str, list[JournalStep]]:
    """Steps per request, in order."""
    found: dict[str, list[JournalStep]] = defaultdict(list)
    async for message in stream_messages(nc, f"KV_{subjects.journal_bucket}"):
        key, _, number = message.subject.removeprefix(f"$KV.{subjects.journal_bucket}.").rpartition(".")
        head = json.loads(message.data.partition(b"\n")[0])
        at = message.metadata.timestamp.timestamp()
        step = JournalStep(at, key, int(number), head["kind"], head["run"], head["notes"])
        found[key].append(step)
    return {key: sorted(steps, key=lambda step: step.number) for key, steps in found.items()}


@dataclass
class Account:
    """How many of the expected requests got nothing, or too much, and what was paid for in vain."""

    expected: int = 0
    lost: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    dead: int = 0
    dead_letters: list[str] = field(default_factory=list)
    """Reason and remediation id of each."""
    journaled_paid_again: int = 0
    outstanding_paid_again: int = 0
    unexplained: list[str] = field(default_factory=list)

    @property
    def clean_results(self) -> bool:
        """Nothing lost, nothing twice."""
        return not self.lost and not self.duplicates

    @property
    def clean(self) -> bool:
        """Nothing lost, nothing twice, nothing paid for that a death does not explain."""
        wrong = self.lost or self.duplicates or self.unexplained
        return not wrong and not self.journaled_paid_again


async def take_account(
    nc: Client, subjects: Subjects, keys: Iterable[str], ledger: Path | None = None
) -> Account:
    """The state of things. `keys` are request keys whose storage was acknowledged."""
    wanted = set(keys)
    results = await subject_counts(nc, subjects.results_stream)
    by_key: Counter[str] = Counter()
    for subject, count in results.items():
        by_key[subject.split(".", 3)[3]] += count
    account = Account(expected=len(wanted))
    account.lost = sorted(wanted - set(by_key))
    account.duplicates = sorted(key for key, count in by_key.items() if count > 1)
    letters = await subject_counts(nc, subjects.dlq_stream)
    account.dead = sum(n for subject, n in letters.items() if subject.startswith(subjects.dead_letter("")))
    if account.dead:
        async for letter in stream_messages(nc, subjects.dlq_stream, subjects.dead_letter(">")):
            account.dead_letters.append(f"{letter.subject.rpartition('.')[2]}:{_remediation_id(letter.data)}")
    if ledger is not None:
        _add_payments(account, read_ledger(ledger), await journal_steps(nc, subjects))
    return account


def _remediation_id(body: bytes) -> str:
    try:
        return str(json.loads(body)["remediation_id"])
    except (ValueError, KeyError, TypeError):
        return "?"


def _add_payments(account: Account, calls: list[Call], journal: dict[str, list[JournalStep]]) -> None:
    asked: dict[tuple[str, int], list[float]] = defaultdict(list)
    for call in calls:
        if call.event == "asked":
            asked[call.key, call.step].append(call.at)
    repeats: Counter[str] = Counter()
    for (key, step), times in asked.items():
        repeats[key] += len(times) - 1
        stored = [s.at for s in journal.get(key, ()) if s.kind == LLM]
        if step < len(stored):
            account.journaled_paid_again += sum(at > stored[step] for at in times)
    account.outstanding_paid_again = sum(repeats.values())
    for key, count in repeats.items():
        if count > interrupted(journal.get(key, ())):
            account.unexplained.append(key)


def interrupted(steps: Iterable[JournalStep]) -> int:
    """Runs that were killed, frozen or asked to stop: each may have had one call on its way."""
    listed = list(steps)
    began = [s.run for s in listed if s.kind == BEGIN]
    failed = {s.run for s in listed if s.kind == END and s.notes.get("outcome") == FAILED}
    return sum(run not in failed for run in began[:-1])


async def until(condition: Any, seconds: float, *, every: float = 0.1) -> bool:
    """Whether an (async) condition came true in time."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return True
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(every)
