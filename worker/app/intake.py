"""The FastStream application: connection, lifespan, signals and the declared subjects; the pumps move the messages.

A lane is declared as a subscriber without a handler, so that AsyncAPI shows it; starting it creates no subscription and
no consumer. Streams are declared by name only: FastStream must never write a stream's configuration.
Run one process per pod.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog
from faststream import FastStream
from faststream.nats import ConsumerConfig, JStream, NatsBroker, PullSub
from nats.aio.client import Client
from nats.errors import ConnectionReconnectingError

from worker.adapters.nats_pump import Lane, Pump
from worker.domain.delivery import Handler

MIN_MAX_PAYLOAD = 2_000_000  # bytes: a request at its cap, its headers and a dead letter's envelope
log = structlog.stdlib.get_logger(__name__)


class IntakeError(Exception):
    """The broker is not usable as it is; the message says what to do."""


@dataclass(slots=True)
class Intake:
    """The lanes of one worker. `draining` and the pumps are read by readiness."""

    broker: NatsBroker
    stream: str
    lanes: Sequence[Lane]
    make_handler: Callable[[Client], Awaitable[Handler]]
    drain_seconds: float = 40.0
    connect_seconds: float = 30.0
    ack_wait_seconds: float = 60.0
    pumps: list[Pump] = field(default_factory=list)
    draining: bool = False

    def app(self) -> FastStream:
        """The application; `run` it."""
        for lane in self.lanes:
            self.broker.subscriber(
                stream=JStream(self.stream, declare=False),
                durable=lane.durable,
                pull_sub=PullSub(),
                config=ConsumerConfig(filter_subjects=list(lane.subjects)),
                title=lane.durable,
            )
        return FastStream(
            self.broker,
            on_startup=[self._connect],
            after_startup=[self._start],
            on_shutdown=[self._drain],
        )

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self.connect_seconds):  # a missing server would hang in silence
                nc = await self.broker.connect()
        except TimeoutError:
            raise IntakeError(
                f"no NATS server answered within {self.connect_seconds:.0f} s; check RCA_NATS__SERVERS"
            ) from None
        if nc.max_payload < MIN_MAX_PAYLOAD:
            raise IntakeError(
                f"the NATS server allows messages of {nc.max_payload} bytes; set max_payload to 2MB in its configuration"
            )
        handler = await self.make_handler(nc)
        self.pumps.extend(
            Pump(nc, self.stream, lane, handler, ack_wait_seconds=self.ack_wait_seconds)
            for lane in self.lanes
        )

    async def _start(self) -> None:
        await asyncio.gather(*(pump.start() for pump in self.pumps))
        log.info("worker_started", lanes={pump.lane.durable: pump.lane.slots for pump in self.pumps})

    async def _drain(self) -> None:
        self.draining = True
        log.info("worker_draining", running=sum(pump.running for pump in self.pumps))
        await asyncio.gather(*(pump.drain(self.drain_seconds) for pump in self.pumps))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run beside other work of the same process, without signal handlers."""
        app = self.app()
        await app.start()
        try:
            yield
        finally:
            await app.stop()

    async def run(self) -> None:
        """Until a signal or a failure. Closing raises while the server is away: no failure, all is settled."""
        with contextlib.suppress(ConnectionReconnectingError, ConnectionError):
            await self.app().run()
