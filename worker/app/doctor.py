"""Checks everything that a worker with these settings depends on, and says what is wrong and how to fix it.

Each check opens what the worker opens, with the same credentials, and asks for something real: a list of
pods, a tool call of the model, a decision of the policy. Nothing is changed.
"""

from __future__ import annotations

import asyncio
import enum
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import SecretStr

from worker.adapters.nats.provision import Action, Found, look, provision
from worker.app.broker import MIN_MAX_PAYLOAD
from worker.app.provisioning import connected, wanted_streams
from worker.app.server_clock import ServerClock
from worker.app.settings.environment import ConfigurationError, Settings
from worker.app.settings.groups import LlmSettings
from worker.app.supervisor import Supervisor
from worker.app.wiring import outside
from worker.app.wiring.clock import SystemClock
from worker.app.wiring.models import open_models, open_shadow
from worker.app.wiring.mounted import open_mcp
from worker.app.wiring.tracing import endpoint, new_tracer
from worker.domain.cluster.kinds import canonical_kind
from worker.domain.investigation.models.chain import provider_of
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values import errors
from worker.domain.values.conversation import ModelRequest, Reply, ToolSpec, UserTurn
from worker.domain.values.delays import CLOCK_SKEW_SECONDS
from worker.domain.values.objects import ListQuery, ObjectRef
from worker.domain.values.ports import Cluster, Model
from worker.domain.values.workflows import SelectionContext
from worker.domain.verdict.approval.policy import example_input

FILLING = 0.7
MODEL_SECONDS = 60.0
READ_KINDS = (
    "Event", "Namespace", "Node", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "Service",
    "EndpointSlice", "ConfigMap", "PersistentVolumeClaim", "PersistentVolume", "HorizontalPodAutoscaler",
    "NetworkPolicy", "ResourceQuota", "LimitRange", "ControllerRevision", "PodDisruptionBudget",
)  # fmt: skip
"""The kinds besides pods that a first look or a rule reads."""
PING = ToolSpec(
    name="report_ready",
    description="Report that you can call tools.",
    parameters={
        "type": "object",
        "properties": {"word": {"type": "string", "enum": ["ready"]}},
        "required": ["word"],
        "additionalProperties": False,
    },
)


