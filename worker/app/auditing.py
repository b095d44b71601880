"""Checks and exports the audit events of a prefix: from its streams, or from a file of exported events."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nats.aio.client import Client
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from schemas.analysis import Status
from schemas.audit import AuditEvent
from schemas.permissions import API
from schemas.subjects import Subjects, kind_of_key, request_key
from worker.adapters.audit_archive import AUDIT, RESULTS, ArchiveError, AuditArchive, Part
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.stream import FencedStream, StoredMessage
from worker.adapters.nats.stream_info import StreamInfo
from worker.domain.audit.check import AuditCheck, TrailStream, stream_findings
from worker.domain.audit.findings import AuditFacts, KeptHead, Report, StoredResult
from worker.domain.audit.record import read_record
from worker.domain.values.errors import ReportedError
from worker.domain.values.ports import SignatureCheck
from worker.domain.values.readable import readable

HEAD = TypeAdapter(KeptHead)
BATCH = 1_000
"""Messages that an export holds in memory and writes at once."""
MAX_LINE_BYTES = 4 * 1024 * 1024
Progress = Callable[[int, int], None]
"""Called with the number of messages read so far and the number of all; for a file, with bytes."""


class _ResultFacts(BaseModel):
    """The fields that are read of a stored result; a newer version may have more."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: str
    remediation_id: str = ""
    recovery_attempt_number: int | None = None


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export has added to an archive: how many messages of a stream, up to the sequence `last`."""

    stream: str
    messages: int
    last: int


class Auditing:
    """Checks and exports the audit events of one prefix. Every method may raise Unavailable."""

    def __init__(self, nc: Client, subjects: Subjects, *, api_prefix: str = API) -> None:
        self._nc, self._subjects, self._api_prefix = nc, subjects, api_prefix
        self._wanted = {item.name: item.config for item in wanted(subjects) if not item.stream}

    async def check(
        self,
        keys: Sequence[SignatureCheck],
        *,
        only: str = "",
        now: datetime | None = None,
        archive: AuditArchive | None = None,
        head: str = "",
        heads: Sequence[KeptHead] = (),
        progress: Progress = lambda _done, _all: None,
    ) -> Report:
        """Check the stream and its chains (with `only`, of one request key) against the stored results.

        Results are read first, because each of them then has all its events in the stream. With `archive`,
        events that were exported are read from there.
        """
        now = now or datetime.now(UTC)
        queue = await self._stream(self._subjects.requests_stream).extent(now)
        results = await self._results(only, now)
        stream, check = self._stream(self._subjects.audit_stream), AuditCheck(keys, only=only)
        info, want = await stream.info(), self._wanted[self._subjects.audit_stream]
        max_age = timedelta(microseconds=want["max_age"] // 1_000)
        extent = info.extent(now, max_age)
        archived = archive.newest(AUDIT) if archive else None
        if archived:
            await _require_same(stream, self._subjects.audit_stream, archived, extent.last)
        for position, body in _archived(archive, progress) if archive else ():
            check.add(position, body)
        unread = replace(extent, first=max(extent.first, archived.last + 1 if archived else 0))
        async for message in stream.messages(unread):
            check.add(message.sequence, message.body, message.stored_at)
            progress(message.sequence - unread.first + 1, unread.last - unread.first + 1)
        gone = archived.last if archived else 0
        found = list(stream_findings(_trail_stream(info), want, max_age=max_age, now=now, archived=gone))
        found += archive.findings(head) if archive else ()
        kept_since = _kept_since(archive) if archive else extent.kept_since
        return check.finish(AuditFacts(now, results, queue.oldest, kept_since, of_stream=found, heads=heads))

    async def export(
        self, archive: AuditArchive, progress: Progress = lambda _done, _all: None
    ) -> list[Exported]:
        """Append what the archive does not have yet.

        Results come first, because each of them then has all its events in the archive.

        Raises ArchiveError when the archive is of other streams.
        """
        kinds = {RESULTS: self._subjects.results_stream, AUDIT: self._subjects.audit_stream}
        return [await self._export(archive, kind, name, progress) for kind, name in kinds.items()]

    async def _export(self, archive: AuditArchive, kind: str, name: str, progress: Progress) -> Exported:
        stream, newest, count = self._stream(name), archive.newest(kind), 0
        extent = await stream.extent(datetime.now(UTC))
        if newest is not None:
            await _require_same(stream, name, newest, extent.last)
        unread = replace(extent, first=max(extent.first, newest.last + 1 if newest else 0))
        batch = list[StoredMessage]()

        def write() -> None:
            if batch:
                kept = None if newest else extent.kept_since
                rows = [(each.sequence, each.body) for each in batch]
                archive.append(kind, rows, stored_at=batch[0].stored_at, kept_since=kept)
            batch.clear()

        async for message in stream.messages(unread):
            if batch and (len(batch) >= BATCH or message.stored_at.date() != batch[0].stored_at.date()):
                write()
            batch.append(message)
            count += 1
            progress(message.sequence - unread.first + 1, unread.last - unread.first + 1)
        write()
        last = archive.newest(kind)
        return Exported(name, count, last.last if last else 0)

    async def events(
        self, *, only: str = "", progress: Progress = lambda _done, _all: None
    ) -> AsyncIterator[bytes]:
        """The events as they are stored, oldest first; with `only` those of one request key."""
        archive = self._stream(self._subjects.audit_stream)
        extent = await archive.extent(datetime.now(UTC))
        async for message in archive.messages(extent):
            progress(message.sequence - extent.first + 1, extent.last - extent.first + 1)
            if not only or _is_of(message.body, only):
                yield message.body

    async def events_of(self, key: str, progress: Progress = lambda _done, _all: None) -> list[AuditEvent]:
        """The events of a request by time, each once; those of a newer version are left out."""
        found = dict[str, AuditEvent]()
        async for body in self.events(only=key, progress=progress):
            if event := readable(AuditEvent, body):
                found.setdefault(event.event_id, event)
        return sorted(found.values(), key=lambda event: event.time)

    async def _results(self, only: str, now: datetime) -> dict[str, StoredResult]:
        found = dict[str, StoredResult]()
        archive = self._stream(self._subjects.results_stream)
        if only:
            if stored := await archive.newest(self._subjects.result(kind_of_key(only), only)):
                found[only] = _result(stored.body, stored.stored_at)
            return found
        async for message in archive.messages(await archive.extent(now)):
            found[self._subjects.key_of(message.subject)] = _result(message.body, message.stored_at)
        return found

    def _stream(self, stream: str) -> FencedStream:
        return FencedStream(self._nc, stream, api_prefix=self._api_prefix)


def check_export(
    path: Path,
    keys: Sequence[SignatureCheck],
    *,
    only: str = "",
    head: str = "",
    kept_since: datetime | None = None,
    exported_at: datetime | None = None,
    heads: Sequence[KeptHead] = (),
    progress: Progress = lambda _done, _all: None,
) -> Report:
    """Check exported events: a file with one per line, or the directory of an archive.

    An archive also contains the results to compare them with. `head` is for an archive, `kept_since` for a
    file. Raises ArchiveError and OSError.

    Requests may have been open at `exported_at`. Without it they may be open now; but with `keys` none may be
    open, because a chain whose end was cut off looks the same.
    """
    archive = AuditArchive(path) if path.is_dir() else None
    results = _archived_results(archive, only) if archive else None
    check = AuditCheck(keys, only=only)
    for position, body in _archived(archive, progress) if archive else _numbered_lines(path, progress):
        check.add(position, body)
    return check.finish(
        AuditFacts(
            exported_at or datetime.now(UTC),
            results,
            kept_since=_kept_since(archive) if archive else kept_since,
            all_ended=bool(keys) and exported_at is None,
            of_stream=list(archive.findings(head)) if archive else (),
            heads=heads,
        )
    )


def _numbered_lines(path: Path, progress: Progress) -> Iterator[tuple[int, bytes]]:
    done, size = 0, path.stat().st_size
    for number, line in enumerate(_lines(path), start=1):
        done += len(line)
        progress(done, size)
        yield number, line.removesuffix(b"\n")


def _archived_results(archive: AuditArchive, only: str) -> dict[str, StoredResult]:
    found = dict[str, StoredResult]()
    for body in archive.lines(RESULTS):
        facts = readable(_ResultFacts, body)
        key = request_key(facts.remediation_id, facts.recovery_attempt_number) if facts else ""
        if not only or key == only:
            found[key] = _result(body, None)
    return found


def _archived(archive: AuditArchive, progress: Progress) -> Iterator[tuple[int, bytes]]:
    """The events of an archive, counted from 1."""
    total = sum(part.last - part.first + 1 for part in archive.parts if part.kind == AUDIT)
    for position, body in enumerate(archive.lines(AUDIT), start=1):
        progress(position, total)
        yield position, body


def read_heads(path: Path) -> list[KeptHead]:
    """The heads in a file, one per line: whole events, or objects with the fields of a head.

    Raises ReportedError, OSError.
    """
    found = list[KeptHead]()
    for number, line in enumerate(_lines(path), start=1):
        try:
            found.append(HEAD.validate_json(line))
        except ValidationError as e:
            raise ReportedError(
                f"{path}: line {number} is not a head: it needs request_key, chain, sequence and hash; a time needs an offset"
            ) from e
    return found


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file. A line above the limit comes in pieces, none of which is an event."""
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            yield line


