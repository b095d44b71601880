"""The forms in which workflows are written in any catalog, and the workflows that are built from them.

The flat form is one mapping with snake_case names. Kubernaut documents (`apiVersion: kubernaut.ai/v1alpha1`,
ADR-043) hold the same under `spec`, with camelCase names. One set of models reads both. Building a workflow
normalizes names, types and labels, and checks what types cannot express.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from pydantic import AliasChoices, AliasGenerator, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from schemas.enrichment import snake_case
from schemas.fields import NullIsAbsent
from worker.domain.catalog.parameter_values import BadValueError, check_value, pattern_error
from worker.domain.catalog.selection import label_name
from worker.domain.values.workflows import LABELS, ActionText, Parameter, ParameterType, Workflow

TYPE_ALIASES = {"int": "integer", "float": "number", "bool": "boolean"}

Name = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]
Text = Annotated[str, StringConstraints(max_length=8192)]


def as_list(value: Any) -> Any:
    """Make a list of a text that was written in place of a list of one."""
    return [value] if isinstance(value, str) else value


def _with_empty_text(labels: Any) -> Any:
    """The labels, with an empty text for a null.

    An empty text matches nothing, whereas an absent label would match everything.
    """
    if not isinstance(labels, dict):
        return labels
    return {name: "" if value is None else value for name, value in labels.items()}


def _as_description(value: Any) -> Any:
    return {"what": value} if isinstance(value, str) else value


def _as_type(value: Any) -> Any:
    word = value.strip().lower() if isinstance(value, str) else value
    return TYPE_ALIASES.get(word, word) if isinstance(word, str) else word


def _both(name: str) -> AliasChoices:
    return AliasChoices(name, to_camel(name))


Texts = Annotated[tuple[Text, ...], BeforeValidator(as_list), Field(min_length=1, max_length=200)]
Labels = Annotated[dict[Name, Texts], BeforeValidator(_with_empty_text)]


class DocumentPart(NullIsAbsent):
    """Fields in either spelling.

    Unknown ones are kept, to be reported. A null counts as absent, as in the Kubernetes API.
    """

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        hide_input_in_errors=True,
        alias_generator=AliasGenerator(validation_alias=_both),
    )


class ParameterDocument(DocumentPart):
    """One declared parameter. Defaults and enums are converted to the type when the workflow is built."""

    name: Name = ""
    type: Annotated[ParameterType, BeforeValidator(_as_type)] = ParameterType.STRING
    required: bool = False
    description: Text = ""
    default: Any = None
    enum: tuple[Any, ...] = Field(default=(), max_length=1000)
    minimum: float | None = Field(default=None, allow_inf_nan=False)
    maximum: float | None = Field(default=None, allow_inf_nan=False)
    min_length: int | None = Field(default=None, ge=0)
    max_length: int | None = Field(default=None, ge=0)
    pattern: Text = ""
    depends_on: tuple[Name, ...] = ()
    items: ParameterDocument | None = None


class ExecutionDocument(DocumentPart):
    """The execution of the workflow."""

    engine: Text = ""
    bundle: Text = Field(default="", validation_alias=AliasChoices("bundle", "container_image"))
    bundle_digest: Text = ""
    service_account: Text = Field(
        default="",
        validation_alias=AliasChoices(
            "service_account", "serviceAccount", "serviceAccountName", "service_account_name"
        ),
    )
    timeout_seconds: int | None = Field(default=None, ge=0)


class ObjectDocument(DocumentPart):
    """An object that a workflow needs."""

    name: Name


def _as_objects(value: Any) -> Any:
    return (
        [{"name": item} if isinstance(item, str) else item for item in value]
        if isinstance(value, list)
        else value
    )


Objects = Annotated[tuple[ObjectDocument, ...], BeforeValidator(_as_objects), Field(max_length=200)]


class DependenciesDocument(DocumentPart):
    """Objects that must exist in the namespace in which the workflow runs (DD-WE-006)."""

    secrets: Objects = ()
    config_maps: Objects = ()


class DescriptionDocument(DocumentPart):
    """What a workflow or an action does. In the flat form it may be a single text."""

    what: Text = ""
    when_to_use: Text = ""
    when_not_to_use: Text = ""
    preconditions: Text = ""


Description = Annotated[DescriptionDocument, BeforeValidator(_as_description)]


class WorkflowDocument(DocumentPart):
    """A workflow: the flat document itself, or the `spec` of a Kubernaut one."""

    workflow_id: Name | None = Field(
        default=None, validation_alias=AliasChoices("workflow_id", "workflowId", "workflowID")
    )
    version: Text = ""
    title: Text = Field(default="", validation_alias=AliasChoices("title", "name", "workflow_name"))
    action_type: Name
    description: Description = DescriptionDocument()
    when_to_use: Text = ""
    when_not_to_use: Text = ""
    preconditions: Text = ""
    labels: Labels = Field(default_factory=dict)
    detected_labels: Annotated[dict[Name, Text], BeforeValidator(_with_empty_text)] = Field(
        default_factory=dict
    )
    custom_labels: Labels = Field(default_factory=dict)
    parameters: tuple[ParameterDocument, ...] = Field(default=(), max_length=200)
    execution: ExecutionDocument = ExecutionDocument()
    dependencies: DependenciesDocument = DependenciesDocument()
    estimated_downtime_seconds: int | None = Field(default=None, ge=0)
    estimated_duration_seconds: int | None = Field(default=None, ge=0)
    success_rate: float | None = Field(default=None, ge=0, le=1)


class ActionTypeDocument(DocumentPart):
    """The `spec` of a Kubernaut ActionType: what workflows of this type do."""

    name: Text = ""
    description: Description = DescriptionDocument()


DESCRIPTION = re.compile(r"(?P<signal>[^\s:]{1,128}) (?P<severity>[A-Za-z]{1,20}): \S")
"""`<signal_type> <severity>: <what it does>`, the form that searches expect (DD-LLM-001, section 8.2)."""
FLAGS = {"true": True, "false": False}
SAME_FIELDS = ParameterDocument.model_fields.keys() - {"description", "default", "enum", "items"}
"""Fields of a parameter that a workflow has as its document has them."""

Location = tuple[str | int, ...]


class Flaw(NamedTuple):
    """An error in a document, and its location."""

    at: Location
    message: str


def build_workflow(written: WorkflowDocument, workflow_id: str, title: str) -> tuple[Workflow, list[Flaw]]:
    """The workflow, and the flaws of its document.

    `workflow_id` and `title` are used when the document has none.
    """
    labels, other_labels = _labels(written)
    parameters, flaws = _parameters(written.parameters, ("parameters",))
    about, run = written.description, written.execution
    workflow = Workflow(
        workflow_id=written.workflow_id or workflow_id,
        action_type=written.action_type,
        version=written.version,
        title=written.title or title,
        description=one_paragraph(about.what),
        when_to_use=one_paragraph(about.when_to_use or written.when_to_use),
        when_not_to_use=one_paragraph(about.when_not_to_use or written.when_not_to_use),
        preconditions=one_paragraph(about.preconditions or written.preconditions),
        labels=labels,
        detected_labels={
            snake_case(label): FLAGS.get(value.lower(), value)
            for label, value in written.detected_labels.items()
        },
        custom_labels={**other_labels, **written.custom_labels},
        parameters=parameters,
        container_image=run.bundle
        if "@" in run.bundle
        else "@".join(filter(None, (run.bundle, run.bundle_digest))),
        engine=run.engine,
        service_account=run.service_account,
        secrets=tuple(needed.name for needed in written.dependencies.secrets),
        config_maps=tuple(needed.name for needed in written.dependencies.config_maps),
        estimated_downtime_seconds=written.estimated_downtime_seconds,
        estimated_duration_seconds=written.estimated_duration_seconds,
        success_rate=written.success_rate,
        timeout_seconds=run.timeout_seconds,
    )
    return workflow, flaws


def action_text(about: DescriptionDocument) -> ActionText:
    """The texts of a catalog about a type of action."""
    return ActionText(*map(one_paragraph, (about.what, about.when_to_use, about.when_not_to_use)))


def one_paragraph(text: str) -> str:
    """The text in one line, with single spaces."""
    return " ".join(text.split())


def _labels(written: WorkflowDocument) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Labels that select workflows, and other labels, which only rank as custom labels do."""
    matched: dict[str, tuple[str, ...]] = {}
    others: dict[str, tuple[str, ...]] = {}
    for name, values in written.labels.items():
        stripped = tuple(v.strip() for v in values)
        if label_name(name) in LABELS:
            matched[label_name(name)] = stripped
        else:
            others[name] = stripped
    return matched, others


