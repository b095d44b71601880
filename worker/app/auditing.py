"""Checks and exports the audit events of a prefix: from the streams, or from a file of exported ones."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from nats.aio.client import Client
from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.analysis import Status
from schemas.permissions import API
from schemas.subjects import Subjects
from schemas.taxonomy import RequestKind
from worker.adapters.ed25519_keys import read_public_key
from worker.adapters.nats.stream import FencedStream
from worker.domain.audit.check import AuditCheck
from worker.domain.audit.findings import AuditFacts, Report, StoredResult
from worker.domain.audit.record import read_record
from worker.domain.values.ports import SignatureCheck

MAX_LINE_BYTES = 4 * 1024 * 1024
Progress = Callable[[int, int], None]
"""Told how many messages of how many were read; of a file, how many bytes."""


class _ResultFacts(BaseModel):
    """What is read of a stored result: a newer version may have more."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: str


class Auditing:
    """For one prefix, on an open connection. Everything raises Unavailable."""

    def __init__(self, nc: Client, subjects: Subjects, *, api_prefix: str = API) -> None:
        self._nc, self._subjects, self._api_prefix = nc, subjects, api_prefix

    async def check(
        self,
        keys: Sequence[SignatureCheck],
        *,
        only: str = "",
        now: datetime | None = None,
        progress: Progress = lambda _done, _all: None,
    ) -> Report:
        """Check all chains, or that of one request key, and compare them with the stored results.

        Results are read first: each of them has all its events in the stream by then.
        """
        now = now or datetime.now(UTC)
        queue = await self._stream(self._subjects.requests_stream).extent(now)
        results = await self._results(only, now)
        archive, check = self._stream(self._subjects.audit_stream), AuditCheck(keys, only=only)
        extent = await archive.extent(now)
        async for message in archive.messages(extent):
            check.add(message.sequence, message.body, message.stored_at)
            progress(message.sequence - extent.first + 1, extent.last - extent.first + 1)
        return check.finish(AuditFacts(now, results, queue.oldest, extent.kept_since))

    async def events(self, *, only: str = "") -> AsyncIterator[bytes]:
        """The events as they are stored, oldest first; with `only` those of one request key."""
        archive = self._stream(self._subjects.audit_stream)
        async for message in archive.messages(await archive.extent(datetime.now(UTC))):
            if not only or _is_of(message.body, only):
                yield message.body

    async def _results(self, only: str, now: datetime) -> dict[str, StoredResult]:
        found = dict[str, StoredResult]()
        archive = self._stream(self._subjects.results_stream)
        if only:
            kind = RequestKind.RECOVERY if "." in only else RequestKind.INCIDENT
            if stored := await archive.newest(self._subjects.result(kind, only)):
                found[only] = _result(stored.body, stored.stored_at)
            return found
        async for message in archive.messages(await archive.extent(now)):
            key = message.subject.removeprefix(f"{self._subjects.prefix}.result.").partition(".")[2]
            found[key] = _result(message.body, message.stored_at)
        return found

    def _stream(self, stream: str) -> FencedStream:
        return FencedStream(self._nc, stream, api_prefix=self._api_prefix)


def check_file(
    path: Path,
    keys: Sequence[SignatureCheck],
    *,
    only: str = "",
    kept_since: datetime | None = None,
    progress: Progress = lambda _done, _all: None,
) -> Report:
    """Check exported events, one a line. Results are not known here. Raises OSError."""
    check, done, size = AuditCheck(keys, only=only), 0, path.stat().st_size
    for number, line in enumerate(_lines(path), start=1):
        check.add(number, line.removesuffix(b"\n"))
        done += len(line)
        progress(done, size)
    return check.finish(AuditFacts(datetime.now(UTC), kept_since=kept_since))


def public_keys(paths: Sequence[Path]) -> list[SignatureCheck]:
    """Keys to check signatures with. Raises KeyUnusable."""
    return [read_public_key(path) for path in paths]


def _lines(path: Path) -> Iterator[bytes]:
    """A line above the limit comes in pieces, none of which is an event."""
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            yield line


def _result(body: bytes, stored_at: datetime) -> StoredResult:
    try:
        failed = _ResultFacts.model_validate_json(body).status == Status.FAILED
    except ValidationError:
        failed = False
    return StoredResult(hashlib.sha256(body).hexdigest(), failed, stored_at)


def _is_of(body: bytes, key: str) -> bool:
    try:
        return read_record(body).request_key == key
    except ValueError:
        return False
