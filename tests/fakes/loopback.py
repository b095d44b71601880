"""An aiohttp application on a free loopback port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def served(app: web.Application, closing: asyncio.Event | None = None) -> AsyncIterator[str]:
    """The base URL while it runs. `closing` is set at the end, for handlers that hang on purpose."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        if closing is not None:
            closing.set()
        await runner.cleanup()
