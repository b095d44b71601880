"""The forms in which workflows are written down, whatever catalog they stand in.

The flat form is one mapping with snake_case names. Kubernaut documents (`apiVersion: kubernaut.ai/v1alpha1`, ADR-043)
hold the same under `spec`, with camelCase names. One set of models reads both.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel

from worker.domain.values.workflows import ParameterType

TYPE_ALIASES = {"int": "integer", "float": "number", "bool": "boolean"}

Name = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]
Text = Annotated[str, StringConstraints(max_length=8192)]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _with_empty_text(labels: Any) -> Any:
    """A label without a value has an empty one, which fits nothing, rather than to fit everything."""
    if not isinstance(labels, dict):
        return labels
    return {name: "" if value is None else value for name, value in labels.items()}


def _as_description(value: Any) -> Any:
    return {"what": value} if isinstance(value, str) else value


def _as_type(value: Any) -> Any:
    word = value.strip().lower() if isinstance(value, str) else value
    return TYPE_ALIASES.get(word, word) if isinstance(word, str) else word


def _both(name: str, *more: str) -> AliasChoices:
    return AliasChoices(name, to_camel(name), *more)


Texts = Annotated[tuple[Text, ...], BeforeValidator(_as_list), Field(min_length=1, max_length=200)]
Labels = Annotated[dict[Name, Texts], BeforeValidator(_with_empty_text)]


class _Part(BaseModel):
    """Unknown names are kept, to be reported. A null is as good as no value, as in the Kubernetes API."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}


class ParameterDocument(_Part):
    """One declared parameter. Defaults and enums are text until the type is known."""

    name: Name = ""
    type: Annotated[ParameterType, BeforeValidator(_as_type)] = ParameterType.STRING
    required: bool = False
    description: Text = ""
    default: Any = None
    enum: tuple[Any, ...] = Field(default=(), max_length=1000)
    minimum: float | None = Field(default=None, allow_inf_nan=False)
    maximum: float | None = Field(default=None, allow_inf_nan=False)
    min_length: int | None = Field(default=None, ge=0, validation_alias=_both("min_length"))
    max_length: int | None = Field(default=None, ge=0, validation_alias=_both("max_length"))
    pattern: Text = ""
    depends_on: tuple[Name, ...] = Field(default=(), validation_alias=_both("depends_on"))
    items: ParameterDocument | None = None


class ExecutionDocument(_Part):
    """How the workflow is run."""

    engine: Text = ""
    bundle: Text = Field(default="", validation_alias=AliasChoices("bundle", "container_image"))
    bundle_digest: Text = Field(default="", validation_alias=_both("bundle_digest"))
    service_account: Text = Field(
        default="", validation_alias=_both("service_account", "serviceAccountName", "service_account_name")
    )
    timeout_seconds: int | None = Field(default=None, ge=0, validation_alias=_both("timeout_seconds"))


class DescriptionDocument(_Part):
    """What a workflow or an action does. The flat form may have one text in its place."""

    what: Text = ""
    when_to_use: Text = Field(default="", validation_alias=_both("when_to_use"))
    when_not_to_use: Text = Field(default="", validation_alias=_both("when_not_to_use"))
    preconditions: Text = ""


Description = Annotated[DescriptionDocument, BeforeValidator(_as_description)]


class WorkflowDocument(_Part):
    """A workflow: the flat document itself, or the `spec` of a Kubernaut one."""

    workflow_id: Name | None = Field(default=None, validation_alias=_both("workflow_id", "workflowID"))
    version: Text = ""
    title: Text = Field(default="", validation_alias=AliasChoices("title", "name", "workflow_name"))
    action_type: Name = Field(validation_alias=_both("action_type"))
    description: Description = DescriptionDocument()
    when_to_use: Text = Field(default="", validation_alias=_both("when_to_use"))
    when_not_to_use: Text = Field(default="", validation_alias=_both("when_not_to_use"))
    preconditions: Text = ""
    labels: Labels = Field(default_factory=dict)
    detected_labels: Annotated[dict[Name, Text], BeforeValidator(_with_empty_text)] = Field(
        default_factory=dict, validation_alias=_both("detected_labels")
    )
    custom_labels: Labels = Field(default_factory=dict, validation_alias=_both("custom_labels"))
    parameters: tuple[ParameterDocument, ...] = Field(default=(), max_length=200)
    execution: ExecutionDocument = ExecutionDocument()
    estimated_downtime_seconds: int | None = Field(
        default=None, ge=0, validation_alias=_both("estimated_downtime_seconds")
    )
    estimated_duration_seconds: int | None = Field(
        default=None, ge=0, validation_alias=_both("estimated_duration_seconds")
    )
    success_rate: float | None = Field(default=None, ge=0, le=1, validation_alias=_both("success_rate"))


class ActionTypeDocument(_Part):
    """The `spec` of a Kubernaut ActionType: what workflows of this type do."""

    name: Text = ""
    description: Description = DescriptionDocument()
