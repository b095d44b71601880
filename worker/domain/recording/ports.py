"""The ports of an analysis with a tape before each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from schemas.analysis import Approval
from worker.domain.recording.tape import NOT_RECORDED, Call, Tape, question
from worker.domain.values.conversation import ModelRequest, Reply, ToolTurn, Turn
from worker.domain.values.errors import (
    CatalogUnavailable,
    ClusterError,
    ClusterReason,
    ExternalToolError,
    GiveUp,
    GiveUpReason,
    HistoryUnavailable,
    MetricsError,
)
from worker.domain.values.external_tools import ExternalAnswer, ExternalTool
from worker.domain.values.objects import KindInfo, Listing, ListQuery, LogQuery, Manifest, ObjectRef
from worker.domain.values.ports import (
    Catalog,
    Cluster,
    ExternalTools,
    History,
    Metrics,
    Model,
    Outside,
    Policy,
    PolicyDecision,
    TrackRecords,
)
from worker.domain.values.remediations import Past, PastRemediation, TrackRecord
from worker.domain.values.series import Series
from worker.domain.values.workflow_search import SearchPage, SearchQuery
from worker.domain.values.workflows import ActionSummary, SelectionContext, Workflow, WorkflowPage

_unread = partial(ClusterError, ClusterReason.UNAVAILABLE)
GET: Call[Manifest] = Call("cluster.get", TypeAdapter(Manifest), _unread, foreign=True)
LIST: Call[Listing] = Call("cluster.list", TypeAdapter(Listing), _unread, foreign=True)
LOGS: Call[Any] = Call("cluster.logs", TypeAdapter(Any), _unread)
KIND: Call[KindInfo] = Call("cluster.kind", TypeAdapter(KindInfo), _unread)
ACTIONS: Call[Sequence[ActionSummary]] = Call(
    "catalog.actions", TypeAdapter(Sequence[ActionSummary]), CatalogUnavailable
)
WORKFLOWS: Call[WorkflowPage] = Call("catalog.workflows", TypeAdapter(WorkflowPage), CatalogUnavailable)
WORKFLOW: Call[Workflow | None] = Call("catalog.get", TypeAdapter(Workflow | None), CatalogUnavailable)
SEARCH: Call[SearchPage] = Call("catalog.search", TypeAdapter(SearchPage), CatalogUnavailable)
PAST: Call[Past] = Call("history.past", TypeAdapter(Past), HistoryUnavailable)
RECORD: Call[TrackRecord | None] = Call("records.of", TypeAdapter(TrackRecord | None), HistoryUnavailable)
INSTANT: Call[Sequence[Series]] = Call("metrics.instant", TypeAdapter(Sequence[Series]), MetricsError)
OVER_TIME: Call[Sequence[Series]] = Call("metrics.over_time", TypeAdapter(Sequence[Series]), MetricsError)
TOOLS: Call[Sequence[ExternalTool]] = Call(
    "external.tools", TypeAdapter(Sequence[ExternalTool]), ExternalToolError
)
TOOL: Call[ExternalAnswer] = Call(
    "external.call", TypeAdapter(ExternalAnswer), ExternalToolError, foreign=True
)
DECIDE: Call[tuple[Approval, str]] = Call("policy.decide", TypeAdapter(tuple[Approval, str]), LookupError)
_unsaid = partial(GiveUp, GiveUpReason.BUDGET_SPENT)
ASK: Call[Reply] = Call("model.ask", TypeAdapter(Reply), _unsaid, ordered=True)
ASK_SHADOW: Call[Reply] = Call("shadow.ask", TypeAdapter(Reply), _unsaid, ordered=True)


UNDECIDED = PolicyDecision(
    Approval(required=True, reasons=("The recording has no decision of the policy about this input.",)),
    NOT_RECORDED,
)


def conversation_digest(request: ModelRequest) -> str:
    """SHA-256 of what a model is told, after redaction."""
    told = (request.system, request.tools, list(map(_told, request.turns)), request.tools_allowed)
    return hashlib.sha256(question(told).encode()).hexdigest()


def _told(turn: Turn) -> Any:
    """What a turn tells: not how long a tool took, nor the form in which an adapter sends a reply again."""
    if isinstance(turn, Reply):
        return turn.text, turn.tool_calls
    if isinstance(turn, ToolTurn):
        return [(each.call_id, each.content, each.ok) for each in turn.results], turn.note
    return turn.text


def taped(outside: Outside, tape: Tape) -> Outside:
    """The same ports, with the tape before each of them. The clock and the jitter stay as they are."""
    return replace(
        outside,
        cluster=TapedCluster(tape, outside.cluster),
        catalog=TapedCatalog(tape, outside.catalog),
        model=TapedModel(tape, outside.model, outside.model.name, ASK),
        policy=TapedPolicy(tape, outside.policy),
        history=outside.history and TapedHistory(tape, outside.history),
        track_records=outside.track_records and TapedTrackRecords(tape, outside.track_records),
        metrics=outside.metrics and TapedMetrics(tape, outside.metrics),
        external=outside.external and TapedExternalTools(tape, outside.external),
        shadow=outside.shadow and TapedModel(tape, outside.shadow, outside.shadow.name, ASK_SHADOW),
    )


@dataclass(frozen=True, slots=True)
class TapedCluster:
    """Implements Cluster."""

    tape: Tape
    port: Cluster

    async def get(self, ref: ObjectRef) -> Manifest:
        return await self.tape.through(GET, ref, lambda: self.port.get(ref))

    async def list(self, query: ListQuery) -> Listing:
        """What `keep` lets through is what is recorded. It is asked again, since it may be a different one by now."""
        asked = replace(query, keep=None)
        found = await self.tape.through(LIST, asked, lambda: self.port.list(query))
        if (keep := query.keep) is None:
            return found
        return replace(found, items=tuple(kept for item in found.items if (kept := keep(item)) is not None))

    async def logs(self, query: LogQuery) -> bytes:
        """Recorded as text: bytes that are not UTF-8 are escaped in it."""

        async def text() -> str:
            return (await self.port.logs(query)).decode(errors="surrogateescape")

        found: str = await self.tape.through(LOGS, query, text)
        return found.encode(errors="surrogateescape")

    async def kind(self, kind: str, api_version: str = "") -> KindInfo:
        return await self.tape.through(KIND, (kind, api_version), lambda: self.port.kind(kind, api_version))


@dataclass(frozen=True, slots=True)
class TapedCatalog:
    """Implements Catalog."""

    tape: Tape
    port: Catalog

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]:
        return await self.tape.through(ACTIONS, context, lambda: self.port.actions(context))

    async def workflows(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        return await self.tape.through(
            WORKFLOWS,
            (action_type, context, cursor),
            lambda: self.port.workflows(action_type, context, cursor),
        )

    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        return await self.tape.through(
            WORKFLOW, (workflow_id, context), lambda: self.port.get(workflow_id, context)
        )

    async def search(self, query: SearchQuery, context: SelectionContext) -> SearchPage:
        return await self.tape.through(SEARCH, (query, context), lambda: self.port.search(query, context))


@dataclass(frozen=True, slots=True)
class TapedModel:
    """Implements Model. Of a request its digest is recorded, without the deadline, which time decides."""

    tape: Tape
    port: Model
    name: str
    call: Call[Reply]

    async def ask(self, request: ModelRequest) -> Reply:
        return await self.tape.through(
            self.call, conversation_digest(request), lambda: self.port.ask(request)
        )


@dataclass(frozen=True, slots=True)
class TapedPolicy:
    """Implements Policy: an input that was not recorded requires approval."""

    tape: Tape
    port: Policy

    async def decide(self, policy_input: Mapping[str, Any]) -> PolicyDecision:
        async def decision() -> tuple[Approval, str]:
            found = await self.port.decide(policy_input)
            return found.approval, found.policy

        try:
            return PolicyDecision(*await self.tape.through(DECIDE, policy_input, decision))
        except LookupError:
            return UNDECIDED


@dataclass(frozen=True, slots=True)
class TapedHistory:
    """Implements History. What an analysis adds to it is no answer, and so not recorded."""

    tape: Tape
    port: History

    async def past(self, target: ObjectRef, spec_hash: Awaitable[str]) -> Past:
        return await self.tape.through(PAST, target, lambda: self.port.past(target, spec_hash))

    async def remember(self, target: ObjectRef, remediation: PastRemediation) -> None:
        await self.port.remember(target, remediation)


@dataclass(frozen=True, slots=True)
class TapedTrackRecords:
    """Implements TrackRecords: None for what was not recorded."""

    tape: Tape
    port: TrackRecords

    def of(self, action_type: str, environment: str) -> TrackRecord | None:
        try:
            return self.tape.at_once(
                RECORD, (action_type, environment), lambda: self.port.of(action_type, environment)
            )
        except HistoryUnavailable:
            return None


@dataclass(frozen=True, slots=True)
class TapedMetrics:
    """Implements Metrics."""

    tape: Tape
    port: Metrics

    async def instant(self, query: str, at: datetime) -> Sequence[Series]:
        return await self.tape.through(INSTANT, (query, at), lambda: self.port.instant(query, at))

    async def over_time(
        self, query: str, start: datetime, end: datetime, step_seconds: int
    ) -> Sequence[Series]:
        asked = (query, start, end, step_seconds)
        return await self.tape.through(OVER_TIME, asked, lambda: self.port.over_time(*asked))


@dataclass(frozen=True, slots=True)
class TapedExternalTools:
    """Implements ExternalTools."""

    tape: Tape
    port: ExternalTools

    def tools(self) -> Sequence[ExternalTool]:
        try:
            return self.tape.at_once(TOOLS, (), lambda: tuple(self.port.tools()))
        except ExternalToolError:
            return ()

    async def call(self, server: str, name: str, arguments: Mapping[str, Any]) -> ExternalAnswer:
        asked = (server, name, arguments)
        return await self.tape.through(TOOL, asked, lambda: self.port.call(*asked))
