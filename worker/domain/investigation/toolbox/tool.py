"""The definition of a tool: its name, description and arguments, its runner, and what its evidence shows.

A tool is one `ToolDef` beside the function that runs it; `tools.TOOLS` lists them all. The model, the
toolbox, other agents (`rca mcp`) and the checks of an answer all use this definition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from schemas.fields import NullIsAbsent
from worker.domain.cluster.events import since_moment
from worker.domain.cluster.history import Lookback
from worker.domain.cluster.kinds import kind_named, split_kind
from worker.domain.untrusted.evidence import EvidenceKind, one_line
from worker.domain.values.conversation import ToolSpec
from worker.domain.values.json_schema import compact_schema
from worker.domain.values.ports import Catalog, Cluster, Metrics
from worker.domain.values.workflow_search import Target
from worker.domain.values.workflows import SelectionContext

RESULT_TOKENS = 1_800
"""Budget of one tool result without its fence (2,000 tokens with it).

Tools render within it; the toolbox cuts what is longer.
"""
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=253)]
Word = Annotated[str, StringConstraints(strip_whitespace=True, max_length=253)]
Expression = Annotated[str, StringConstraints(strip_whitespace=True, max_length=1000)]


@dataclass(slots=True)
class ToolContext:
    """The context of the tools of one investigation.

    `now` is when the signal was received: ages and windows of time are counted from it. `labels` are the
    business labels of the request. `target` is the object of the last get_resource_context. `told_changes` are the changes that the model already knows, in lines and JSON.
    `for_agents`: the tools serve other agents, who state labels with each call and give every parameter of a
    workflow themselves.
    """

    cluster: Cluster
    catalog: Catalog
    now: datetime
    labels: SelectionContext
    lookback: Lookback | None = None
    metrics: Metrics | None = None
    target: Target | None = None
    told_changes: frozenset[str] = frozenset()
    for_agents: bool = False


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The output of a tool, before it is numbered and fenced.

    `scope` names what was actually covered, `cut` what is missing and how to get it. Both may contain
    untrusted text. `target` is the object for the choice of a workflow from now on.
    """

    body: str
    scope: str
    cut: str = ""
    target: Target | None = None


class ToolProblem(Exception):  # noqa: N818 - an answer for the model, not a fault
    """A tool cannot do what was requested. The message says what would work; `scope` names what was tried.

    `passing` means that the same call may work later.
    """

    def __init__(self, message: str, *, scope: str = "", passing: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.scope = scope
        self.passing = passing


@dataclass(frozen=True, slots=True)
class ToolDef:
    """One tool.

    `run` raises ToolProblem, ClusterError, CatalogUnavailable or TimeoutError; anything else is a programming
    error.
    """

    name: str
    description: str
    arguments: type[BaseModel]
    run: Callable[[ToolContext, Any], Awaitable[ToolOutput]]
    shows: EvidenceKind = EvidenceKind.OTHER
    """The kind of its evidence; EvidenceKind says what each kind proves."""
    details: frozenset[str] = frozenset()
    """Arguments that change how much is shown, not what is looked at."""
    uses_target: bool = False
    """True if its answer depends on the target, which a get_resource_context in the same reply may set."""
    served_as: str = ""
    """Its description for other agents; empty if they do not get it."""
    source: str = ""
    """The source that its evidence names; by default, the name of the tool."""
    parameters: Mapping[str, Any] | None = None
    """The JSON Schema of the arguments, if it does not follow from `arguments`."""

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        parameters = compact_schema(self.arguments) if self.parameters is None else self.parameters
        return ToolSpec(self.name, self.description, parameters)


def clamped(low: float, high: float) -> AfterValidator:
    """Replace a number outside of the bounds by the nearer bound."""
    return AfterValidator(lambda number: min(max(number, low), high))


def aliased(*names: str, description: str = "") -> Any:
    """A field that may be given under any of the names."""
    return Field(default="", validation_alias=AliasChoices(*names), description=description or None)


class Arguments(NullIsAbsent):
    """The arguments of a tool.

    Undeclared ones are rejected, because a filter must never be ignored silently.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class OfKind(Arguments):
    """Arguments that name a kind. Short names, plurals and `group/version/Kind` are understood."""

    kind: Name
    namespace: Word = Field(default="", description="required for namespaced kinds")
    api_version: Word = aliased("api_version", "apiVersion", description="if ambiguous")

    @property
    def resolved_kind(self) -> str:
        """The kind as the API spells it."""
        return kind_named(self.kind)

    @property
    def resolved_api_version(self) -> str:
        """The API version that was given, alone or as part of the kind."""
        return self.api_version or split_kind(self.kind)[0]


def argument_problems(model: type[BaseModel], error: ValidationError) -> str:
    """The problems of arguments and the allowed ones, in one line."""
    schema = compact_schema(model)
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


def moment_of(text: str, now: datetime, name: str, *, scope: str = "") -> datetime:
    """The moment that the argument of this name gives, as a duration before now or as a time. Raises ToolProblem."""
    if (found := since_moment(text, now)) is None:
        raise ToolProblem(f"{name} must be like 30m, 2h, 1d or a time like 2026-06-04T19:00:00Z", scope=scope)
    return found
