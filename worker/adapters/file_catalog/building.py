"""One workflow from its document: names, types and labels in one spelling, and what a type cannot say checked."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from schemas.enrichment import snake_case
from schemas.taxonomy import normalize_severity
from worker.adapters.file_catalog.documents import ParameterDocument, WorkflowDocument
from worker.adapters.file_catalog.label_checks import label_problems
from worker.adapters.file_catalog.source import CatalogProblem, Document, Location
from worker.domain.parameters import BadValueError, check_value, pattern_error
from worker.domain.selection import label_name
from worker.domain.workflow import LABELS, WILDCARD, Parameter, ParameterType, Workflow

CONTENT_IDS = uuid.UUID("6f1c1f3e-5f0b-5e7d-9c55-0d1a6f5d1a3b")
"""Namespace of the ids of workflows that declare none."""

DESCRIPTION = re.compile(r"(?P<signal>[^\s:]{1,128}) (?P<severity>[A-Za-z]{1,20}): \S")
FLAGS = {"true": True, "false": False}

Labels = dict[str, tuple[str, ...]]


def build_workflow(
    written: WorkflowDocument, document: Document, at: Location, name: str
) -> tuple[Workflow, list[CatalogProblem]]:
    """The workflow, and what is wrong with it. `name` is the name of the Kubernetes object, if it is one."""
    labels, other_labels = _labels(written)
    parameters, problems = _parameters(written.parameters, document, (*at, "parameters"))
    about, run = written.description, written.execution
    workflow = Workflow(
        workflow_id=written.workflow_id or _content_id(document, at, name),
        action_type=written.action_type,
        version=written.version,
        title=written.title or name,
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
    problems += label_problems(written, document, at)
    if not at:
        problems += _description_problems(workflow, document)
    return workflow, problems


def one_paragraph(text: str) -> str:
    """Text without line ends."""
    return " ".join(text.split())


def _content_id(document: Document, at: Location, name: str) -> str:
    """The same content always gets the same id, so that a catalog can be copied and registered again."""
    content = document.value[at[0]] if at else document.value
    return str(uuid.uuid5(CONTENT_IDS, json.dumps([name, content], sort_keys=True)))


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


def _description_problems(workflow: Workflow, document: Document) -> Iterator[CatalogProblem]:
    """Searches compare descriptions with `<signal_type> <severity>` queries (DD-LLM-001)."""
    form = "is found best when written `<signal_type> <severity>: ...`"
    match = DESCRIPTION.match(workflow.description)
    if match is None:
        yield document.problem(("description",), form, warning=True)
        return
    declared = {s.lower() for s in workflow.labels.get("signal_type", ())}
    if declared and WILDCARD not in declared and match["signal"].lower() not in declared:
        message = f"{form}: {match['signal']} is not among its signal types"
        yield document.problem(("description",), message, warning=True)
    if normalize_severity(match["severity"]) is None:
        yield document.problem(("description",), f"{form}: {match['severity']} is no severity", warning=True)


def _parameters(
    written: tuple[ParameterDocument, ...], document: Document, at: Location
) -> tuple[tuple[Parameter, ...], list[CatalogProblem]]:
    found: list[Parameter] = []
    problems: list[CatalogProblem] = []
    names = [p.name for p in written]
    for number, parameter in enumerate(written):
        here = (*at, number)
        if not parameter.name:
            problems.append(document.problem(here, "a parameter needs a name"))
        if parameter.name in names[:number]:
            problems.append(document.problem((*here, "name"), f"{parameter.name} is declared twice"))
        problems += [
            document.problem((*here, "depends_on"), f"{other} is not declared")
            for other in parameter.depends_on
            if other not in names
        ]
        built, more = _parameter(parameter, document, here)
        found.append(built)
        problems += more
    return tuple(found), problems


def _parameter(
    written: ParameterDocument, document: Document, at: Location
) -> tuple[Parameter, list[CatalogProblem]]:
    problems = list(_bound_problems(written, document, at))
    items = None
    if written.items is not None:
        items, more = _parameter(written.items, document, (*at, "items"))
        problems += more
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
    if problems:
        return plain, problems
    enum: list[Any] = []
    for number, value in enumerate(written.enum):
        try:
            enum.append(check_value(plain, value))
        except BadValueError as error:
            problems.append(document.problem((*at, "enum", number), str(error)))
    parameter = replace(plain, enum=tuple(enum))
    if written.default is None or problems:
        return parameter, problems
    try:
        return replace(parameter, default=check_value(parameter, written.default)), []
    except BadValueError as error:
        return parameter, [document.problem((*at, "default"), str(error))]


def _bound_problems(written: ParameterDocument, document: Document, at: Location) -> Iterator[CatalogProblem]:
    if written.pattern and (refused := pattern_error(written.pattern)):
        yield document.problem((*at, "pattern"), f"the regex engine refuses it: {refused}")
    bounds = ((written.minimum, written.maximum), (written.min_length, written.max_length))
    if any(low is not None and high is not None and low > high for low, high in bounds):
        yield document.problem(at, "the lower bound is above the upper one")
    if written.items is not None and written.type is not ParameterType.ARRAY:
        yield document.problem((*at, "items"), "only arrays have items")
