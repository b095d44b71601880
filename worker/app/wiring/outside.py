"""The outside world of a worker: cluster, catalog, policy, history and metrics, as the settings name them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from nats.aio.client import Client

from schemas.subjects import Subjects
from worker.adapters.datastorage import DataStorageCatalog, DataStorageClient, DataStorageHistory
from worker.adapters.ed25519_keys import KeyUnusable, read_signing_key
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.kubernetes_cluster import ApiLimits, KubernetesCluster
from worker.adapters.nats.history import NatsHistory
from worker.adapters.nats.stream import FencedStream
from worker.adapters.nats.track_record import MAX_RESULTS, NatsTrackRecords, OutcomeReader
from worker.adapters.opa_policy import OpaPolicy
from worker.adapters.prometheus_metrics import PrometheusMetrics
from worker.adapters.rego_policy import Bounds, PolicyUnusable, RegorusPolicy, read_files
from worker.app.admission import Admission
from worker.app.open_files import FileBudget
from worker.app.settings import groups
from worker.app.settings.environment import Settings, blamed_on
from worker.app.supervisor import Supervisor
from worker.app.telemetry import MeteredModel, Telemetry
from worker.app.wiring.clock import SystemClock
from worker.app.wiring.embedders import open_embedder
from worker.app.wiring.models import open_models, open_shadow
from worker.app.wiring.mounted import open_mcp
from worker.domain.cluster.kinds import canonical_kind
from worker.domain.cluster.scope import Scope, ScopedCluster
from worker.domain.investigation.models.chain import ModelChain
from worker.domain.investigation.toolbox.served import ServedTools
from worker.domain.values.delays import HISTORY_PATIENCE_SECONDS, WATCH_SECONDS
from worker.domain.values.errors import CatalogUnavailable, ClusterError, HistoryUnavailable
from worker.domain.values.ports import Clock, Cluster, Embedder, Outside, Signer
from worker.domain.values.workflows import SelectionContext

if TYPE_CHECKING:
    from worker.adapters.mcp_tools import McpTools
    from worker.adapters.postgres_catalog import PostgresCatalog  # asyncpg is optional

    OpenedCatalog = FileCatalog | DataStorageCatalog | PostgresCatalog

OpenedPolicy = OpaPolicy | RegorusPolicy

EXAMPLE = (
    "the shipped example, not for production: your executor does not know its workflows; set your own with "
    "RCA_CATALOG__PATH, RCA_CATALOG__DATABASE_URL or RCA_CATALOG__URL"
)
SHIPPED_CATALOG = Path(str(files("worker") / "examples" / "catalog"))
GLOB = frozenset("*?[")

CONNECTIONS = ApiLimits().connections
"""Connections to the API server, unless the limit of open files allows fewer."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class ClusterWatch:
    """Asks every few seconds whether the cluster can be read, for readiness and for intake.

    To find out, it lists pods in `namespace`: empty for all namespaces, None if no such right is certain.
    """

    cluster: KubernetesCluster
    namespace: str | None = ""
    problem: str = "not asked yet"
    on_look: Callable[[str], None] = lambda _: None
    """Called after each look with the problem, empty if there is none."""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(WATCH_SECONDS)

    async def ask(self) -> str:
        """Ask once. Returns the problem."""
        try:
            await self.cluster.check(self.namespace)
        except ClusterError as e:
            if not self.problem:
                log.warning("cluster_unavailable", error=str(e))
            self.problem = e.message
        else:
            self.problem = ""
        self.on_look(self.problem)
        return self.problem


def checked_namespace(settings: groups.KubernetesSettings) -> str | None:
    """The namespace in which the worker must be allowed to list pods.

    Empty for all namespaces, None if the settings do not say.
    """
    if "Pod" in map(canonical_kind, settings.denied_kinds):
        return None
    if not settings.namespaces:
        return ""
    return next((name for name in settings.namespaces if not GLOB.intersection(name)), None)


def catalog_advice(settings: groups.CatalogSettings) -> str:
    """Advice about a catalog that works; empty if there is none."""
    named = settings.path or settings.url or settings.database_url.get_secret_value()
    return "" if named else EXAMPLE


