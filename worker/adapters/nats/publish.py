"""The ports Events and Results on the streams of a prefix: what the worker publishes, and the stored results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pydantic import ValidationError

from schemas.analysis import AnalysisResult, Status
from schemas.failure import DeadLetter, ValidationFailure
from schemas.subjects import (
    REQUEST_REJECTED_TYPE,
    RESPONSE_REJECTED_TYPE,
    Header,
    Subjects,
    audit_type,
    cloud_source,
    kind_of_key,
    result_type,
)
from worker.adapters.nats.stream import FencedStream, StoredMessage
from worker.domain.values.errors import Unavailable
from worker.domain.values.ports import AuditRecord

ERROR_LENGTH = 1_024
UNSAFE_IN_HEADER = re.compile(rb"[^\x21\x23\x24\x26-\x7e]")


def header_value(text: str) -> str:
    """The value, percent-encoded as CloudEvents 1.0 requires (HTTP binding 3.1.3.2), thus without line breaks."""
    return UNSAFE_IN_HEADER.sub(lambda m: b"%%%02X" % m[0][0], text.encode("utf-8", "replace")).decode()


class UnreadableResult(Unavailable):
    """The stored result was written by another version of the worker, or by hand."""


class NatsResults:
    """Implements Results on the stream of results. `find` raises UnreadableResult, too."""

    def __init__(self, stream: FencedStream, subjects: Subjects) -> None:
        self._stream, self._subjects = stream, subjects

    async def find(self, request_key: str) -> AnalysisResult | None:
        stored = await self._stream.newest(self._subjects.result(kind_of_key(request_key), request_key))
        return None if stored is None else _result(stored)


class NatsEvents:
    """Implements Events. `stream` opens a stream by its name.

    `trace` gives headers for every message, such as `traceparent`.
    """

    def __init__(
        self,
        stream: Callable[[str], FencedStream],
        subjects: Subjects,
        *,
        cluster_name: str = "",
        trace: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
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
        """Publish a rejected message or, with `attempt` set, a rejected answer of the model."""
        key = failure.request_key or ""
        if failure.attempt is None:
            subject, kind = self._subjects.validation_request(), REQUEST_REJECTED_TYPE
            msg_id = f"{_origin(failure)}:invalid"
        else:
            subject, kind = self._subjects.validation_response(key), RESPONSE_REJECTED_TYPE
            msg_id = f"{key}:{_origin(failure)}:{failure.attempt}"
        body = failure.model_dump_json().encode()
        await self._validation.add(subject, body, msg_id=msg_id, headers=self._headers(msg_id, kind, key))

    async def result(self, result: AnalysisResult, *, replace_failed: bool = False) -> AnalysisResult:
        """Publish once per request, which `FencedStream.create` ensures. Returns the stored result, perhaps an earlier one.

        With `replace_failed` a stored `failed` result is replaced: that very one, known by its sequence,
        unless it is this result already.
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
        """Publish the raw body, with the facts as percent-encoded headers."""
        short = letter.model_copy(update={"error": letter.error[:ERROR_LENGTH]})
        headers = {**self._trace(), **short.headers()}
        await self._dlq.add(
            self._subjects.dead_letter(letter.reason),
            body,
            msg_id=f"dlq-{_origin(letter)}",
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


def _origin(failure: ValidationFailure | DeadLetter) -> str:
    """The identity of its message, even among streams that were recreated under the same name."""
    stored_at = failure.origin_stored_at
    incarnation = f"@{stored_at.isoformat()}" if stored_at else ""
    return f"{failure.origin_stream}:{failure.origin_sequence}{incarnation}"


def _result(stored: StoredMessage) -> AnalysisResult:
    try:
        return AnalysisResult.model_validate_json(stored.body)
    except ValidationError as e:
        # It is what consumers have, so the request must not be answered again.
        raise UnreadableResult(
            f"{stored.subject}: the stored result cannot be read by this version: update rca-worker"
        ) from e
