"""Tools for other agents: the workflow catalog, and the context of a resource.

The same code serves the worker's own model.

In an investigation of the worker, business labels come from the request, and component and detected labels
from the last get_resource_context. Other agents state them with each call. No state is kept between calls, so
agents cannot disturb each other. The choice of an agent is not checked here; whoever runs the agent must
check it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from schemas.taxonomy import UNKNOWN_ENVIRONMENT, Priority
from worker.domain.catalog.selection import label_name
from worker.domain.cluster.history import Lookback
from worker.domain.cluster.kinds import is_secret
from worker.domain.investigation.toolbox.catalog import NO_TARGET, SearchWorkflowCatalog
from worker.domain.investigation.toolbox.cluster import GET_RESOURCE_CONTEXT
from worker.domain.investigation.toolbox.tool import Arguments, ToolContext, ToolDef, Word, argument_problems
from worker.domain.investigation.toolbox.toolbox import Toolbox
from worker.domain.investigation.toolbox.tools import TOOLS
from worker.domain.untrusted.evidence import Evidence, EvidenceLog, make_visible
from worker.domain.values.conversation import ToolCall, ToolSpec
from worker.domain.values.json_schema import compact_schema
from worker.domain.values.ports import Catalog, Clock, Cluster, History
from worker.domain.values.workflows import BUSINESS_LABELS, SelectionContext

SERVED = {tool.name: tool for tool in TOOLS if tool.served_as}
NOT_NARROWED = "component and detected labels are not applied: name the affected object by resource_kind and resource_name"
NO_SECRETS = "Secrets are never read; look at the objects that use them"
FILTERS = "labels of the incident by name; the same as arguments of their own"


def _environment(value: str) -> str:
    return "" if value.lower() == UNKNOWN_ENVIRONMENT else value.lower()


def _priority(value: str) -> str:
    if value and value.upper() not in set(Priority):
        raise ValueError(f"must be one of {', '.join(Priority)}")
    return value.upper()


class Circumstances(Arguments):
    """Facts about the incident that a caller may add to the arguments of a catalog tool.

    Missing ones constrain nothing.
    """

    environment: Annotated[Word, AfterValidator(_environment)] = Field(
        default="", description="e.g. production"
    )
    priority: Annotated[Word, AfterValidator(_priority)] = Field(default="", description="P0 to P3")
    risk_tolerance: Word = Field(default="", description="e.g. low")
    business_category: Word = ""
    cluster: Word = ""
    resource_kind: Word = Field(
        default="", description="the affected object: its owners and detected labels narrow the choice"
    )
    resource_name: Word = ""
    resource_namespace: Word = ""
    resource_api_version: Word = Field(default="", description="only if the kind is ambiguous")

    @model_validator(mode="after")
    def _names_an_object(self) -> Self:
        if bool(self.resource_kind) is not bool(self.resource_name):
            raise ValueError("resource_kind and resource_name go together")
        return self

    @property
    def context(self) -> SelectionContext:
        """The labels that filter."""
        return SelectionContext(**{label: getattr(self, label) for label in BUSINESS_LABELS})

    @property
    def look_up(self) -> ToolCall | None:
        """The call that makes the affected object the target; None if no object was named."""
        if not self.resource_name:
            return None
        parts = ("kind", "name", "namespace", "api_version")
        return ToolCall(
            "context", GET_RESOURCE_CONTEXT.name, {part: getattr(self, f"resource_{part}") for part in parts}
        )


CIRCUMSTANCES = frozenset(Circumstances.model_fields)


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """`body` is JSON unless it was cut or begins with `error: `.

    `note` says what was covered and what was left out.
    """

    body: str
    note: str = ""
    ok: bool = True


class ServedTools:
    """Answers each call independently of all others. Without a `history`, past remediations are unknown."""

    def __init__(self, cluster: Cluster, catalog: Catalog, clock: Clock, history: History | None) -> None:
        self._cluster, self._catalog, self._clock, self._history = cluster, catalog, clock, history

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools, sorted by name."""
        return tuple(ToolSpec(tool.name, tool.served_as, _parameters(tool)) for tool in SERVED.values())

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ServedAnswer:
        """Call a tool. Errors are answers too: it never raises for the outside world."""
        if (tool := SERVED.get(name)) is None:
            return ServedAnswer(f"error: unknown tool; there are: {', '.join(SERVED)}", ok=False)
        if not tool.uses_target and _of_secret(arguments):
            return ServedAnswer(f"error: {NO_SECRETS}", ok=False)
        rest = {k: v for k, v in arguments.items() if not tool.uses_target or k not in CIRCUMSTANCES}
        try:
            said = _circumstances(arguments) if tool.uses_target else Circumstances()
        except ValidationError as error:
            return ServedAnswer(f"error: {argument_problems(Circumstances, error)}", ok=False)
        evidence = EvidenceLog()
        toolbox = self._toolbox(evidence, said.context)
        if said.look_up and not (await toolbox.run(said.look_up)).ok:
            return _served(evidence.items[-1])
        await toolbox.run(ToolCall("call", name, rest))
        return _served(evidence.items[-1])

    def _toolbox(self, evidence: EvidenceLog, labels: SelectionContext) -> Toolbox:
        now = self._clock.now()
        lookback = Lookback(self._history, self._cluster, now) if self._history else None
        context = ToolContext(self._cluster, self._catalog, now, labels, lookback, for_agents=True)
        return Toolbox(tuple(SERVED.values()), context, evidence, fence_token="")


def _of_secret(arguments: Mapping[str, Any]) -> bool:
    """True if the arguments name a Secret.

    Its context would be empty, because nothing about a Secret is read, not even its existence. Only the
    worker's own model may name a missing Secret as the target.
    """
    kind = arguments.get("kind")
    return isinstance(kind, str) and is_secret(kind)


def _parameters(tool: ToolDef) -> Mapping[str, Any]:
    """The schema of the tool's own arguments and, for tools that choose workflows, of the circumstances.

    Other arguments are rejected.
    """
    own = compact_schema(tool.arguments)
    properties = own["properties"]
    if tool.uses_target:
        properties = {**properties, **compact_schema(Circumstances)["properties"]}
    if issubclass(tool.arguments, SearchWorkflowCatalog):
        custom = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}
        filters = {"type": "object", "description": FILTERS}
        properties = {**properties, "filters": filters, "custom_labels": custom}
    return {**own, "properties": properties, "additionalProperties": False}


def _circumstances(arguments: Mapping[str, Any]) -> Circumstances:
    """The labels of the incident.

    They are arguments of their own, or else among the `filters` of a search (the form of DD-LLM-001).
    """
    filters = arguments.get("filters")
    among = {label_name(k): v for k, v in filters.items()} if isinstance(filters, Mapping) else {}
    said = {label: among[label] for label in BUSINESS_LABELS if isinstance(among.get(label), str)}
    return Circumstances.model_validate(
        {**said, **{k: v for k, v in arguments.items() if k in CIRCUMSTANCES}}
    )


def _served(item: Evidence) -> ServedAnswer:
    scope = item.scope.replace(NO_TARGET, NOT_NARROWED)
    note = "; ".join(part for part in (scope, f"cut: {item.cut}" if item.cut else "") if part)
    return ServedAnswer(make_visible(item.body), make_visible(note), item.ok)
