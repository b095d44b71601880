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
from nats.js.errors import Error as JetStreamError

from worker.domain.errors import Unavailable

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

    `kept_since`: messages from before may have expired; None when none can have. A message above the age limit expires,
    so one that is younger and gone was deleted by somebody, wherever the stream begins.
    """

    first: int
    last: int
    kept_since: datetime | None


class NatsArchive:
    """One stream as it is now. `log` reads its messages, `nc` asks for its extent. Everything raises Unavailable."""

    def __init__(self, log: Log, nc: Client, stream: str) -> None:
        self._log, self._stream = log, stream
        self._js = nc.jetstream(timeout=INFO_SECONDS)

    async def extent(self, now: datetime) -> Extent:
        """What it holds."""
        try:
            info = await self._js.stream_info(self._stream)
        except (TimeoutError, nats.errors.Error, JetStreamError) as e:
            raise Unavailable(f"{self._stream}: {e!r}") from e
        first, age = max(1, info.state.first_seq), info.config.max_age  # 0: nothing was ever stored
        if first == 1 or not age:
            return Extent(first, info.state.last_seq, None)
        oldest, limit = await self._log.at(first), now - timedelta(seconds=age)
        return Extent(first, info.state.last_seq, min(oldest.stored_at, limit) if oldest else limit)

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
