"""Checks that the stream of audit events still holds what was stored in it, and nothing from elsewhere.

Whoever can change the stream can empty it without touching a single chain: what is gone altogether leaves no event that
could be wrong. Configuration and counters of the stream tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from worker.domain.audit.findings import AuditFinding, ChainProblem

FOREIGN: Final = ("sources", "mirror", "subject_transform")
"""With one of these, a stream stores messages that nobody published to it."""
LIMITS: Final = ("max_age", "max_msgs", "max_msgs_per_subject")
"""Where one of these is lower than provisioned, messages are deleted early. 0 and -1 mean none."""
KEPT: Final = ("discard", "allow_rollup_hdrs", "allow_msg_ttl")
"""Where one of these differs, a publisher can have messages deleted."""


@dataclass(frozen=True, slots=True)
class TrailStream:
    """Configuration and state of the stream. `deleted` counts messages that were deleted one by one.

    `last_at`: when the last message was stored, also when it is gone by now; None when there never was one.
    """

    created: datetime
    messages: int
    first: int
    last: int
    last_at: datetime | None
    deleted: int
    config: Mapping[str, Any]


def stream_findings(
    have: TrailStream, want: Mapping[str, Any], *, max_age: timedelta, now: datetime, archived: int = 0
) -> Iterator[AuditFinding]:
    """What is wrong with the stream. `want` is its configuration as provisioned, which keeps events for `max_age`.

    Messages up to the sequence `archived` are known from an archive, so they may be gone.
    """
    yield from _configured(have.config, want)
    if have.deleted:
        yield _finding(ChainProblem.STREAM_DELETED, f"{have.deleted} messages were deleted one by one")
    if detail := _emptied(have, max_age, now, archived):
        yield _finding(ChainProblem.STREAM_EMPTIED, detail)


def _configured(have: Mapping[str, Any], want: Mapping[str, Any]) -> Iterator[AuditFinding]:
    for what in FOREIGN:
        if have.get(what):
            yield _finding(ChainProblem.STREAM_FEED, f"it has {what}: it stores messages of another stream")
    if other := sorted(set(have.get("subjects", ())) ^ set(want["subjects"])):
        yield _finding(ChainProblem.STREAM_FEED, f"its subjects differ from the provisioned ones in {other}")
    for limit in LIMITS:
        if _number(have.get(limit)) < _number(want.get(limit)):
            said = f"{limit} is {have[limit]}, provisioned is {want.get(limit, 'none')}"
            yield _finding(ChainProblem.STREAM_LIMITS, f"{said}: events are deleted early")
    for what in KEPT:
        if (value := have.get(what) or False) != (want.get(what) or False):
            yield _finding(ChainProblem.STREAM_LIMITS, f"{what} is {value}: events can be deleted")


def _emptied(have: TrailStream, max_age: timedelta, now: datetime, archived: int) -> str:
    """What was deleted before its time; empty for nothing that can be told."""
    if have.first - 1 <= archived:
        return ""
    gone = f"messages {archived + 1} to {have.first - 1} are gone"
    if now - have.created < max_age:
        return f"{gone}, and none can have expired since the stream was created at {have.created.isoformat()}"
    if not have.messages and have.last_at and now - have.last_at < max_age:
        return f"{gone}, and the last one was stored at {have.last_at.isoformat()}"
    return ""


def _number(limit: Any) -> float:
    return float(limit) if isinstance(limit, int) and limit > 0 else float("inf")


def _finding(problem: ChainProblem, detail: str) -> AuditFinding:
    return AuditFinding("", "", 0, problem, detail)
