"""The producer's side: publish a request, follow its steps, wait for its outcome.

For the commands that submit requests. It uses only the published contract, as any producer would.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NoStreamResponseError
from pydantic import BaseModel, ConfigDict

from schemas.analysis import AnalysisResult, Status
from schemas.audit import AuditEvent
from schemas.failure import ValidationFailure
from schemas.incident import request_digest
from schemas.subjects import Header, Lane, Subjects, request_key
from schemas.taxonomy import RequestKind
from worker.adapters.nats.publish import NatsResults, UnreadableResult
from worker.adapters.nats.stream import FencedStream
from worker.domain.intake.decode import Decoded, decode
from worker.domain.values.errors import ReportedError, Unavailable, system_message
from worker.domain.values.readable import readable

PUBLISH_SECONDS = 5.0
DUPLICATE_WINDOW = timedelta(hours=1)
"""How long the provisioned stream of requests recognises a repeated message."""
POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Submitted:
    """Where a request was stored. `key` is None when the body has no readable id: it will be rejected."""

    subject: str
    stream: str
    sequence: int
    duplicate: bool
    key: str | None


class DeadLettered(BaseModel):
    """The request could not be served: why, in the words of its dead letter."""

    model_config = ConfigDict(frozen=True)

    reason: str
    error: str


Outcome = AnalysisResult | ValidationFailure | DeadLettered


def readable_key(body: bytes, kind: RequestKind) -> str | None:
    """The request key in a body, if there is one."""
    try:
        data = json.loads(body)
        attempt = data["recovery_attempt_number"] if kind is RequestKind.RECOVERY else None
        return request_key(data["remediation_id"], attempt)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def lane_of(body: bytes) -> Lane | None:
    """The lane of the priority in a body; None stands for the default lane."""
    try:
        return Lane(str(json.loads(body)["priority"]).lower())
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class RequestClient:
    """Publishes requests under one prefix and waits for their outcomes."""

    def __init__(self, nc: Client, subjects: Subjects) -> None:
        self._nc, self._subjects = nc, subjects

    async def submit(self, body: bytes, kind: RequestKind) -> Submitted:
        """Publish a body as it is.

        Within the duplicate window of the stream, equal bodies are stored once.
        """
        subject = self._subjects.request(kind, lane_of(body))
        key = readable_key(body, kind)
        msg_id = f"submit-{kind}-{hashlib.sha256(body).hexdigest()}"
        js = self._nc.jetstream(timeout=PUBLISH_SECONDS)
        try:
            ack = await js.publish(subject, body, headers={"Nats-Msg-Id": msg_id})
        except NoStreamResponseError:
            raise ReportedError(f"no stream stores {subject}: run `rca provision` first") from None
        except APIError as e:
            raise ReportedError(f"the server refused the request: {e.description} ({e.err_code})") from e
        except (TimeoutError, NatsError) as e:
            raise ReportedError(
                f"the server did not confirm the request ({system_message(e)}); it may be stored: submit it again with the same remediation_id"
            ) from e
        return Submitted(subject, ack.stream, ack.seq, bool(ack.duplicate), key)

    @asynccontextmanager
    async def waiting(self, kind: RequestKind, body: bytes) -> AsyncIterator[Waiter]:
        """Listen before publishing, so that nothing is missed."""
        decoded = decode(body, kind, datetime.now(UTC))
        digest = request_digest(decoded.request) if isinstance(decoded, Decoded) else None
        waiter = Waiter(self._subjects, kind, readable_key(body, kind), digest)
        subscriptions = [
            await self._nc.subscribe(subject, cb=waiter.on_message) for subject in waiter.subjects()
        ]
        await self._nc.flush()  # a missing permission is reported before anything is published
        try:
            yield waiter
        finally:
            for subscription in subscriptions:
                await subscription.unsubscribe()

    async def stored_result(self, key: str) -> AnalysisResult | None:
        """The stored result; None if there is none or the server does not say."""
        try:
            stream = FencedStream(self._nc, self._subjects.results_stream, patience_seconds=0.0)
            return await NatsResults(stream, self._subjects).find(key)
        except UnreadableResult:
            raise
        except Unavailable:
            return None

    async def stored_rejection(self, sequence: int) -> ValidationFailure | None:
        """Return why the request with this sequence was rejected, if it was within the duplicate window.

        Rejections do not have it in their subject: they are read from the newest backwards.
        """
        log = FencedStream(self._nc, self._subjects.validation_stream, patience_seconds=PUBLISH_SECONDS)
        subject, since = self._subjects.validation_request(), datetime.now(UTC) - DUPLICATE_WINDOW
        with contextlib.suppress(Unavailable):
            async with contextlib.aclosing(log.newest_first(subject)) as messages:
                async for found in messages:
                    if found.stored_at < since:
                        break
                    failure = readable(ValidationFailure, found.body)
                    if failure and _rejects(failure, self._subjects, sequence):
                        return failure
        return None

    @asynccontextmanager
    async def following(self, on_event: Callable[[AuditEvent], None]) -> AsyncIterator[None]:
        """Call back for every audit event under the prefix while the context is open."""

        async def on_message(msg: Msg) -> None:
            if event := readable(AuditEvent, msg.data):
                on_event(event)

        subscription = await self._nc.subscribe(self._subjects.audit(">"), cb=on_message)
        try:
            yield
        finally:
            await subscription.unsubscribe()

    async def outcome(self, waiter: Waiter, submitted: Submitted, timeout_seconds: float) -> Outcome | None:
        """Wait for the outcome of the request; None after the timeout.

        A result that was stored before counts as well.
        """
        loop = asyncio.get_running_loop()
        waiter.submitted, end = submitted, loop.time() + timeout_seconds
        found = await self._found(waiter)
        if found is None and submitted.duplicate:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    found = await self.stored_rejection(submitted.sequence)
        while found is None and (left := end - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiter.changed.wait(), min(left, POLL_SECONDS))
            waiter.changed.clear()
            found = await self._found(waiter)
        return found

    async def _found(self, waiter: Waiter) -> Outcome | None:
        """The outcome that was received, or else the stored one."""
        if found := waiter.found():
            return found
        if not waiter.key or (stored := await self.stored_result(waiter.key)) is None:
            return None
        waiter.add(stored)
        return waiter.found(last_word=True)


def _rejects(failure: ValidationFailure, subjects: Subjects, sequence: int | None) -> bool:
    """True if it is about the request with this sequence. Bad outcomes are rejected on the same subject."""
    return failure.origin_sequence == sequence and failure.origin_stream == subjects.requests_stream


@dataclass(slots=True)
class Waiter:
    """Collects what is published about one request."""

    subject_names: Subjects
    kind: RequestKind
    key: str | None
    digest: str | None
    submitted: Submitted | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    results: list[AnalysisResult] = field(default_factory=list)
    rejections: list[ValidationFailure] = field(default_factory=list)
    letters: list[dict[str, str]] = field(default_factory=list)

    def subjects(self) -> list[str]:
        """The subjects on which outcomes of the request are published."""
        names = self.subject_names
        listened = [names.validation_request(), names.dead_letter(">")]
        return [*listened, names.result(self.kind, self.key)] if self.key else listened

    async def on_message(self, msg: Msg) -> None:
        """Take a message, by its subject."""
        if msg.subject == self.subject_names.validation_request():
            self.rejections.append(ValidationFailure.model_validate_json(msg.data))
        elif msg.subject.startswith(self.subject_names.dead_letter("")):
            self.letters.append(dict(msg.headers or {}))
        else:
            self.add(AnalysisResult.model_validate_json(msg.data))
        self.changed.set()

    def add(self, result: AnalysisResult) -> None:
        """Take a result, unless it answers another request with the same key."""
        if result.request_digest == self.digest:
            self.results.append(result)

    def found(self, *, last_word: bool = False) -> Outcome | None:
        """The outcome of the submitted request, once there is one.

        A `failed` result is followed by its dead letter, which says more: it counts only as the `last_word`.
        """
        sequence = self.submitted.sequence if self.submitted else None
        for rejection in self.rejections:
            if _rejects(rejection, self.subject_names, sequence):
                return rejection
        for headers in self.letters:
            if headers.get(Header.ORIGIN_SEQUENCE) == str(sequence):
                error = unquote(headers.get(Header.ERROR, ""))
                return DeadLettered(reason=headers.get(Header.REASON, ""), error=error)
        if not self.results:
            return None
        result = self.results[-1]
        if result.status is not Status.FAILED:
            return result
        if not last_word:
            return None
        return DeadLettered(reason=Status.FAILED, error=result.human_review_detail)
