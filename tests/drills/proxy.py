"""A wire between a worker and its server that a drill can cut, hold and listen to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

CHUNK = 1 << 16


@dataclass
class Wire:
    """Relays every connection. Once `stop_at` is seen from the client, nothing of its side passes until `release`."""

    upstream: str
    stop_at: bytes = b""
    url: str = ""
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    heard: bytearray = field(default_factory=bytearray)
    """What the server has said since the release."""
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the client."""
        self.connections.add(task := asyncio.create_task(self._relay(reader, writer)))
        task.add_done_callback(self.connections.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = urlsplit(self.upstream)
        server_reader, server_writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            await asyncio.gather(self._up(reader, server_writer), self._down(server_reader, writer))
        except ConnectionError:
            pass
        finally:
            for each in (writer, server_writer):
                each.close()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if self.stop_at and self.stop_at in data and not self.released.is_set():
                self.stopped.set()
            if self.stopped.is_set():
                await self.released.wait()
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if self.released.is_set():
                self.heard += data
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def wire(upstream: str, *, stop_at: bytes = b"") -> AsyncIterator[Wire]:
    """A wire to a NATS server; connect to its `url`."""
    made = Wire(upstream, stop_at)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        for task in list(made.connections):  # what is held never arrives
            task.cancel()
        await asyncio.gather(*made.connections, return_exceptions=True)
