"""The tools the model sees: names, descriptions, arguments. Read-only, the same for incident and recovery.

The list is constant and sorted by name, so that it can stand first in a cached prompt. Argument names, types and
descriptions are kept short: together the tools cost at most 1,300 tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from worker.domain.catalog.search import FORM
from worker.domain.cluster.kinds import canonical_kind, split_kind
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.conversation import ToolSpec
from worker.domain.values.workflow_search import MAX_RESULTS, MIN_CONFIDENCE

MAX_TAIL_LINES = 2000
DEFAULT_TAIL_LINES = 200
MOST_RESULTS = 20
MAX_FILTERS = 20

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=253)]
Word = Annotated[str, StringConstraints(strip_whitespace=True, max_length=253)]
Expression = Annotated[str, StringConstraints(strip_whitespace=True, max_length=1000)]


def _within_bounds(lines: int) -> int:
    return min(max(lines, 1), MAX_TAIL_LINES)


def _as_share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _as_count(results: int) -> int:
    return min(max(results, 1), MOST_RESULTS)


def _as_object(value: Any) -> Any:
    """Models write objects as JSON text now and then, and one value in place of a list of one."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else {}
    except (ValueError, RecursionError):
        return value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _aliased(*names: str, description: str = "", default: Any = "") -> Any:
    return Field(default=default, validation_alias=AliasChoices(*names), description=description)


