"""Servers of other people on a free loopback port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class PlannedServer:
    """A server whose first answers are planned, one for each request: a response, or None to hang."""

    answers: list[web.Response | None] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def planned(self, request: web.Request) -> web.Response | None:
        """The planned answer to this request. None when no more are planned."""
        self.headers.append(dict(request.headers))
        if not self.answers:
            return None
        answer = self.answers.pop(0)
        if answer is None:
            await self.closing.wait()
            return web.Response(status=503)
        return answer


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
