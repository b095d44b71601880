"""One chain of audit events, read in the order of the stream.

It takes little memory: 32 bytes for each event.

A worker that takes a request over publishes earlier events again, with the same bytes. Otherwise events come
in the order of their numbers, because each is confirmed before the next one is published. So an early event
shows at once that others are missing or were moved.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from schemas.audit import ENDS
from schemas.chain import canonical, event_hash, genesis, head_text
from worker.domain.audit.findings import AuditFinding, ChainProblem

HASH_BYTES: Final = 32
MAX_SEQUENCE: Final = 1_000_000
SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
TEXTS: Final = ("event_id", "request_key", "chain", "event_type", "time")
HASHES: Final = ("prev", "hash")


class Chain:
    """The known part of one chain.

    `first` is the sequence of the first event seen, above 1 when the beginning is missing; `next` the
    sequence that is expected now, or the first one that is missing. `last_at`: when the newest event was
    stored, or its own time when that is unknown. `latest`: time, sequence and position of the event with the
    latest time of its own.
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
        """True if its last event is an end."""
        return bool(self.ends) and self.ends[-1].sequence == self.next - 1

    @property
    def head(self) -> str:
        """Hash of the last event of the unbroken part."""
        return self._hashes[-HASH_BYTES:].hex()

    def knows(self, event_hash: str) -> bool:
        """True if an event with this hash is in the unbroken part."""
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
                self.next, ChainProblem.MISSING, f"the next event that exists is {link.sequence}", position
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


@dataclass(frozen=True, slots=True)
class End:
    """The end of a chain: the digest of its result, and its signature.

    `key_id` is empty when it is not signed.
    """

    sequence: int
    time: datetime
    result_sha256: str
    key_id: str = ""
    signature: bytes = b""
    text: bytes = b""


@dataclass(frozen=True, slots=True)
class Link:
    """An event. `intact`: its content matches its hash. Only a first event has `continues` and `replayed`."""

    request_key: str
    chain: str
    sequence: int
    event_type: str
    time: datetime
    prev: str
    hash: str
    intact: bool
    continues: str = ""
    replayed: bool = False
    end: End | None = None


def read_link(body: bytes) -> Link:
    """The event in a message. Raises ValueError for anything that is not an event in canonical form."""
    try:
        event: Any = json.loads(body)
        same = canonical(event) == body
    except (ValueError, RecursionError) as e:
        raise ValueError("not JSON") from e
    if not same or not isinstance(event, dict):
        raise ValueError("not a JSON object in canonical form")
    if not all(isinstance(event.get(name), str) for name in TEXTS):
        raise ValueError(f"an event needs {', '.join(TEXTS)}")
    if not all(isinstance(event.get(name), str) and SHA256.fullmatch(event[name]) for name in HASHES):
        raise ValueError("not part of a chain: an event needs prev and hash")
    sequence, time = event.get("sequence"), _time(event["time"])
    if type(sequence) is not int or not 1 <= sequence <= MAX_SEQUENCE:
        raise ValueError(f"an event needs a sequence from 1 to {MAX_SEQUENCE}")
    payload = event.get("payload")
    said: Mapping[str, Any] = payload if isinstance(payload, Mapping) else {}
    ends = event["event_type"] in ENDS
    return Link(
        request_key=event["request_key"],
        chain=event["chain"],
        sequence=sequence,
        event_type=event["event_type"],
        time=time,
        prev=event["prev"],
        hash=event["hash"],
        intact=event_hash(event) == event["hash"],
        continues=str(said.get("continues") or ""),
        replayed=said.get("replayed") is True,
        end=_end(event, sequence, time, said) if ends else None,
    )


def _end(event: Mapping[str, Any], sequence: int, time: datetime, said: Mapping[str, Any]) -> End:
    end = End(sequence, time, str(said.get("result_sha256") or ""))
    signature = event.get("signature")
    if not isinstance(signature, Mapping):
        return end
    try:
        value = base64.b64decode(str(signature.get("value")), validate=True)
    except (binascii.Error, ValueError):
        value = b""
    key_id = str(signature.get("key_id"))
    return End(sequence, time, end.result_sha256, key_id, value, head_text(event))


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as e:
        raise ValueError("an event needs a time") from e
    if time.tzinfo is None:
        raise ValueError("an event needs a time with an offset")
    return time
