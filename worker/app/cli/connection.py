"""How commands connect to NATS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from nats.aio.client import Client

from worker.app.cli.console import waiting_for
from worker.app.provisioning import connected
from worker.app.settings import NatsSettings


@asynccontextmanager
async def connection(settings: NatsSettings, *, name: str = "rca") -> AsyncIterator[Client]:
    """A connection to the configured server. Raises Unavailable when nobody answers, or the server refuses."""
    where = f"NATS at {', '.join(settings.servers)}, for up to {settings.connect_seconds:g} s"
    async with AsyncExitStack() as stack:
        async with waiting_for(where):
            nc = await stack.enter_async_context(connected(settings, name=name))
        yield nc
