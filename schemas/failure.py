"""Failures as they are published: rejected messages and answers, and requests that could not be served."""

from __future__ import annotations

import enum
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from schemas.fields import Count, Message, Positive, Text, Timestamp
from schemas.subjects import Header

EXCERPT_BYTES: Final = 64 * 1024
"""The most bytes of the body or the answer that a failure contains."""


def excerpt(text: str, limit: int = EXCERPT_BYTES) -> str:
    """The start of a text, at most `limit` bytes of UTF-8, cut between characters."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


Excerpt = Annotated[str, StringConstraints(strict=True), AfterValidator(excerpt)]


class ValidationCode(enum.StrEnum):
    """What was wrong with a message (decoding, schema, routing) or an answer of the model (`answer_*`)."""

    TOO_LARGE = "too_large"
    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    TOO_DEEP = "too_deep"
    SCHEMA = "schema"
    WRONG_CLUSTER = "wrong_cluster"
    KEY_CONFLICT = "key_conflict"
    ANSWER_UNREADABLE = "answer_unreadable"
    ANSWER_RCA = "answer_rca"
    ANSWER_WORKFLOW_UNKNOWN = "answer_workflow_unknown"
    ANSWER_WORKFLOW_MISMATCH = "answer_workflow_mismatch"
    ANSWER_PARAMETERS = "answer_parameters"
    ANSWER_FORBIDDEN = "answer_forbidden"


class FieldError(Message):
    """One error in a message or an answer."""

    path: Text
    """Where the error is, such as `previous_execution.failure.reason` or `affected_resources[3]`; empty for
    the whole message."""
    expected: Text
    """What is expected there, or what to do."""
    got: Text = ""
    """The start of the actual value, with secrets removed; empty if there is none."""

    def __str__(self) -> str:
        got = f", got {self.got}" if self.got else ""
        return f"{self.path or 'message'}: expected {self.expected}{got}"


class ValidationFailure(Message):
    """A rejected message or answer: `rca.validation.request`, `rca.validation.response.<request key>`."""

    code: ValidationCode
    """The code of the first error."""
    errors: Annotated[tuple[FieldError, ...], Field(min_length=1)]
    """All errors that were found."""
    path: Text = ""
    """Where the first error is; empty for the whole message."""
    origin_stream: Text
    """Stream of the message."""
    origin_sequence: Count
    """Sequence of the message in that stream, by which the whole message can be read."""
    origin_stored_at: Timestamp | None = None
    """When the stream stored the message. It tells messages apart if the stream was recreated and counts from
    1 again."""
    origin_subject: Text
    """Subject of the message."""
    request_key: Text | None = None
    """Key of the request, if it could be read."""
    remediation_id: Text | None = None
    """As in the message, if it could be read."""
    incident_id: Text | None = None
    """As in the message, if it could be read."""
    attempt: Positive | None = None
    """Number of the model's answer, counted from 1; null for a message."""
    excerpt: Excerpt = ""
    """At most 64 KiB of the body or the answer, with secrets removed."""
    failed_at: Timestamp
    """When the message or answer was rejected."""


class DeadLetterReason(enum.StrEnum):
    """Why a request could not be served."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    PROCESS_DEATHS = "process_deaths"
    MAX_DELIVERIES = "max_deliveries"
    JOURNAL_GAP = "journal_gap"
    MODEL_REFUSED = "model_refused"
    INTERNAL_ERROR = "internal_error"


class DeadLetter(Message):
    """`rca.dlq.<reason>`: the raw body of a request, with these facts as headers."""

    reason: DeadLetterReason
    """Why the request could not be served."""
    origin_stream: Text
    """Stream of the request."""
    origin_sequence: Count
    """Sequence of the request in that stream."""
    origin_stored_at: Timestamp | None = None
    """When that stream stored the request."""
    origin_subject: Text
    """Subject of the request, on which a replay publishes it."""
    deliveries: Count
    """How often the request was delivered."""
    error: Text
    """The last error, in one line."""

    def headers(self) -> dict[str, str]:
        """The headers of the message."""
        facts: dict[str, str] = {
            Header.REASON: self.reason,
            Header.ORIGIN_STREAM: self.origin_stream,
            Header.ORIGIN_SEQUENCE: str(self.origin_sequence),
            Header.ORIGIN_SUBJECT: self.origin_subject,
            Header.DELIVERIES: str(self.deliveries),
            Header.ERROR: self.error,
        }
        if self.origin_stored_at:
            facts[Header.ORIGIN_STORED_AT] = self.origin_stored_at.isoformat()
        return facts