class Arguments(BaseModel):
    """Base of all arguments. What is not declared is refused: a filter must never be ignored silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, Mapping) else data


class OfKind(Arguments):
    """Arguments that name a kind. Short names, plurals and `group/version/Kind` are understood."""

    kind: Name
    namespace: Word = ""
    api_version: Word = _aliased("api_version", "apiVersion", description="only if the kind is ambiguous")

    @property
    def resolved_kind(self) -> str:
        """The kind as the API spells it."""
        return canonical_kind(split_kind(self.kind)[1])

    @property
    def resolved_api_version(self) -> str:
        """The API version that was given, alone or as part of the kind."""
        return self.api_version or split_kind(self.kind)[0]


class GetResource(OfKind):
    """Arguments of get_resource."""

    name: Name
    path: Expression = Field(default="", description="part to show, e.g. spec.template.spec.containers")


class ListResources(OfKind):
    """Arguments of list_resources."""

    namespace: Word = Field(default="", description="empty: all namespaces")
    label_selector: Expression = _aliased("label_selector", "labelSelector")
    field_selector: Expression = _aliased(
        "field_selector", "fieldSelector", description="e.g. spec.nodeName=n1"
    )
    only_unhealthy: bool = False


class GetEvents(Arguments):
    """Arguments of get_events."""

    kind: Word = ""
    name: Word = ""
    namespace: Word = Field(default="", description="empty: all namespaces")
    since: Word = Field(default="", description="e.g. 30m, 2h")

    @property
    def resolved_kind(self) -> str:
        """The kind as the API spells it, empty for any."""
        return canonical_kind(split_kind(self.kind)[1]) if self.kind else ""


class GetPodLogs(Arguments):
    """Arguments of get_pod_logs."""

    pod: Name = Field(validation_alias=AliasChoices("pod", "name", "pod_name"))
    namespace: Name
    container: Word = Field(default="", description="empty: the failing one")
    previous: bool = Field(default=False, description="log of the run before the last restart")
    tail_lines: Annotated[int, AfterValidator(_within_bounds)] = DEFAULT_TAIL_LINES
    grep: Expression = Field(default="", description="keep lines with one of a|b|c (plain text)")


class GetResourceContext(OfKind):
    """Arguments of get_resource_context."""

    name: Name


class ListAvailableActions(Arguments):
    """Arguments of list_available_actions."""

    signal_type: Word = ""
    severity: Word = Field(default="", description="critical, high, medium, low")


class ListWorkflows(ListAvailableActions):
    """Arguments of list_workflows."""

    action_type: Name
    cursor: Expression = Field(default="", description="next_cursor of the page before")


class GetWorkflow(Arguments):
    """Arguments of get_workflow."""

    workflow_id: Name


Values = Annotated[tuple[Word, ...], BeforeValidator(_as_list), Field(max_length=MAX_FILTERS)]


class SearchWorkflowCatalog(Arguments):
    """Arguments of search_workflow_catalog."""

    query: Annotated[str, StringConstraints(strip_whitespace=True)] = Field(description=FORM)
    min_confidence: Annotated[float, Field(allow_inf_nan=False), AfterValidator(_as_share)] = MIN_CONFIDENCE
    max_results: Annotated[int, AfterValidator(_as_count)] = MAX_RESULTS
    filters: Annotated[
        dict[Word, bool | Word | Values], BeforeValidator(_as_object), Field(max_length=MAX_FILTERS)
    ] = Field(default_factory=dict, description="those of the first message")
    custom_labels: Annotated[
        dict[Word, Values], BeforeValidator(_as_object), Field(max_length=MAX_FILTERS)
    ] = Field(default_factory=dict)


ARGUMENTS: Mapping[str, type[Arguments]] = {
    "get_events": GetEvents,
    "get_pod_logs": GetPodLogs,
    "get_resource": GetResource,
    "get_resource_context": GetResourceContext,
    "get_workflow": GetWorkflow,
    "list_available_actions": ListAvailableActions,
    "list_resources": ListResources,
    "list_workflows": ListWorkflows,
    "search_workflow_catalog": SearchWorkflowCatalog,
}
DESCRIPTIONS: Mapping[str, str] = {
    "get_events": "Events, newest last, of one object (and what belongs to it), a namespace or the cluster.",
    "get_pod_logs": "End of a container's log. For crashes read previous=true first.",
    "get_resource": "One object as JSON: spec, status, conditions. ConfigMap values are shown, Secrets never.",
    "get_resource_context": (
        "Owner chain, detected labels and past remediations of the object you hold responsible. Call it after the root"
        " cause and before choosing a workflow: it sets the label filters."
    ),
    "get_workflow": "Everything about one workflow: when to use it, parameters with types and limits.",
    "list_available_actions": "Action types that have workflows for this incident. First step of the choice.",
    "list_resources": "Objects of one kind as a table, failing ones first. Any kind, also custom resources.",
    "list_workflows": "Workflows of one action type that fit the incident, best first. Second step of the choice. * = required.",
    "search_workflow_catalog": (
        "Workflows of all action types that fit, with parameters. confidence is match quality: how well labels and text"
        " match, not how sure the cause is."
    ),
}


def tool_specs(extra: Iterable[ToolSpec] = ()) -> tuple[ToolSpec, ...]:
    """All tools sorted by name. `extra` are tools that depend on the configuration."""
    own = [ToolSpec(name, DESCRIPTIONS[name], json_schema(ARGUMENTS[name])) for name in ARGUMENTS]
    return tuple(sorted([*own, *extra], key=lambda spec: spec.name))


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """A compact JSON Schema of arguments: types, limits and descriptions, without titles, defaults and length limits."""
    full = model.model_json_schema(by_alias=False)
    properties = {name: _property(value) for name, value in full.get("properties", {}).items()}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required := full.get("required"):
        schema["required"] = required
    return schema


def _property(value: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("type", "description", "enum", "items")
    return {key: value[key] for key in kept if value.get(key)}


def argument_problems(model: type[BaseModel], error: ValidationError) -> str:
    """What is wrong with arguments and what is allowed, in one line."""
    schema = json_schema(model)
    required = set(schema.get("required", ()))
    allowed = ", ".join(
        f"{name}{'' if name in required else '?'}: {prop.get('type', 'any')}"
        for name, prop in schema["properties"].items()
    )
    wrong = "; ".join(
        f"{one_line('.'.join(str(part) for part in found['loc']), 60)}: {found['msg']}"
        for found in error.errors()[:5]
    )
    return f"bad arguments: {wrong}. Allowed: {allowed}"
