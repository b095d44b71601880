"""The FastStream application: connection, lifespan and the declared subjects; the pumps move the messages.

A worker waits for what it needs (the broker, its streams, the cluster), says what it waits for, and starts to
take messages when all of it is there. A lane is declared as a subscriber without a handler, so that AsyncAPI
shows it; starting it creates no subscription and no consumer. Streams are declared by name only: FastStream
must never write a stream's configuration. Signals are our own: a second one means "faster". Run one process
per pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from faststream import FastStream
from faststream.nats import ConsumerConfig, JStream, NatsBroker, PullSub
from nats.aio.client import Client
from nats.errors import ConnectionClosedError, ConnectionReconnectingError
from nats.errors import Error as NatsError

from worker.adapters.nats.pump import LaneConsumer, Pump
from worker.app.admission import Admission
from worker.app.broker import unsuitable
from worker.app.link import BrokerLink, refusal
from worker.app.stream_watch import StreamWatch
from worker.app.supervisor import Supervisor
from worker.domain.values.concurrency import concurrently
from worker.domain.values.delays import PROBE_SILENCE_SECONDS, STARTUP_LOOK_SECONDS, STARTUP_REPORT_SECONDS
from worker.domain.values.delivery import MessageHandler, urgency_of
from worker.domain.values.errors import ReportedError

NATS = "nats"
SIGNALS = (signal.SIGTERM, signal.SIGINT)
log = structlog.stdlib.get_logger(__name__)

Need = Callable[[Client], Awaitable[str]]
"""Says what is missing before messages can be taken; empty if nothing is."""


class IntakeError(ReportedError):
    """The broker cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of requests and, by durable, of other messages; and the loops next to the lanes."""

    requests: MessageHandler
    others: Mapping[str, MessageHandler] = field(default_factory=dict)
    loops: Mapping[str, Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=dict)


@dataclass(slots=True)
class Intake:
    """The lanes of one worker. `problem` says what it waits for before it can start.

    `needs` are keyed by the system under which readiness names them: while one other than NATS is missing,
    `trouble` is silent. `others` are the durables on other streams, by stream. `servers` are named while none
    of them answers.
    """

    broker: NatsBroker
    link: BrokerLink
    stream: str
    lanes: Sequence[LaneConsumer]
    others: Mapping[str, LaneConsumer]
    open_handlers: Callable[[Client], Awaitable[Handlers]]
    admission: Admission
    streams: StreamWatch
    supervisor: Supervisor = field(default_factory=Supervisor)
    needs: Mapping[str, Need] = field(default_factory=dict)
    servers: Sequence[str] = ()
    drain_seconds: float = 40.0
    ack_wait_seconds: float = 60.0
    pumps: list[Pump] = field(default_factory=list)
    problem: str = "not connected yet"
    missing: str = NATS
    """The system that `problem` is about."""
    draining: bool = False
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)
    _handlers: Handlers | None = None
    _loops: AsyncExitStack = field(default_factory=AsyncExitStack)

    def trouble(self) -> str:
        """Return why no message is taken at the moment; empty if messages are taken. For readiness."""
        if self.draining:
            return "shutting down"
        return self.link.over or self.supervisor.problem or self.link.because(self._trouble())

    def _trouble(self) -> str:
        if self.problem and self.missing == NATS:
            return self.problem
        if self.link.client is not None and not self.link.client.is_connected:
            return "the connection is lost; reconnecting"
        silent = [p.lane.durable for p in self.pumps if p.silent_seconds() > PROBE_SILENCE_SECONDS]
        return f"no answer to pull requests of lanes {', '.join(silent)}" if silent else ""

    def app(self) -> FastStream:
        """The application, with its lanes declared."""
        for lane in self.lanes:
            self.broker.subscriber(
                stream=JStream(self.stream, declare=False),
                durable=lane.durable,
                pull_sub=PullSub(),
                config=ConsumerConfig(filter_subjects=list(lane.subjects)),
                title=lane.durable,
            )
        return FastStream(
            self.broker, on_startup=[self._connect], after_startup=[self._start], on_shutdown=[self._drain]
        )

    async def _connect(self) -> None:
        nc = await self._connected()
        was_away = bool(self.link.problem)  # other workers come back at the same time, with runs in flight
        self.link.made(nc)
        if why := unsuitable(nc):
            raise IntakeError(why)
        for system, need in self.needs.items():
            await self._wait_for(system, need, nc)
        self.problem, self.missing = "", NATS
        self._handlers = handlers = await self.open_handlers(nc)
        pump = partial(Pump, nc, ack_wait_seconds=self.ack_wait_seconds)
        for lane in self.lanes:
            admit = partial(self.admission.admit, urgency_of(lane.durable))
            self.pumps.append(pump(self.stream, lane, handlers.requests, admit=admit, after_outage=was_away))
        for stream, lane in self.others.items():
            self.pumps.append(pump(stream, lane, handlers.others[lane.durable], removes_acked=False))
        self._follow_ack_waits(self.streams.ack_waits)

    def _follow_ack_waits(self, seconds: Mapping[str, float]) -> None:
        for pump in self.pumps:
            pump.ack_wait_seconds = seconds.get(pump.lane.durable, pump.ack_wait_seconds)

    async def _connected(self) -> Client:
        """Wait for the connection, however long it takes, because nats-py retries for ever and silently."""
        connecting = asyncio.ensure_future(self.broker.connect())
        try:
            while not (await asyncio.wait({connecting}, timeout=STARTUP_REPORT_SECONDS))[0]:
                self.problem = f"no NATS server answers at {', '.join(self.servers)}"
                log.warning("startup_waiting", reason=self.link.because(self.problem))
            return await connecting
        except (NatsError, OSError) as e:
            raise IntakeError(refusal(e) or f"{', '.join(self.servers)}: {e!r}") from e
        finally:
            connecting.cancel()
            await asyncio.wait({connecting})

    async def _wait_for(self, system: str, need: Need, nc: Client) -> None:
        said_at, loop = 0.0, asyncio.get_running_loop()
        while missing := await need(nc):
            self.problem, self.missing = missing, system
            if loop.time() - said_at >= STARTUP_REPORT_SECONDS:
                log.warning(
                    "startup_waiting", reason=self.link.because(missing) if system == NATS else missing
                )
                said_at = loop.time()
            await asyncio.sleep(STARTUP_LOOK_SECONDS)

    async def _start(self) -> None:
        await concurrently([pump.start() for pump in self.pumps])
        for pump in self.pumps:
            for name, loop in pump.loops.items():
                self.supervisor.watch(name, loop)
        loops = {name: make() for name, make in self._handlers.loops.items()} if self._handlers else {}
        if self.link.client is not None:
            loops["streams"] = self.streams.run(self.link.client, self._follow_ack_waits)
        for name, work in loops.items():
            await self._loops.enter_async_context(self.supervisor.running(name, work))
        log.info("worker_started", lanes={pump.lane.durable: pump.lane.slots for pump in self.pumps})

    async def _drain(self) -> None:
        self._announce()
        await self._loops.aclose()
        log.info("worker_draining", running=sum(pump.running for pump in self.pumps))
        await concurrently([pump.drain(self.drain_seconds, self._hurry) for pump in self.pumps])

    def _announce(self) -> None:
        """Stop being ready, and start no further run: at once, before anything else."""
        self.draining = True
        self.admission.stop()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run beside other work of the same process, without signal handlers."""
        app = self.app()
        try:
            await app.start()
            yield
        finally:
            self.link.closing = True
            with contextlib.suppress(ConnectionReconnectingError, ConnectionClosedError, ConnectionError):
                await app.stop()  # closing raises while the server is away: no failure, all is settled

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT. Running requests then have `drain_seconds`; a second signal ends them.

        Raises IntakeError when the server refuses the connection, at the start or later, and when a loop has
        died.
        """
        told = asyncio.Event()

        def on_signal() -> None:
            if told.is_set():
                self._hurry.set()
            told.set()
            self._announce()

        with _signals(on_signal):
            work = asyncio.create_task(self._run_until(told))
            ends = (told, self.link.ended, self.supervisor.failed)
            events = [asyncio.create_task(event.wait()) for event in ends]
            try:
                await asyncio.wait({work, *events}, return_when=asyncio.FIRST_COMPLETED)
                if self.link.over:
                    # Messages can no longer be returned; another worker continues from the journal.
                    self._hurry.set()
                told.set()
                if not self.pumps:  # still waiting for something: there is no message to return
                    work.cancel()
                await asyncio.wait({work})
            finally:  # also when the caller is cancelled
                for task in (work, *events):
                    task.cancel()
                await asyncio.wait({work, *events})
        if why := self.link.over or self.supervisor.problem:
            raise IntakeError(why)
        if not work.cancelled():
            work.result()

    async def _run_until(self, told: asyncio.Event) -> None:
        async with self.running():
            await told.wait()


@contextlib.contextmanager
def _signals(handle: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