async def open_catalog(
    settings: groups.CatalogSettings, stack: AsyncExitStack, supervisor: Supervisor
) -> OpenedCatalog:
    """The catalog that the settings name.

    Raises CatalogUnavailable if there is no valid one at the start.
    """
    embedder = await open_embedder(settings, stack)
    if url := settings.database_url.get_secret_value():
        return await _open_database(url, embedder, stack, supervisor)
    if settings.url:
        return await _open_remote(settings, embedder, stack, supervisor)
    try:
        catalog = await FileCatalog.open(settings.path or SHIPPED_CATALOG, embedder=embedder)
    except CatalogUnavailable as e:
        raise CatalogUnavailable(f"RCA_CATALOG__PATH: {e}") from e
    await stack.enter_async_context(
        supervisor.running("catalog files", catalog.follow(settings.poll_seconds))
    )
    log.info("catalog_opened", source=str(settings.path or "shipped example"), workflows=len(catalog))
    if advice := catalog_advice(settings):
        log.warning("catalog_example_in_use", advice=advice)
    return catalog


async def _open_database(
    url: str, embedder: Embedder | None, stack: AsyncExitStack, supervisor: Supervisor
) -> PostgresCatalog:
    from worker.adapters.postgres_catalog import PostgresCatalog  # noqa: PLC0415 - asyncpg is optional

    catalog = await stack.enter_async_context(PostgresCatalog(url, embedder=embedder))
    count = sum(action.workflow_count for action in await catalog.actions(SelectionContext()))
    await stack.enter_async_context(supervisor.running("catalog server", catalog.follow(WATCH_SECONDS)))
    log.info("catalog_opened", source="PostgreSQL", workflows=count)
    return catalog


async def _open_remote(
    settings: groups.CatalogSettings, embedder: Embedder | None, stack: AsyncExitStack, supervisor: Supervisor
) -> DataStorageCatalog:
    """Opened even if its server is away, which may be back before the first incident."""
    token, seconds = settings.token.get_secret_value(), settings.call_seconds
    client = DataStorageClient(settings.url, CatalogUnavailable, token=token, call_seconds=seconds)
    catalog = DataStorageCatalog(client, embedder=embedder, cache_seconds=settings.cache_seconds)
    await stack.enter_async_context(catalog)
    await stack.enter_async_context(supervisor.running("catalog server", catalog.follow(WATCH_SECONDS)))
    log.info("catalog_opened", source=settings.url)  # it is asked when an incident needs it
    return catalog


async def open_policy(
    settings: groups.PolicySettings, stack: AsyncExitStack, supervisor: Supervisor
) -> OpenedPolicy:
    """The approval policy that the settings name. Raises ConfigurationError if its files are not a policy."""
    policy = _policy(settings)
    with blamed_on("RCA_POLICY__PATH", PolicyUnusable):
        await stack.enter_async_context(policy)
    await stack.enter_async_context(supervisor.running("policy", policy.follow(settings.poll_seconds)))
    return policy


def _policy(settings: groups.PolicySettings) -> OpenedPolicy:
    if not settings.url:
        bounds = Bounds(cpu_seconds=settings.timeout_seconds)
        return RegorusPolicy(lambda: read_files(settings.path, settings.data), bounds)
    return OpaPolicy(
        settings.url,
        decision=settings.decision,
        token=settings.token.get_secret_value(),
        timeout_seconds=settings.timeout_seconds,
    )


async def open_cluster(
    settings: Settings, stack: AsyncExitStack, max_connections: int = CONNECTIONS
) -> KubernetesCluster:
    """The cluster, read only, over at most so many connections. Raises ClusterError."""
    kubernetes = settings.kubernetes
    connections = min(CONNECTIONS, max_connections)
    cluster = KubernetesCluster(
        kubeconfig=str(kubernetes.kubeconfig) if kubernetes.kubeconfig else None,
        context=kubernetes.context,
        limits=ApiLimits(call_seconds=kubernetes.call_seconds, connections=connections),
    )
    return await stack.enter_async_context(cluster)


