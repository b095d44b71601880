"""A short-lived connection, and the streams made over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats.errors
from nats.aio.client import Client

from schemas.subjects import Subjects
from worker.adapters.nats_provision import Finding, provision, wanted
from worker.app.broker import make_broker, refusal
from worker.app.settings import NatsSettings, Settings
from worker.domain.errors import Unavailable


@asynccontextmanager
async def connected(settings: NatsSettings, *, name: str = "rca") -> AsyncIterator[Client]:
    """A connection with the configured credentials. Raises Unavailable when nobody answers, or the server refuses."""
    broker = make_broker(settings, name=name)
    try:
        async with asyncio.timeout(settings.connect_seconds):
            nc = await broker.connect()
    except TimeoutError:
        raise Unavailable(
            f"no server answered at {', '.join(settings.servers)} within {settings.connect_seconds:.0f} s; "
            "check RCA_NATS__SERVERS"
        ) from None
    except nats.errors.Error as e:
        raise Unavailable(refusal(e) or f"{', '.join(settings.servers)}: {e!r}") from e
    try:
        yield nc
    finally:
        await broker.stop()


async def provision_all(nc: Client, settings: Settings, *, apply: bool = True) -> list[Finding]:
    """Everything under the configured prefix."""
    items = wanted(
        Subjects(settings.nats.prefix),
        replicas=settings.nats.replicas,
        ack_wait_seconds=settings.worker.ack_wait_seconds,
    )
    return await provision(nc, items, apply=apply)
