"""A small HTTP server while a context is open: for probes, alerts and pages."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

SHUTDOWN_SECONDS = 1.0


def has_bearer(request: web.Request, token: str) -> bool:
    """True if the request has this bearer token (RFC 6750). Compared in constant time."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and is_same(given, token)


def is_same(given: str, secret: str) -> bool:
    """True if a text of a client, which may not be UTF-8, is the secret. Compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())


@asynccontextmanager
async def listening(app: web.Application, host: str, port: int) -> AsyncIterator[int]:
    """Serve until the context ends; yields the port (the system's choice for 0). Raises OSError."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
