"""One chain of audit events as it is read: in the order of the stream, in little memory (32 bytes for each event).

A worker that takes a request over publishes earlier events again, with the same bytes. Otherwise events come in the
order of their numbers, since each is confirmed before the next one is published. So an event that comes too early shows
at once that others are missing or were moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from schemas.chain import genesis
from worker.domain.audit.findings import AuditFinding, ChainProblem
from worker.domain.audit.link import End, Link

HASH_BYTES: Final = 32


class Chain:
    """What is known of one chain.

    `first` is the sequence of the first event seen, above 1 when the beginning is missing; `next` the sequence that is
    expected now, or the first one that is missing. `last_at`: when the newest event was stored, or its own time when that
    is unknown. `latest`: time, sequence and position of the event with the latest time of its own.
    """

    def __init__(self, link: Link, stored_at: datetime | None = None) -> None:
        self.key, self.name = link.request_key, link.chain
        self.first = self.next = link.sequence
        self.first_time = link.time
        self.last_at = stored_at or link.time
        self.latest = (link.time, link.sequence, 0)
        self.first_type = link.event_type
        self.continues, self.replayed = link.continues, link.replayed
        self.ends: list[End] = []
        self.bad: AuditFinding | None = None
        self.seen = self.republished = 0
        self._hashes = bytearray()

    @property
    def ended(self) -> bool:
        """Its last event is an end."""
        return bool(self.ends) and self.ends[-1].sequence == self.next - 1

    @property
    def head(self) -> str:
        """Hash of the last event of the unbroken part."""
        return self._hashes[-HASH_BYTES:].hex()

    def knows(self, event_hash: str) -> bool:
        """Whether an event with this hash is in the unbroken part."""
        return any(known.hex() == event_hash for known in self._all())

    def follow(self, link: Link, position: int, stored_at: datetime | None = None) -> bool:
        """Take the next intact event. Returns True if it is new and extends the unbroken part."""
        at = (link.sequence - self.first) * HASH_BYTES
        if link.sequence < self.first:
            self.wrong(link.sequence, ChainProblem.MISSING, "it comes after events that follow it", position)
        elif at < len(self._hashes):
            if self._hashes[at : at + HASH_BYTES].hex() == link.hash:
                self.republished += 1
            else:
                self.wrong(
                    link.sequence, ChainProblem.TWO_EVENTS, "two different events have this number", position
                )
        elif link.sequence > self.next:
            self.wrong(
                self.next, ChainProblem.MISSING, f"the next one that is there is {link.sequence}", position
            )
        elif not self._links(link):
            detail = "it does not follow the event before it: one of the two is not the original"
            self.wrong(link.sequence, ChainProblem.NOT_LINKED, detail, position)
        else:
            self._take(link, position, stored_at)
            return True
        return False

    def wrong(self, sequence: int, problem: ChainProblem, detail: str, position: int = 0) -> None:
        """Note a problem. The first one with the lowest sequence is kept."""
        if self.bad is None or sequence < self.bad.sequence:
            self.bad = AuditFinding(self.key, self.name, sequence, problem, detail, position)

    def _links(self, link: Link) -> bool:
        if self._hashes:
            return link.prev == self.head
        return link.sequence > 1 or link.prev == genesis(self.key, self.name)

    def _take(self, link: Link, position: int, stored_at: datetime | None) -> None:
        self._hashes += bytes.fromhex(link.hash)
        self.next, self.seen = link.sequence + 1, self.seen + 1
        self.last_at = stored_at or link.time
        if not self.latest[-1] or link.time > self.latest[0]:
            self.latest = (link.time, link.sequence, position)
        if link.end is not None:
            self.ends.append(link.end)

    def _all(self) -> Iterator[bytes]:
        for at in range(0, len(self._hashes), HASH_BYTES):
            yield bytes(self._hashes[at : at + HASH_BYTES])
