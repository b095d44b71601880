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
    """One error."""

    path: Text
    """Where, such as `previous_execution.failure.reason` or `affected_resources[3]`; empty for the whole."""
    expected: Text
    """The expected value, or what to do."""
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
    """Everything that was wrong."""
    path: Text = ""
    """Where the first error is."""
    origin_stream: Text
    """Stream of the message."""
    origin_sequence: Count
    """Its sequence there: with it the whole message can be read."""
    origin_stored_at: Timestamp | None = None
    """When the stream stored it: tells messages apart if the stream was recreated and counts from 1 again."""
    origin_subject: Text
    """Its subject."""
    request_key: Text | None = None
    """Key of the request, when it could be read."""
    remediation_id: Text | None = None
    """As in the message, when it could be read."""
    incident_id: Text | None = None
    """As in the message, when it could be read."""
    attempt: Positive | None = None
    """Which answer of the model, counted from 1; None for a message."""
    excerpt: Excerpt = ""
    """At most 64 KiB of the body or the answer, with secrets removed."""
    failed_at: Timestamp
    """When it was refused."""


class DeadLetterReason(enum.StrEnum):
    """Why a request cannot be served."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    PROCESS_DEATHS = "process_deaths"
    MAX_DELIVERIES = "max_deliveries"
    JOURNAL_GAP = "journal_gap"
    MODEL_REFUSED = "model_refused"
    INTERNAL_ERROR = "internal_error"


class DeadLetter(Message):
    """`rca.dlq.<reason>`: the raw body of a request, with these facts as headers."""

    reason: DeadLetterReason
    """Why."""
    origin_stream: Text
    """Stream of the request."""
    origin_sequence: Count
    """Its sequence there."""
    origin_stored_at: Timestamp | None = None
    """When the stream stored it."""
    origin_subject: Text
    """Its subject: where a replay publishes it."""
    deliveries: Count
    """How often it was delivered."""
    error: Text
    """The last error, one line."""

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