def _parameters(
    written: tuple[ParameterDocument, ...], at: Location
) -> tuple[tuple[Parameter, ...], list[Flaw]]:
    found: list[Parameter] = []
    flaws: list[Flaw] = []
    names = [p.name for p in written]
    for number, parameter in enumerate(written):
        here = (*at, number)
        if not parameter.name:
            flaws.append(Flaw(here, "a parameter requires a name"))
        if parameter.name in names[:number]:
            flaws.append(Flaw((*here, "name"), f"{parameter.name} is declared twice"))
        flaws += [
            Flaw((*here, "depends_on"), f"{other} is not declared")
            for other in parameter.depends_on
            if other not in names
        ]
        built, more = _parameter(parameter, here)
        found.append(built)
        flaws += more
    return tuple(found), flaws


def _parameter(written: ParameterDocument, at: Location) -> tuple[Parameter, list[Flaw]]:
    flaws = list(_bound_flaws(written, at))
    items = None
    if written.items is not None:
        items, more = _parameter(written.items, (*at, "items"))
        flaws += more
    same: dict[str, Any] = {name: getattr(written, name) for name in SAME_FIELDS}
    plain = Parameter(**same, description=one_paragraph(written.description), items=items)
    if flaws:
        return plain, flaws
    enum: list[Any] = []
    for number, value in enumerate(written.enum):
        try:
            enum.append(check_value(plain, value))
        except BadValueError as error:
            flaws.append(Flaw((*at, "enum", number), str(error)))
    parameter = replace(plain, enum=tuple(enum))
    if written.default is None or flaws:
        return parameter, flaws
    try:
        return replace(parameter, default=check_value(parameter, written.default)), []
    except BadValueError as error:
        return parameter, [Flaw((*at, "default"), str(error))]


def _bound_flaws(written: ParameterDocument, at: Location) -> Iterator[Flaw]:
    if written.pattern and (refused := pattern_error(written.pattern)):
        yield Flaw(
            (*at, "pattern"), f"not a regular expression that the engine accepts (Rust syntax): {refused}"
        )
    bounds = ((written.minimum, written.maximum), (written.min_length, written.max_length))
    if any(low is not None and high is not None and low > high for low, high in bounds):
        yield Flaw(at, "the minimum is greater than the maximum")
    if written.items is not None and written.type is not ParameterType.ARRAY:
        yield Flaw((*at, "items"), "only a parameter of type array has items")
