"""Construction: the only module that makes adapters. What is opened here is closed by one AsyncExitStack, in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import structlog
from nats.aio.client import Client

from schemas.subjects import EXHAUSTED, Subjects
from schemas.subjects import Lane as LaneName
from worker.adapters.datastorage_history import DataStorageHistory
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.kubernetes_cluster import KubernetesCluster
from worker.adapters.kubernetes_cluster import Limits as ClusterLimits
from worker.adapters.nats_history import NatsHistory
from worker.adapters.nats_journal import NatsJournal
from worker.adapters.nats_provision import Action
from worker.adapters.nats_publish import FencedStream, NatsEvents, NatsResults
from worker.adapters.nats_pump import Lane
from worker.adapters.nats_stored import NatsCancellations, NatsRequests
from worker.adapters.prometheus_metrics import PrometheusMetrics
from worker.adapters.pydantic_ai_model import PydanticAIModel
from worker.adapters.rego_policy import RegoPolicy, read_policy
from worker.app.admission import Admission
from worker.app.broker import make_broker
from worker.app.exhausted import ExhaustedDesk
from worker.app.handler import Handler, HandlerRules, Ports
from worker.app.intake import Desks, Intake, Need
from worker.app.metrics import Metrics
from worker.app.provisioning import provision_all
from worker.app.settings import ConfigurationError, HistorySettings, PrometheusSettings, Settings
from worker.domain.analyse import Analysis, Outside, Rules
from worker.domain.breaker import BreakerRule
from worker.domain.errors import ClusterError, Unavailable
from worker.domain.limits import Limits
from worker.domain.model_chain import ModelChain, ModelNotice, provider_of
from worker.domain.retry import RetryPolicy
from worker.domain.tries import TryRule

CLUSTER_CHECK_SECONDS = 15.0
HISTORY_SECONDS = 3.0
"""Patience with the broker for what helps and is not needed. Results and the journal have more."""

log = structlog.stdlib.get_logger(__name__)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds of a clock that is never set."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait; others run meanwhile."""
        await asyncio.sleep(seconds)


