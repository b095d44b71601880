"""Checks that audit events are complete, unchanged and in order, and belong to the published results.

Hashes alone show every change except one: an attacker who may write to the stream can recompute the hashes of
a whole chain. Signatures, and heads of chains that are kept elsewhere, show this as well.

Whoever can change the stream can empty it without touching a single chain: chains that are gone leave no
event that could be wrong. Configuration and counters of the stream reveal it (`stream_findings`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from schemas.audit import EventType
from worker.domain.audit.chains import Chain, End, Link, read_link
from worker.domain.audit.findings import (
    AuditFacts,
    AuditFinding,
    ChainProblem,
    ChainReport,
    ChainStatus,
    Report,
    StoredResult,
    of_stream,
)
from worker.domain.values.ports import SignatureCheck

RESUMABLE: Final = timedelta(hours=24)
"""How long a journal is kept. After that, no run continues a chain."""

LISTED: Final = 10_000
"""How many unreadable messages are listed."""

CLOCKS: Final = timedelta(minutes=10)
"""How much the clocks of workers and of this check may differ."""
FOREIGN: Final = ("sources", "mirror", "subject_transform")
"""With one of these, a stream stores messages that were not published to it."""
LIMITS: Final = ("max_age", "max_msgs", "max_msgs_per_subject")
"""If one of these is lower than provisioned, messages are deleted early. 0 and -1 mean no limit."""
KEPT: Final = ("discard", "allow_rollup_hdrs", "allow_msg_ttl")
"""If one of these differs, a publisher can cause messages to be deleted."""


class AuditCheck:
    """Reads events in the order of the stream, then reports the problems. It keeps 32 bytes per event.

    With `keys`, each end of a chain must have a valid signature by one of them. With `only`, a request key,
    all other events are skipped.
    """

    def __init__(self, keys: Sequence[SignatureCheck] = (), *, only: str = "") -> None:
        self._keys, self._only = {key.key_id: key for key in keys}, only
        self._chains: dict[str, dict[str, Chain]] = {}
        self._loose: dict[tuple[str, str], AuditFinding] = {}
        self._unreadable: list[AuditFinding] = []
        self._signed = self._ends = 0

    def add(self, position: int, body: bytes, stored_at: datetime | None = None) -> None:
        """Read the next message.

        `position` is its place, for the report; `stored_at` the time at which it was stored.
        """
        try:
            link = read_link(body)
        except ValueError as e:
            if not self._only and len(self._unreadable) < LISTED:
                self._unreadable.append(AuditFinding("", "", 0, ChainProblem.UNREADABLE, str(e), position))
            return
        if self._only and link.request_key != self._only:
            return
        if not link.intact:
            self._changed(link, position)
            return
        chains = self._chains.setdefault(link.request_key, {})
        chain = chains.get(link.chain)
        if chain is None:
            chain = chains[link.chain] = Chain(link, stored_at)
        if not chain.follow(link, position, stored_at):
            return
        if stored_at is not None and link.time - stored_at > CLOCKS:
            detail = f"its time is {link.time.isoformat()}, but it was stored at {stored_at.isoformat()}"
            chain.wrong(link.sequence, ChainProblem.IN_THE_FUTURE, detail, position)
        if link.end is not None:
            self._check_end(chain, link.end, position)

    def finish(self, facts: AuditFacts) -> Report:
        """The report: the first problem of each chain."""
        notable, count = list[ChainReport](), Counter[ChainStatus]()
        for chain, status in self._judged(facts):
            count[status] += 1
            if status is not ChainStatus.BAD and (status is not ChainStatus.COMPLETE or self._only):
                notable.append(ChainReport(chain.key, chain.name, status, chain.seen, chain.head))
        chains = [chain for chains in self._chains.values() for chain in chains.values()]
        bad = [self._most_telling(chain.bad) for chain in chains if chain.bad]
        missing = [*self._without_events(facts), *self._without_heads(facts)]
        return Report(
            [*facts.of_stream, *self._unreadable, *bad, *self._loose.values(), *missing],
            notable,
            events=sum(chain.seen for chain in chains),
            republished=sum(chain.republished for chain in chains),
            requests=len(self._chains),
            chains=dict(count),
            ends=self._ends,
            signed=self._signed,
            checked_signatures=bool(self._keys),
            checked_results=None if facts.results is None else len(facts.results),
        )

    def _judged(self, facts: AuditFacts) -> Iterator[tuple[Chain, ChainStatus]]:
        for chains in self._chains.values():
            for chain, status in _judged(list(chains.values()), facts):
                changed = (chain.key, chain.name) in self._loose
                yield chain, ChainStatus.BAD if chain.bad or changed else status

    def _most_telling(self, bad: AuditFinding) -> AuditFinding:
        """A changed event is also missing from its chain; of the two findings, report the change."""
        changed = self._loose.pop((bad.request_key, bad.chain), None)
        return changed if changed is not None and changed.sequence == bad.sequence else bad

    def _changed(self, link: Link, position: int) -> None:
        """Note a changed event. Its own key, chain and sequence may be what was changed."""
        place = (link.request_key, link.chain)
        known = self._loose.get(place)
        if known is None or link.sequence < known.sequence:
            detail = "its content does not match its hash"
            self._loose[place] = AuditFinding(*place, link.sequence, ChainProblem.CHANGED, detail, position)

    def _check_end(self, chain: Chain, end: End, position: int) -> None:
        self._ends += 1
        if not self._keys:
            self._signed += bool(end.key_id)
        elif not end.key_id:
            chain.wrong(end.sequence, ChainProblem.UNSIGNED, "the end of the chain is not signed", position)
        elif (key := self._keys.get(end.key_id)) is None:
            detail = f"signed with the key {end.key_id[:80]!r}"
            chain.wrong(end.sequence, ChainProblem.UNKNOWN_KEY, detail, position)
        elif not key.good(end.text, end.signature):
            chain.wrong(end.sequence, ChainProblem.FORGED, "the signature is wrong", position)
        else:
            self._signed += 1

    def _without_events(self, facts: AuditFacts) -> Iterator[AuditFinding]:
        for key, result in (facts.results or {}).items():
            if key in self._chains or (self._only and key != self._only):
                continue
            since = facts.kept_since
            if since is None or result.stored_at is None or result.stored_at >= since:
                yield AuditFinding(key, "", 1, ChainProblem.NO_EVENTS, "there is a result but no event")

    def _without_heads(self, facts: AuditFacts) -> Iterator[AuditFinding]:
        for head in facts.heads:
            if self._only and head.request_key != self._only:
                continue
            chain = self._chains.get(head.request_key, {}).get(head.chain)
            expired = facts.kept_since and head.time and head.time < facts.kept_since
            if not (chain.knows(head.hash) if chain else expired):
                detail = "its hash was kept elsewhere but is not in the trail"
                yield AuditFinding(
                    head.request_key, head.chain, head.sequence, ChainProblem.HEAD_MISSING, detail
                )


def _judged(chains: Sequence[Chain], facts: AuditFacts) -> Iterator[tuple[Chain, ChainStatus]]:
    """The status of each chain of one request, in the order in which they begin.

    Notes problems in the chains.
    """
    for chain in chains:
        _not_in_the_future(chain, facts)
        expired = False
        if chain.first > 1:
            expired = _may_have_expired(chain, facts)
            if not expired:
                chain.wrong(1, ChainProblem.MISSING, f"the first event that exists is {chain.first}")
        if chain is chains[-1]:
            status = _last(chains, facts)
        else:
            status = _earlier(chain, chains[chains.index(chain) + 1])
        yield chain, ChainStatus.EXPIRED if expired and status is ChainStatus.COMPLETE else status


def _not_in_the_future(chain: Chain, facts: AuditFacts) -> None:
    """Check the times of the events.

    Those without a stored time are checked, too: with a time of the writer's choice, a cut chain could stay
    open.
    """
    time, sequence, position = chain.latest
    if time - facts.now > CLOCKS:
        detail = f"its time {time.isoformat()} is in the future"
        chain.wrong(sequence, ChainProblem.IN_THE_FUTURE, detail, position)


def _may_have_expired(chain: Chain, facts: AuditFacts) -> bool:
    """True if the missing events may have expired.

    No run continues a chain after a day, so they are at most a day older than the others.
    """
    return facts.kept_since is not None and chain.first_time - facts.kept_since <= RESUMABLE + CLOCKS


def _earlier(chain: Chain, following: Chain) -> ChainStatus:
    """The status of a chain that another one follows: it has an end, or a reason for having none."""
    if chain.ended:
        return ChainStatus.COMPLETE
    if following.first > 1:
        return ChainStatus.ABANDONED
    if following.first_type == EventType.REQUEST_RESUMED:
        if not following.continues or chain.knows(following.continues):
            return ChainStatus.ABANDONED
    elif not following.replayed and following.first_time - chain.last_at > RESUMABLE - CLOCKS:
        return ChainStatus.ABANDONED
    chain.wrong(chain.next, ChainProblem.TRUNCATED, "it has no end, and the next chain does not explain it")
    return ChainStatus.BAD


def _last(chains: Sequence[Chain], facts: AuditFacts) -> ChainStatus:
    chain = chains[-1]
    stored = (facts.results or {}).get(chain.key)
    if chain.ended:
        _compare(chains, stored, facts)
        return ChainStatus.COMPLETE
    is_open = not facts.all_ended and (facts.now - chain.last_at < RESUMABLE or _may_wait(chain, facts))
    if stored is not None:
        answered = [(c, e.sequence) for c in chains for e in c.ends if e.result_sha256 == stored.sha256]
        if answered and not stored.failed:
            after = answered[-1][1] + 1 if answered[-1][0] is chain else chain.first
            chain.wrong(after, ChainProblem.AFTER_THE_END, "the request had already been answered")
            return ChainStatus.BAD
        is_open = is_open and bool(answered)
    if not is_open:
        detail = "it has no end" if stored is None else "it has no end, and there is a result"
        chain.wrong(chain.next, ChainProblem.TRUNCATED, detail)
        return ChainStatus.BAD
    return ChainStatus.OPEN


def _may_wait(chain: Chain, facts: AuditFacts) -> bool:
    """True if a request this old is in the queue: no worker has run for a day, or all of them had to wait."""
    return facts.waiting_since is not None and facts.waiting_since - chain.first_time < CLOCKS


def _compare(chains: Sequence[Chain], stored: StoredResult | None, facts: AuditFacts) -> None:
    """Check that the stored result is that of the last end.

    It may be that of an earlier end while a replayed dead letter is being answered.
    """
    chain, end = chains[-1], chains[-1].ends[-1]
    if stored is None or stored.sha256 == end.result_sha256:
        return
    known = any(e.result_sha256 == stored.sha256 for c in chains for e in c.ends)
    if known and stored.failed and facts.now - end.time < CLOCKS:
        return
    chain.wrong(end.sequence, ChainProblem.OTHER_RESULT, "the stored result is not that of this event")


@dataclass(frozen=True, slots=True)
class TrailStream:
    """Configuration and state of the stream. `deleted` counts messages that were deleted one by one.

    `last_at`: when the last message was stored, even if it is gone by now; None if there never was one.
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
    """Yield what is wrong with the stream.

    `want` is its configuration as provisioned, which keeps events for `max_age`.

    Messages up to the sequence `archived` are known from an archive, so they may be gone.
    """
    yield from _configured(have.config, want)
    if have.deleted:
        yield of_stream(ChainProblem.STREAM_DELETED, f"{have.deleted} messages were deleted one by one")
    if detail := _emptied(have, max_age, now, archived):
        yield of_stream(ChainProblem.STREAM_EMPTIED, detail)


def _configured(have: Mapping[str, Any], want: Mapping[str, Any]) -> Iterator[AuditFinding]:
    for what in FOREIGN:
        if have.get(what):
            yield of_stream(ChainProblem.STREAM_FEED, f"it has {what}: it stores messages of another stream")
    if other := sorted(set(have.get("subjects", ())) ^ set(want["subjects"])):
        yield of_stream(ChainProblem.STREAM_FEED, f"its subjects differ from the provisioned ones in {other}")
    for limit in LIMITS:
        if _number(have.get(limit)) < _number(want.get(limit)):
            said = f"{limit} is {have[limit]}, provisioned is {want.get(limit, 'none')}"
            yield of_stream(ChainProblem.STREAM_LIMITS, f"{said}: events are deleted early")
    for what in KEPT:
        if (value := have.get(what) or False) != (want.get(what) or False):
            yield of_stream(ChainProblem.STREAM_LIMITS, f"{what} is {value}: events can be deleted")


def _emptied(have: TrailStream, max_age: timedelta, now: datetime, archived: int) -> str:
    """The events that were deleted before their time; empty if none can be shown."""
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
