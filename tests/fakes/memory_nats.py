"""Events, Results and Journal in memory, with the promises of the ports. `down` makes every call fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.analysis import AnalysisResult, Status
from schemas.audit import AuditEvent
from schemas.failure import DeadLetter, ValidationFailure
from schemas.subjects import kind_of_key, kv_key
from worker.domain.journal.steps import finished, since_finished
from worker.domain.values.delivery import MessageId
from worker.domain.values.errors import LostClaim, Unavailable
from worker.domain.values.ports import AuditRecord, Step, StoredRequest
from worker.domain.values.step_kinds import FINISHED, UNREADABLE


@dataclass
class MemoryEvents:
    """What was published, each once, in order."""

    audits: list[AuditEvent] = field(default_factory=list)
    bodies: dict[str, bytes] = field(default_factory=dict)
    rejections: list[ValidationFailure] = field(default_factory=list)
    results: dict[tuple[str, str], bytes] = field(default_factory=dict)
    told: list[AnalysisResult] = field(default_factory=list)
    """Every result that was stored, those that were replaced too."""
    dead_letters: list[tuple[DeadLetter, bytes]] = field(default_factory=list)
    down: bool = False
    _seen: set[tuple[object, ...]] = field(default_factory=set)

    async def audit(self, record: AuditRecord) -> None:
        if self._first("audit", record.event_id):
            self.audits.append(AuditEvent.model_validate_json(record.body))
            self.bodies[record.event_id] = record.body
        if self.bodies[record.event_id] != record.body:
            raise AssertionError(f"another event {record.event_id}: {record.body!r}")

    async def reject(self, failure: ValidationFailure) -> None:
        origin = (failure.origin_stream, failure.origin_sequence, failure.origin_stored_at)
        answer = (failure.request_key, failure.attempt)
        if self._first("reject", *(origin if failure.attempt is None else answer)):
            self.rejections.append(failure)

    async def result(self, result: AnalysisResult, *, replace_failed: bool = False) -> AnalysisResult:
        self._first()
        place = (str(result.kind), result.request_key)
        there = self.results.get(place)
        stored = AnalysisResult.model_validate_json(there) if there else None
        if stored and (stored == result or not (replace_failed and stored.status is Status.FAILED)):
            return stored
        self.results[place] = result.model_dump_json().encode()
        self.told.append(result)
        return result

    async def dead_letter(self, letter: DeadLetter, body: bytes) -> None:
        if self._first("dead_letter", letter.origin_stream, letter.origin_sequence, letter.origin_stored_at):
            self.dead_letters.append((letter, body))

    def _first(self, *what: object) -> bool:
        if self.down:
            raise Unavailable("down")
        known = what in self._seen
        self._seen.add(what)
        return not known


@dataclass
class MemoryResults:
    """Reads what MemoryEvents stored."""

    events: MemoryEvents

    async def find(self, request_key: str) -> AnalysisResult | None:
        if self.events.down:
            raise Unavailable("down")
        body = self.events.results.get((kind_of_key(request_key), request_key))
        return AnalysisResult.model_validate_json(body) if body else None


@dataclass
class MemoryJournal:
    """Steps by key. An entry of a list that is None is a step that is gone."""

    steps: dict[str, list[Step | None]] = field(default_factory=dict)
    down: bool = False
    written: dict[str, list[Step]] = field(default_factory=dict)
    """All steps that were ever stored, by key."""
    on_finish: Callable[[str], None] = lambda _: None
    """Called before the FINISHED step is appended (`append`) and before the others are deleted (`delete`)."""

    async def open(self, request_key: str, run: str) -> MemoryJournalRun:
        if self.down:
            raise Unavailable("down")
        key = kv_key(request_key)
        steps = self.steps.setdefault(key, [])
        gone = {"why": "it is gone"}
        past = tuple(step or Step(n, UNREADABLE, "", b"", gone) for n, step in enumerate(steps, 1))
        return MemoryJournalRun(self, key, run, since_finished(past))


class MemoryJournalRun:
    def __init__(self, journal: MemoryJournal, key: str, run: str, past: Sequence[Step]) -> None:
        self._journal, self._key, self._run = journal, key, run
        self._past, self._next = past, past[-1].number + 1 if past else 1
        self._finished = finished(past)

    @property
    def past(self) -> Sequence[Step]:
        return self._past

    async def append(
        self, kind: str, data: bytes = b"", *, events: Sequence[AuditRecord] = (), **notes: Any
    ) -> None:
        if self._journal.down:
            raise Unavailable("down")
        steps = self._journal.steps[self._key]
        if len(steps) >= self._next:
            raise LostClaim(f"{self._key}: step {self._next} is taken")
        step = Step(self._next, kind, self._run, bytes(data), dict(notes), tuple(events))
        steps.append(step)
        self._journal.written.setdefault(self._key, []).append(step)
        self._next += 1
        self._finished = kind == FINISHED

    async def finish(self, **notes: Any) -> None:
        self._journal.on_finish("append")
        if not self._finished:
            await self.append(FINISHED, **notes)
        self._journal.on_finish("delete")
        steps = self._journal.steps[self._key]
        steps[:-1] = [None] * (len(steps) - 1)


@dataclass
class MemoryRequests:
    """The work queue, by sequence."""

    stored: dict[int, StoredRequest] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    """Sequences that no consumer delivers again."""

    async def stranded(self) -> Sequence[StoredRequest]:
        return [stored for sequence, stored in sorted(self.stored.items()) if sequence in self.given_up]

    async def read(self, sequence: int) -> StoredRequest | None:
        return self.stored.get(sequence)

    async def after(self, sequence: int) -> StoredRequest | None:
        return next((self.stored[n] for n in sorted(self.stored) if n > sequence), None)

    async def remove(self, message: MessageId) -> None:
        stored = self.stored.get(message.sequence)
        if stored is not None and message.matches(stored.message):
            del self.stored[message.sequence]


@dataclass
class MemoryCancellations:
    """Keys of cancelled requests."""

    keys: set[str] = field(default_factory=set)

    async def cancelled(self, request_key: str) -> bool:
        return request_key in self.keys
