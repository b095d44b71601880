"""The ports of an analysis with a tape before each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from schemas.analysis import Approval
from worker.domain.recording.tape import NOT_RECORDED, PortCall, Tape, question
from worker.domain.values import errors
from worker.domain.values.conversation import ModelRequest, Reply, ToolTurn, Turn
from worker.domain.values.external_tools import ExternalAnswer, ExternalTool
from worker.domain.values.objects import KindInfo, Listing, ListQuery, Manifest
from worker.domain.values.ports import Outside, PolicyDecision
from worker.domain.values.remediations import Past, TrackRecord
from worker.domain.values.series import Series
from worker.domain.values.workflow_search import SearchPage
from worker.domain.values.workflows import ActionSummary, Workflow, WorkflowPage

REQUIRED = ("cluster", "catalog", "model", "policy", "clock")
PORTS = (*REQUIRED, "history", "track_records", "metrics", "external", "shadow")
EPOCH, SPARE_TOKEN = datetime(1970, 1, 1, tzinfo=UTC), "0" * 12
"""In place of a time and a random text that were not recorded."""
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


def _as(kind: Any) -> Callable[..., Any]:
    adapter = TypeAdapter(kind)
    return lambda value, *_: adapter.validate_python(value)


def _listing(value: Any, query: ListQuery) -> Listing:
    """What `keep` lets through of what it let through before, since it may be a different one by now."""
    found: Listing = LISTING(value)
    if (keep := query.keep) is None:
        return found
    return replace(found, items=tuple(kept for item in found.items if (kept := keep(item)) is not None))


def _decision(value: Any, *_: Any) -> PolicyDecision:
    return PolicyDecision(Approval.model_validate(value["approval"]), str(value["policy"]))


LISTING = _as(Listing)
_unread, _unsaid = (
    partial(errors.ClusterError, errors.ClusterReason.UNAVAILABLE),
    partial(errors.GiveUp, errors.GiveUpReason.BUDGET_SPENT),
)
CALLS = {
    call.name: call
    for call in (
        PortCall("cluster.get", _as(Manifest), _unread, foreign=True),
        PortCall("cluster.list", _listing, _unread, lambda query: replace(query, keep=None), foreign=True),
        # As text: bytes that are not UTF-8 are escaped in it.
        PortCall("cluster.logs", lambda text, *_: text.encode(errors="surrogateescape"), _unread),
        PortCall("cluster.kind", _as(KindInfo), _unread),
        PortCall("catalog.actions", _as(Sequence[ActionSummary]), errors.CatalogUnavailable),
        PortCall("catalog.workflows", _as(WorkflowPage), errors.CatalogUnavailable),
        PortCall("catalog.get", _as(Workflow | None), errors.CatalogUnavailable),
        PortCall("catalog.search", _as(SearchPage), errors.CatalogUnavailable),
        PortCall("history.past", _as(Past), errors.HistoryUnavailable, lambda target, _: target),
        PortCall("track_records.of", _as(TrackRecord | None), lambda _: None, at_once=True),
        PortCall("metrics.instant", _as(Sequence[Series]), errors.MetricsError),
        PortCall("metrics.over_time", _as(Sequence[Series]), errors.MetricsError),
        PortCall("external.tools", _as(Sequence[ExternalTool]), lambda _: (), at_once=True),
        PortCall("external.call", _as(ExternalAnswer), errors.ExternalToolError, foreign=True),
        PortCall("policy.decide", _decision, lambda _: UNDECIDED),
        PortCall("model.ask", _as(Reply), _unsaid, conversation_digest, ordered=True),
        PortCall("shadow.ask", _as(Reply), _unsaid, conversation_digest, ordered=True),
        PortCall("clock.now", _as(datetime), lambda _: EPOCH, at_once=True),
        PortCall("clock.monotonic", _as(float), lambda _: 0.0, at_once=True),
        PortCall("run.new_token", _as(str), lambda _: SPARE_TOKEN, at_once=True),
    )
}
"""What is recorded. Whatever else a port has is its own, such as the name of a model."""


class Taped:
    """Any port with a tape before it."""

    def __init__(self, name: str, port: Any, tape: Tape) -> None:
        self._name, self._port, self._tape = name, port, tape

    def __getattr__(self, method: str) -> Any:
        own, call = getattr(self._port, method), CALLS.get(f"{self._name}.{method}")
        if call is None:
            return own
        passing: Callable[..., Any] = self._tape.at_once if call.at_once else self._tape.through
        return lambda *arguments: passing(call, arguments, lambda: own(*arguments))


def taped(outside: Outside, tape: Tape) -> Outside:
    """The same ports, with the tape before each of them."""
    there = {name: port for name in PORTS if (port := getattr(outside, name)) is not None}
    before: dict[str, Any] = {name: Taped(name, port, tape) for name, port in there.items()}
    return replace(outside, **before)
