"""Queued requests, dead letters, cancel flags and recordings, read and removed one by one without a consumer.

Headers of dead letters are percent-encoded texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote

from nats.aio.client import Client

from schemas.subjects import REPLAY_HEADER, Header, Subjects, kv_key
from worker.adapters.nats.stream import FencedStream, StoredMessage
from worker.domain.values.delays import HISTORY_PATIENCE_SECONDS
from worker.domain.values.delivery import MessageId
from worker.domain.values.ports import StoredRequest

MAX_STRANDED = 100
"""The most requests that one sweep finds."""
HEADER_BYTES = 1_024


class NatsRequests:
    """Implements Requests on the stream of requests."""

    def __init__(self, stream: FencedStream, subjects: Subjects) -> None:
        self._stream, self._subjects = stream, subjects

    async def stranded(self) -> Sequence[StoredRequest]:
        """The stranded requests, by the state of the consumers: the server's advisory may not have been stored."""
        found = list[StoredRequest]()
        for subject in sorted(await self._stream.subjects(f"{self._subjects.prefix}.request.>")):
            parsed, last = self._subjects.parse_request(subject), 0
            state = await self._stream.consumer(parsed[1]) if parsed else None
            while state is not None and len(found) < MAX_STRANDED:
                message = await self._stream.after(last, subject)
                if message is None or message.sequence > state.settled_up_to:
                    break
                last = message.sequence
                found.append(_request(message))
        return found

    async def read(self, sequence: int) -> StoredRequest | None:
        found = await self._stream.at(sequence)
        return None if found is None else _request(found)

    async def after(self, sequence: int) -> StoredRequest | None:
        found = await self._stream.after(sequence, f"{self._subjects.prefix}.request.>")
        return None if found is None else _request(found)

    async def remove(self, message: MessageId) -> None:
        stored = await self.read(message.sequence)
        if stored is not None and message.matches(stored.message):
            await self._stream.remove(message.sequence)


class NatsCancellations:
    """Implements Cancellations on the stream of a key-value bucket (NATS ADR-8)."""

    def __init__(self, stream: FencedStream) -> None:
        self._stream = stream

    async def cancelled(self, request_key: str) -> bool:
        flag = await self._stream.newest(self._subject(request_key))
        return flag is not None and bool(flag.body)  # a flag that was taken back has no body

    async def cancel(self, request_key: str, *, at: datetime, token: str) -> None:
        """Set the flag. `token` is unique for each call."""
        body = json.dumps({"cancelled_at": at.isoformat()}).encode()
        await self._stream.add(self._subject(request_key), body, msg_id=f"cancel-{token}")

    def _subject(self, key: str) -> str:
        return f"$KV.{self._stream.bucket}.{kv_key(key)}"


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A dead letter: the raw body of a request, and why it was not served.

    `id` is its sequence among them.
    """

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

    def __init__(self, letters: FencedStream, requests: FencedStream, subjects: Subjects) -> None:
        self._stream, self._requests, self._subjects = letters, requests, subjects

    async def all(self) -> AsyncIterator[StoredLetter]:
        """All letters, oldest first."""
        extent = await self._stream.extent(datetime.now(UTC))
        async for found in self._stream.messages(extent):
            if found.subject.startswith(self._subjects.dead_letter("")):
                yield _letter(found)

    async def newest(self, count: int, *, before: int = 0) -> list[StoredLetter]:
        """The newest `count` letters, the newest first; with `before` of those with lower ids."""
        subject = self._subjects.dead_letter(">")
        return [_letter(found) for found in await self._stream.latest(count, subject, before=before)]

    async def read(self, letter_id: int) -> StoredLetter | None:
        """One letter; None if there is none, or for another kind of message with that sequence."""
        found = await self._stream.at(letter_id)
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
        await self._stream.remove(letter.id)

    async def drop(self, letter: StoredLetter) -> None:
        """Forget the letter."""
        await self._stream.remove(letter.id)


def _request(found: StoredMessage) -> StoredRequest:
    return StoredRequest(found.subject, found.sequence, found.stored_at, found.body, found.headers)


def _letter(found: StoredMessage) -> StoredLetter:
    def header(name: Header) -> str:
        return unquote(str(found.headers.get(name, "")))  # not a str if it has bytes beyond ASCII

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


class NatsRecordings:
    """Implements Recordings."""

    def __init__(
        self, nc: Client, subjects: Subjects, *, patience_seconds: float = HISTORY_PATIENCE_SECONDS
    ) -> None:
        self._nc, self._subjects = nc, subjects
        self._stream = FencedStream(nc, subjects.recordings_stream, patience_seconds=patience_seconds)

    @property
    def max_bytes(self) -> int:
        """The most bytes of one message besides its headers."""
        return self._nc.max_payload - HEADER_BYTES

    async def keep(self, key: str, bundle: bytes) -> None:
        await self._stream.add(
            self._subjects.recording(key), bundle, msg_id=hashlib.sha256(bundle).hexdigest()
        )

    async def find(self, key: str) -> bytes | None:
        found = await self._stream.newest(self._subjects.recording(key))
        return found.body if found else None
