"""The facts besides events that a check of audit chains uses, and its findings."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import AwareDatetime


class ChainProblem(enum.StrEnum):
    """A problem of a chain, the stream or an archive: it was tampered with, or a part of it is lost."""

    UNREADABLE = "unreadable"
    CHANGED = "changed"
    MISSING = "missing"
    NOT_LINKED = "not_linked"
    TWO_EVENTS = "two_events"
    TRUNCATED = "truncated"
    AFTER_THE_END = "after_the_end"
    OTHER_RESULT = "other_result"
    NO_EVENTS = "no_events"
    UNSIGNED = "unsigned"
    UNKNOWN_KEY = "unknown_key"
    FORGED = "forged"
    IN_THE_FUTURE = "in_the_future"
    HEAD_MISSING = "head_missing"
    STREAM_EMPTIED = "stream_emptied"
    STREAM_FEED = "stream_feed"
    STREAM_LIMITS = "stream_limits"
    STREAM_DELETED = "stream_deleted"
    ARCHIVE_CHANGED = "archive_changed"
    ARCHIVE_GAP = "archive_gap"


class ChainStatus(enum.StrEnum):
    """The state of a chain. `abandoned`: its journal was lost or unreadable, and a later chain replaced it."""

    COMPLETE = "complete"
    OPEN = "open"
    ABANDONED = "abandoned"
    EXPIRED = "incomplete (expired)"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """The first problem of a chain.

    With sequence 0 it is about a message without a chain, about the stream or about an archive.

    `position` is the sequence in the stream or the line of the file; 0 for a missing event, stream and
    archive.
    """

    request_key: str
    chain: str
    sequence: int
    problem: ChainProblem
    detail: str
    position: int = 0


def of_stream(problem: ChainProblem, detail: str) -> AuditFinding:
    """A finding about a whole stream or archive."""
    return AuditFinding("", "", 0, problem, detail)


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A published result: the SHA-256 of its body, and whether it is the `failed` one of a dead letter."""

    sha256: str
    failed: bool = False
    stored_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KeptHead:
    """The last event of a chain, as it was copied elsewhere when it was published.

    `time` is None when it was not kept.
    """

    request_key: str
    chain: str
    sequence: int
    hash: str
    time: AwareDatetime | None = None


@dataclass(frozen=True, slots=True)
class AuditFacts:
    """The facts besides the events.

    `now`: when reading the events began. `results` by request key; None when they were not read. Read them
    before the events, so that every event of a stored result is there. `waiting_since`: when the oldest
    request in the queue was stored; None for an empty queue. `heads`: copies of heads that must be in the
    trail, unless they have expired.
    """

    now: datetime
    results: Mapping[str, StoredResult] | None = None
    waiting_since: datetime | None = None
    kept_since: datetime | None = None
    all_ended: bool = False
    of_stream: Sequence[AuditFinding] = ()
    heads: Sequence[KeptHead] = ()


@dataclass(frozen=True, slots=True)
class ChainReport:
    """One chain. `head` is the hash of its last event; kept elsewhere, it proves the chain."""

    request_key: str
    chain: str
    status: ChainStatus
    events: int
    head: str


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check. `events` counts each event once, `republished` the further copies.

    `signed` counts the ends with a signature; with keys (`checked_signatures`) only valid ones. `notable` are
    the chains that are neither complete nor bad. `checked_results`: the number of results; None when they
    were not read.
    """

    findings: Sequence[AuditFinding] = ()
    notable: Sequence[ChainReport] = ()
    events: int = 0
    republished: int = 0
    requests: int = 0
    chains: Mapping[ChainStatus, int] = field(default_factory=dict)
    ends: int = 0
    signed: int = 0
    checked_signatures: bool = False
    checked_results: int | None = None

    @property
    def good(self) -> bool:
        """True if no problem was found."""
        return not self.findings
