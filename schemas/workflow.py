"""Remediation workflows in a result.

What the catalog knows about a workflow comes from the catalog, never from the model.
"""

from __future__ import annotations

from pydantic import AliasChoices, Field, JsonValue

from schemas.fields import Count, Fraction, Message, Needed, Text
from schemas.taxonomy import EstimatedRisk


class RequiredObject(Message):
    """An object that must exist in the namespace in which the workflow runs."""

    name: Needed
    """Name of the object."""


class WorkflowDependencies(Message):
    """What must exist in the namespace in which the workflow runs (DD-WE-006)."""

    secrets: tuple[RequiredObject, ...] = ()
    """Secrets that must exist."""
    config_maps: tuple[RequiredObject, ...] = Field(
        default=(),
        validation_alias=AliasChoices("configMaps", "config_maps"),
        serialization_alias="configMaps",
    )
    """ConfigMaps that must exist."""


class SelectedWorkflow(Message):
    """The remediation that was chosen, with everything that an executor needs to know about it."""

    workflow_id: Needed
    """Id of the workflow in the catalog."""
    version: Text = ""
    """Version, from the catalog."""
    title: Text = ""
    """Human-readable name, from the catalog."""
    action_type: Text = ""
    """Action type, from the catalog."""
    container_image: Text = ""
    """Image or bundle, from the catalog."""
    execution_bundle: Text = ""
    """The same as `container_image`, under the name that Kubernaut uses."""
    execution_bundle_digest: Text = ""
    """Digest of the bundle (`sha256:...`), from the catalog; empty if the catalog has none."""
    execution_engine: Text = ""
    """The engine that runs the workflow, such as `tekton` or `job`, from the catalog."""
    service_account_name: Text = ""
    """ServiceAccount under which the workflow runs, from the catalog; empty for the executor's default."""
    dependencies: WorkflowDependencies = WorkflowDependencies()
    """Objects that must exist in the namespace in which the workflow runs, from the catalog."""
    confidence: Fraction
    """The model's own confidence, 0 to 1."""
    rationale: Text = ""
    """Why the model chose this workflow."""
    estimated_risk: EstimatedRisk = ""
    """The risk that the model estimates: `low`, `medium` or `high`; empty if it gave none."""
    declared_risk: EstimatedRisk = ""
    """The risk that the catalog declares: `low`, `medium` or `high`; empty if it declares none."""
    estimated_downtime_seconds: Count | None = None
    """Expected downtime in seconds, from the catalog, else from the model; null if unknown."""
    impact_on_dependencies: Text = ""
    """What the model expects for the services that depend on this one; may be empty."""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Validated parameters: only declared ones, with the declared types."""


class AlternativeWorkflow(Message):
    """Another workflow that was considered: context for a human, never a fallback."""

    workflow_id: Needed
    """Id of the workflow in the catalog."""
    confidence: Fraction | None = None
    """The model's own confidence, 0 to 1, if it gave one."""
    rationale: Text = ""
    """Why it is only an alternative."""
