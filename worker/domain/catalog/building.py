"""From a document to a workflow: names, types and labels in one spelling, and what a type cannot say checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from schemas.enrichment import snake_case
from worker.domain.catalog.document import ParameterDocument, WorkflowDocument
from worker.domain.catalog.parameter_values import BadValueError, check_value, pattern_error
from worker.domain.catalog.selection import label_name
from worker.domain.values.workflows import LABELS, Parameter, ParameterType, Workflow

DESCRIPTION = re.compile(r"(?P<signal>[^\s:]{1,128}) (?P<severity>[A-Za-z]{1,20}): \S")
"""`<signal_type> <severity>: <what it does>`, as searches want descriptions (DD-LLM-001, section 8.2)."""
FLAGS = {"true": True, "false": False}

Location = tuple[str | int, ...]
Labels = dict[str, tuple[str, ...]]


class Flaw(NamedTuple):
    """Something that makes a document unusable, and where it stands in it."""

    at: Location
    message: str


def build_workflow(written: WorkflowDocument, workflow_id: str, title: str) -> tuple[Workflow, list[Flaw]]:
    """The workflow, and what is wrong with it. `workflow_id` and `title` are for a document that has none."""
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
        estimated_downtime_seconds=written.estimated_downtime_seconds,
        estimated_duration_seconds=written.estimated_duration_seconds,
        success_rate=written.success_rate,
        timeout_seconds=run.timeout_seconds,
    )
    return workflow, flaws


def one_paragraph(text: str) -> str:
    """Text without line ends."""
    return " ".join(text.split())


def _labels(written: WorkflowDocument) -> tuple[Labels, Labels]:
    """Labels that are matched, and others, which only rank like custom ones."""
    matched: Labels = {}
    others: Labels = {}
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
            flaws.append(Flaw(here, "a parameter needs a name"))
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
    plain = Parameter(
        name=written.name,
        type=written.type,
        required=written.required,
        description=one_paragraph(written.description),
        minimum=written.minimum,
        maximum=written.maximum,
        min_length=written.min_length,
        max_length=written.max_length,
        pattern=written.pattern,
        depends_on=written.depends_on,
        items=items,
    )
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
        yield Flaw((*at, "pattern"), f"the regex engine refuses it: {refused}")
    bounds = ((written.minimum, written.maximum), (written.min_length, written.max_length))
    if any(low is not None and high is not None and low > high for low, high in bounds):
        yield Flaw(at, "the lower bound is above the upper one")
    if written.items is not None and written.type is not ParameterType.ARRAY:
        yield Flaw((*at, "items"), "only arrays have items")
