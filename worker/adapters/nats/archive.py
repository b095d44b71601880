"""A whole stream, message by message at its leader, in order: it needs no consumer, and so no right to make one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import nats.errors
from nats.aio.client import Client
from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.fields import Timestamp
from schemas.permissions import API
from worker.domain.values.errors import Unavailable

AT_ONCE = 64
INFO_SECONDS = 10.0


class Message(Protocol):
    """A message as its stream has it."""

    @property
    def subject(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def stored_at(self) -> datetime: ...


class Log(Protocol):
    """A stream. Raises Unavailable."""

    async def at(self, sequence: int) -> Message | None:
        """The message with this sequence."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What a stream holds: from the first to the last sequence (last below first when it holds nothing).

    `oldest`: when the first message was stored; None when there is none. `kept_since`: messages from before may have
    expired; None when none can have. A message above the age limit expires, so one that is younger and gone was deleted
    by somebody, wherever the stream begins.
    """

    first: int
    last: int
    oldest: datetime | None
    kept_since: datetime | None


class _State(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    messages: int
    first_seq: int
    first_ts: Timestamp
    last_seq: int


class _Limits(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    max_age: int = 0
    """In nanoseconds; 0 for none."""


class _Info(BaseModel):
    """What is read of io.nats.jetstream.api.v1.stream_info_response; nats-py's own model leaves out `first_ts`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    state: _State
    config: _Limits


class NatsArchive:
    """One stream as it is now. `log` reads its messages, `nc` asks for its extent. Everything raises Unavailable."""

    def __init__(self, log: Log, nc: Client, stream: str, *, api_prefix: str = API) -> None:
        self._log, self._nc, self._stream, self._api_prefix = log, nc, stream, api_prefix

    async def extent(self, now: datetime) -> Extent:
        """What it holds."""
        try:
            reply = await self._nc.request(
                f"{self._api_prefix}.STREAM.INFO.{self._stream}", timeout=INFO_SECONDS
            )
            info = _Info.model_validate_json(reply.data)
        except (TimeoutError, nats.errors.Error) as e:
            raise Unavailable(f"{self._stream}: {e!r}") from e
        except ValidationError as e:  # or the error of a server without this stream
            raise Unavailable(f"{self._stream}: there is no such stream; run `rca provision`") from e
        state, age = info.state, timedelta(microseconds=info.config.max_age // 1_000)
        oldest, limit = state.first_ts if state.messages else None, now - age
        gone = age and state.first_seq > 1
        return Extent(
            max(1, state.first_seq),
            state.last_seq,
            oldest,
            min(oldest or limit, limit) if gone else None,
        )

    async def messages(self, extent: Extent) -> AsyncIterator[Message]:
        """All that are still there, in order."""
        reading: deque[asyncio.Task[Message | None]] = deque()
        try:
            for sequence in range(extent.first, extent.last + 1):
                reading.append(asyncio.create_task(self._log.at(sequence)))
                if len(reading) == AT_ONCE and (found := await reading.popleft()) is not None:
                    yield found
            while reading:
                if (found := await reading.popleft()) is not None:
                    yield found
        finally:
            for task in reading:
                task.cancel()
