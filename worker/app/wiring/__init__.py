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
from typing import TYPE_CHECKING

import structlog
from nats.aio.client import Client

from schemas.subjects import EXHAUSTED, OUTCOMES, Lane, Subjects
from worker.adapters.nats.journal import NatsJournal
from worker.adapters.nats.publish import NatsEvents, NatsResults
from worker.adapters.nats.pump import LaneConsumer
from worker.adapters.nats.stored import NatsCancellations, NatsRecordings, NatsRequests
from worker.adapters.nats.stream import FencedStream
from worker.adapters.nats.stream_faults import StreamFaults
from worker.app.admission import Admission
from worker.app.broker import make_broker, missing_tls
from worker.app.closing import Closing, OutcomeCheck
from worker.app.handler import Ports, RequestHandler
from worker.app.intake import NATS, Handlers, Intake, Need
from worker.app.link import BrokerLink
from worker.app.metrics import WorkerMetrics
from worker.app.model_health import ModelHealth, WatchedModel
from worker.app.open_files import FileBudget, FileWatch, raise_limit
from worker.app.provisioning import wanted_streams
from worker.app.server_clock import ServerClock
from worker.app.settings import ConfigurationError, Settings
from worker.app.settings.groups import NatsSettings
from worker.app.stranded import StrandedRequests, SweepReport
from worker.app.stream_watch import StreamWatch
from worker.app.supervisor import Supervisor
from worker.app.telemetry import MeteredEvents, MeteredModel, Telemetry
from worker.app.wiring.clock import SystemClock
from worker.app.wiring.models import Wrap, open_models, open_shadow
from worker.app.wiring.mounted import open_mcp
from worker.app.wiring.outside import (
    ClusterWatch,
    OpenedPolicy,
    catalog_advice,
    checked_namespace,
    open_catalog,
    open_cluster,
    open_datastorage,
    open_policy,
    open_prometheus,
    own_history,
    own_track_records,
    read_signer,
    within_scope,
)
from worker.app.wiring.rules import analysis_rules
from worker.app.wiring.tracing import open_tracer, records_content
from worker.domain.analyse import Analysis
from worker.domain.investigation.models.chain import ModelChain
from worker.domain.investigation.toolbox.tools import tool_names
from worker.domain.recording.recorder import RecordedAnalysis, Recordings
from worker.domain.values.delivery import MessageHandler
from worker.domain.values.ports import Clock, Outside, Signer

if TYPE_CHECKING:
    from worker.adapters.mcp_tools import McpTools
    from worker.app.wiring.outside import OpenedCatalog

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
        signer, supervisor = read_signer(settings.audit), Supervisor()
        metrics, clock, subjects = (
            WorkerMetrics(),
            ServerClock(machine or SystemClock()),
            Subjects(settings.nats.prefix),
        )
        files = FileBudget(raise_limit())
        if files.too_low:
            raise ConfigurationError(files.too_low)
        tracer = open_tracer(os.environ, stack)
        telemetry = Telemetry(tracer, metrics, clock, content=records_content(os.environ))
        opened = await _open_outside(
            settings, clock, stack, supervisor, files, partial(MeteredModel, telemetry=telemetry)
        )
        tools = partial(tool_names, opened.outside.metrics, opened.outside.external)
        metrics.catalog_problems.set_function(lambda: bool(opened.catalog.problem))
        metrics.policy_problems.set_function(lambda: bool(opened.policy.problem))
        health = ModelHealth(
            opened.model.down, clock.monotonic, patience_seconds=settings.worker.hold_seconds
        )
        admission, sweeps = Admission(clock), SweepReport()
        faults = StreamFaults(lambda why: log.warning("stream_refuses", reason=why))
        opened.watch.on_look = partial(admission.pause, "kubernetes")
        slots = {lane.value: settings.worker.lane_slots(lane) for lane in Lane}
        if few := files.notice(slots):
            log.warning("open_files_limited", reason=few)
        file_watch = FileWatch(admission)
        await stack.enter_async_context(supervisor.running("open files", file_watch.run()))
        streams = StreamWatch(wanted_streams(settings), clock, subjects.requests_stream)

        async def open_handlers(nc: Client) -> Handlers:
            ports = _ports(
                nc,
                subjects,
                clock=clock,
                cluster_name=settings.worker.cluster_name,
                signer=signer,
                faults=faults,
                trace=tracer.headers,
            )
            ports = replace(ports, events=MeteredEvents(ports.events, telemetry, subjects, tools))
            records = own_track_records(nc, subjects, clock)
            handler = RequestHandler(
                ports,
                analysis=_analysis(
                    settings,
                    replace(
                        opened.outside,
                        model=WatchedModel(opened.model, health),
                        history=opened.outside.history or own_history(nc, subjects),
                        track_records=records,
                    ),
                    NatsRecordings(nc, subjects),
                ),
                rules=analysis_rules(settings),
                settings=settings.worker,
                subjects=subjects,
                metrics=metrics,
                admission=admission,
                new_token=lambda: f"{secrets.randbelow(10**12):012}",
                jitter=random.random,
            )
            stranded = StrandedRequests(ports.requests, handler, subjects, sweeps)
            outcomes = OutcomeCheck(Closing(ports.events, clock, metrics), subjects)
            others: dict[str, MessageHandler] = {EXHAUSTED: stranded, OUTCOMES: outcomes}
            return Handlers(
                telemetry.handler(handler), others, {"sweep": stranded.run, "track record": records.run}
            )

        link, slots = BrokerLink(), files.fit(slots)
        intake = Intake(
            broker=make_broker(settings.nats, link),
            link=link,
            stream=subjects.requests_stream,
            lanes=[LaneConsumer(lane, subjects.lane_subjects(lane), slots[lane]) for lane in Lane],
            others={
                subjects.dlq_stream: LaneConsumer(EXHAUSTED, (subjects.max_deliveries_advisory(),), 1),
                subjects.outcomes_stream: LaneConsumer(OUTCOMES, (subjects.outcome(">"),), 1),
            },
            open_handlers=open_handlers,
            admission=admission,
            needs={
                NATS: _tls_need(settings.nats),
                "streams": streams.look,
                "kubernetes": lambda _: opened.watch.ask(),
            },
            supervisor=supervisor,
            streams=streams,
            servers=settings.nats.servers,
            drain_seconds=settings.worker.drain_seconds,
            ack_wait_seconds=settings.worker.ack_wait_seconds,
        )
        checks = {
            NATS: intake.trouble,
            "streams": lambda: "; ".join(
                why for why in (streams.problem, faults.problem(), sweeps.problem) if why
            ),
            "kubernetes": lambda: opened.watch.problem,
            "model": lambda: admission.blocked,
            "files": lambda: file_watch.problem,
        }
        metrics.watch_checks(checks)
        metrics.clock_skew.set_function(lambda: clock.skew_seconds)
        metrics.model_silent.set_function(health.silent_seconds)
        metrics.watch_streams(lambda: streams.usage, lambda: streams.waiting, lambda: sweeps.count)
        notices = {
            "streams": lambda: streams.notice,
            "clock": clock.notice,
            "files": lambda: few,
            "policy": lambda: opened.policy.problem,
            "catalog": lambda: opened.catalog.problem or catalog_advice(settings.catalog),
            "ranking": lambda: opened.catalog.meaning_problem,
            "mcp": lambda: opened.mounted.problem() if opened.mounted else "",
            "model": lambda: "" if admission.blocked else opened.model.problem() or health.silence(),
        }
        yield Worker(intake, checks, notices, metrics)


