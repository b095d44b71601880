"""Construction: the only place that makes adapters.

What is opened here is closed by one AsyncExitStack, in reverse.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version

import structlog
from nats.aio.client import Client

from schemas.subjects import EXHAUSTED, OUTCOMES, Lane, Subjects
from worker.adapters.nats.journal import NatsJournal
from worker.adapters.nats.publish import NatsEvents, NatsResults
from worker.adapters.nats.pump import LaneConsumer
from worker.adapters.nats.stored import NatsCancellations, NatsRecordings, NatsRequests
from worker.adapters.nats.stream import FencedStream
from worker.adapters.nats.stream_faults import StreamFaults
from worker.adapters.nats.track_record import NatsTrackRecords
from worker.app.admission import Admission
from worker.app.broker import make_broker, missing_tls
from worker.app.closing import Closing, OutcomeCheck
from worker.app.halted import HaltedRequests
from worker.app.handler import Ports, RequestHandler
from worker.app.intake import NATS, Handlers, Intake
from worker.app.link import BrokerLink
from worker.app.metrics import WorkerMetrics
from worker.app.open_files import FileBudget, FileWatch, raise_limit
from worker.app.provisioning import wanted_streams
from worker.app.server_clock import ServerClock
from worker.app.settings.environment import ConfigurationError, Settings
from worker.app.settings.groups import NatsSettings
from worker.app.stranded import StrandedRequests, SweepReport
from worker.app.stream_watch import StreamWatch
from worker.app.supervisor import Supervisor
from worker.app.telemetry import MeteredEvents, Telemetry
from worker.app.wiring.clock import SystemClock
from worker.app.wiring.outside import Opened, open_outside, own_history, own_track_records, read_signer
from worker.app.wiring.rules import analysis_rules
from worker.app.wiring.tracing import open_tracer, records_content
from worker.domain.analyse import Analysis
from worker.domain.investigation.models.health import ModelHealth, WatchedModel
from worker.domain.investigation.toolbox.tools import tool_names
from worker.domain.recording.recorder import RecordedAnalysis
from worker.domain.values.delays import LOOKUP_PATIENCE_SECONDS
from worker.domain.values.delivery import MessageHandler
from worker.domain.values.ports import Clock, Signer

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that is ready to run: its intake, what readiness asks, and its metrics.

    `notices` are shown beside readiness and do not end it: a worker with a slightly outdated catalog is still
    useful, and no other replica has a newer one.
    """

    intake: Intake
    checks: Mapping[str, Callable[[], str]]
    notices: Mapping[str, Callable[[], str]]
    metrics: WorkerMetrics


