"""Remediation workflows as the catalog offers them, and the context in which they are offered.

Label and parameter names are those of DD-LLM-001 and the Kubernaut workflow schema (ADR-043). Names of
detected labels are in snake_case here, whatever spelling a document or a message has.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.taxonomy import normalize_risk

WILDCARD = "*"
WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
LABELS = (
    "signal_type",
    "severity",
    "component",
    "environment",
    "priority",
    "risk_tolerance",
    "business_category",
    "cluster",
)
"""Labels a workflow may declare under `labels`. Undeclared ones constrain nothing."""
BUSINESS_LABELS = ("environment", "priority", "risk_tolerance", "business_category", "cluster")
"""Labels that come only from the request (DD-LLM-001, section 6)."""


class ParameterType(enum.StrEnum):
    """The type of a value. Documents may write `float` for number, `int` for integer, `bool` for boolean."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter a workflow declares. `pattern` is searched for, not anchored (Rust regex syntax)."""

    name: str
    type: ParameterType = ParameterType.STRING
    required: bool = False
    description: str = ""
    default: Any = None
    enum: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str = ""
    depends_on: tuple[str, ...] = ()
    items: Parameter | None = None


@dataclass(frozen=True, slots=True)
class Workflow:
    """One version of a remediation workflow.

    `labels` holds the values of those LABELS that it declares, `detected_labels` strings or True,
    `custom_labels` values by subdomain. `container_image` is the execution bundle, `success_rate` is 0 to 1.
    `secrets` and `config_maps` are names of objects that must exist where it runs. Numbers that the catalog
    does not have are None.
    """

    workflow_id: str
    action_type: str
    version: str = ""
    title: str = ""
    description: str = ""
    when_to_use: str = ""
    when_not_to_use: str = ""
    preconditions: str = ""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    detected_labels: Mapping[str, str | bool] = field(default_factory=dict)
    custom_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parameters: tuple[Parameter, ...] = ()
    container_image: str = ""
    engine: str = ""
    service_account: str = ""
    secrets: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    estimated_downtime_seconds: int | None = None
    estimated_duration_seconds: int | None = None
    success_rate: float | None = None
    timeout_seconds: int | None = None

    @property
    def gitops_aware(self) -> bool:
        """True if the workflow takes account of a GitOps tool, which would revert the changes of others."""
        declared = self.custom_labels.get("gitops_aware", ())
        return "true" in {v.lower() for v in declared} or self.detected_labels.get("gitops_managed") is True

    @property
    def risk(self) -> Literal["", "low", "medium", "high"]:
        """`low`, `medium` or `high`, as declared under `custom_labels`; empty without a declaration."""
        declared = self.custom_labels.get("risk", ())
        return normalize_risk(declared[0]) if len(declared) == 1 else ""

    def parameter(self, name: str) -> Parameter | None:
        """The declared parameter of exactly this name."""
        return next((p for p in self.parameters if p.name == name), None)


@dataclass(frozen=True, slots=True)
class ActionText:
    """The description of a type of action."""

    description: str = ""
    when_to_use: str = ""
    when_not_to_use: str = ""


@dataclass(frozen=True, slots=True)
class ActionSummary:
    """An action type, the number of its workflows that fit the context, and the signal types they declare."""

    action_type: str
    text: ActionText = ActionText()
    workflow_count: int = 0
    signal_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkflowPage:
    """One page, best fit first. `next_cursor` is opaque and empty on the last page.

    `excluded` says how many workflows of the action type each label excludes.
    """

    workflows: tuple[Workflow, ...]
    next_cursor: str = ""
    excluded: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SelectionContext:
    """The labels of an incident, which workflows are matched against.

    An empty string or sequence constrains nothing.

    `components` are (api_version, kind) of the target and its owner chain; an api_version may be empty. A
    detected label of None is unknown: its detection failed.
    """

    environment: str = ""
    priority: str = ""
    severity: str = ""
    signal_type: str = ""
    risk_tolerance: str = ""
    business_category: str = ""
    cluster: str = ""
    components: Sequence[tuple[str, str]] = ()
    detected_labels: Mapping[str, str | bool | None] = field(default_factory=dict)
    custom_labels: Mapping[str, Sequence[str]] = field(default_factory=dict)


def action_name(action_type: str) -> str:
    """`RollbackDeployment` and `rollback-deployment` as `rollback_deployment`, `PatchHPA` as `patch_hpa`."""
    return WORD_BORDER.sub("_", action_type.strip()).replace("-", "_").replace(" ", "_").lower()
