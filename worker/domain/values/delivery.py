"""A delivered message: its identity, and the decision how to settle it."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from schemas.subjects import DEFAULT_LANE, Lane


@dataclass(frozen=True, slots=True)
class MessageId:
    """Identity of a message of one stream, even if the stream is recreated and counts from 1 again.

    `stored_at` is the server's time of storing it, in UTC and cut to microseconds; None in journals of older
    versions.
    """

    sequence: int
    stored_at: datetime | None = None

    def matches(self, other: MessageId) -> bool:
        """True if both name the same message, as far as is known."""
        unknown = self.stored_at is None or other.stored_at is None
        return self.sequence == other.sequence and (unknown or self.stored_at == other.stored_at)

    def as_notes(self) -> dict[str, Any]:
        """The id as notes of a journal step."""
        return {"message": self.sequence, "stored_at": self.stored_at.isoformat() if self.stored_at else ""}

    @classmethod
    def from_notes(cls, notes: Mapping[str, Any]) -> MessageId | None:
        """The id in the notes of a journal step, or None."""
        sequence = notes.get("message")
        if not isinstance(sequence, int):
            return None
        try:
            return cls(sequence, datetime.fromisoformat(notes.get("stored_at", "")))
        except (TypeError, ValueError):
            return cls(sequence)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The origin of a message. `stored_at` is the server's time of storing it, in UTC.

    `deliveries` includes orderly releases and outages: it is not a count of failures.
    """

    subject: str
    stream: str
    durable: str
    sequence: int
    deliveries: int
    stored_at: datetime
    release_slot: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)
    """Give the lane's slot to another message while this one only waits. Further calls have no effect.
    """

    @property
    def message(self) -> MessageId:
        """Identity of the message in its stream."""
        return MessageId(self.sequence, self.stored_at)

    @property
    def origin(self) -> dict[str, Any]:
        """The fields that name the message in whatever is published about it."""
        return {
            "origin_stream": self.stream,
            "origin_sequence": self.sequence,
            "origin_stored_at": self.stored_at,
            "origin_subject": self.subject,
        }

    @property
    def urgency(self) -> int:
        """Number of its lane, 0 for P0."""
        return urgency_of(self.durable)


MOST_URGENT = 0
"""The urgency of P0."""


def urgency_of(durable: str) -> int:
    """Number of a lane, 0 for P0. Any other durable counts as the default lane."""
    lanes = [lane.value for lane in Lane]
    return lanes.index(durable if durable in lanes else DEFAULT_LANE.value)


class Fate(enum.StrEnum):
    """What the broker does with a message. LET_GO: it gets no reply."""

    DONE = "done"
    LET_GO = "let_go"
    RETRY = "retry"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class Settlement:
    """A decision about one delivery: ACK, LET_GO, retry(seconds) or term(reason)."""

    fate: Fate
    after_seconds: float = 0.0
    reason: str = ""


ACK = Settlement(Fate.DONE)
"""The work is done and confirmed stored: the message may be removed."""

LET_GO = Settlement(Fate.LET_GO)
"""For a run that lost its claim: send nothing to the broker.

The broker takes the settlement of an old delivery for that of the new one: a nak would start a third run, and
an ack would remove the message.
"""


def retry(after_seconds: float) -> Settlement:
    """Deliver again after at least this many seconds.

    A nak without a delay does not exist: the message would come back at once.
    """
    return Settlement(Fate.RETRY, after_seconds=max(after_seconds, 0.001))


def term(reason: str) -> Settlement:
    """Never deliver again. Only after the end of the message is published and confirmed."""
    return Settlement(Fate.TERMINATE, reason=reason)


MessageHandler = Callable[[bytes, Mapping[str, str], Delivery], Awaitable[Settlement]]
"""Decides about one message: its raw body, its headers as sent (hostile), and where it came from."""
