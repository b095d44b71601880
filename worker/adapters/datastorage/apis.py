"""The two APIs by which a DataStorage offers workflows.

With either, all workflows are read; bad records are left out.

Workflow discovery has three steps (DD-WORKFLOW-016, DD-HAPI-017): actions, workflows, one workflow. The first
two are requested without filters, for the whole catalog: counts of what each label excludes are reported, and
the signal types of all workflows are always needed. Servers that insist on filters there (as their OpenAPI
document does) are asked for their plain list, `GET /api/v1/workflows`, which requires none. The third is
requested with filters, so that the server has its say: it answers 404 for a workflow that does not match, as
if there was none. `component` is not among them. It is one text there, compared as it is spelt (a kind, or
group, version and kind, depending on the server), and a target has a chain of owners: we check that label.

The older playbook search (DD-LLM-001, section 7.1) answers queries only, one signal type at a time, and
compares business labels itself: its answers carry none. So playbooks are read for each set of business
labels, by one query for each signal type, and with every confidence: how well they match is measured here, as
for every other catalog.
"""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import structlog

from schemas.enrichment import camel_case
from schemas.taxonomy import UNKNOWN_ENVIRONMENT, Priority, Severity, SignalType, normalize_severity
from worker.adapters.datastorage.records import (
    BadRecordError,
    id_of,
    read_action,
    read_playbook,
    read_workflow,
)
from worker.adapters.json_server import CONNECTIONS, Exchange, RequestFailedError
from worker.domain.catalog.documents import action_text
from worker.domain.cluster.fields import dig, mapping, text, whole
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.concurrency import concurrently
from worker.domain.values.workflows import ActionText, SelectionContext, Workflow

MAX_WORKFLOWS = 1_000
SHOWN_CHARS = 80
SHOWN_REASONS = 5
WORKFLOWS = "/api/v1/workflows"
ACTIONS = f"{WORKFLOWS}/actions"
UNCONSTRAINED = {"severity": "", "component": "", "environment": "", "priority": ""}
"""The required filters, empty: they constrain nothing."""
REJECTED_FILTERS = frozenset({400, 422})
PAGE = 100
RECORDS_PAGE = 25
MAX_PAGES = 50
PLAYBOOKS = "/api/v1/playbooks/search"
PLAYBOOK_FILTERS = ("environment", "priority", "risk_tolerance", "business_category")
MAX_PLAYBOOKS = 100
MAX_SIGNAL_TYPES = 32

log = structlog.stdlib.get_logger(__name__)

Read = TypeVar("Read")


@dataclass(slots=True)
class CatalogRecords:
    """The records that were read.

    `left_out` counts bad ones, `reasons` gives the problems of the first few.
    """

    workflows: dict[str, Workflow] = field(default_factory=dict)
    texts: dict[str, ActionText] = field(default_factory=dict)
    left_out: int = 0
    reasons: list[str] = field(default_factory=list)

    def read(self, reader: Callable[[Any], Read], record: Any, name: str) -> Read | None:
        """The result of the reader; None for a bad record, which is counted."""
        try:
            return reader(record)
        except BadRecordError as error:
            self.miss(1, f"{one_line(name, SHOWN_CHARS)}: {error}")
            return None

    def miss(self, count: int, reason: str) -> None:
        """Count records that are left out."""
        self.left_out += count
        if len(self.reasons) < SHOWN_REASONS:
            self.reasons.append(reason)

    def add(self, workflow: Workflow | None) -> None:
        """Keep the workflow, if there is one. Raises RequestFailedError when there are too many."""
        if workflow is not None:
            self.workflows[workflow.workflow_id] = workflow
        if len(self.workflows) > MAX_WORKFLOWS:
            raise RequestFailedError(f"the catalog has more than {MAX_WORKFLOWS} workflows")


def entries_of(answer: Any, name: str, path: str, most: int) -> list[Any]:
    """The list of this name in an answer; an empty one may be null. Raises RequestFailedError."""
    entries = mapping(answer).get(name, ...)
    if entries is not None and not isinstance(entries, list):
        raise RequestFailedError(f"the answer to {path} is not a list of {name}")
    if entries is not None and len(entries) > most:
        raise RequestFailedError(f"{path} answers with more than the {most} {name} requested")
    return entries or []


class ApiMissingError(RequestFailedError):
    """The server does not have this API."""