def within_scope(cluster: Cluster, settings: groups.KubernetesSettings) -> Cluster:
    """The part of the cluster that the settings let the worker look at."""
    scope = Scope(settings.namespaces, settings.denied_namespaces, settings.denied_kinds)
    return cluster if scope.everything else ScopedCluster(cluster, scope)


async def open_datastorage(
    settings: groups.HistorySettings, stack: AsyncExitStack
) -> DataStorageHistory | None:
    """The DataStorage that keeps the history, if one is named."""
    if not settings.url:
        return None
    token, seconds = settings.token.get_secret_value(), settings.call_seconds
    client = DataStorageClient(settings.url, HistoryUnavailable, token=token, call_seconds=seconds)
    return await stack.enter_async_context(DataStorageHistory(client, cluster_id=settings.cluster_id))


def own_history(nc: Client, subjects: Subjects) -> NatsHistory:
    """Our own results and the outcomes on NATS."""
    stream = partial(FencedStream, nc, patience_seconds=HISTORY_PATIENCE_SECONDS)
    return NatsHistory(stream(f"KV_{subjects.history_bucket}"), stream(subjects.outcomes_stream), subjects)


def own_track_records(nc: Client, subjects: Subjects, clock: Clock) -> NatsTrackRecords:
    """The track records of our own results, by the outcomes on NATS."""
    stream = partial(FencedStream, nc, patience_seconds=HISTORY_PATIENCE_SECONDS)
    results, outcomes = stream(subjects.results_stream), stream(subjects.outcomes_stream)
    return NatsTrackRecords(OutcomeReader(results, outcomes, subjects, newest=MAX_RESULTS), clock)


async def open_prometheus(
    settings: groups.PrometheusSettings, stack: AsyncExitStack
) -> PrometheusMetrics | None:
    """The Prometheus, if one is named."""
    if not settings.url:
        return None
    token, seconds = settings.token.get_secret_value(), settings.call_seconds
    return await stack.enter_async_context(PrometheusMetrics(settings.url, token=token, call_seconds=seconds))


def read_signer(settings: groups.AuditSettings) -> Signer | None:
    """The signer, if a key is named. Raises ConfigurationError."""
    if settings.signing_key_file is None:
        return None
    with blamed_on("RCA_AUDIT__SIGNING_KEY_FILE", KeyUnusable):
        return read_signing_key(settings.signing_key_file)


@dataclass(frozen=True, slots=True)
class Opened:
    """The systems that an analysis uses besides NATS, and their checks for readiness."""

    outside: Outside
    model: ModelChain
    mounted: McpTools | None
    catalog: OpenedCatalog
    catalog_advice: str
    policy: OpenedPolicy
    watch: ClusterWatch


async def open_outside(
    settings: Settings,
    telemetry: Telemetry,
    admission: Admission,
    files: FileBudget,
    supervisor: Supervisor,
    stack: AsyncExitStack,
) -> Opened:
    """Open everything besides NATS.

    Mistakes in the settings are reported before anything is reached over the network.
    """
    clock, wrap = telemetry.clock, partial(MeteredModel, telemetry=telemetry)
    model, shadow = open_models(settings, clock, stack, wrap), open_shadow(settings, clock, stack, wrap)
    mounted = await open_mcp(settings.mcp, stack)
    catalog = await open_catalog(settings.catalog, stack, supervisor)
    policy = await open_policy(settings.policy, stack, supervisor)
    cluster = await open_cluster(settings, stack, files.share)
    pause = partial(admission.pause, "kubernetes")
    watch = ClusterWatch(cluster, checked_namespace(settings.kubernetes), on_look=pause)
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
    return Opened(outside, model, mounted, catalog, catalog_advice(settings.catalog), policy, watch)


async def open_served(settings: Settings, stack: AsyncExitStack) -> ServedTools:
    """The tools, ready to be called. Raises CatalogUnavailable, ClusterError."""
    catalog = await open_catalog(settings.catalog, stack, Supervisor())
    cluster = within_scope(await open_cluster(settings, stack), settings.kubernetes)
    history = await open_datastorage(settings.history, stack)
    return ServedTools(cluster, catalog, SystemClock(), history)
