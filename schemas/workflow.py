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
    """Its name."""


class WorkflowDependencies(Message):
    """What must exist in the namespace in which the workflow runs (DD-WE-006)."""

    secrets: tuple[RequiredObject, ...] = ()
    """Secrets."""
    config_maps: tuple[RequiredObject, ...] = Field(
        default=(),
        validation_alias=AliasChoices("configMaps", "config_maps"),
        serialization_alias="configMaps",
    )
    """ConfigMaps."""


class SelectedWorkflow(Message):
    """The remediation that was chosen, with everything that an executor needs to know about it."""

    workflow_id: Needed
    """Id in the catalog."""
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
    """Digest of the bundle (`sha256:...`), from the catalog; empty when the catalog has none."""
    execution_engine: Text = ""
    """What runs it, such as `tekton` or `job`, from the catalog."""
    service_account_name: Text = ""
    """ServiceAccount under which it runs, from the catalog; empty for the executor's default."""
    dependencies: WorkflowDependencies = WorkflowDependencies()
    """What must exist where it runs, from the catalog."""
    confidence: Fraction
    """The model's own confidence, 0 to 1."""
    rationale: Text = ""
    """Why this one."""
    estimated_risk: EstimatedRisk = ""
    """`low`, `medium` or `high`; empty when the model gave none."""
    declared_risk: EstimatedRisk = ""
    """The same, as the catalog declares it; empty when it declares none."""
    estimated_downtime_seconds: Count | None = None
    """From the catalog, else from the model; None when not known."""
    impact_on_dependencies: Text = ""
    """What the model expects for the services that depend on this one; empty when it said nothing."""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Validated parameters: only declared ones, with the declared types."""


class AlternativeWorkflow(Message):
    """Another workflow that was considered: context for a human, never a fallback."""

    workflow_id: Needed
    """Id in the catalog."""
    confidence: Fraction | None = None
    """The model's own confidence, if it gave one."""
    rationale: Text = ""
    """Why it is only an alternative."""