class CatalogApi(Protocol):
    """One way to read workflows from a DataStorage. Methods raise RequestFailedError, ApiMissingError."""

    def key(self, context: SelectionContext, /) -> Hashable:
        """The part of a context that decides which workflows are read."""

    async def read(self, exchange: Exchange, context: SelectionContext, /) -> CatalogRecords:
        """All workflows that the server offers for contexts with this key."""

    async def confirm(
        self, exchange: Exchange, workflow: Workflow, context: SelectionContext, /
    ) -> Workflow | None:
        """The workflow as the server has it now; None if the server says that it does not fit."""


class WorkflowsApi:
    """The three steps of workflow discovery, a CatalogApi."""

    def key(self, _: SelectionContext) -> Hashable:
        """None: all contexts have the same workflows."""
        return None

    async def read(self, exchange: Exchange, _: SelectionContext) -> CatalogRecords:
        """The whole catalog."""
        try:
            return await _by_steps(exchange)
        except RequestFailedError as error:
            if error.status not in REJECTED_FILTERS:
                raise
        return await _by_list(exchange)

    async def confirm(
        self, exchange: Exchange, workflow: Workflow, context: SelectionContext
    ) -> Workflow | None:
        """The record of step three. A server that rejects the filters is asked without them."""
        filters = _filters(context)
        try:
            record = await _record(exchange, workflow.workflow_id, filters)
        except RequestFailedError as error:
            if error.status not in REJECTED_FILTERS or not filters:
                raise
            record = await _record(exchange, workflow.workflow_id, {})
        try:
            now = None if record is None else read_workflow(record)
        except BadRecordError as error:
            log.warning("catalog_record_rejected", workflow_id=workflow.workflow_id, error=str(error))
            return None
        return now if now is not None and now.workflow_id == workflow.workflow_id else None


async def _by_steps(exchange: Exchange) -> CatalogRecords:
    found, listed = CatalogRecords(), dict[str, str]()
    try:
        entries = [e async for e in _pages(exchange, ACTIONS, "actionTypes", PAGE, UNCONSTRAINED)]
    except RequestFailedError as error:
        raise ApiMissingError(str(error), status=404) if error.status == 404 else error from error
    for entry in entries:
        action = found.read(read_action, entry, "a type of action")
        if action is None:
            continue
        found.texts[action.action_type] = action_text(action.description)
        path = f"{ACTIONS}/{_segment(action.action_type)}"
        async for one in _pages(exchange, path, "workflows", PAGE, UNCONSTRAINED):
            if name := found.read(id_of, one, f"a workflow of {action.action_type}"):
                listed.setdefault(name, action.action_type)
            if len(listed) > MAX_WORKFLOWS:
                raise RequestFailedError(f"the catalog has more than {MAX_WORKFLOWS} workflows")
    read = await concurrently([_record(exchange, name, {}) for name in listed], at_once=CONNECTIONS)
    records = dict(zip(listed, read, strict=True))
    if records and all(record is None for record in read):
        raise RequestFailedError(f"it lists {len(records)} workflows and returned no record for any of them")
    for name, record in records.items():
        if record is not None:
            found.add(found.read(functools.partial(_as_listed, name, listed[name]), record, name))
    return found


async def _by_list(exchange: Exchange) -> CatalogRecords:
    found = CatalogRecords()
    async for record in _pages(exchange, WORKFLOWS, "workflows", RECORDS_PAGE, {}):
        name = text(mapping(record).get("workflowId")) or "a workflow"
        found.add(found.read(read_workflow, record, name))
    return found


def _as_listed(name: str, action_type: str, record: Any) -> Workflow | None:
    workflow = read_workflow(record)
    if workflow is None:
        return None
    if workflow.workflow_id != name or workflow.action_type.lower() != action_type.lower():
        says = one_line(f"{workflow.workflow_id} of {workflow.action_type}", 160)
        raise BadRecordError(f"listed under {action_type}, but its record says {says}")
    return workflow


async def _pages(
    exchange: Exchange, path: str, name: str, size: int, params: Mapping[str, str]
) -> AsyncIterator[Any]:
    """The entries of all pages. Totals are not trusted: a page without entries is the last one."""
    offset = 0
    for _ in range(MAX_PAGES):
        page = {**params, "offset": str(offset), "limit": str(size)}
        document = await exchange.get(path, page)
        entries = entries_of(document, name, path, size)
        for entry in entries:
            yield entry
        offset += len(entries)
        more = dig(document, "pagination", "hasMore") is True or whole(dig(document, "total")) > offset
        if not entries or not more:
            return
    raise RequestFailedError(f"{path} has more than {MAX_PAGES} pages")