async def _require_same(stream: FencedStream, name: str, newest: Part, last: int) -> None:
    """Raises ArchiveError if a stream does not continue where the archive ends."""
    there = await stream.at(newest.last)
    if last < newest.last or (there is not None and hashlib.sha256(there.body).hexdigest() != newest.tail):
        raise ArchiveError(
            f"the archive has {name} up to message {newest.last}, which is not in the stream: the stream was created anew. "
            "Export to another directory"
        )


def _kept_since(archive: AuditArchive) -> datetime | None:
    return next((part.kept_since for part in archive.parts if part.kind == AUDIT), None)


def _trail_stream(info: StreamInfo) -> TrailStream:
    state = info.state
    return TrailStream(
        created=info.created,
        messages=state.messages,
        first=max(1, state.first_seq),
        last=state.last_seq,
        last_at=state.last_ts if state.last_seq else None,
        deleted=state.num_deleted,
        config=info.config,
    )


def _result(body: bytes, stored_at: datetime | None) -> StoredResult:
    facts = readable(_ResultFacts, body)
    failed = facts is not None and facts.status == Status.FAILED
    return StoredResult(hashlib.sha256(body).hexdigest(), failed, stored_at)


def _is_of(body: bytes, key: str) -> bool:
    try:
        return read_record(body).request_key == key
    except ValueError:
        return False
