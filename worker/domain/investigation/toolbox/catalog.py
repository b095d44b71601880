"""The tools for choosing a workflow, over the Catalog port.

They form three steps (DD-HAPI-017), or one search (DD-LLM-001).

The model gives signal type and severity. Code fills in the rest: business labels from the request, component
and detected labels from the last get_resource_context.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from schemas.taxonomy import Severity, SignalType, normalize_severity
from worker.domain.catalog.documents import as_list
from worker.domain.catalog.search import FORM, BadQueryError, narrowed, parse_query, where_words
from worker.domain.catalog.selection import signal_types_of
from worker.domain.cluster.rendering.compact import render_value
from worker.domain.investigation.toolbox import tool
from worker.domain.investigation.toolbox.search_results import compact, shown_parameter, shown_search
from worker.domain.values import workflows
from worker.domain.values.json_read import read_json
from worker.domain.values.workflow_search import MAX_RESULTS, MIN_CONFIDENCE, Target
from worker.domain.verdict.checks.facts import label_values
from worker.domain.verdict.checks.targets import acts_on_one_of, target_part

NO_TARGET = (
    "component and detected labels are not applied yet: call get_resource_context for the affected resource"
)
MOST_RESULTS = 20
SUMMARY = (
    "workflow_id", "action_type", "version", "title", "description", "when_to_use", "when_not_to_use", "preconditions",
    "gitops_aware",
)  # fmt: skip
WHOLE = (
    "workflow_id", "version", "action_type", "title", "description", "when_to_use", "when_not_to_use", "preconditions",
)  # fmt: skip
MAX_FILTERS = 20


def _as_object(value: Any) -> Any:
    """Decode an object that a model wrote as JSON text."""
    if not isinstance(value, str):
        return value
    return read_json(value, value) if value.strip() else {}


Values = Annotated[tuple[tool.Word, ...], BeforeValidator(as_list), Field(max_length=MAX_FILTERS)]


LEVELS = [level.value for level in Severity if level is not Severity.UNKNOWN]
Level = Annotated[tool.Word, WithJsonSchema({"type": "string", "enum": LEVELS})]
"""A severity. Aliases are understood; the schema names the levels."""
Share = Annotated[
    float,
    Field(allow_inf_nan=False),
    tool.clamped(0.0, 1.0),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1}),
]
Count = Annotated[
    int,
    tool.clamped(1, MOST_RESULTS),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_RESULTS}),
]


class ListAvailableActions(tool.Arguments):
    """Arguments of list_available_actions."""

    signal_type: tool.Word = ""
    severity: Level = ""


class ListWorkflows(ListAvailableActions):
    """Arguments of list_workflows."""

    action_type: tool.Name
    cursor: tool.Expression = Field(default="", description="next_cursor of the page before")


class GetWorkflow(tool.Arguments):
    """Arguments of get_workflow."""

    workflow_id: tool.Name


class SearchWorkflowCatalog(tool.Arguments):
    """Arguments of search_workflow_catalog.

    The model is not asked for what code knows; what it gives is checked.
    """

    query: Annotated[str, StringConstraints(strip_whitespace=True)] = Field(description=FORM)
    min_confidence: Share = MIN_CONFIDENCE
    max_results: Count = MAX_RESULTS
    filters: SkipJsonSchema[
        Annotated[
            dict[tool.Word, bool | tool.Word | Values],
            BeforeValidator(_as_object),
            Field(max_length=MAX_FILTERS),
        ]
    ] = Field(default_factory=dict)
    custom_labels: SkipJsonSchema[
        Annotated[dict[tool.Word, Values], BeforeValidator(_as_object), Field(max_length=MAX_FILTERS)]
    ] = Field(default_factory=dict)


async def list_available_actions(run: tool.ToolContext, asked: ListAvailableActions) -> tool.ToolOutput:
    """Action types with workflows that fit, and the signal types the catalog knows."""
    context = _context(run, asked.signal_type, asked.severity)
    actions = await run.catalog.actions(context)
    types = signal_types_of(await run.catalog.actions(workflows.SelectionContext()))
    shown: dict[str, Any] = {"actions": [_action(action) for action in actions]}
    if run.for_agents:
        shown["signal_types_in_catalog"] = sorted(types)
    elif more := sorted(types - set(SignalType)):
        shown["more_signal_types"] = more
    if not actions:
        shown["note"] = "no workflow fits: selecting none is the right answer"
    return _output(run, shown, context)


async def list_workflows(run: tool.ToolContext, asked: ListWorkflows) -> tool.ToolOutput:
    """One page of workflows of an action type that fit, best first, and what left others out."""
    context = _context(run, asked.signal_type, asked.severity)
    page = await run.catalog.workflows(asked.action_type, context, asked.cursor)
    shown: dict[str, Any] = {"workflows": [_summary(found) for found in page.workflows]}
    if page.next_cursor:
        shown["next_cursor"] = page.next_cursor
    if page.excluded:
        shown["left_out_by"] = dict(page.excluded)
    return _output(run, shown, context)


async def get_workflow(run: tool.ToolContext, asked: GetWorkflow) -> tool.ToolOutput:
    """One workflow with its parameters."""
    context = _context(run, "", "")
    found = await run.catalog.get(asked.workflow_id, context)
    if found is None:
        raise tool.ToolProblem(
            f"workflow {asked.workflow_id} does not exist or does not fit this incident; "
            "list_workflows shows those that do",
            scope=asked.workflow_id,
        )
    return _output(run, _workflow(run, found), context)


async def search_workflow_catalog(run: tool.ToolContext, asked: SearchWorkflowCatalog) -> tool.ToolOutput:
    """Workflows that match a query, best first, with parameters and match quality (fields of ADR-041)."""
    signal_types = signal_types_of(await run.catalog.actions(workflows.SelectionContext()))
    target = run.target
    try:
        query = parse_query(asked.query, signal_types, where_words(run.labels, target))
    except BadQueryError as error:
        raise tool.ToolProblem(str(error), scope="query") from None
    query = replace(query, min_confidence=asked.min_confidence, max_results=asked.max_results)
    context, notes = narrowed(with_target(run.labels, target), query, asked.filters, asked.custom_labels)
    page = await run.catalog.search(query, context)
    given = [
        replace(m, workflow=replace(m.workflow, parameters=_to_give(run, m.workflow))) for m in page.matches
    ]
    shown = shown_search(query, replace(page, matches=tuple(given)), notes, sorted(signal_types))
    return _output(run, shown, query.applied_to(context))


def _context(run: tool.ToolContext, signal_type: str, severity: str) -> workflows.SelectionContext:
    level = ""
    if severity:
        known = normalize_severity(severity)
        if known is None:
            raise tool.ToolProblem(f"severity must be one of {', '.join(Severity)}")
        level = "" if known is Severity.UNKNOWN else known.value
    return with_target(replace(run.labels, signal_type=signal_type, severity=level), run.target)


def _output(
    run: tool.ToolContext, shown: dict[str, Any], context: workflows.SelectionContext
) -> tool.ToolOutput:
    rendered = render_value(shown, tool.RESULT_TOKENS)
    return tool.ToolOutput(rendered.body, f"catalog, {_filters(context, run)}", rendered.cut)


def with_target(context: workflows.SelectionContext, target: Target | None) -> workflows.SelectionContext:
    """The context narrowed by the owner chain and the detected labels of a target."""
    if target is None:
        return context
    return replace(
        context,
        components=tuple((ref.api_version, ref.kind) for ref in target.chain),
        detected_labels=label_values(target.detected_labels),
    )


def _filters(context: workflows.SelectionContext, run: tool.ToolContext) -> str:
    """The filters that were applied. Those of the request are in the first message, and are not repeated."""
    target, told = run.target, () if run.for_agents else workflows.BUSINESS_LABELS
    names = [name for name in ("signal_type", "severity", *workflows.BUSINESS_LABELS) if name not in told]
    applied = [f"{name}={value}" for name in names if (value := getattr(context, name))]
    if target is not None:
        applied.append(f"component={'/'.join(ref.kind for ref in target.chain)}")
    given = f"filters: {', '.join(applied) or 'none'}"
    return given if target is not None else f"{given}; {NO_TARGET}"


def _action(found: workflows.ActionSummary) -> dict[str, Any]:
    return compact(
        {"action_type": found.action_type, **asdict(found.text), "workflow_count": found.workflow_count}
    )


def _summary(found: workflows.Workflow) -> dict[str, Any]:
    """A workflow in a list.

    Required parameters end with `*`; those that name the target are left out: code fills them in.
    """
    named = [f"{p.name}{'*' if p.required else ''}" for p in found.parameters if target_part(p.name) is None]
    return compact({name: getattr(found, name) for name in SUMMARY} | {"parameters": named})


def _to_give(run: tool.ToolContext, found: workflows.Workflow) -> tuple[workflows.Parameter, ...]:
    """The parameters that have to be given.

    Code fills in those that name the target, unless it is another object.
    """
    own = run.target is None or acts_on_one_of(found, run.target.chain)
    filled = own and not run.for_agents
    return tuple(p for p in found.parameters if not filled or target_part(p.name) is None)


def _workflow(run: tool.ToolContext, found: workflows.Workflow) -> dict[str, Any]:
    shown = {name: getattr(found, name) for name in WHOLE} | {
        "parameters": [shown_parameter(p) for p in _to_give(run, found)],
        "labels": {name: list(values) for name, values in found.labels.items()},
        "detected_labels": dict(found.detected_labels),
        "gitops_aware": found.gitops_aware,
        "estimated_downtime_seconds": found.estimated_downtime_seconds,
    }
    return compact(shown)


GET_WORKFLOW = tool.ToolDef(
    "get_workflow",
    "One workflow: when to use it, parameters with types and limits.",
    GetWorkflow,
    get_workflow,
    uses_target=True,
    served_as="Everything about one remediation workflow: when to use it, parameters with types and limits.",
)
LIST_AVAILABLE_ACTIONS = tool.ToolDef(
    "list_available_actions",
    "Action types with workflows for this incident.",
    ListAvailableActions,
    list_available_actions,
    uses_target=True,
    served_as="Action types that have remediation workflows for an incident. First step of a choice.",
)
LIST_WORKFLOWS = tool.ToolDef(
    "list_workflows",
    "Workflows of one action type that fit, best first. * = required parameter.",
    ListWorkflows,
    list_workflows,
    uses_target=True,
    served_as=(
        "Workflows of one action type that fit the incident, best first. Second step of a choice. * = required parameter."
    ),
)
SEARCH_WORKFLOW_CATALOG = tool.ToolDef(
    "search_workflow_catalog",
    (
        "Workflows of all action types that fit, with parameters. confidence is how well they match, not how sure the "
        "cause is."
    ),
    SearchWorkflowCatalog,
    search_workflow_catalog,
    uses_target=True,
    served_as=(
        "Remediation workflows of all action types that fit, with parameters. confidence is match quality: how well "
        "labels and text match, not how sure a cause is."
    ),
)
