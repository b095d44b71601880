"""One message as it was handed out, and what is to become of it."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from schemas.subjects import DEFAULT_LANE, Lane


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where a message came from. `stream` and `sequence` name the message for good; `stored_at` is in UTC.

    `deliveries` counts orderly releases and outages too: it is no count of failures.
    """

    subject: str
    stream: str
    durable: str
    sequence: int
    deliveries: int
    stored_at: datetime

    @property
    def urgency(self) -> int:
        """Number of the lane it came by, 0 for the most urgent."""
        return urgency_of(self.durable)


def urgency_of(durable: str) -> int:
    """Number of a lane, 0 for the most urgent. What is no lane is as urgent as the default one."""
    lanes = [lane.value for lane in Lane]
    return lanes.index(durable if durable in lanes else DEFAULT_LANE.value)


class Fate(enum.StrEnum):
    """What the broker is told about a delivery."""

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
"""For a run that lost its claim: say nothing. The broker takes what is said about an old delivery as said about the
new one: a nak would start a third run, an ack would remove the message."""


def retry(after_seconds: float) -> Settlement:
    """Deliver again, not before so many seconds. There is no nak without a delay: it would come back at once."""
    return Settlement(Fate.RETRY, after_seconds=max(after_seconds, 0.001))


def term(reason: str) -> Settlement:
    """Never deliver again. Only after what became of the message is published and confirmed."""
    return Settlement(Fate.TERMINATE, reason=reason)


MessageHandler = Callable[[bytes, Mapping[str, str], Delivery], Awaitable[Settlement]]
"""Decides about one message: its raw body, its headers as sent (hostile), and where it came from."""
