"""Workflows of the domain from the records of DataStorage.

A record holds what an ADR-043 document holds, arranged differently; names are camelCase or, from older
servers, snake_case. A record that is not a workflow is rejected with a reason, because a half-understood one
could be chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from schemas.enrichment import snake_case
from schemas.taxonomy import normalize_severity
from worker.domain.catalog.documents import (
    DESCRIPTION,
    Description,
    DescriptionDocument,
    Name,
    WorkflowDocument,
    build_workflow,
)
from worker.domain.cluster.fields import mapping, text
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflows import WILDCARD, Workflow

ACTIVE = "active"
FAILED_DETECTIONS = "failed_detections"
FORM = "its description is not of the form `<signal_type> <severity>: ...`, so its labels cannot be checked"
MAX_REASON_CHARS = 200
MANDATORY_LABELS = ("severity", "component", "environment", "priority")
"""Labels without which a workflow matches nothing (DD-WORKFLOW-001). `signal_type` is not one of them."""


class BadRecordError(ValueError):
    """The record is not a workflow that can be offered. The text says why."""


class ActionEntry(BaseModel):
    """One entry of `GET /api/v1/workflows/actions`. Its count is not used."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    action_type: Annotated[Name, Field(validation_alias=AliasChoices("actionType", "action_type"))]
    description: Description = DescriptionDocument()


def read_action(entry: Any) -> ActionEntry:
    """A type of action. Raises BadRecordError."""
    try:
        return ActionEntry.model_validate(entry)
    except ValidationError as error:
        raise BadRecordError(_reason(error)) from error


def id_of(entry: Any) -> str:
    """The id of a workflow in a list or a record. Raises BadRecordError."""
    found = text(_value(mapping(entry), "workflow_id"))
    if not found:
        raise BadRecordError("it has no workflowId")
    return found


def read_workflow(record: Any) -> Workflow | None:
    """The workflow of a full record, None if it is not active. Raises BadRecordError."""
    fields = mapping(record)
    status = text(fields.get("status"))
    if status and status.casefold() != ACTIVE:
        return None
    document = {
        "workflow_id": id_of(fields),
        "title": text(fields.get("name")) or text(_value(fields, "workflow_name")),
        "version": text(fields.get("version")),
        "action_type": _value(fields, "action_type"),
        "description": fields.get("description") or {},
        "labels": _labels(fields.get("labels")),
        "detected_labels": _detected(_value(fields, "detected_labels")),
        "custom_labels": {k: v for k, v in mapping(_value(fields, "custom_labels")).items() if v},
        "parameters": _parameters(fields.get("parameters")),
        "execution": {
            "engine": text(_value(fields, "execution_engine")),
            "bundle": text(_value(fields, "execution_bundle")) or text(_value(fields, "container_image")),
            "bundle_digest": text(_value(fields, "execution_bundle_digest")),
            "service_account": text(_value(fields, "service_account_name")),
        },
        "dependencies": mapping(fields.get("dependencies")),
        "estimated_downtime_seconds": _value(fields, "estimated_downtime_seconds"),
        "estimated_duration_seconds": _value(fields, "expected_duration_seconds"),
    }
    return _built(document)


def read_playbook(record: Any) -> Workflow:
    """A playbook of the older search (DD-LLM-001, section 7.1). Raises BadRecordError.

    It has no labels: its description begins with signal type and severity. It has no type of action either;
    its id takes that place, because safety constraints and policies look for words there.
    """
    fields = mapping(record)
    name, description = text(fields.get("playbook_id")), text(fields.get("description"))
    form = DESCRIPTION.match(description.strip())
    if form is None:
        raise BadRecordError(FORM)
    document = {
        "workflow_id": name,
        "title": text(fields.get("title")),
        "version": text(fields.get("version")),
        "action_type": name,
        "description": description,
        "labels": {"signal_type": form["signal"], "severity": form["severity"]},
        "parameters": _parameters(fields.get("parameters")),
    }
    return _built(document)


def _built(document: Mapping[str, Any]) -> Workflow:
    try:
        written = WorkflowDocument.model_validate(document)
    except ValidationError as error:
        raise BadRecordError(_reason(error)) from error
    workflow, flaws = build_workflow(written, "", "")
    if unknown := [v for v in workflow.labels.get("severity", ()) if not _is_severity(v)]:
        raise BadRecordError(one_line(f"labels.severity: {unknown[0]} is not a severity", MAX_REASON_CHARS))
    if flaws:
        at = ".".join(map(str, flaws[0].at))
        raise BadRecordError(one_line(f"{at}: {flaws[0].message}", MAX_REASON_CHARS))
    return workflow


def _is_severity(value: str) -> bool:
    return value == WILDCARD or normalize_severity(value) is not None


def _value(fields: Mapping[str, Any], name: str) -> Any:
    """The value under a snake_case name, in either spelling."""
    found = fields.get(to_camel(name))
    return fields.get(name) if found is None else found


def _labels(labels: Any) -> Any:
    """The labels that have a value. Raises BadRecordError when a mandatory one is missing."""
    if not isinstance(labels, dict | None):
        return labels
    labels = labels or {}
    missing = [name for name in MANDATORY_LABELS if not labels.get(name)]
    if missing:
        raise BadRecordError(f"labels: {missing[0]} is missing, so the workflow would match no incident")
    return {name: values for name, values in labels.items() if values}


def _detected(labels: Any) -> Any:
    """The labels that are set: the server does not distinguish false and empty from absent."""
    if not isinstance(labels, dict):
        return labels or {}
    found = {name: value for name, value in labels.items() if snake_case(name) != FAILED_DETECTIONS}
    return {name: "true" if value is True else value for name, value in found.items() if value}


def _parameters(written: Any) -> Any:
    """`{"schema": {"parameters": [...]}}`, a list, or specifications by name.

    The model rejects anything else.
    """
    if not isinstance(written, dict):
        return [] if written is None else written
    if "schema" not in written:
        return [{**spec, "name": n} if isinstance(spec, dict) else spec for n, spec in written.items()]
    schema = written["schema"]
    return (schema.get("parameters") or []) if isinstance(schema, dict) else schema or []


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    at = ".".join(str(part) for part in first["loc"])
    return one_line(f"{at}: {first['msg']}", MAX_REASON_CHARS)
