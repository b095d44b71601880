"""Servers for the tests: one, or three on this machine (real Raft, no independent failures).

async with one_server(tmp_path) as server: ...
async with three_servers(tmp_path) as servers: ...
async with provisioned([server]) as case: ...
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg
from nats.js.errors import NotFoundError

from schemas.subjects import Subjects
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.sandbox.nats_server import NatsServer

PATIENCE_SECONDS = 100
"""For an answer that must come: a slow machine is no failure."""
LOWEST_PORT, PORTS = 10_000, 20_000
_tried = itertools.count(os.getpid() * 997)  # processes that test at the same time begin far from each other


@contextlib.asynccontextmanager
async def one_server(directory: Path) -> AsyncIterator[NatsServer]:
    server = NatsServer(directory / "n0", port=free_ports(1)[0])
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def free_ports(count: int) -> list[int]:
    """Lower ones than the kernel picks by itself, so that nobody is given one before it is used."""
    found: list[int] = []
    while len(found) < count:
        port = LOWEST_PORT + next(_tried) % PORTS
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found


@contextlib.asynccontextmanager
async def three_servers(directory: Path, configuration: str = "") -> AsyncIterator[list[NatsServer]]:
    """`configuration` is added to that of each server."""
    ports = free_ports(3)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    servers = [
        NatsServer(
            directory / f"n{i}",
            name=f"n{i}",
            port=free_ports(1)[0],
            cluster=f"cluster {{ name: local, listen: 127.0.0.1:{port}, routes: [{routes}] }}\n{configuration}",
        )
        for i, port in enumerate(ports)
    ]
    try:
        await asyncio.gather(*(server.start() for server in servers))
        yield servers
    finally:
        await asyncio.gather(*(server.stop() for server in servers))


async def connect(servers: Sequence[NatsServer], errors: list[Exception] | None = None) -> Client:
    """A client that comes back after a restart; what goes wrong on the way is put into `errors`, not printed."""

    async def quiet(error: Exception) -> None:
        if errors is not None:
            errors.append(error)

    return await nats.connect(
        [server.url for server in servers],
        max_reconnect_attempts=-1,
        connect_timeout=PATIENCE_SECONDS,
        reconnect_time_wait=0.2,
        ping_interval=5,
        error_cb=quiet,
    )


@dataclass
class Case:
    """Provisioned servers, a connection, and the names on them."""

    servers: list[NatsServer]
    nc: Client
    subjects: Subjects

    @property
    def js(self) -> JetStreamContext:
        return self.nc.jetstream(timeout=PATIENCE_SECONDS)

    async def count(self, stream: str) -> int:
        return (await self.js.stream_info(stream)).state.messages

    async def messages(self, stream: str, subject: str) -> list[RawStreamMsg]:
        """Everything that is stored on a subject (wildcards allowed), in order."""
        found: list[RawStreamMsg] = []
        while True:
            after = (found[-1].seq or 0) + 1 if found else 1
            try:
                found.append(await self.js.get_msg(stream, seq=after, next=True, subject=subject))
            except NotFoundError:
                return found


@contextlib.asynccontextmanager
async def provisioned(
    servers: list[NatsServer], *, prefix: str = "rca", ack_wait_seconds: float = 2.0
) -> AsyncIterator[Case]:
    """All streams, buckets and lanes, with as many replicas as there are servers."""
    subjects, nc = Subjects(prefix), await connect(servers)
    try:
        items = wanted(subjects, replicas=len(servers), ack_wait_seconds=ack_wait_seconds)
        await provision(nc, items)
        yield Case(servers, nc, subjects)
    finally:
        await nc.close()