@dataclass(frozen=True, slots=True)
class _Opened:
    """The systems that an analysis uses besides NATS, and their checks for readiness."""

    outside: Outside
    model: ModelChain
    mounted: McpTools | None
    catalog: OpenedCatalog
    policy: OpenedPolicy
    watch: ClusterWatch


async def _open_outside(
    settings: Settings,
    clock: Clock,
    stack: AsyncExitStack,
    supervisor: Supervisor,
    files: FileBudget,
    wrap: Wrap,
) -> _Opened:
    """Open everything besides NATS.

    Mistakes in the settings are reported before anything is reached over the network.
    """
    model, shadow = open_models(settings, clock, stack, wrap), open_shadow(settings, clock, stack, wrap)
    mounted = await open_mcp(settings.mcp, stack)
    catalog = await open_catalog(settings.catalog, stack, supervisor)
    policy = await open_policy(settings.policy, stack, supervisor)
    cluster = await open_cluster(settings, stack, files.share)
    watch = ClusterWatch(cluster, checked_namespace(settings.kubernetes))
    await stack.enter_async_context(supervisor.running("cluster watch", watch.run()))
    outside = Outside(
        cluster=within_scope(cluster, settings.kubernetes),
        catalog=catalog,
        model=model,
        policy=policy,
        clock=clock,
        jitter=random.random,
        history=await open_datastorage(settings.history, stack),
        metrics=await open_prometheus(settings.prometheus, stack),
        external=mounted,
        shadow=shadow,
        cluster_problem=watch.ask,
    )
    return _Opened(outside, model, mounted, catalog, policy, watch)


def _analysis(settings: Settings, outside: Outside, recordings: Recordings) -> Analysis:
    """The analysis, recorded if the settings say so."""
    rules = analysis_rules(settings)
    if not settings.record.hours:
        return Analysis(outside, rules)

    def failed(key: str, why: str) -> None:
        log.warning("recording_not_kept", request=key, error=why)

    return RecordedAnalysis(outside, rules, recordings, program=version("rca-worker"), failed=failed)


def _ports(
    nc: Client,
    subjects: Subjects,
    *,
    clock: Clock,
    cluster_name: str,
    signer: Signer | None,
    faults: StreamFaults,
    trace: Callable[[], Mapping[str, str]],
) -> Ports:
    """The ports of the handler, on this connection."""
    stream = partial(FencedStream, nc, faults=faults)
    return Ports(
        events=NatsEvents(nc, subjects, cluster_name=cluster_name, faults=faults, trace=trace),
        results=NatsResults(nc, subjects, faults=faults),
        journal=NatsJournal(stream(f"KV_{subjects.journal_bucket}"), nc),
        requests=NatsRequests(stream(subjects.requests_stream), subjects),
        cancellations=NatsCancellations(stream(f"KV_{subjects.cancel_bucket}")),
        clock=clock,
        signer=signer,
    )


def _tls_need(settings: NatsSettings) -> Need:
    async def missing(nc: Client) -> str:
        return missing_tls(settings, nc)

    return missing
