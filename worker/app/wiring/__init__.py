"""Construction: the only place that makes adapters. What is opened here is closed by one AsyncExitStack, in reverse."""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from nats.aio.client import Client

from schemas.subjects import EXHAUSTED, Lane, Subjects
from worker.adapters.nats.journal import NatsJournal
from worker.adapters.nats.provision import Action
from worker.adapters.nats.publish import NatsEvents, NatsResults
from worker.adapters.nats.pump import LaneConsumer
from worker.adapters.nats.stored import NatsCancellations, NatsRequests
from worker.adapters.nats.stream import FencedStream
from worker.app.admission import Admission
from worker.app.broker import make_broker, missing_tls
from worker.app.exhausted import ExhaustedHandler
from worker.app.handler import Ports, RequestHandler
from worker.app.intake import Handlers, Intake, Need
from worker.app.link import BrokerLink
from worker.app.metrics import WorkerMetrics
from worker.app.provisioning import provision_all
from worker.app.settings import ConfigurationError, Settings
from worker.app.supervisor import Supervisor
from worker.app.wiring.clock import SystemClock
from worker.app.wiring.models import open_models, open_shadow
from worker.app.wiring.mounted import open_mcp
from worker.app.wiring.outside import (
    ClusterWatch,
    open_catalog,
    open_cluster,
    open_datastorage,
    open_policy,
    open_prometheus,
    own_history,
    within_scope,
)
from worker.app.wiring.rules import analysis_rules, handler_rules
from worker.app.wiring.signing import read_signer
from worker.domain.analyse import Analysis
from worker.domain.values.errors import Unavailable
from worker.domain.values.ports import Outside, Signer


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that is ready to run: its intake, what readiness asks, and its metrics.

    `notices` are shown beside readiness and do not end it: with a catalog that is a little old the worker does its work,
    and no other replica has a better one.
    """

    intake: Intake
    checks: Mapping[str, Callable[[], str]]
    notices: Mapping[str, Callable[[], str]]
    metrics: WorkerMetrics


@asynccontextmanager
async def open_worker(settings: Settings) -> AsyncIterator[Worker]:
    """Everything a worker needs, opened. Raises ConfigurationError, CatalogUnavailable, ClusterError, PolicyUnusable."""
    if not settings.llm.model:
        raise ConfigurationError(
            "RCA_LLM__MODEL is not set: name a model, such as openai-chat:gpt-5 or anthropic:claude-sonnet-4-6 "
            "(RCA_LLM__BASE_URL for a server of your own); `rca demo` needs none"
        )
    async with AsyncExitStack() as stack:
        signer, supervisor = read_signer(settings.audit), Supervisor()
        metrics, clock, subjects = WorkerMetrics(), SystemClock(), Subjects(settings.nats.prefix)
        # What is only wrong in the settings is told before what has to be reached.
        model, shadow = open_models(settings, clock, stack), open_shadow(settings, clock, stack)
        mounted = await open_mcp(settings.mcp, stack)
        catalog = await open_catalog(settings.catalog, stack, supervisor)
        policy = await open_policy(settings.policy, stack, supervisor)
        cluster = await open_cluster(settings, stack)
        datastorage = await open_datastorage(settings.history, stack)
        prometheus = await open_prometheus(settings.prometheus, stack)
        watch = ClusterWatch(cluster)
        await stack.enter_async_context(supervisor.running("cluster watch", watch.run()))
        metrics.watch_catalog(lambda: bool(catalog.problem()))
        metrics.watch_policy(lambda: bool(policy.problem()))
        admission = Admission(clock)

        async def open_handlers(nc: Client) -> Handlers:
            outside = Outside(
                cluster=within_scope(cluster, settings.kubernetes),
                catalog=catalog.catalog,
                model=model,
                policy=policy.policy,
                clock=clock,
                jitter=random.random,
                history=datastorage or own_history(nc, subjects),
                metrics=prometheus,
                external=mounted.tools,
                shadow=shadow,
            )
            ports = _ports(nc, subjects, clock, settings.worker.cluster_name, signer)
            handler = RequestHandler(
                ports,
                Analysis(outside, analysis_rules(settings)),
                handler_rules(settings),
                subjects,
                metrics,
                admission,
                new_token=lambda: secrets.token_hex(6),
                jitter=random.random,
            )
            return Handlers(handler, ExhaustedHandler(ports.requests, handler))

        intake = _intake(settings, subjects, open_handlers, admission, _needs(settings, watch), supervisor)
        notices = {
            "policy": policy.problem,
            "catalog": catalog.notice,
            "ranking": catalog.ranking,
            "mcp": mounted.problem,
            "model": lambda: "" if admission.blocked else model.problem(),
        }
        yield Worker(intake, _checks(intake, watch, admission), notices, metrics)


def _ports(
    nc: Client, subjects: Subjects, clock: SystemClock, cluster_name: str, signer: Signer | None
) -> Ports:
    journal, cancel = subjects.journal_bucket, subjects.cancel_bucket
    return Ports(
        NatsEvents(nc, subjects, cluster_name=cluster_name),
        NatsResults(nc, subjects),
        NatsJournal(FencedStream(nc, f"KV_{journal}"), nc, journal),
        NatsRequests(FencedStream(nc, subjects.requests_stream)),
        NatsCancellations(FencedStream(nc, f"KV_{cancel}"), cancel),
        clock,
        signer,
    )


def _needs(settings: Settings, watch: ClusterWatch) -> Sequence[Need]:
    """What must be there before messages are taken."""

    async def streams(nc: Client) -> str:
        try:
            findings = await provision_all(nc, settings, apply=False)
        except Unavailable as e:
            return f"NATS: {e}"
        missing = [f.name for f in findings if f.action is Action.WOULD_CREATE]
        return f"not there yet: {', '.join(missing)}; run `rca provision`" if missing else ""

    async def cluster(_: Client) -> str:
        await watch.ask()
        return f"the cluster does not answer: {watch.problem}" if watch.problem else ""

    async def tls(nc: Client) -> str:
        return missing_tls(settings.nats, nc)

    return (tls, streams, cluster)


def _intake(
    settings: Settings,
    subjects: Subjects,
    open_handlers: Callable[[Client], Awaitable[Handlers]],
    admission: Admission,
    needs: Sequence[Need],
    supervisor: Supervisor,
) -> Intake:
    worker, link = settings.worker, BrokerLink()
    return Intake(
        broker=make_broker(settings.nats, link),
        link=link,
        stream=subjects.requests_stream,
        lanes=[LaneConsumer(lane, subjects.lane_subjects(lane), worker.lane_slots(lane)) for lane in Lane],
        dlq_stream=subjects.dlq_stream,
        advisories=LaneConsumer(EXHAUSTED, (subjects.max_deliveries_advisory(),), 1),
        open_handlers=open_handlers,
        admission=admission,
        needs=needs,
        supervisor=supervisor,
        servers=settings.nats.servers,
        drain_seconds=worker.drain_seconds,
        ack_wait_seconds=worker.ack_wait_seconds,
    )


def _checks(intake: Intake, watch: ClusterWatch, admission: Admission) -> dict[str, Callable[[], str]]:
    return {
        "nats": intake.trouble,
        "kubernetes": lambda: watch.problem,
        "model": lambda: admission.blocked,
    }
