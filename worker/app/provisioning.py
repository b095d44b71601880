"""A short-lived connection, and the streams that are created over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats.errors
from faststream.nats import NatsBroker
from nats.aio.client import Client

from schemas.subjects import Subjects
from worker.adapters.nats.layout import Wanted, result_reader, wanted
from worker.adapters.nats.provision import MEBIBYTE, Difference, provision
from worker.app.broker import make_broker, missing_tls
from worker.app.link import BrokerLink, refusal
from worker.app.settings.environment import Settings
from worker.app.settings.groups import NatsSettings
from worker.domain.values.errors import Unavailable, system_message

AGAIN_SECONDS = 0.1


@asynccontextmanager
async def connected(settings: NatsSettings, *, name: str = "rca") -> AsyncIterator[Client]:
    """A connection with the configured credentials, for a command: any denial of the server ends it.

    Raises ConfigurationError, and Unavailable when nobody answers, or the server refuses or denies something.
    """
    link = BrokerLink()
    broker = make_broker(settings, link, name=name)
    nc = await _connect(broker, link, settings)
    try:
        async with _ended_by_denials(link):
            yield nc
    finally:
        link.closing = True
        # `broker.stop` drains instead, and a drain that is cancelled leaves an exception that nobody reads.
        await nc.close()


@asynccontextmanager
async def _ended_by_denials(link: BrokerLink) -> AsyncIterator[None]:
    """Cancels repeatedly: before Python 3.12, `wait_for` loses a cancellation that meets an answer."""
    told, task = asyncio.Event(), asyncio.current_task()
    link.on_denied = told.set

    async def insist() -> None:
        await told.wait()
        while task is not None:
            task.cancel()
            await asyncio.sleep(AGAIN_SECONDS)

    insisting = asyncio.create_task(insist())
    try:
        yield
    except asyncio.CancelledError:
        if not link.denied:
            raise
        raise Unavailable(link.denied) from None
    finally:
        insisting.cancel()


async def _connect(broker: NatsBroker, link: BrokerLink, settings: NatsSettings) -> Client:
    servers = ", ".join(settings.servers)
    try:
        async with asyncio.timeout(settings.connect_seconds):
            nc = await broker.connect()
    except TimeoutError:
        said = f"no server answered at {servers} within {settings.connect_seconds:.0f} s"
        raise Unavailable(f"{link.because(said)}; check RCA_NATS__SERVERS") from None
    except (nats.errors.Error, OSError) as e:
        raise Unavailable(refusal(e) or f"{servers}: {system_message(e)}") from e
    if wrong := missing_tls(settings, nc):
        link.closing = True
        await broker.stop()
        raise Unavailable(f"{servers}: {wrong}")
    return nc


def wanted_streams(settings: Settings) -> list[Wanted]:
    """Everything that a worker needs under the configured prefix."""
    return wanted(
        Subjects(settings.nats.prefix),
        replicas=settings.nats.replicas,
        ack_wait_seconds=settings.worker.ack_wait_seconds,
        store_bytes=settings.nats.store_mebibytes * MEBIBYTE,
        recording_hours=settings.record.hours,
        recording_bytes=settings.record.mebibytes * MEBIBYTE if settings.record.hours else 0,
    )


async def provision_all(nc: Client, settings: Settings, *, apply: bool = True) -> list[Difference]:
    """Create and update everything under the configured prefix; with `apply` False, only compare.

    Raises Unavailable, ProvisionError.
    """
    items = [*wanted_streams(settings), result_reader(Subjects(settings.nats.prefix))]
    return await provision(nc, items, apply=apply)
