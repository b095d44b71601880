"""What a check of audit chains looks at besides the events, and what it finds."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


class ChainProblem(enum.StrEnum):
    """What is wrong. Every one of them means that somebody has touched the trail, or that a part of it is lost."""

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


class ChainStatus(enum.StrEnum):
    """What a chain looks like. `abandoned`: the journal was gone or unreadable, so a later chain does without its end."""

    COMPLETE = "complete"
    OPEN = "open"
    ABANDONED = "abandoned"
    EXPIRED = "incomplete (expired)"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """The first thing that is wrong with a chain, or with a message that belongs to none (sequence 0).

    `position` is where it was seen: the sequence in the stream, or the line of the file; 0 for what is missing.
    """

    request_key: str
    chain: str
    sequence: int
    problem: ChainProblem
    detail: str
    position: int = 0


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A published result: the SHA-256 of its body, and whether it is the `failed` one of a dead letter."""

    sha256: str
    failed: bool = False
    stored_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditFacts:
    """What is known besides the events.

    `now`: when the reading of the events began. `results` by request key; None when they were not read. They have to be
    read before the events are: then every event of a stored result is there. `waiting_since`: when the oldest request
    in the queue was stored, None for an empty queue. `kept_since`: events from before may have expired; None when none
    can have.
    """

    now: datetime
    results: Mapping[str, StoredResult] | None = None
    waiting_since: datetime | None = None
    kept_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class ChainReport:
    """One chain. `head` is the hash of its last event, which may be kept elsewhere as a proof."""

    request_key: str
    chain: str
    status: ChainStatus
    events: int
    head: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a check has found. `events` counts each once, `republished` how often one was read again.

    `signed` counts the ends with a signature: a good one, when keys were given (`checked_signatures`). `notable` are the
    chains that are neither complete nor bad. `checked_results`: how many there were; None when they were not read.
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
        """Nothing is wrong."""
        return not self.findings
