"""A small HTTP server while a context is open: for probes, alerts and pages."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import StreamReader, web
from aiohttp.typedefs import Handler

from worker.app.supervisor import Supervisor

SHUTDOWN_SECONDS = 1.0
SILENT_SECONDS = 10.0
"""A client that sends no request, or only part of one, for so long loses its connection: aiohttp waits for ever."""


def has_bearer(request: web.Request, token: str) -> bool:
    """True if the request has this bearer token (RFC 6750). Compared in constant time."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and is_same(given, token)


def is_same(given: str, secret: str) -> bool:
    """True if a text of a client, which may not be UTF-8, is the secret. Compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())


async def livez(_: web.Request) -> web.Response:
    """Answer a liveness probe: the event loop runs."""
    return web.Response(text="ok\n")


class _Connections:
    """Since when each connection waits for its client, and the body of the request that it is answering."""

    def __init__(self) -> None:
        self._waiting: dict[web.RequestHandler, tuple[float, StreamReader | None]] = {}

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request; the time that this takes is not the client's."""
        self._waiting[request.protocol] = time.monotonic(), request.content
        try:
            return await handler(request)
        finally:
            self._waiting[request.protocol] = time.monotonic(), None

    async def close_silent(self, server: web.Server, seconds: float) -> None:
        """Close, until cancelled, connections that have waited for so long."""
        while True:
            await asyncio.sleep(seconds / 5)
            now = time.monotonic()
            self._waiting = {one: self._waiting.get(one, (now, None)) for one in server.connections}
            for connection, (since, body) in self._waiting.items():
                if now - since > seconds and not (body and body.is_eof()):
                    connection.force_close()


@asynccontextmanager
async def listening(
    app: web.Application, host: str, port: int, *, silent_seconds: float = SILENT_SECONDS
) -> AsyncIterator[int]:
    """Serve until the context ends; yields the port (the system's choice for 0). Raises OSError."""
    connections = _Connections()
    app.middlewares.append(connections.note)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    assert runner.server is not None  # for mypy: there is one after setup
    try:
        await web.TCPSite(runner, host, port).start()
        async with Supervisor().running(
            "connections", connections.close_silent(runner.server, silent_seconds)
        ):
            yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
