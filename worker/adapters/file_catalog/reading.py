"""From documents to workflows, with everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from schemas.enrichment import snake_case
from worker.adapters.file_catalog.building import build_workflow
from worker.adapters.file_catalog.source import CatalogProblem, Document, Location, items_of
from worker.domain.catalog.building import one_paragraph
from worker.domain.catalog.document import (
    ActionTypeDocument,
    ExecutionDocument,
    ParameterDocument,
    WorkflowDocument,
)
from worker.domain.catalog.workflow import ActionText, Workflow

KUBERNAUT = "kubernaut.ai/v1alpha1"
GROUP = KUBERNAUT.partition("/")[0] + "/"
KINDS = ("RemediationWorkflow", "ActionType")
UNUSED: Mapping[type[BaseModel], set[str]] = {
    WorkflowDocument: {"maintainers", "dependencies", "rollback_parameters", "tags", "status"},
    ExecutionDocument: {"engine_config", "resources"},
    ParameterDocument: {"examples", "title"},
}
"""Names the schemas know and this catalog has no use for, in snake_case."""

Part = TypeVar("Part", bound=BaseModel)


@dataclass(slots=True)
class Loaded:
    """What was read so far. `origin` is where each workflow stands."""

    workflows: dict[str, Workflow] = field(default_factory=dict)
    actions: dict[str, ActionText] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    problems: list[CatalogProblem] = field(default_factory=list)


def read_into(loaded: Loaded, document: Document) -> None:
    """Add what the document declares, or each item of a List. Kubernetes objects of other kinds are skipped."""
    value = document.value
    if not isinstance(value, dict):
        loaded.problems.append(document.problem((), "a catalog document is a mapping"))
    elif (inherited := _of_items(value)) is not None:
        for item in items_of(document, inherited):
            read_into(loaded, item)
    elif "kind" in value or "apiVersion" in value:
        _read_kubernaut(loaded, document, value)
    elif "workflow_id" in value or "action_type" in value:
        _read_workflow(loaded, document, value, (), "")
    else:
        loaded.problems.append(document.problem((), "not a workflow: skipped", warning=True))


def _of_items(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What each item of a list need not say itself; None when it is no list, or one of something else.

    `kubectl get -o yaml` writes a `List` of whole objects, the API itself a list of one kind that stands there once.
    """
    kind, version = str(value.get("kind")), str(value.get("apiVersion"))
    if (kind, version) == ("List", "v1"):
        return {}
    of_ours = kind.endswith("List") and kind.removesuffix("List") in KINDS and version.startswith(GROUP)
    return {"apiVersion": version, "kind": kind.removesuffix("List")} if of_ours else None


def _read_kubernaut(loaded: Loaded, document: Document, value: Mapping[str, Any]) -> None:
    if not str(value.get("apiVersion")).startswith(GROUP):
        return
    kind, metadata, spec = value.get("kind"), value.get("metadata"), value.get("spec")
    if kind not in KINDS:
        return
    if value.get("apiVersion") != KUBERNAUT or not isinstance(spec, dict):
        loaded.problems.append(document.problem(("apiVersion",), f"needs apiVersion {KUBERNAUT} and a spec"))
        return
    name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
    if kind == "ActionType":
        _read_action(loaded, document, spec, name)
    else:
        _read_workflow(loaded, document, spec, ("spec",), name)


def _read_action(loaded: Loaded, document: Document, spec: Mapping[str, Any], name: str) -> None:
    action = _validated(ActionTypeDocument, spec, document, ("spec",), loaded)
    if action is not None:
        about = action.description
        loaded.actions[action.name or name] = ActionText(
            one_paragraph(about.what), one_paragraph(about.when_to_use), one_paragraph(about.when_not_to_use)
        )


def _read_workflow(
    loaded: Loaded, document: Document, spec: Mapping[str, Any], at: Location, name: str
) -> None:
    written = _validated(WorkflowDocument, spec, document, at, loaded)
    if written is None:
        return
    workflow, problems = build_workflow(written, document, at, name)
    loaded.problems += [*problems, *_unknown_names(written, document, at)]
    if any(not p.warning for p in problems):
        return
    here = f"{document.file}:{document.line(at)}"
    if workflow.workflow_id in loaded.workflows:
        first = loaded.origin[workflow.workflow_id]
        message = f"{workflow.workflow_id} is declared twice, first at {first}"
        loaded.problems.append(document.problem((*at, "workflow_id"), message))
        return
    loaded.workflows[workflow.workflow_id] = workflow
    loaded.origin[workflow.workflow_id] = here


def _validated(
    model: type[Part], spec: Mapping[str, Any], document: Document, at: Location, loaded: Loaded
) -> Part | None:
    try:
        return model.model_validate(spec)
    except ValidationError as error:
        loaded.problems += [
            document.problem((*at, *e["loc"]), e["msg"]) for e in error.errors(include_url=False)
        ]
        return None


def _unknown_names(part: BaseModel, document: Document, at: Location) -> Iterator[CatalogProblem]:
    """A warning for each name that nothing reads: it may be a misspelt one."""
    for name in part.model_extra or ():
        if snake_case(name) not in UNUSED.get(type(part), ()):
            yield document.problem((*at, name), "unknown name, not read", warning=True)
    for name, value in part:
        parts = enumerate(value) if isinstance(value, tuple) else [(None, value)]
        for number, inner in parts:
            if isinstance(inner, BaseModel):
                yield from _unknown_names(
                    inner, document, (*at, name, *(() if number is None else (number,)))
                )
