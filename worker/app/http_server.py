"""A small HTTP server while a context is open: for probes, alerts and pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

SHUTDOWN_SECONDS = 1.0


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
