"""The tools of the workflow choice over the Catalog port: three steps (DD-HAPI-017), or one search (DD-LLM-001).

The model gives signal type and severity. Code fills in the rest: business labels from the request, component and
detected labels from the last get_resource_context.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from schemas.enrichment import DETECTED_LABELS, DetectedLabels
from schemas.taxonomy import Severity, normalize_severity
from worker.domain.catalog.search import BadQueryError, parse_query
from worker.domain.catalog.search_filters import narrowed, where_words
from worker.domain.catalog.search_results import compact, shown_parameter, shown_search
from worker.domain.catalog.selection import signal_types_of
from worker.domain.cluster.rendering.compact import render_value
from worker.domain.investigation.toolbox.findings import Finding, ToolProblem
from worker.domain.investigation.toolbox.specs import (
    GetWorkflow,
    ListAvailableActions,
    ListWorkflows,
    SearchWorkflowCatalog,
)
from worker.domain.values.ports import Catalog
from worker.domain.values.tokens import RESULT_TOKENS
from worker.domain.values.workflow_search import Target
from worker.domain.values.workflows import ActionSummary, SelectionContext, Workflow, WorkflowSummary
from worker.domain.verdict.checks.targets import target_part

NO_TARGET = (
    "component and detected labels are not applied yet: call get_resource_context for the affected resource"
)


class CatalogTools:
    """`base` holds the business labels of the request; `target` gives the last target of get_resource_context."""

    def __init__(
        self,
        catalog: Catalog,
        base: SelectionContext,
        target: Callable[[], Target | None],
        redact: Callable[[str], str],
    ) -> None:
        self._catalog, self._base, self._target, self._redact = catalog, base, target, redact

    async def list_available_actions(self, asked: ListAvailableActions) -> Finding:
        """Action types with workflows that fit, and the signal types the catalog knows."""
        context = self._context(asked.signal_type, asked.severity)
        actions = await self._catalog.actions(context)
        everything = await self._catalog.actions(SelectionContext())
        shown: dict[str, Any] = {
            "actions": [_action(action) for action in actions],
            "signal_types_in_catalog": sorted(signal_types_of(everything)),
        }
        if not actions:
            shown["note"] = "no workflow fits; to choose none is right then"
        return self._finding(shown, context)

    async def list_workflows(self, asked: ListWorkflows) -> Finding:
        """One page of workflows of an action type that fit, best first, and what left others out."""
        context = self._context(asked.signal_type, asked.severity)
        page = await self._catalog.workflows(asked.action_type, context, asked.cursor)
        shown: dict[str, Any] = {"workflows": [_summary(found) for found in page.workflows]}
        if page.next_cursor:
            shown["next_cursor"] = page.next_cursor
        if page.excluded:
            shown["left_out_by"] = dict(page.excluded)
        return self._finding(shown, context)

    async def get_workflow(self, asked: GetWorkflow) -> Finding:
        """One workflow with its parameters."""
        context = self._context("", "")
        found = await self._catalog.get(asked.workflow_id, context)
        if found is None:
            raise ToolProblem(
                f"workflow {asked.workflow_id} does not exist or does not fit this incident; "
                "list_workflows shows those that do",
                scope=asked.workflow_id,
            )
        return self._finding(_workflow(found), context)

    async def search_workflow_catalog(self, asked: SearchWorkflowCatalog) -> Finding:
        """Workflows that match a query, best first, with parameters and match quality (fields of ADR-041)."""
        signal_types = signal_types_of(await self._catalog.actions(SelectionContext()))
        target = self._target()
        try:
            query = parse_query(asked.query, signal_types, where_words(self._base, target))
        except BadQueryError as error:
            raise ToolProblem(str(error), scope="query") from None
        query = replace(query, min_confidence=asked.min_confidence, max_results=asked.max_results)
        context, notes = narrowed(with_target(self._base, target), query, asked.filters, asked.custom_labels)
        page = await self._catalog.search(query, context)
        shown = shown_search(query, page, notes, sorted(signal_types))
        return self._finding(shown, query.applied_to(context))

    def _context(self, signal_type: str, severity: str) -> SelectionContext:
        level = ""
        if severity:
            known = normalize_severity(severity)
            if known is None:
                raise ToolProblem(f"severity must be one of {', '.join(Severity)}")
            level = "" if known is Severity.UNKNOWN else known.value
        return with_target(replace(self._base, signal_type=signal_type, severity=level), self._target())

    def _finding(self, shown: dict[str, Any], context: SelectionContext) -> Finding:
        rendered = render_value(shown, RESULT_TOKENS, redact=self._redact, addressable=False)
        return Finding(rendered.body, f"catalog, {_filters(context, self._target())}", rendered.cut)


def with_target(context: SelectionContext, target: Target | None) -> SelectionContext:
    """The context narrowed by what is known of a target: its owner chain and its detected labels."""
    if target is None:
        return context
    return replace(
        context,
        components=tuple((ref.api_version, ref.kind) for ref in target.chain),
        detected_labels=known_labels(target.detected_labels),
    )


def known_labels(labels: DetectedLabels) -> dict[str, str | bool | None]:
    """Values by snake_case name, None where a detection failed."""
    return {name: None if labels.is_unknown(name) else getattr(labels, name) for name in DETECTED_LABELS}


def _filters(context: SelectionContext, target: Target | None) -> str:
    names = (
        "signal_type",
        "severity",
        "environment",
        "priority",
        "risk_tolerance",
        "business_category",
        "cluster",
    )
    applied = [f"{name}={value}" for name in names if (value := getattr(context, name))]
    if target is not None:
        applied.append(f"component={'/'.join(ref.kind for ref in target.chain)}")
    given = f"filters: {', '.join(applied) or 'none'}"
    return given if target is not None else f"{given}; {NO_TARGET}"


def _action(found: ActionSummary) -> dict[str, Any]:
    return compact(
        {"action_type": found.action_type, **asdict(found.text), "workflow_count": found.workflow_count}
    )


def _summary(found: WorkflowSummary) -> dict[str, Any]:
    """Parameters that name the target are left out: code fills them in."""
    parameters = [name for name in found.parameters if target_part(name.rstrip("*")) is None]
    return compact(asdict(found) | {"parameters": parameters})


def _workflow(found: Workflow) -> dict[str, Any]:
    shown = {
        "workflow_id": found.workflow_id,
        "version": found.version,
        "action_type": found.action_type,
        "title": found.title,
        "description": found.description,
        "when_to_use": found.when_to_use,
        "when_not_to_use": found.when_not_to_use,
        "preconditions": found.preconditions,
        "parameters": [shown_parameter(p) for p in found.parameters],
        "labels": {name: list(values) for name, values in found.labels.items()},
        "detected_labels": dict(found.detected_labels),
        "gitops_aware": found.gitops_aware,
        "estimated_downtime_seconds": found.estimated_downtime_seconds,
    }
    return compact(shown)