@dataclass(slots=True)
class ClusterWatch:
    """Whether the cluster answers: asked now and then, for readiness."""

    cluster: KubernetesCluster
    problem: str = "not asked yet"

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(CLUSTER_CHECK_SECONDS)

    async def ask(self) -> None:
        """Ask once and note the answer."""
        try:
            await self.cluster.ping()
        except ClusterError as e:
            if not self.problem:
                log.warning("cluster_unavailable", error=str(e))
            self.problem = e.message
        else:
            self.problem = ""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that is ready to run: its intake, what readiness asks, and its metrics.

    `notices` are shown beside readiness and do not end it: with a catalog that is a little old the worker does its work,
    and no other replica has a better one.
    """

    intake: Intake
    checks: Mapping[str, Callable[[], str]]
    notices: Mapping[str, Callable[[], str]]
    metrics: Metrics


def default_catalog() -> Path:
    """The shipped example catalog."""
    return Path(str(files("worker") / "examples" / "catalog"))


@asynccontextmanager
async def open_worker(settings: Settings) -> AsyncIterator[Worker]:
    """Everything a worker needs, opened. Raises ConfigurationError, CatalogUnavailable, ClusterError, PolicyUnusable."""
    if not settings.llm.model:
        raise ConfigurationError(
            "RCA_LLM__MODEL is not set: name a model, such as openai-chat:gpt-5 or anthropic:claude-sonnet-4-6 "
            "(RCA_LLM__BASE_URL for a server of your own); `rca demo` needs none"
        )
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(_cluster(settings))
        catalog = await FileCatalog.open(settings.catalog.path or default_catalog())
        policy = await stack.enter_async_context(RegoPolicy(read_policy(settings.policy.path)))
        metrics, clock, subjects = Metrics(), SystemClock(), Subjects(settings.nats.prefix)
        model = _models(settings, clock, stack)
        datastorage = await _datastorage(settings.history, stack)
        prometheus = await _prometheus(settings.prometheus, stack)
        watch = ClusterWatch(cluster)
        await stack.enter_async_context(_background(watch.run()))
        await stack.enter_async_context(_background(catalog.follow(settings.catalog.poll_seconds)))
        metrics.watch_catalog(lambda: bool(catalog.problem))
        admission = Admission(clock)

        async def open_desks(nc: Client) -> Desks:
            outside = Outside(
                cluster,
                catalog,
                model,
                policy,
                clock,
                random.random,
                datastorage or _own_history(nc, subjects),
                prometheus,
            )
            ports = _ports(nc, subjects, clock, settings.worker.cluster_name)
            handler = Handler(
                ports,
                Analysis(outside, _rules(settings)),
                _handler_rules(settings),
                subjects,
                metrics,
                admission,
                new_token=lambda: secrets.token_hex(6),
                jitter=random.random,
            )
            return Desks(handler, ExhaustedDesk(ports.requests, handler))

        intake = _intake(settings, subjects, open_desks, admission, _needs(settings, watch))
        notices = {"catalog": lambda: catalog.problem}
        yield Worker(intake, _checks(intake, watch, admission), notices, metrics)


def _ports(nc: Client, subjects: Subjects, clock: SystemClock, cluster_name: str) -> Ports:
    journal, cancel = subjects.journal_bucket, subjects.cancel_bucket
    return Ports(
        NatsEvents(nc, subjects, cluster_name=cluster_name),
        NatsResults(nc, subjects),
        NatsJournal(FencedStream(nc, f"KV_{journal}"), nc, journal),
        NatsRequests(FencedStream(nc, subjects.requests_stream)),
        NatsCancellations(FencedStream(nc, f"KV_{cancel}"), cancel),
        clock,
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

    return (streams, cluster)


def _cluster(settings: Settings) -> KubernetesCluster:
    kubernetes = settings.kubernetes
    return KubernetesCluster(
        kubeconfig=str(kubernetes.kubeconfig) if kubernetes.kubeconfig else None,
        context=kubernetes.context,
        limits=ClusterLimits(call_seconds=kubernetes.call_seconds),
    )


async def _datastorage(settings: HistorySettings, stack: AsyncExitStack) -> DataStorageHistory | None:
    if not settings.url:
        return None
    history = DataStorageHistory(
        settings.url,
        token=settings.token.get_secret_value(),
        cluster_id=settings.cluster_id,
        call_seconds=settings.call_seconds,
    )
    return await stack.enter_async_context(history)


def _own_history(nc: Client, subjects: Subjects) -> NatsHistory:
    def stream(name: str) -> FencedStream:
        return FencedStream(nc, name, patience_seconds=HISTORY_SECONDS)

    return NatsHistory(stream(f"KV_{subjects.history_bucket}"), stream(subjects.outcomes_stream), subjects)


async def _prometheus(settings: PrometheusSettings, stack: AsyncExitStack) -> PrometheusMetrics | None:
    if not settings.url:
        return None
    token, seconds = settings.token.get_secret_value(), settings.call_seconds
    return await stack.enter_async_context(PrometheusMetrics(settings.url, token=token, call_seconds=seconds))


def _models(settings: Settings, clock: SystemClock, stack: AsyncExitStack) -> ModelChain:
    llm = settings.llm
    chain = []
    for name in (llm.model, *llm.fallbacks):
        same = provider_of(name) == provider_of(llm.model)
        model = PydanticAIModel(
            name,
            base_url=llm.base_url or None if same else None,
            api_key=llm.api_key.get_secret_value() or None if same else None,
            max_output_tokens=llm.max_output_tokens,
            silence_seconds=llm.silence_seconds if llm.stream else None,
        )
        stack.push_async_callback(model.close)
        chain.append(model)
    rule = BreakerRule(llm.breaker_failures, llm.breaker_seconds, 8 * llm.breaker_seconds)
    return ModelChain(chain, clock, rule=rule, max_concurrent=llm.max_concurrent, notice=_tell)


def _tell(notice: ModelNotice) -> None:
    if notice.pause_seconds:
        log.warning(
            "model_paused", model=notice.model, seconds=round(notice.pause_seconds, 1), error=notice.why
        )
    else:
        log.info("model_resumed", model=notice.model)


def _rules(settings: Settings) -> Rules:
    llm, worker = settings.llm, settings.worker
    return Rules(
        limits=Limits(
            llm_calls=llm.max_calls,
            tool_calls=llm.max_tool_calls,
            input_tokens=llm.max_input_tokens,
            cost_usd=llm.max_cost_usd,
            wall_seconds=llm.max_seconds,
            call_seconds=llm.call_seconds,
        ),
        tries=TryRule(llm.max_tries, llm.retry_seconds),
        enrichment_seconds=settings.kubernetes.enrichment_seconds,
        min_confidence=worker.min_confidence,
        confidence_threshold=settings.policy.confidence_threshold,
        signal_types=frozenset(worker.signal_types),
    )


def _handler_rules(settings: Settings) -> HandlerRules:
    worker = settings.worker
    return HandlerRules(
        analysis=_rules(settings),
        cluster_name=worker.cluster_name,
        max_failures=worker.max_failures,
        max_deaths=worker.max_deaths,
        hold_seconds=worker.hold_seconds,
        probe_seconds=worker.probe_seconds,
        retries=RetryPolicy(),
    )


def _intake(
    settings: Settings,
    subjects: Subjects,
    open_desks: Callable[[Client], Awaitable[Desks]],
    admission: Admission,
    needs: Sequence[Need],
) -> Intake:
    worker = settings.worker
    return Intake(
        broker=make_broker(settings.nats),
        stream=subjects.requests_stream,
        lanes=[Lane(lane, subjects.lane_subjects(lane), worker.lane_slots(lane)) for lane in LaneName],
        dlq_stream=subjects.dlq_stream,
        advisories=Lane(EXHAUSTED, (subjects.max_deliveries_advisory(),), 1),
        open_desks=open_desks,
        admission=admission,
        needs=needs,
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


@asynccontextmanager
async def _background(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