class Level(enum.StrEnum):
    """`fault`: a worker cannot do its work, or does it much worse. `warning`: somebody should look at it."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Examination:
    """One thing that was examined. `remedy` says what to do; empty if all is well."""

    area: str
    level: Level
    text: str
    remedy: str = ""


Area = Callable[[Settings, AsyncExitStack], AsyncIterator[Examination]]


async def examine(settings: Settings) -> AsyncIterator[Examination]:
    """Examine one area after the other. A failure becomes a finding."""
    for name, area, remedy in AREAS:
        async with AsyncExitStack() as stack:
            try:
                async for examined in area(settings, stack):
                    yield examined
            except (errors.ReportedError, errors.Retry, errors.GiveUp, OSError) as e:
                text = (
                    e.message if isinstance(e, errors.ClusterError | errors.Retry | errors.GiveUp) else str(e)
                )
                yield Examination(name, Level.FAULT, text, remedy)


def _ok(area: str, text: str) -> Examination:
    return Examination(area, Level.OK, text)


def _checked(area: str, wrong: str, remedy: str, fine: str, level: Level = Level.WARNING) -> Examination:
    """What is wrong, if anything is, and what to do about it."""
    return Examination(area, level, wrong, remedy) if wrong else _ok(area, fine)


# --- NATS


async def _nats(settings: Settings, stack: AsyncExitStack) -> AsyncIterator[Examination]:
    nc = await stack.enter_async_context(connected(settings.nats, name="rca-doctor"))
    yield _ok("nats", f"connected to {nc.connected_url.netloc if nc.connected_url else 'a server'}")
    if nc.max_payload < MIN_MAX_PAYLOAD:
        text = f"max_payload is {nc.max_payload:,} bytes: large results cannot be stored"
        yield Examination("nats", Level.WARNING, text, "set max_payload: 2MB in the server's configuration")
    items, clock = wanted_streams(settings), ServerClock(SystemClock())
    asked = clock.monotonic()
    found = await look(nc, items)
    for one in _streams(found):
        yield one
    compared = await provision(nc, items, apply=False)
    if different := [each for each in compared if each.action in {Action.DRIFT, Action.WOULD_UPDATE}]:
        more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
        text = f"{different[0].name} differs from the settings: {different[0].detail}{more}"
        yield Examination("streams", Level.WARNING, text, DRIFT_REMEDY)
    if times := [each.server_time for each in found if each.server_time]:
        clock.compare(times, asked)
        yield _clock(clock)


def _streams(found: list[Found]) -> list[Examination]:
    unusable = [each.unusable for each in found if each.unusable]
    if unusable:
        more = f" (and {len(unusable) - 1} more)" if len(unusable) > 1 else ""
        return [Examination("streams", Level.FAULT, unusable[0] + more, "rca provision")]
    rows = [_ok("streams", f"all {len(found)} streams, consumers and buckets exist")]
    for each in found:
        info = each.info or {}
        limit, stored = info["config"].get("max_bytes", 0), info.get("state", {}).get("bytes", 0)
        if limit > 0 and stored > FILLING * limit:
            text = f"{each.item.name} holds {stored / limit:.0%} of its byte limit"
            rows.append(Examination("streams", Level.WARNING, text, FULL_REMEDY))
    return rows


def _clock(clock: ServerClock) -> Examination:
    fine = f"within {CLOCK_SKEW_SECONDS:g} s of the NATS server's clock"
    return _checked("clock", clock.notice(), "synchronise the machines by NTP", fine)


# --- Kubernetes


async def _kubernetes(settings: Settings, stack: AsyncExitStack) -> AsyncIterator[Examination]:
    cluster = await outside.open_cluster(settings, stack)
    namespace = outside.checked_namespace(settings.kubernetes)
    try:
        await cluster.check(namespace)
    except errors.ClusterError as e:
        if e.reason is not errors.ClusterReason.FORBIDDEN:
            raise
        yield Examination("kubernetes", Level.FAULT, e.message, RIGHTS_REMEDY)
        return
    yield _ok("kubernetes", "the API server answers, and pods may be listed")
    hidden = set(map(canonical_kind, settings.kubernetes.denied_kinds))
    unread = [
        kind
        for kind in READ_KINDS
        if kind not in hidden and not await _may_list(cluster, kind, namespace or "")
    ]
    wrong = (
        f"the worker may not list {', '.join(unread)}: analyses will name these as unknown" if unread else ""
    )
    fine = "the worker may read everything that a first look needs"
    yield _checked("kubernetes", wrong, RIGHTS_REMEDY, fine)


async def _may_list(cluster: Cluster, kind: str, namespace: str) -> bool:
    try:
        await cluster.list(ListQuery(kind, namespace, limit=1))
    except errors.ClusterError as e:
        if e.reason is errors.ClusterReason.FORBIDDEN:
            return False
        # An older cluster does not serve the kind, which is no fault.
        if e.reason is not errors.ClusterReason.UNKNOWN_KIND:
            raise
    return True


# --- the model


async def _model(settings: Settings, stack: AsyncExitStack) -> AsyncIterator[Examination]:
    llm = settings.llm
    if not llm.model:
        text, remedy = "RCA_LLM__MODEL is not set", "name a model, such as anthropic:NAME or openai-chat:NAME"
        yield Examination("model", Level.FAULT, text, remedy)
        return
    for name in (llm.model, *llm.fallbacks):
        alone = settings.model_copy(update={"llm": _alone(llm, name)})
        where = f"{name} at {alone.llm.base_url}" if alone.llm.base_url else name
        for examined in await _asked(where, open_models(alone, SystemClock(), stack)):
            yield examined
    if shadow := open_shadow(settings, SystemClock(), stack):
        await shadow.ask(
            ModelRequest("Answer with one word.", (), (UserTurn("Say ready."),), tools_allowed=False)
        )
        yield _ok("model", f"{settings.shadow.model} answers (second view)")


def _alone(llm: LlmSettings, name: str) -> LlmSettings:
    """The settings for one model of the chain: address and key belong to the provider of the first."""
    changes: dict[str, object] = {"model": name, "fallbacks": ()}
    if provider_of(name) != provider_of(llm.model):
        changes |= {"base_url": "", "api_key": SecretStr("")}
    return llm.model_copy(update=changes)


async def _asked(name: str, model: Model) -> list[Examination]:
    request = ModelRequest(
        system="You check a connection. Call the tool report_ready, and nothing else.",
        tools=(PING,),
        turns=(UserTurn("Call report_ready with the word ready."),),
        deadline_seconds=MODEL_SECONDS,
    )
    began = time.monotonic()
    try:
        reply = await model.ask(request)
    except (errors.Retry, errors.GiveUp) as e:
        return [Examination("model", Level.FAULT, f"{name}: {e.message}", MODEL_REMEDY)]
    return _judged(name, reply, time.monotonic() - began)


def _judged(name: str, reply: Reply, seconds: float) -> list[Examination]:
    if [call.name for call in reply.tool_calls] != [PING.name]:
        text = f"{name} answers, but does not call tools: it cannot investigate"
        return [Examination("model", Level.FAULT, text, TOOLS_REMEDY)]
    rows = [_ok("model", f"{name} answers and calls tools ({seconds:.1f} s)")]
    if reply.usage.cost_usd is None:
        text = f"the price of {reply.model} is not known: RCA_LLM__MAX_COST_USD cannot limit it"
        rows.append(Examination("model", Level.WARNING, text, "limit calls and tokens (docs/models.md)"))
    return rows


# --- catalog, policy, and what is optional


async def _catalog(settings: Settings, stack: AsyncExitStack) -> AsyncIterator[Examination]:
    catalog = await outside.open_catalog(settings.catalog, stack, Supervisor())
    offered = await catalog.actions(SelectionContext())
    count = sum(action.workflow_count for action in offered)
    wrong, fine = "the catalog has no usable workflow", f"workflows: {count}, action types: {len(offered)}"
    yield _checked("catalog", "" if count else wrong, CATALOG_REMEDY, fine, Level.FAULT)
    for text, remedy in (
        (catalog.problem, CATALOG_REMEDY),
        (catalog.meaning_problem, "check RCA_CATALOG__EMBEDDINGS"),
        (outside.catalog_advice(settings.catalog), "write workflows of your own (docs/catalog.md)"),
    ):
        if text:
            yield Examination("catalog", Level.WARNING, text, remedy)


async def _policy(settings: Settings, stack: AsyncExitStack) -> AsyncIterator[Examination]:
    policy = await outside.open_policy(settings.policy, stack, Supervisor())
    decision = await policy.decide(example_input())
    fine = f"{decision.policy} decides (mode {settings.policy.mode})"
    yield _checked("policy", policy.problem, POLICY_REMEDY, fine, Level.FAULT)


async def _audit(settings: Settings, _: AsyncExitStack) -> AsyncIterator[Examination]:
    if outside.read_signer(settings.audit):
        yield _ok("audit", "the signing key can be read")


async def _prometheus(settings: Settings, stack: AsyncExitStack) -> AsyncIterator[Examination]:
    if prometheus := await outside.open_prometheus(settings.prometheus, stack):
        with _at(settings.prometheus.url):
            await prometheus.instant("vector(1)", datetime.now(UTC))
        yield _ok("prometheus", f"{settings.prometheus.url} answers")


async def _history(settings: Settings, stack: AsyncExitStack) -> AsyncIterator[Examination]:
    if history := await outside.open_datastorage(settings.history, stack):
        with _at(settings.history.url):
            await history.past(ObjectRef("Deployment", "rca-doctor", "default"), _no_hash())
        yield _ok("history", f"{settings.history.url} answers")


async def _mcp(settings: Settings, stack: AsyncExitStack) -> AsyncIterator[Examination]:
    if mounted := await open_mcp(settings.mcp, stack):
        yield _checked("mcp", mounted.problem(), MCP_REMEDY, f"mounted tools: {len(mounted.tools())}")


async def _traces(_: Settings, stack: AsyncExitStack) -> AsyncIterator[Examination]:
    if address := redact(endpoint(os.environ)):
        try:
            tracer = new_tracer(os.environ)
            stack.push_async_callback(tracer.close)
            why = "" if await asyncio.to_thread(tracer.reach) else "the collector rejects spans"
        except ConfigurationError as e:
            why = str(e)
        wrong = f"incidents are analysed without traces for {address}: {why}" if why else ""
        yield _checked("traces", wrong, TRACES_REMEDY, f"the collector at {address} accepts spans")


async def _no_hash() -> str:
    return ""


@contextmanager
def _at(address: str) -> Iterator[None]:
    """Name the address of a server in its errors."""
    try:
        yield
    except (errors.HistoryUnavailable, errors.MetricsError) as e:
        raise errors.ReportedError(f"{address}: {e}") from e


CLUSTER_REMEDY = "check RCA_KUBERNETES__KUBECONFIG, its context and its credentials (docs/kubernetes.md)"
DRIFT_REMEDY = "run `rca provision`, or correct what `rca provision --check` calls drift"
FULL_REMEDY = "archive it (`rca audit export`), or raise RCA_NATS__STORE_MEBIBYTES and run `rca provision`"
RIGHTS_REMEDY = "apply deploy/kubernetes/rbac.yaml for the worker's ServiceAccount"
TOOLS_REMEDY = "choose a model that can call tools, or enable them on the server"
MODEL_REMEDY = "check RCA_LLM__MODEL, RCA_LLM__API_KEY and RCA_LLM__BASE_URL (docs/models.md)"
CATALOG_REMEDY = "check the RCA_CATALOG__ settings; `rca catalog lint DIR` checks files (docs/catalog.md)"
MCP_REMEDY = "check RCA_MCP__SERVERS and RCA_MCP__TOOLS (docs/mcp.md)"
TRACES_REMEDY = "check the variables OTEL_EXPORTER_OTLP_* (docs/operations.md)"
POLICY_REMEDY = "check RCA_POLICY__PATH or RCA_POLICY__URL (docs/policy.md)"
AREAS: tuple[tuple[str, Area, str], ...] = (
    ("nats", _nats, "docs/nats.md explains addresses, credentials and permissions"),
    ("kubernetes", _kubernetes, CLUSTER_REMEDY),
    ("model", _model, MODEL_REMEDY),
    ("catalog", _catalog, CATALOG_REMEDY),
    ("policy", _policy, POLICY_REMEDY),
    ("audit", _audit, "check RCA_AUDIT__SIGNING_KEY_FILE (docs/audit.md)"),
    ("prometheus", _prometheus, "check RCA_PROMETHEUS__URL and its token"),
    ("history", _history, "check RCA_HISTORY__URL and its token"),
    ("mcp", _mcp, MCP_REMEDY),
    ("traces", _traces, TRACES_REMEDY),
)
