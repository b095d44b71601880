"""Messages that are stored, read and removed one by one without a consumer: queued requests, dead letters, cancel flags.

Everything is read at the leader of its stream. Headers of dead letters are percent-encoded texts.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from urllib.parse import unquote

from schemas.subjects import REPLAY_HEADER, Header, Subjects
from worker.domain.values.ports import StoredRequest


class Message(Protocol):
    """A message as its stream has it."""

    @property
    def subject(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def stored_at(self) -> datetime: ...


class Log(Protocol):
    """A stream. All methods raise Unavailable."""

    async def at(self, sequence: int) -> Message | None:
        """The message with this sequence."""

    async def after(self, sequence: int, subject: str) -> Message | None:
        """The first message after it on a subject, wildcards allowed."""

    async def newest(self, subject: str) -> Message | None:
        """The last message on a subject."""

    async def remove(self, sequence: int) -> bool:
        """Delete a message. Whether it was there."""

    async def add(
        self, subject: str, body: bytes, *, msg_id: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Append a message; again with the same id changes nothing."""


class NatsRequests:
    """Implements Requests on the stream of requests."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def read(self, sequence: int) -> StoredRequest | None:
        found = await self._log.at(sequence)
        if found is None:
            return None
        return StoredRequest(found.subject, found.sequence, found.stored_at, found.body, found.headers)

    async def remove(self, sequence: int) -> None:
        await self._log.remove(sequence)


class NatsCancellations:
    """Implements Cancellations on the stream of a key-value bucket (NATS ADR-8)."""

    def __init__(self, log: Log, bucket: str) -> None:
        self._log, self._bucket = log, bucket

    async def cancelled(self, request_key: str) -> bool:
        flag = await self._log.newest(self._subject(request_key))
        return flag is not None and bool(flag.body)  # a flag that was taken back has no body

    async def cancel(self, request_key: str, *, at: datetime, token: str) -> None:
        """Set the flag. `token` is unique for each time it is set."""
        body = json.dumps({"cancelled_at": at.isoformat()}).encode()
        await self._log.add(self._subject(request_key), body, msg_id=f"cancel-{token}")

    def _subject(self, key: str) -> str:
        return f"$KV.{self._bucket}.{key}"


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A dead letter: the raw body of a request, and why it was not served. `id` is its sequence among them."""

    id: int
    reason: str
    error: str
    origin_subject: str
    origin_sequence: int
    deliveries: int
    stored_at: datetime
    body: bytes


class NatsDeadLetters:
    """Dead letters, for operators. `requests` is the stream that a letter is sent to again."""

    def __init__(self, log: Log, requests: Log, subjects: Subjects) -> None:
        self._log, self._requests, self._subjects = log, requests, subjects

    async def all(self) -> AsyncIterator[StoredLetter]:
        """Oldest first."""
        pattern, last = self._subjects.dead_letter(">"), 0
        while (found := await self._log.after(last, pattern)) is not None:
            last = found.sequence
            yield _letter(found)

    async def read(self, letter_id: int) -> StoredLetter | None:
        """One of them; None as well for another kind of message with that sequence."""
        found = await self._log.at(letter_id)
        if found is None or not found.subject.startswith(self._subjects.dead_letter("")):
            return None
        return _letter(found)

    async def replay(self, letter: StoredLetter) -> None:
        """Send the request again as it was, then forget the letter. Its `failed` result may be replaced."""
        await self._requests.add(
            letter.origin_subject,
            letter.body,
            msg_id=f"replay-{letter.id}-{letter.stored_at.timestamp()}",
            headers={REPLAY_HEADER: str(letter.id)},
        )
        await self._log.remove(letter.id)

    async def drop(self, letter: StoredLetter) -> None:
        """Forget the letter."""
        await self._log.remove(letter.id)


def _letter(found: Message) -> StoredLetter:
    def header(name: Header) -> str:
        return unquote(found.headers.get(name, ""))

    return StoredLetter(
        id=found.sequence,
        reason=header(Header.REASON),
        error=header(Header.ERROR),
        origin_subject=header(Header.ORIGIN_SUBJECT),
        origin_sequence=_count(header(Header.ORIGIN_SEQUENCE)),
        deliveries=_count(header(Header.DELIVERIES)),
        stored_at=found.stored_at,
        body=found.body,
    )


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
