"""Models of what the server says about a stream and its consumers, with the fields that are used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from schemas.fields import Timestamp


@dataclass(frozen=True, slots=True)
class StreamExtent:
    """The range of a stream: from the first to the last sequence (last below first if it is empty).

    `oldest`: when the first message was stored; None for an empty stream. `kept_since`: messages from before
    that time may have expired; None when none can have. A message above the age limit expires, so one that is
    younger and gone was deleted by somebody, wherever the stream begins.
    """

    first: int
    last: int
    oldest: datetime | None
    kept_since: datetime | None


class _Answer(BaseModel):
    """A part of an answer of the server."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class StreamState(_Answer):
    """`last_ts`: when the last message was stored, also of a stream that was emptied since."""

    messages: int
    first_seq: int
    first_ts: Timestamp
    last_seq: int
    last_ts: Timestamp
    num_deleted: int = 0


class StreamInfo(_Answer):
    """The parts that are read of io.nats.jetstream.api.v1.stream_info_response.

    The model in nats-py lacks `first_ts`.
    """

    state: StreamState
    config: dict[str, Any]
    created: Timestamp

    @property
    def max_age(self) -> timedelta:
        """The age at which messages are deleted; zero if they are kept."""
        return timedelta(microseconds=self.config.get("max_age", 0) // 1_000)

    def extent(self, now: datetime, max_age: timedelta | None = None) -> StreamExtent:
        """The range of messages in the stream.

        `max_age` is given where nobody may have changed that of the stream: nothing younger has expired, and
        nothing at all in a stream that is younger.
        """
        age = self.max_age if max_age is None else max(self.max_age, max_age)
        state, limit = self.state, now - age
        oldest = state.first_ts if state.messages else None
        may_have_expired = age and state.first_seq > 1 and (max_age is None or self.created <= limit)
        kept_since = min(oldest or limit, limit) if may_have_expired else None
        return StreamExtent(max(1, state.first_seq), state.last_seq, oldest, kept_since)


class _Position(_Answer):
    stream_seq: int


class ConsumerState(_Answer):
    """What is read of io.nats.jetstream.api.v1.consumer_info_response."""

    delivered: _Position
    ack_floor: _Position
    num_pending: int = 0
    num_ack_pending: int = 0

    @property
    def settled_up_to(self) -> int:
        """The consumer will never deliver a message up to this sequence again.

        Everything up to the ack floor was settled or has exhausted its deliveries; without outstanding
        messages so was everything it has delivered.
        """
        return self.ack_floor.stream_seq if self.num_ack_pending else self.delivered.stream_seq
