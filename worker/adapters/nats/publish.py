"""What the worker publishes, and the reading of results: JetStream streams through their leaders.

A message that may exist only once per subject carries `Nats-Expected-Last-Subject-Sequence`. That fence holds as long
as the message is kept, where the dedupe of `Nats-Msg-Id` ends with its window. A second write is refused in four ways:

    10071            wrong last sequence: the usual one. On one server also for a known Msg-Id: the fence comes first.
    duplicate=True   known Msg-Id, which replicas look up before the fence. No proof that the message is stored: after a
                     delete the server still says so.
    10158            replicas: the same Msg-Id is on its way through Raft.
    10164            replicas: another write to the subject is on its way through Raft.

None of them says whose bytes are stored, and a timeout says nothing at all. So every answer but a clean ack leads to the
same place: read back from the leader, or try again.

After a leader is killed an election takes 4 to 9 s; requests meanwhile time out. Keep patience above 10 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.js import api
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError
from pydantic import ValidationError

from schemas.analysis import AnalysisResult, Status
from schemas.failure import DeadLetter, ValidationFailure
from schemas.permissions import API
from schemas.subjects import (
    REQUEST_REJECTED_TYPE,
    RESPONSE_REJECTED_TYPE,
    Header,
    Subjects,
    audit_type,
    cloud_source,
    result_type,
)
from schemas.taxonomy import RequestKind
from worker.domain.values.errors import Unavailable
from worker.domain.values.ports import AuditRecord

T = TypeVar("T")

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
PATIENCE_SECONDS = 30.0
ERROR_LENGTH = 1_024
NEVER = datetime.min.replace(tzinfo=UTC)
UNSAFE_IN_HEADER = re.compile(rb"[^\x21\x23\x24\x26-\x7e]")


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as the leader of its stream has it. `ours`: this very call stored it.

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
    """One stream: written once per subject, or appended to with dedupe by message id; read from its leader.

    Every method raises Unavailable when nothing is known after `patience_seconds`, and ValueError for a message that
    can't be sent at all (above the server's `max_payload`, an invalid subject).
    """

    def __init__(
        self,
        nc: Client,
        stream: str,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        api_prefix: str = API,
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._nc, self._stream = nc, stream
        self._js = nc.jetstream(timeout=REQUEST_SECONDS, prefix=api_prefix)
        self._patience_seconds, self._spread = patience_seconds, spread

    async def newest(self, subject: str) -> Stored | None:
        """The last message on a subject, wildcards allowed; None when there is none."""
        return await self._patiently(f"read {subject}", lambda: self._read(subject=subject))

    async def at(self, sequence: int) -> Stored | None:
        """The message with this sequence; None when there is none."""
        return await self._patiently(f"read {self._stream}", lambda: self._read(seq=sequence))

    async def after(self, sequence: int, subject: str) -> Stored | None:
        """The first message after it on a subject, wildcards allowed; None when there is none."""
        return await self._patiently(
            f"read {self._stream}", lambda: self._read(seq=sequence + 1, subject=subject, next=True)
        )

    async def remove(self, sequence: int) -> bool:
        """Delete a message. Whether it was there."""

        async def attempt() -> bool:
            with self._translated():
                return await self._js.delete_msg(self._stream, sequence)

        if await self.at(sequence) is None:
            return False
        return await self._patiently(f"remove {sequence}", attempt)

    async def subjects(self, pattern: str) -> list[str]:
        """All subjects with messages that match."""

        async def attempt() -> list[str]:
            with self._translated():
                info = await self._js.stream_info(self._stream, subjects_filter=pattern)
            return list(info.state.subjects or {})

        return await self._patiently(f"list {pattern}", attempt)

    async def create(
        self,
        subject: str,
        body: bytes,
        *,
        msg_id: str,
        headers: Mapping[str, str] | None = None,
        replacing: int = 0,
    ) -> Stored:
        """Store the only message of a subject; what is stored there now, which may be another writer's.

        `replacing` is the sequence of the one message that may be replaced.
        """
        fenced: dict[str, str] = {**(headers or {})}
        fenced[api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE] = str(replacing)

        async def attempt() -> Stored:
            problem = ""
            try:
                ack = await self._send(subject, body, msg_id, fenced)
                if not ack.duplicate:
                    return Stored(subject, ack.seq, body, ours=True)
            except _NotYet as e:
                problem = str(e)
            stored = await self._read(subject=subject)
            if stored is None or stored.sequence <= replacing:
                raise _NotYet(problem or "called a duplicate, but not stored")
            return stored

        return await self._patiently(f"publish {subject}", attempt)

    async def add(
        self, subject: str, body: bytes, *, msg_id: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Append a message; again with the same id inside the stream's duplicate window changes nothing."""
        await self._patiently(f"publish {subject}", lambda: self._send(subject, body, msg_id, headers or {}))

    async def _send(self, subject: str, body: bytes, msg_id: str, headers: Mapping[str, str]) -> api.PubAck:
        own = {**headers, api.Header.MSG_ID: msg_id, api.Header.EXPECTED_STREAM: self._stream}
        size = len(body) + sum(len(name) + len(value) + 4 for name, value in own.items())
        if size > self._nc.max_payload:  # nats-py looks at the body only, and the server ends the connection
            raise ValueError(f"{subject}: a message of {size} bytes, at most {self._nc.max_payload}")
        with self._translated():
            return await self._js.publish(subject, body, headers=own)

    async def _read(self, **what: Any) -> Stored | None:
        """Only 10037 means "none". A missing stream is a 404 too, and must not look like an empty one."""
        try:
            with self._translated():
                message = await self._js.get_msg(self._stream, **what)
        except Unavailable as e:
            if isinstance(e.__cause__, NotFoundError) and e.__cause__.err_code == NO_MESSAGE:
                return None
            raise
        return Stored(
            message.subject or "",
            message.seq or 0,
            message.data or b"",
            headers=message.headers or {},
            stored_at=message.time or datetime.now(UTC),
        )

    async def _patiently(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE_SECONDS
        end = loop.time() + self._patience_seconds
        while True:
            try:
                return await attempt()
            except _NotYet as e:
                if loop.time() > end:
                    raise Unavailable(f"{what}: {e}") from e
            await asyncio.sleep(pause * self._spread(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Vendor errors: try again, give up, or our own mistake."""
        if not self._nc.is_connected and not self._nc.is_closed:
            raise _NotYet(
                "disconnected"
            )  # nats-py would buffer every try and send them all after the reconnect
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


def header_value(text: str) -> str:
    """Percent-encoded as CloudEvents 1.0 wants header values (HTTP binding 3.1.3.2): no line break can get through."""
    return UNSAFE_IN_HEADER.sub(lambda m: b"%%%02X" % m[0][0], text.encode("utf-8", "replace")).decode()


class NatsResults:
    """Implements Results."""

    def __init__(self, nc: Client, subjects: Subjects, *, patience_seconds: float = 10.0) -> None:
        self._subjects = subjects
        self._stream = FencedStream(nc, subjects.results_stream, patience_seconds=patience_seconds)

    async def find(self, kind: str, request_key: str) -> AnalysisResult | None:
        stored = await self._stream.newest(self._subjects.result(RequestKind(kind), request_key))
        return None if stored is None else _result(stored)


class NatsEvents:
    """Implements Events. `trace` gives headers that ride along with everything, such as `traceparent`."""

    def __init__(
        self,
        nc: Client,
        subjects: Subjects,
        *,
        cluster_name: str = "",
        patience_seconds: float = PATIENCE_SECONDS,
        trace: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        def stream(name: str) -> FencedStream:
            return FencedStream(nc, name, patience_seconds=patience_seconds)

        self._subjects, self._source, self._trace = subjects, cloud_source(cluster_name), trace
        self._results = stream(subjects.results_stream)
        self._validation = stream(subjects.validation_stream)
        self._audit = stream(subjects.audit_stream)
        self._dlq = stream(subjects.dlq_stream)

    async def audit(self, record: AuditRecord) -> None:
        await self._audit.add(
            self._subjects.audit(record.event_type),
            record.body,
            msg_id=record.event_id,
            headers=self._headers(record.event_id, audit_type(record.event_type), record.request_key),
        )

    async def reject(self, failure: ValidationFailure) -> None:
        """A refused message, or with `attempt` set a refused answer of the model."""
        key = failure.request_key or ""
        if failure.attempt is None:
            subject, kind = self._subjects.validation_request(), REQUEST_REJECTED_TYPE
            msg_id = f"{failure.origin_stream}:{failure.origin_sequence}:invalid"
        else:
            subject, kind = self._subjects.validation_response(key), RESPONSE_REJECTED_TYPE
            msg_id = f"{key}:{failure.origin_sequence}:{failure.attempt}"
        body = failure.model_dump_json().encode()
        await self._validation.add(subject, body, msg_id=msg_id, headers=self._headers(msg_id, kind, key))

    async def result(self, result: AnalysisResult, *, replace_failed: bool = False) -> AnalysisResult:
        """Publish once per request; the result that is stored, which may be an earlier one.

        With `replace_failed` a stored `failed` result is replaced: that very one, known by its sequence, unless it is
        this result already.
        """
        key, replacing = result.request_key, 0
        subject = msg_id = self._subjects.result(result.kind, key)
        newest = await self._results.newest(subject) if replace_failed else None
        if newest is not None and (there := _result(newest)).status is Status.FAILED:
            if there == result:
                return there
            # With the id of the first result the server would call it a duplicate and drop it.
            replacing, msg_id = newest.sequence, f"{subject}.{newest.sequence}"
        stored = await self._results.create(
            subject,
            result.model_dump_json().encode(),
            msg_id=msg_id,
            headers=self._headers(msg_id, result_type(result.kind), key),
            replacing=replacing,
        )
        return result if stored.ours else _result(stored)

    async def dead_letter(self, letter: DeadLetter, body: bytes) -> None:
        """The raw body, with the facts as percent-encoded headers."""
        short = letter.model_copy(update={"error": letter.error[:ERROR_LENGTH]})
        headers = {**self._trace(), **short.headers()}
        await self._dlq.add(
            self._subjects.dead_letter(letter.reason),
            body,
            msg_id=f"dlq-{letter.origin_stream}-{letter.origin_sequence}",
            headers={name: header_value(value) for name, value in headers.items()},
        )

    def _headers(self, event_id: str, event_type: str, key: str) -> dict[str, str]:
        """CloudEvents 1.0, binary mode."""
        headers = {
            **self._trace(),
            Header.CE_SPECVERSION: "1.0",
            Header.CE_ID: event_id,
            Header.CE_SOURCE: self._source,
            Header.CE_TYPE: event_type,
            Header.CONTENT_TYPE: "application/json",
        }
        if key:
            headers[Header.CE_SUBJECT] = key
        return {name: header_value(value) for name, value in headers.items()}


def _result(stored: Stored) -> AnalysisResult:
    try:
        return AnalysisResult.model_validate_json(stored.body)
    except ValidationError as e:
        # By a newer version, or by hand. It is what consumers have, so the request must not be answered again.
        raise Unavailable(
            f"{stored.subject}: the stored result can't be read: {e.error_count()} errors"
        ) from e
