"""One workflow from its document in a file, with everything that is wrong or doubtful by line."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

from schemas.taxonomy import normalize_severity
from worker.adapters.file_catalog.label_checks import label_problems
from worker.adapters.file_catalog.source import CatalogProblem, Document, Location
from worker.domain.catalog import documents as workflow_building
from worker.domain.catalog.documents import WorkflowDocument
from worker.domain.values.workflows import WILDCARD, Workflow

CONTENT_IDS = uuid.UUID("6f1c1f3e-5f0b-5e7d-9c55-0d1a6f5d1a3b")
"""Namespace of the ids of workflows that declare none."""


def build_workflow(
    written: WorkflowDocument, document: Document, at: Location, name: str
) -> tuple[Workflow, list[CatalogProblem]]:
    """The workflow, and what is wrong with it. `name` is the name of the Kubernetes object, if it is one."""
    own_id = written.workflow_id or _content_id(document, at, name)
    workflow, flaws = workflow_building.build_workflow(written, own_id, name)
    problems = [document.problem((*at, *flaw.at), flaw.message) for flaw in flaws]
    problems += label_problems(written, document, at)
    if not at:
        problems += _description_problems(workflow, document)
    return workflow, problems


def _content_id(document: Document, at: Location, name: str) -> str:
    """The same content always gets the same id, so that a catalog can be copied and registered again."""
    content = document.value[at[0]] if at else document.value
    return str(uuid.uuid5(CONTENT_IDS, json.dumps([name, content], sort_keys=True)))


def _description_problems(workflow: Workflow, document: Document) -> Iterator[CatalogProblem]:
    """Searches compare descriptions with `<signal_type> <severity>` queries (DD-LLM-001)."""
    form = "is found best when written `<signal_type> <severity>: ...`"
    match = workflow_building.DESCRIPTION.match(workflow.description)
    if match is None:
        yield document.problem(("description",), form, warning=True)
        return
    declared = {s.lower() for s in workflow.labels.get("signal_type", ())}
    if declared and WILDCARD not in declared and match["signal"].lower() not in declared:
        message = f"{form}: {match['signal']} is not among its signal types"
        yield document.problem(("description",), message, warning=True)
    if normalize_severity(match["severity"]) is None:
        yield document.problem(("description",), f"{form}: {match['severity']} is no severity", warning=True)