@asynccontextmanager
async def open_worker(settings: Settings, machine: Clock | None = None) -> AsyncIterator[Worker]:
    """Everything a worker needs, opened; `RCA_LLM__MODEL` is set. `machine` is the clock of this machine.

    Raises ConfigurationError, CatalogUnavailable, ClusterError.
    """
    async with AsyncExitStack() as stack:
        parts = await _open_parts(settings, ServerClock(machine or SystemClock()), stack)
        intake = _intake(parts)
        checks = _checks(parts, intake)
        _watch(parts, checks)
        yield Worker(intake, checks, _notices(parts), parts.telemetry.metrics)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What intake, handlers and checks of one worker share."""

    settings: Settings
    subjects: Subjects
    clock: ServerClock
    signer: Signer | None
    supervisor: Supervisor
    telemetry: Telemetry
    admission: Admission
    files: FileBudget
    file_watch: FileWatch
    opened: Opened
    health: ModelHealth
    streams: StreamWatch
    faults: StreamFaults
    sweeps: SweepReport

    @property
    def slots(self) -> Mapping[str, int]:
        """By lane: how many requests the settings let it analyse at once."""
        return {lane.value: self.settings.worker.lane_slots(lane) for lane in Lane}


async def _open_parts(settings: Settings, clock: ServerClock, stack: AsyncExitStack) -> _Parts:
    """Open all but the connection to NATS."""
    signer, supervisor, subjects = read_signer(settings.audit), Supervisor(), Subjects(settings.nats.prefix)
    files = FileBudget(raise_limit())
    if files.too_low:
        raise ConfigurationError(files.too_low)
    tracer, admission = open_tracer(os.environ, stack), Admission(clock)
    telemetry = Telemetry(tracer, WorkerMetrics(), clock, content=records_content(os.environ))
    opened = await open_outside(settings, telemetry, admission, files, supervisor, stack)
    parts = _Parts(
        settings,
        subjects,
        clock,
        signer,
        supervisor,
        telemetry,
        admission,
        files,
        FileWatch(admission),
        opened,
        ModelHealth(opened.model.down, clock.monotonic, patience_seconds=settings.worker.hold_seconds),
        StreamWatch(wanted_streams(settings), clock, subjects.requests_stream),
        StreamFaults(lambda why: log.warning("stream_refuses_calls", reason=why)),
        SweepReport(),
    )
    if few := files.notice(parts.slots):
        log.warning("open_files_limited", reason=few)
    await stack.enter_async_context(supervisor.running("open files", parts.file_watch.run()))
    return parts


def _intake(parts: _Parts) -> Intake:
    """The intake, which opens the handlers once it is connected."""
    settings, subjects, slots = parts.settings, parts.subjects, parts.files.fit(parts.slots)
    link = BrokerLink()
    return Intake(
        broker=make_broker(settings.nats, link),
        link=link,
        stream=subjects.requests_stream,
        lanes=[LaneConsumer(lane, subjects.lane_subjects(lane), slots[lane]) for lane in Lane],
        others={
            subjects.dlq_stream: LaneConsumer(EXHAUSTED, (subjects.max_deliveries_advisory(),), 1),
            subjects.outcomes_stream: LaneConsumer(OUTCOMES, (subjects.outcome(">"),), 1),
        },
        open_handlers=partial(_open_handlers, parts),
        admission=parts.admission,
        needs={
            NATS: partial(_missing_tls, settings.nats),
            "streams": parts.streams.look,
            "kubernetes": lambda _: parts.opened.watch.ask(),
        },
        supervisor=parts.supervisor,
        streams=parts.streams,
        servers=settings.nats.servers,
        drain_seconds=settings.worker.drain_seconds,
        ack_wait_seconds=settings.worker.ack_wait_seconds,
    )


async def _open_handlers(parts: _Parts, nc: Client) -> Handlers:
    """The handlers of all messages, on this connection."""
    ports, records = _ports(parts, nc), own_track_records(nc, parts.subjects, parts.clock)
    handler = RequestHandler(
        ports,
        analysis=_analysis(parts, nc, records),
        settings=parts.settings.worker,
        subjects=parts.subjects,
        metrics=parts.telemetry.metrics,
        admission=parts.admission,
        new_token=lambda: f"{secrets.randbelow(10**12):012}",
        jitter=random.random,
    )
    stranded = StrandedRequests(ports.requests, handler, parts.sweeps)
    halted = HaltedRequests(ports.requests, handler, parts.admission, parts.clock)
    outcomes = OutcomeCheck(Closing(ports.events, parts.clock, parts.telemetry.metrics), parts.subjects)
    others: dict[str, MessageHandler] = {EXHAUSTED: stranded, OUTCOMES: outcomes}
    loops = {"sweep": stranded.run, "halted requests": halted.run, "track record": records.run}
    return Handlers(parts.telemetry.handler(handler), others, loops)


def _ports(parts: _Parts, nc: Client) -> Ports:
    """The ports of the handler, on this connection."""
    subjects, telemetry, faults = parts.subjects, parts.telemetry, parts.faults
    stream, name = partial(FencedStream, nc, faults=faults), parts.settings.worker.cluster_name
    events = NatsEvents(stream, subjects, cluster_name=name, trace=telemetry.tracer.headers)
    results = stream(subjects.results_stream, patience_seconds=LOOKUP_PATIENCE_SECONDS)
    tools = partial(tool_names, parts.opened.outside.metrics, parts.opened.outside.external)
    return Ports(
        events=MeteredEvents(events, telemetry, subjects, tools),
        results=NatsResults(results, subjects),
        journal=NatsJournal(stream(f"KV_{subjects.journal_bucket}"), nc),
        requests=NatsRequests(stream(subjects.requests_stream), subjects),
        cancellations=NatsCancellations(stream(f"KV_{subjects.cancel_bucket}")),
        clock=parts.clock,
        signer=parts.signer,
    )


def _analysis(parts: _Parts, nc: Client, records: NatsTrackRecords) -> Analysis:
    """The analysis, recorded if the settings say so."""
    opened, rules = parts.opened, analysis_rules(parts.settings)
    outside = replace(
        opened.outside,
        model=WatchedModel(opened.model, parts.health),
        history=opened.outside.history or own_history(nc, parts.subjects),
        track_records=records,
    )
    if not parts.settings.record.hours:
        return Analysis(outside, rules)

    def failed(key: str, why: str) -> None:
        log.warning("recording_not_stored", request=key, error=why)

    recordings = NatsRecordings(nc, parts.subjects)
    return RecordedAnalysis(outside, rules, recordings, program=version("rca-worker"), failed=failed)


def _checks(parts: _Parts, intake: Intake) -> Mapping[str, Callable[[], str]]:
    """What readiness asks, by the system that has the problem."""

    def streams() -> str:
        return "; ".join(filter(None, (parts.streams.problem, parts.faults.problem(), parts.sweeps.problem)))

    return {
        NATS: intake.trouble,
        "streams": streams,
        "kubernetes": lambda: parts.opened.watch.problem,
        "model": lambda: parts.admission.blocked,
        "files": lambda: parts.file_watch.problem,
    }


def _notices(parts: _Parts) -> Mapping[str, Callable[[], str]]:
    """What is shown beside readiness, by system."""
    opened, few = parts.opened, parts.files.notice(parts.slots)
    return {
        "streams": lambda: parts.streams.notice,
        "clock": parts.clock.notice,
        "files": lambda: few,
        "policy": lambda: opened.policy.problem,
        "catalog": lambda: opened.catalog.problem or opened.catalog_advice,
        "ranking": lambda: opened.catalog.meaning_problem,
        "mcp": lambda: opened.mounted.problem() if opened.mounted else "",
        "model": lambda: "" if parts.admission.blocked else opened.model.problem() or parts.health.silence(),
    }


def _watch(parts: _Parts, checks: Mapping[str, Callable[[], str]]) -> None:
    """Let the metrics ask for the state of everything at each scrape."""
    metrics, opened, streams = parts.telemetry.metrics, parts.opened, parts.streams
    metrics.catalog_problems.set_function(lambda: bool(opened.catalog.problem))
    metrics.policy_problems.set_function(lambda: bool(opened.policy.problem))
    metrics.clock_skew.set_function(lambda: parts.clock.skew_seconds)
    metrics.model_silent.set_function(parts.health.silent_seconds)
    metrics.watch_checks(checks)
    metrics.watch_streams(lambda: streams.usage, lambda: streams.waiting, lambda: parts.sweeps.count)


async def _missing_tls(settings: NatsSettings, nc: Client) -> str:
    return missing_tls(settings, nc)