async def _record(exchange: Exchange, workflow_id: str, filters: Mapping[str, str]) -> Any:
    """The full record; None when the API says that it does not exist."""
    try:
        return await exchange.get(f"{WORKFLOWS}/{_segment(workflow_id)}", filters)
    except RequestFailedError as error:
        if error.absent:
            return None
        raise


def _segment(name: str) -> str:
    """One segment of a path, also when the name is `..` or holds slashes."""
    return quote(name, safe="", errors="replace").replace(".", "%2E")


def _filters(context: SelectionContext) -> dict[str, str]:
    """The context in the terms of the API. Empty filters are left out: the API rejects them."""
    level, priority = normalize_severity(context.severity), context.priority.strip().upper()
    environment = context.environment.strip()
    custom = {name: list(values) for name, values in context.custom_labels.items() if values}
    detected = {camel_case(name): value for name, value in context.detected_labels.items() if value}
    filters = {
        "severity": "" if level in {None, Severity.UNKNOWN} else str(level),
        "environment": "" if environment.lower() == UNKNOWN_ENVIRONMENT else environment,
        "priority": priority if priority in set(Priority) else "",
        "custom_labels": json.dumps(custom) if custom else "",
        "detected_labels": json.dumps(detected) if detected else "",
    }
    return {name: value for name, value in filters.items() if value}


class PlaybooksApi:
    """The older playbook search, a CatalogApi.

    Signal types other than the core ones are read once they have been searched for.
    """

    def __init__(self) -> None:
        self._signal_types = {str(name): None for name in SignalType}

    def key(self, context: SelectionContext) -> Hashable:
        """The business labels, and how many signal types are known so far."""
        self._learn(context.signal_type.strip())
        return (*_business_labels(context).items(), len(self._signal_types))

    async def read(self, exchange: Exchange, context: SelectionContext) -> CatalogRecords:
        """All playbooks that the server offers for these business labels."""
        self._learn(context.signal_type.strip())
        labels, found = _business_labels(context), CatalogRecords()

        async def ask(signal_type: str) -> Any:
            question = {
                "query": f"{signal_type} {Severity.CRITICAL}",
                "label.signal-type": signal_type,
                **labels,
                "min_confidence": "0",
                "max_results": str(MAX_PLAYBOOKS),
            }
            return await exchange.get(PLAYBOOKS, question)

        try:
            asked = list(self._signal_types)
            answers = await concurrently([ask(name) for name in asked], at_once=CONNECTIONS)
        except RequestFailedError as error:
            raise ApiMissingError(str(error), status=404) if error.status == 404 else error from error
        for signal_type, answer in zip(asked, answers, strict=True):
            _add_playbooks(found, signal_type, answer)
        return found

    def _learn(self, name: str) -> None:
        known = {known.lower() for known in self._signal_types}
        if name and name.lower() not in known and len(known) < MAX_SIGNAL_TYPES:
            self._signal_types[name] = None

    async def confirm(self, _: Exchange, workflow: Workflow, __: SelectionContext) -> Workflow | None:
        """The workflow as it was read: this API cannot confirm one."""
        return workflow


def _business_labels(context: SelectionContext) -> dict[str, str]:
    """The filters that have a value. Their names have hyphens."""
    values = {name: str(getattr(context, name)).strip() for name in PLAYBOOK_FILTERS}
    if values["environment"].lower() == UNKNOWN_ENVIRONMENT:
        values["environment"] = ""
    return {f"label.{name.replace('_', '-')}": value for name, value in values.items() if value}


def _add_playbooks(found: CatalogRecords, signal_type: str, answer: Any) -> None:
    playbooks = entries_of(answer, "playbooks", PLAYBOOKS, MAX_PLAYBOOKS)
    for record in playbooks:
        name = text(mapping(record).get("playbook_id")) or "a playbook"
        if name not in found.workflows:
            found.add(found.read(read_playbook, record, name))
    left = whole(dig(answer, "total_results")) - len(playbooks)
    if left > 0:
        found.miss(left, f"more playbooks for {signal_type} than one search returns")
