"""One JetStream stream: read from its leader, written at most once per subject, or appended to.

A message that may exist only once per subject carries `Nats-Expected-Last-Subject-Sequence`. That fence holds
as long as the message is kept, whereas the deduplication by `Nats-Msg-Id` ends with its window. The server
refuses a second write in four ways:

    10071            wrong last sequence: the usual one. On one server also for a known Msg-Id: the fence comes first.
    duplicate=True   known Msg-Id, which replicas look up before the fence. It does not prove that the message is
                     stored: the server still says so after the message was deleted.
    10158            replicas: the same Msg-Id is on its way through Raft.
    10164            replicas: another write to the subject is on its way through Raft.

None of them says whose bytes are stored, and a timeout says nothing at all. Every answer but a clean ack
therefore leads to the same place: read back from the leader, or try again. After a leader was killed an
election takes 4 to 9 s, and requests time out meanwhile: keep the patience above 10 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.js import api
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError
from pydantic import BaseModel

from schemas.permissions import API
from worker.adapters.nats.stream_faults import StreamFaults
from worker.adapters.nats.stream_info import ConsumerState, StreamExtent, StreamInfo
from worker.domain.cluster.fields import dig, text, whole
from worker.domain.values.delays import BROKER_PATIENCE_SECONDS
from worker.domain.values.errors import Unavailable
from worker.domain.values.json_read import read_json
from worker.domain.values.readable import readable

T = TypeVar("T")
Form = TypeVar("Form", bound=BaseModel)

WRONG_SEQUENCE, DUPLICATE_IN_FLIGHT, WRITE_IN_FLIGHT, NO_MESSAGE = 10071, 10158, 10164, 10037
REFUSED: Final = frozenset({WRONG_SEQUENCE, DUPLICATE_IN_FLIGHT, WRITE_IN_FLIGHT})
TRANSIENT = (
    TimeoutError,  # nats-py raises its own subclass in some places and the plain one in others
    NoStreamResponseError,
    nats.errors.NoRespondersError,
    nats.errors.OutboundBufferLimitError,
)
OUR_MISTAKE = (nats.errors.MaxPayloadError, nats.errors.BadSubjectError, nats.errors.BadHeaderError)

REQUEST_SECONDS = 2.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 1.0
SAME_ID_TRIES = 5
UNCONFIRMED_TRIES = 3
UNCONFIRMED = (
    "the server answers but confirms no write: when its disk is or was full, free space and restart the NATS server, which "
    "does not resume by itself"
)
LAST_SEQUENCE_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
"""Since nats-server 2.11; nats-py has no name for it."""
NEVER = datetime.min.replace(tzinfo=UTC)
WALKS, WALK_SEQUENCES = 8, 16
"""How many tasks read a stream at once, and how many sequences each reads: at most 128 messages in memory."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as the leader of its stream has it. `ours`: this call stored it.

    Only reading fills in `headers` and `stored_at` (in UTC).
    """

    subject: str
    sequence: int
    body: bytes
    ours: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    stored_at: datetime = NEVER


class _NotYet(Exception):  # noqa: N818 - a state: no answer that can be relied on
    pass


class FencedStream:
    """One stream, read from its leader.

    A subject is written once, or appended to with deduplication by message id.

    It needs no consumer, and so no right to create one. Every method raises Unavailable when nothing is known
    after `patience_seconds`, and ValueError for a message that can't be sent at all (above the server's
    `max_payload`, an invalid subject).
    """

    def __init__(
        self,
        nc: Client,
        stream: str,
        *,
        patience_seconds: float = BROKER_PATIENCE_SECONDS,
        api_prefix: str = API,
        faults: StreamFaults | None = None,
    ) -> None:
        self._faults = faults or StreamFaults()
        self._nc, self._stream, self._api_prefix = nc, stream, api_prefix
        self.bucket = stream.removeprefix("KV_")
        """The name of the key-value bucket, if it is the stream of one (NATS ADR-8)."""
        self._js = nc.jetstream(timeout=REQUEST_SECONDS, prefix=api_prefix)
        self._patience_seconds = patience_seconds
        self._unconfirmed = 0

    # --- reading

    async def newest(self, subject: str) -> StoredMessage | None:
        """The last message on a subject, wildcards allowed, or None."""
        return await self._patiently(f"read {subject}", lambda: self._read(subject=subject))

    async def consumer(self, durable: str) -> ConsumerState:
        """The progress of a consumer of the stream."""
        path = f"CONSUMER.INFO.{self._stream}.{durable}"
        return await self._ask(path, ConsumerState, f"there is no consumer {durable}")

    async def at(self, sequence: int) -> StoredMessage | None:
        """The message with this sequence, or None."""
        if sequence >= 1 << 64:  # the server cannot decode it
            return None
        return await self._patiently(f"read {self._stream}", lambda: self._read(seq=sequence))

    async def after(self, sequence: int, subject: str = ">") -> StoredMessage | None:
        """The first message after a sequence on a subject, wildcards allowed, or None."""
        return await self._patiently(
            f"read {self._stream}", lambda: self._read(seq=sequence + 1, subject=subject, next=True)
        )

    async def subjects(self, pattern: str) -> list[str]:
        """All subjects with messages that match."""

        async def attempt() -> list[str]:
            with self._translated():
                info = await self._js.stream_info(self._stream, subjects_filter=pattern)
            return list(info.state.subjects or {})

        return await self._patiently(f"list {pattern}", attempt)

    async def extent(self, now: datetime) -> StreamExtent:
        """The range of messages in the stream."""
        return (await self.info()).extent(now)

    async def info(self) -> StreamInfo:
        """Configuration and state of the stream."""
        return await self._ask(f"STREAM.INFO.{self._stream}", StreamInfo, "there is no such stream")

    async def _ask(self, api_path: str, form: type[Form], missing: str) -> Form:
        """The answer of the JSON API. An error that does not pass is that of a server without the thing."""

        async def attempt() -> Form | None:
            with self._translated():
                reply = await self._nc.request(f"{self._api_prefix}.{api_path}", timeout=REQUEST_SECONDS)
            error = dig(read_json(reply.data), "error")
            if whole(dig(error, "code")) >= 500:  # it passes, as in an election
                raise _NotYet(text(dig(error, "description")))
            return readable(form, reply.data)

        found = await self._patiently(f"read {self._stream}", attempt)
        if found is None:  # the server answered, so this is no fault of the stream
            raise Unavailable(f"{self._stream}: {missing}; run `rca provision`")
        return found

    async def messages(self, extent: StreamExtent) -> AsyncIterator[StoredMessage]:
        """All messages of the extent that are still there, in order. Gaps in it cost no requests."""
        walks: deque[asyncio.Task[list[StoredMessage]]] = deque()
        try:
            for first in range(extent.first, extent.last + 1, WALK_SEQUENCES):
                last = min(first + WALK_SEQUENCES - 1, extent.last)
                walks.append(asyncio.create_task(self._walk(first, last)))
                if len(walks) == WALKS:
                    for found in await walks.popleft():
                        yield found
            while walks:
                for found in await walks.popleft():
                    yield found
        finally:
            for walk in walks:
                walk.cancel()
            await asyncio.gather(*walks, return_exceptions=True)

    async def latest(self, count: int, subject: str = ">", *, before: int = 0) -> list[StoredMessage]:
        """The first `count` of `newest_first`."""
        found: list[StoredMessage] = []
        async with contextlib.aclosing(self.newest_first(subject, before=before)) as messages:
            async for message in messages:
                found.append(message)
                if len(found) == count:
                    break
        return found

    async def newest_first(self, subject: str = ">", *, before: int = 0) -> AsyncGenerator[StoredMessage]:
        """The messages on a subject, newest first; wildcards are allowed.

        With `before`, only messages with lower sequences.

        The server only finds the next message, not the one before: gaps are crossed in steps that double.
        """
        extent = await self.extent(datetime.now(UTC))
        last, width = min(before - 1 if before else extent.last, extent.last), WALK_SEQUENCES
        while last >= extent.first:
            first = max(extent.first, last - width + 1)
            found = await self.after(first - 1, subject)
            if found is None or found.sequence > last:
                last, width = first - 1, width * 2
            elif width > WALK_SEQUENCES:
                width //= 2
            else:
                for message in reversed(await self._walk(first, last, subject)):
                    yield message
                last = first - 1

    async def _walk(self, first: int, last: int, subject: str = ">") -> list[StoredMessage]:
        messages: list[StoredMessage] = []
        while (
            first <= last
            and (found := await self.after(first - 1, subject)) is not None
            and found.sequence <= last
        ):
            messages.append(found)
            first = found.sequence + 1
        return messages

    # --- writing

    async def create(
        self,
        subject: str,
        body: bytes,
        *,
        msg_id: str = "",
        headers: Mapping[str, str] | None = None,
        replacing: int = 0,
        among: str = "",
    ) -> StoredMessage:
        """Store the only message of a subject.

        Returns what is stored there now, which may be another writer's.

        `replacing` is the sequence of the one message that may be replaced. `among` is a pattern of subjects,
        which share one fence: `replacing` is then the sequence of the last message on any of them, and a
        later message of another writer is returned. The fence holds without a `msg_id`, too.
        """
        fenced: dict[str, str] = {**(headers or {})}
        fenced[api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE] = str(replacing)
        if among:
            fenced[LAST_SEQUENCE_SUBJECT] = among
        tries = 0

        async def attempt() -> StoredMessage:
            nonlocal tries
            problem, tries = "", tries + 1
            # The server remembers the id of a message that was deleted. The fence holds with another id as
            # well.
            own_id = f"{msg_id}#{tries}" if msg_id and tries > SAME_ID_TRIES else msg_id
            try:
                ack = await self._send(subject, body, own_id, fenced)
                if not ack.duplicate:
                    return StoredMessage(subject, ack.seq, body, ours=True)
            except _NotYet as e:
                problem = str(e)
            stored = await self._read(subject=subject)
            if among and (stored is None or stored.sequence <= replacing):
                stored = await self._read(subject=among)
                if stored is None:  # all of them have expired, and with them the last one that is known
                    fenced[api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE] = "0"
            if stored is None or stored.sequence <= replacing:
                raise _NotYet(problem or "called a duplicate, but not stored")
            return stored

        return await self._patiently(f"publish {subject}", attempt, call="write")

    async def add(
        self, subject: str, body: bytes, *, msg_id: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Append a message. The same id again inside the stream's duplicate window changes nothing."""
        await self._patiently(
            f"publish {subject}", lambda: self._send(subject, body, msg_id, headers or {}), call="write"
        )

    async def remove(self, sequence: int) -> None:
        """Delete a message. A missing message is no error."""

        async def attempt() -> None:
            if await self._read(seq=sequence) is not None:
                with self._translated():
                    await self._js.delete_msg(self._stream, sequence)

        await self._patiently(f"remove {sequence}", attempt)

    async def purge(self, subject: str, *, keep: int) -> None:
        """Delete all messages on a subject, wildcards allowed, but for the newest `keep`. Tried once."""
        try:
            with self._translated():
                await self._js.purge_stream(self._stream, subject=subject, keep=keep)
        except _NotYet as e:
            raise Unavailable(f"purge {subject}: {e}") from e

    async def _send(self, subject: str, body: bytes, msg_id: str, headers: Mapping[str, str]) -> api.PubAck:
        own = {**headers, api.Header.MSG_ID: msg_id} if msg_id else headers
        size = len(body) + sum(len(name) + len(value) + 4 for name, value in own.items())
        if size > self._nc.max_payload:  # nats-py looks at the body only, and the server ends the connection
            raise ValueError(f"{subject}: a message of {size} bytes, at most {self._nc.max_payload}")
        try:
            with self._translated():
                ack = await self._js.publish(subject, body, headers=dict(own))
        except _NotYet as e:
            self._unconfirmed = self._unconfirmed + 1 if isinstance(e.__cause__, TimeoutError) else 0
            if self._unconfirmed >= UNCONFIRMED_TRIES and await self._answers():
                raise _NotYet(UNCONFIRMED) from e
            raise
        self._unconfirmed = 0
        if ack.stream != self._stream:
            raise Unavailable(f"{self._stream}: {ack.stream} stores {subject} instead; run `rca provision`")
        return ack

    async def _answers(self) -> bool:
        with contextlib.suppress(TimeoutError, nats.errors.Error):
            await self._nc.request(f"{self._api_prefix}.STREAM.INFO.{self._stream}", timeout=REQUEST_SECONDS)
            return True
        return False

    async def _read(self, **what: Any) -> StoredMessage | None:
        """Only 10037 means "none". A missing stream is a 404 too, and must not look like an empty one."""
        try:
            with self._translated():
                message = await self._js.get_msg(self._stream, **what)
        except Unavailable as e:
            if isinstance(e.__cause__, NotFoundError) and e.__cause__.err_code == NO_MESSAGE:
                return None
            raise
        return StoredMessage(
            message.subject or "",
            message.seq or 0,
            message.data or b"",
            headers=message.headers or {},
            stored_at=message.time or datetime.now(UTC),
        )

    async def patiently(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """A write by nats-py that belongs to the stream, repeated like the writes of this class."""

        async def attempt() -> T:
            with self._translated():
                return await call()

        return await self._patiently(what, attempt, call="write")

    async def _patiently(self, what: str, attempt: Callable[[], Awaitable[T]], *, call: str = "read") -> T:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE_SECONDS
        end = loop.time() + self._patience_seconds
        while True:
            try:
                found = await attempt()
            except _NotYet as e:
                if self._nc.is_connected:  # a lost connection is no fault of this stream
                    self._faults.add(self._stream, call, str(e))
                if loop.time() > end:
                    raise Unavailable(f"{what}: {e}") from e
            except Unavailable as e:
                self._faults.add(self._stream, call, str(e))
                raise
            else:
                self._faults.clear(self._stream, call)
                return found
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - not secret
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate vendor errors: try again, give up, or our own mistake."""
        if not self._nc.is_connected and not self._nc.is_closed:
            # nats-py would buffer every try and send them all after the reconnect
            raise _NotYet("disconnected")
        try:
            yield
        except APIError as e:
            # 503 is also how a full stream answers (10077). 5xx passes; 4xx is a wrong configuration.
            if e.err_code in REFUSED or e.code is None or e.code >= 500:
                raise _NotYet(str(e)) from e
            raise Unavailable(f"{self._stream}: {e}") from e
        except TRANSIENT as e:
            raise _NotYet(repr(e)) from e
        except OUR_MISTAKE as e:
            raise ValueError(f"{self._stream}: {e!r}") from e
        except nats.errors.Error as e:
            raise Unavailable(f"{self._stream}: {e!r}") from e
