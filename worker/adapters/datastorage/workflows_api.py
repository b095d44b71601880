"""The three steps of DataStorage's workflow discovery (DD-WORKFLOW-016, DD-HAPI-017): actions, workflows, one workflow.

The first two are asked without filters, for the whole catalog: what a label leaves out is told with counts, and the
signal types of all workflows are needed whatever the incident. Servers that insist on filters there (their OpenAPI
document does) are asked for their plain list, `GET /api/v1/workflows`, which requires none.

The third is asked with filters, so that the server has its say: its answer to a workflow that does not match is 404, as
if there was none. `component` is not among them. It is one text there, compared as it is spelt (a kind, or group,
version and kind, depending on the server), and a target has a chain of owners: that label is ours to check.
"""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Hashable, Mapping
from typing import Any
from urllib.parse import quote

import structlog

from schemas.enrichment import camel_case
from schemas.taxonomy import UNKNOWN_ENVIRONMENT, Priority, Severity, normalize_severity
from worker.adapters.datastorage.client import Exchange, FailedError, gathered
from worker.adapters.datastorage.records import BadRecordError, id_of, read_action, read_workflow
from worker.adapters.datastorage.source import MAX_WORKFLOWS, Found, NoSuchApiError, entries_of
from worker.domain.catalog.documents import one_paragraph
from worker.domain.cluster.fields import dig, mapping, text, whole
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflows import ActionText, SelectionContext, Workflow

WORKFLOWS = "/api/v1/workflows"
ACTIONS = f"{WORKFLOWS}/actions"
UNCONSTRAINED = {"severity": "", "component": "", "environment": "", "priority": ""}
"""The required filters, empty: they constrain nothing."""
REFUSED = frozenset({400, 422})
PAGE = 100
RECORDS_PAGE = 25
MAX_PAGES = 50

log = structlog.stdlib.get_logger(__name__)


class WorkflowsApi:
    """Implements Source."""

    def key(self, context: SelectionContext) -> Hashable:  # noqa: ARG002 - always the whole catalog
        """The same for all contexts."""
        return None

    async def read(self, exchange: Exchange, context: SelectionContext) -> Found:  # noqa: ARG002 - see key
        """The whole catalog."""
        try:
            return await _by_steps(exchange)
        except FailedError as error:
            if error.status not in REFUSED:
                raise
        return await _by_list(exchange)

    async def confirm(
        self, exchange: Exchange, workflow: Workflow, context: SelectionContext
    ) -> Workflow | None:
        """The record of step three. A server that cannot read the filters is asked without them."""
        filters = _filters(context)
        try:
            record = await _record(exchange, workflow.workflow_id, filters)
        except FailedError as error:
            if error.status not in REFUSED or not filters:
                raise
            record = await _record(exchange, workflow.workflow_id, {})
        try:
            now = None if record is None else read_workflow(record)
        except BadRecordError as error:
            log.warning("catalog_record_refused", workflow_id=workflow.workflow_id, error=str(error))
            return None
        return now if now is not None and now.workflow_id == workflow.workflow_id else None


async def _by_steps(exchange: Exchange) -> Found:
    found, listed = Found(), dict[str, str]()
    try:
        entries = [e async for e in _pages(exchange, ACTIONS, "actionTypes", PAGE, UNCONSTRAINED)]
    except FailedError as error:
        raise NoSuchApiError(str(error), status=404) if error.status == 404 else error from error
    for entry in entries:
        action = found.read(read_action, entry, "a type of action")
        if action is None:
            continue
        about = action.description
        found.texts[action.action_type] = ActionText(
            *map(one_paragraph, (about.what, about.when_to_use, about.when_not_to_use))
        )
        path = f"{ACTIONS}/{_segment(action.action_type)}"
        async for one in _pages(exchange, path, "workflows", PAGE, UNCONSTRAINED):
            if name := found.read(id_of, one, f"a workflow of {action.action_type}"):
                listed.setdefault(name, action.action_type)
            if len(listed) > MAX_WORKFLOWS:
                raise FailedError(f"the catalog has more than {MAX_WORKFLOWS} workflows")
    records = await gathered(lambda name: _record(exchange, name, {}), listed)
    if records and all(record is None for record in records.values()):
        raise FailedError(f"it lists {len(records)} workflows and has none of them")
    for name, record in records.items():
        if record is not None:
            found.add(found.read(functools.partial(_as_listed, name, listed[name]), record, name))
    return found


async def _by_list(exchange: Exchange) -> Found:
    found = Found()
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
        raise BadRecordError(f"listed as one of {action_type}, its record says {says}")
    return workflow


async def _pages(
    exchange: Exchange, path: str, name: str, size: int, params: Mapping[str, str]
) -> AsyncIterator[Any]:
    """The entries of all pages. Totals are not believed: a page without entries is the last one."""
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
    raise FailedError(f"{path} has no end after {MAX_PAGES} pages")


async def _record(exchange: Exchange, workflow_id: str, filters: Mapping[str, str]) -> Any:
    """The full record, None when the API says that there is none."""
    try:
        return await exchange.get(f"{WORKFLOWS}/{_segment(workflow_id)}", filters)
    except FailedError as error:
        if error.absent:
            return None
        raise


def _segment(name: str) -> str:
    """One segment of a path, also when the name is `..` or holds slashes."""
    return quote(name, safe="", errors="replace").replace(".", "%2E")


def _filters(context: SelectionContext) -> dict[str, str]:
    """What the context says, in the words of the API. A filter that says nothing is left out: empty ones are refused."""
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
