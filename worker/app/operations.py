"""The operations of an operator: list, replay and drop dead letters, cancel requests, look up their state."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from nats.aio.client import Client

from schemas.analysis import AnalysisResult, Status
from schemas.audit import AuditEvent
from schemas.failure import ValidationFailure
from schemas.subjects import Lane, Subjects, kv_key, request_key
from worker.adapters.nats.journal_format import Unreadable, read_head
from worker.adapters.nats.publish import NatsResults
from worker.adapters.nats.stored import NatsCancellations, NatsDeadLetters, StoredLetter
from worker.adapters.nats.stream import FencedStream
from worker.adapters.nats.stream_info import ConsumerState
from worker.app.client import readable_key
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.concurrency import concurrently
from worker.domain.values.delays import LOOKUP_PATIENCE_SECONDS
from worker.domain.values.errors import ReportedError
from worker.domain.values.readable import readable
from worker.domain.values.step_kinds import END

AT_ONCE = 8
"""How many reads of the journal are under way at a time."""
KEY = re.compile(r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+(\.[0-9]+)?", re.ASCII)
STOPPED = "its worker stopped, or lost NATS"
"""What the end of a run says that gives no reason."""
REASON_CHARS = 200
ID_OR_RECOVERY = re.compile(r"(.+)\.([0-9]+)", re.ASCII | re.DOTALL)


class OperationError(ReportedError):
    """An operation cannot be carried out; the message says why and what to do."""


class State(enum.StrEnum):
    """The state of a request. `started`: its journal has steps, and it has no result yet."""

    QUEUED = "queued"
    STARTED = "started"
    FINISHED = "finished"
    UNKNOWN = "unknown"


def read_key(text: str) -> str:
    """The request key in what somebody typed: a request key, or a remediation id in plain text.

    A text that can be a key is taken as one: `rr-1.2` is the second recovery of `rr-1`. Raises OperationError
    if it is neither.
    """
    if KEY.fullmatch(text):
        return text
    try:
        key = request_key(text)
    except UnicodeEncodeError:
        raise OperationError(
            f"{text!r} is neither a request key nor a remediation id: it is not UTF-8"
        ) from None
    if not text:
        raise OperationError("the request key is empty: `rca submit` prints it")
    if found := ID_OR_RECOVERY.fullmatch(text):
        stem, attempt = found.groups()
        raise OperationError(
            f"{text!r} can mean two requests: give the key {key} for the incident with this remediation id, or "
            f"{request_key(stem)}.{attempt} for recovery attempt {attempt} of {stem!r}"
        )
    return key


class Operations:
    """The operations on the requests of one prefix. Every method may raise Unavailable."""

    def __init__(self, nc: Client, subjects: Subjects) -> None:
        stream = partial(FencedStream, nc, patience_seconds=LOOKUP_PATIENCE_SECONDS)
        self._subjects = subjects
        self._stored_results = stream(subjects.results_stream)
        self._results = NatsResults(self._stored_results, subjects)
        self._requests = stream(subjects.requests_stream)
        self._journal = stream(f"KV_{subjects.journal_bucket}")
        self._validation = stream(subjects.validation_stream)
        self._audit = stream(subjects.audit_stream)
        self._letters = NatsDeadLetters(stream(subjects.dlq_stream), self._requests, subjects)
        self._cancellations = NatsCancellations(stream(f"KV_{subjects.cancel_bucket}"))

    async def lanes(self) -> dict[str, ConsumerState]:
        """Return how many requests wait and are being analysed, by lane."""
        return {lane.value: await self._requests.consumer(lane.value) for lane in Lane}

    async def letters(self) -> list[StoredLetter]:
        """All dead letters, oldest first."""
        return [letter async for letter in self._letters.all()]

    async def newest_letters(self, count: int, before: int = 0) -> list[StoredLetter]:
        """The newest `count` dead letters, the newest first; with `before` of those with lower ids."""
        return await self._letters.newest(count, before=before)

    async def rejections(self, count: int) -> list[ValidationFailure]:
        """The newest `count` rejections, the newest first; those of a newer version are left out."""
        newest = await self._validation.latest(count, self._subjects.validation_request())
        return [found for message in newest if (found := readable(ValidationFailure, message.body))]

    async def letter(self, letter_id: int) -> StoredLetter:
        """The dead letter with this id. Raises OperationError when there is none."""
        found = await self._letters.read(letter_id)
        if found is None:
            raise OperationError(f"there is no dead letter {letter_id}; `rca dlq list` shows them")
        return found

    async def replay(self, letter_id: int) -> StoredLetter:
        """Send its request again.

        Raises OperationError if its subject has another prefix, because no worker would take it.
        """
        letter = await self.letter(letter_id)
        if self._subjects.parse_request(letter.origin_subject) is None:
            raise OperationError(
                f"dead letter {letter_id} comes from another prefix ({letter.origin_subject!r}): set RCA_NATS__PREFIX"
            )
        await self._letters.replay(letter)
        return letter

    async def drop(self, letter_id: int) -> StoredLetter:
        """Delete a dead letter. The `failed` result of its request stays."""
        letter = await self.letter(letter_id)
        await self._letters.drop(letter)
        return letter

    async def result(self, key: str) -> AnalysisResult | None:
        """The result of a request, if it has one."""
        return await self._results.find(key)

    async def newest_results(self, count: int) -> list[AnalysisResult]:
        """The newest results, the newest first; those of a newer version are left out."""
        newest = await self._stored_results.latest(count)
        return [found for message in newest if (found := readable(AnalysisResult, message.body))]

    async def cancel(self, key: str, *, at: datetime, token: str) -> AnalysisResult | None:
        """Cancel a request. If it has ended already, return its result and cancel nothing.

        `token` is unique for each call.
        """
        stored = await self._ended(key)
        if stored is None:
            await self._cancellations.cancel(key, at=at, token=token)
        return stored

    async def state(self, key: str) -> State:
        """The state of a request. This reads the queue message by message, so cancel before you ask."""
        started = bool(await self._journal.subjects(self._steps(key)))
        if not started and await self._waits(key):
            return State.QUEUED
        if await self._ended(key):  # while we looked
            return State.FINISHED
        return State.STARTED if started else State.UNKNOWN

    async def waits_for(self, key: str) -> str:
        """Why the last run of a request ended without a result, in words; empty while a run works on it."""
        newest = await self._journal.newest(self._steps(key))
        with suppress(Unreadable):
            head = read_head(newest.body) if newest else None
            if head and head.kind == END:
                return one_line(str(head.notes.get("reason", STOPPED)).replace("_", " "), REASON_CHARS)
        return ""

    async def waits(self, keys: Sequence[str]) -> dict[str, str]:
        """Why each of these requests waits, as `waits_for` says it."""
        whys = await concurrently([self.waits_for(key) for key in keys], at_once=AT_ONCE)
        return dict(zip(keys, whys, strict=True))

    async def newest_events(self, count: int) -> list[AuditEvent]:
        """The newest audit events, the oldest of them first; those of a newer version are left out."""
        newest = await self._audit.latest(count)
        return [event for message in reversed(newest) if (event := readable(AuditEvent, message.body))]

    def _steps(self, key: str) -> str:
        return f"$KV.{self._journal.bucket}.{kv_key(key)}.*"

    async def _ended(self, key: str) -> AnalysisResult | None:
        """The result of a request that has ended.

        A `failed` one is not the end while a replay is queued or runs.
        """
        stored = await self.result(key)
        is_replayed = stored is not None and stored.status is Status.FAILED and await self._waits(key)
        return None if is_replayed else stored

    async def _waits(self, key: str) -> bool:
        every = f"{self._subjects.prefix}.request.>"
        newest, last = await self._requests.newest(every), 0
        while newest is not None and last < newest.sequence:
            found = await self._requests.after(last, every)
            if found is None:
                break
            parsed = self._subjects.parse_request(found.subject)
            if parsed and readable_key(found.body, parsed[0]) == key:
                return True
            last = found.sequence
        return False
