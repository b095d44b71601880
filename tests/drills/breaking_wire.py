"""A wire to a NATS server that breaks, or freezes, at one chosen message of the client."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

CHUNK = 1 << 16


class Break(enum.Enum):
    """What happens at the chosen message.

    BEFORE, AFTER: the connection ends before the server has the message, or before its answer. FROZEN: nothing passes for
    some time, in either direction, as if the client was stopped. NOT_AT_ALL: the message only waits for `meanwhile`.
    """

    BEFORE = "before"
    AFTER = "after"
    FROZEN = "frozen"
    NOT_AT_ALL = "not at all"


@dataclass(frozen=True)
class Sent:
    """One message of the client."""

    subject: str
    payload: bytes


def is_work(sent: Sent) -> bool:
    """Whether the message belongs to a request: not a pull request, and not a heartbeat, whose number is up to chance."""
    if sent.subject.startswith("$JS.API.CONSUMER.MSG.NEXT."):
        return False
    return not sent.payload.endswith(b"+WPI")


async def _nothing() -> None:
    pass


@dataclass
class BreakingWire:
    """Relays every connection, and counts the messages for which `counts` holds.

    At the message number `at` (from 1) it breaks once; with `for_good` no later connection is relayed, which is how the
    server sees a process that was killed. `meanwhile` is awaited when it has broken.
    """

    upstream: str
    at: int = 0
    how: Break = Break.BEFORE
    for_good: bool = False
    frozen_seconds: float = 2.5
    counts: Callable[[Sent], bool] = is_work
    meanwhile: Callable[[], Awaitable[None]] = _nothing
    url: str = ""
    sent: list[Sent] = field(default_factory=list)
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.flows.set()

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the client."""
        self.connections.add(task := asyncio.create_task(self._relay(reader, writer)))
        task.add_done_callback(self.connections.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.for_good and self.broken.is_set():
            writer.close()
            return
        address = urlsplit(self.upstream)
        server_reader, server_writer = await asyncio.open_connection(address.hostname, address.port)
        down = asyncio.create_task(self._down(server_reader, writer))
        try:
            await self._up(reader, server_writer, down)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            down.cancel()
            for each in (writer, server_writer):
                each.close()
            await asyncio.wait({down})
            for each in (writer, server_writer):
                with contextlib.suppress(ConnectionError):
                    await each.wait_closed()

    async def _up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, down: asyncio.Task[None]
    ) -> None:
        while line := await reader.readuntil(b"\r\n"):
            words = line.split()
            verb, frame = words[0].upper(), line
            if verb in {b"PUB", b"HPUB"}:
                body = await reader.readexactly(int(words[-1]) + 2)
                sent, frame = Sent(words[1].decode(), body[:-2]), line + body
                if self.counts(sent):
                    self.sent.append(sent)
                    if len(self.sent) == self.at and not self.broken.is_set():
                        if self.how in {Break.BEFORE, Break.AFTER}:
                            await self._break(frame, writer, down)
                            return
                        await (self._freeze() if self.how is Break.FROZEN else self.meanwhile())
                        self.broken.set()
            writer.write(frame)
            await writer.drain()

    async def _break(self, frame: bytes, writer: asyncio.StreamWriter, down: asyncio.Task[None]) -> None:
        """End this connection, after the server has what was sent so far."""
        down.cancel()  # from now on the client hears nothing
        await asyncio.wait({down})
        if self.how is Break.AFTER:
            writer.write(frame)
            await writer.drain()
        await self.meanwhile()
        self.broken.set()

    async def _freeze(self) -> None:
        self.flows.clear()
        self.broken.set()
        await asyncio.sleep(self.frozen_seconds)
        self.flows.set()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self.flows.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def breaking_wire(upstream: str, **options: object) -> AsyncIterator[BreakingWire]:
    """A wire; connect to its `url`."""
    made = BreakingWire(upstream, **options)  # type: ignore[arg-type]
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=4 << 20)
    made.url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        for task in list(made.connections):
            task.cancel()
        await asyncio.gather(*made.connections, return_exceptions=True)
