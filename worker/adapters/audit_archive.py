"""An archive of audit events and results: a directory with one file for each stream and day, and an index.

A file has one message on a line, as it was stored. Each line of `index.jsonl` adds a part to one file, and
has the SHA-256 of this part and of the line of the index before it. The last line therefore vouches for
everything: whoever keeps its SHA-256 elsewhere (a head) can tell whether anything was changed or cut off. If
an export breaks off, the next one removes the part that is not in the index.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, NonNegativeInt, ValidationError

from worker.domain.audit.findings import AuditFinding, ChainProblem, of_stream
from worker.domain.values.errors import ReportedError

INDEX: Final = "index.jsonl"
FILE_NAME: Final = re.compile(r"(audit|results)-\d{4}-\d\d-\d\d\.jsonl", re.ASCII)
AUDIT, RESULTS = "audit", "results"


class ArchiveError(ReportedError):
    """The archive cannot be used, or does not belong to these streams."""


class Part(BaseModel):
    """A line of the index: `size` bytes of `file` with the messages `first` to `last` of a stream.

    `tail` is the SHA-256 of the last message. `kept_since`: older messages had expired before they were
    exported.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str
    file: str
    size: NonNegativeInt
    first: int
    last: int
    sha256: str
    tail: str
    prev: str
    at: datetime
    kept_since: AwareDatetime | None = None


class AuditArchive:
    """Reads an archive, and appends to it. Raises ArchiveError, OSError."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.parts, self.heads = directory, list[Part](), [""]
        path = directory / INDEX
        for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), start=1):
            try:
                part = Part.model_validate_json(line)
            except ValidationError as e:
                raise ArchiveError(f"{path}: line {number} is not a valid entry of an archive") from e
            if not FILE_NAME.fullmatch(part.file):
                raise ArchiveError(f"{path}: line {number} names a file that does not belong to an archive")
            self.parts.append(part)
            self.heads.append(_sha256(line))

    @property
    def head(self) -> str:
        """SHA-256 of the last line of the index; empty for an empty archive."""
        return self.heads[-1]

    def newest(self, kind: str) -> Part | None:
        """The last part of a stream."""
        return next((part for part in reversed(self.parts) if part.kind == kind), None)

    def append(
        self,
        kind: str,
        messages: Sequence[tuple[int, bytes]],
        *,
        stored_at: datetime,
        kept_since: datetime | None = None,
    ) -> None:
        """Add messages of one day (sequence and body, in order). They are on disk when this returns."""
        self.directory.mkdir(parents=True, exist_ok=True)
        name = f"{kind}-{stored_at.astimezone(UTC):%Y-%m-%d}.jsonl"
        body = b"".join(message + b"\n" for _, message in messages)
        end = sum(part.size for part in self.parts if part.file == name)
        path = self.directory / name
        with path.open("r+b" if path.exists() else "wb") as file:
            if file.seek(0, os.SEEK_END) < end:
                raise ArchiveError(f"{path} is shorter than {INDEX} says: it was cut off")
            file.truncate(end)
            file.seek(end)
            _write(file, body)
        part = Part(
            kind=kind,
            file=name,
            size=len(body),
            first=messages[0][0],
            last=messages[-1][0],
            sha256=_sha256(body),
            tail=_sha256(messages[-1][1]),
            prev=self.head,
            at=datetime.now(UTC),
            kept_since=kept_since,
        )
        line = part.model_dump_json(exclude_none=True).encode()
        with (self.directory / INDEX).open("ab") as file:
            _write(file, line + b"\n")
        self.parts.append(part)
        self.heads.append(_sha256(line))

    def lines(self, kind: str) -> Iterator[bytes]:
        """All messages of a stream, oldest first. Ends if a file is missing or too short: see `findings`."""
        for part, body in self._bodies():
            if part.kind == kind:
                yield from body.splitlines()

    def findings(self, head: str = "") -> Iterator[AuditFinding]:
        """Yield changes since the export. `head` was printed by an export and kept elsewhere."""
        if head and head not in self.heads:
            yield of_stream(ChainProblem.ARCHIVE_CHANGED, f"no line of {INDEX} has the hash {head[:80]}")
        last = dict[str, int]()
        for number, (part, body) in enumerate(self._bodies()):
            if part.prev != self.heads[number]:
                yield of_stream(
                    ChainProblem.ARCHIVE_CHANGED,
                    f"line {number + 1} of {INDEX} does not follow the one before",
                )
            if _sha256(body) != part.sha256:
                yield of_stream(
                    ChainProblem.ARCHIVE_CHANGED, f"{part.file}: messages {part.first} to {part.last}"
                )
            if part.first != (missing := last.get(part.kind, part.first - 1) + 1):
                gone = f"messages {missing} to {part.first - 1} were deleted before they were exported"
                detail = gone if part.first > missing else f"message {part.first} follows {missing - 1}"
                yield of_stream(ChainProblem.ARCHIVE_GAP, f"{part.kind}: {detail}")
            last[part.kind] = part.last

    def _bodies(self) -> Iterator[tuple[Part, bytes]]:
        ends = dict[str, int]()
        for part in self.parts:
            begin = ends.get(part.file, 0)
            ends[part.file] = begin + part.size
            path = self.directory / part.file
            body = b""
            if path.exists():
                there = path.stat().st_size - begin
                with path.open("rb") as file:
                    file.seek(begin if there > 0 else 0)
                    body = file.read(max(0, min(part.size, there)))
            yield part, body


def _write(file: BinaryIO, body: bytes) -> None:
    file.write(body)
    file.flush()
    os.fsync(file.fileno())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
