"""What happened, from the outside: results and dead letters per request, journal steps, calls that were paid for."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import RePublish

from schemas.analysis import AnalysisResult
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


async def stored_results(nc: Client, subjects: Subjects) -> list[AnalysisResult]:
    """All results."""
    found = stream_messages(nc, subjects.results_stream)
    return [AnalysisResult.model_validate_json(message.data) async for message in found]


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


class JournalRecorder:
    """Every step that was stored: the journal of a finished request is deleted."""

    COPY = "drill.journal"
    """The server publishes each stored step below this subject."""

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects
        self._steps: dict[tuple[str, int], JournalStep] = {}

    async def follow(self, nc: Client) -> None:
        """Listen from now on. Call it again when the bucket was created anew."""
        js, stream = nc.jetstream(timeout=10), f"KV_{self._subjects.journal_bucket}"
        config = (await js.stream_info(stream)).config
        copy = RePublish(src=f"$KV.{self._subjects.journal_bucket}.>", dest=f"{self.COPY}.>")
        await js.update_stream(replace(config, republish=copy))
        await nc.subscribe(f"{self.COPY}.>", cb=self._heard)
        await nc.flush()

    async def _heard(self, message: Msg) -> None:
        at = datetime.fromisoformat((message.headers or {})["Nats-Time-Stamp"])
        self._take(message.subject.removeprefix(f"{self.COPY}."), message.data, at)

    def _take(self, place: str, body: bytes, at: datetime) -> None:
        key, _, number = place.rpartition(".")
        head = json.loads(body.partition(b"\n")[0])
        step = JournalStep(at.timestamp(), key, int(number), head["kind"], head["run"], head.get("notes", {}))
        self._steps[key, step.number] = step

    async def steps(self, nc: Client) -> dict[str, list[JournalStep]]:
        """Steps per request, in order: those heard of, and those that are still there."""
        bucket = self._subjects.journal_bucket
        async for message in stream_messages(nc, f"KV_{bucket}"):
            self._take(
                message.subject.removeprefix(f"$KV.{bucket}."), message.data, message.metadata.timestamp
            )
        found: dict[str, list[JournalStep]] = defaultdict(list)
        for (key, _), step in sorted(self._steps.items()):
            found[key].append(step)
        return found


@dataclass
class Account:
    """How many of the expected requests got nothing, or too much, and what was paid for in vain."""

    expected: int = 0
    lost: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    dead: int = 0
    dead_letters: list[str] = field(default_factory=list)
    """Reason and remediation id of each."""
    repaid: list[str] = field(default_factory=list)
    """Key and number of each reply that was paid for again though it was in the journal."""
    outstanding_paid_again: int = 0
    unexplained: list[str] = field(default_factory=list)
    """Keys with more repeated calls than runs that were interrupted."""

    @property
    def journaled_paid_again(self) -> int:
        """Calls whose reply was in the journal."""
        return len(self.repaid)

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
    nc: Client, subjects: Subjects, keys: Iterable[str], calls: list[Call], journal: JournalRecorder
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
    _add_payments(account, calls, await journal.steps(nc))
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
            account.repaid += [f"{key}:{step}" for at in times if at > stored[step]]
    account.outstanding_paid_again = sum(repeats.values())
    for key, count in repeats.items():
        if count > interrupted(journal.get(key, ())):
            account.unexplained.append(f"{key}:{count}>{interrupted(journal.get(key, ()))}")


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
