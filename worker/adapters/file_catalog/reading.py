"""From documents to workflows, with everything that is wrong with them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from schemas.enrichment import snake_case
from worker.adapters.file_catalog.building import build_workflow
from worker.adapters.file_catalog.source import CatalogProblem, Document, Location, items_of
from worker.domain.catalog.documents import (
    ActionTypeDocument,
    ExecutionDocument,
    ParameterDocument,
    WorkflowDocument,
    one_paragraph,
)
from worker.domain.values.workflows import ActionText, Workflow

KUBERNAUT = "kubernaut.ai/v1alpha1"
GROUP = KUBERNAUT.partition("/")[0] + "/"
KINDS = ("RemediationWorkflow", "ActionType")
UNUSED: Mapping[type[BaseModel], set[str]] = {
    WorkflowDocument: {"maintainers", "dependencies", "rollback_parameters", "tags", "status"},
    ExecutionDocument: {"engine_config", "resources"},
    ParameterDocument: {"examples", "title"},
}
"""Names the schemas know and this catalog has no use for, in snake_case."""

TYPO = 0.85  # similarity from which a word is taken for a misspelt one
WRONG = object()

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
    kind, metadata, spec = value.get("kind"), value.get("metadata"), value.get("spec")
    version = value.get("apiVersion")
    if kind not in KINDS or not str(version or GROUP).startswith(GROUP):
        loaded.problems += _doubts_of_skipped(document, value)
        return
    if version != KUBERNAUT or not isinstance(spec, dict):
        loaded.problems.append(document.problem(("apiVersion",), f"needs apiVersion {KUBERNAUT} and a spec"))
        return
    name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
    if kind == "ActionType":
        _read_action(loaded, document, spec, name)
    else:
        _read_workflow(loaded, document, spec, ("spec",), name)


def _doubts_of_skipped(document: Document, value: Mapping[str, Any]) -> Iterator[CatalogProblem]:
    """A warning where an object of another kind may be meant for us."""
    kind = str(value.get("kind"))
    near = difflib.get_close_matches(kind.lower(), [ours.lower() for ours in KINDS], 1, TYPO)
    if "workflow_id" in value or "action_type" in value:
        message = "skipped: a workflow in the flat form has no kind and no apiVersion"
        yield document.problem((), message, warning=True)
    elif near and str(value.get("apiVersion") or GROUP).startswith(GROUP):
        meant = next(ours for ours in KINDS if ours.lower() == near[0])
        yield document.problem(("kind",), f"{kind} is skipped: did you mean {meant}?", warning=True)


def _read_action(loaded: Loaded, document: Document, spec: Mapping[str, Any], name: str) -> None:
    action, problems = _validated(ActionTypeDocument, spec, document, ("spec",))
    loaded.problems += problems
    if action is not None and not problems:
        about = action.description
        loaded.actions[action.name or name] = ActionText(
            one_paragraph(about.what), one_paragraph(about.when_to_use), one_paragraph(about.when_not_to_use)
        )


def _read_workflow(
    loaded: Loaded, document: Document, spec: Mapping[str, Any], at: Location, name: str
) -> None:
    written, problems = _validated(WorkflowDocument, spec, document, at)
    if written is None:
        loaded.problems += problems
        return
    workflow, more = build_workflow(written, document, at, name)
    problems += more
    here = f"{document.file}:{document.line(at)}"
    first = loaded.origin.setdefault(workflow.workflow_id, here)
    if first != here:
        message = f"{workflow.workflow_id} is declared twice, first at {first}"
        problems.append(document.problem((*at, "workflow_id"), message))
    if all(p.warning for p in problems):
        loaded.workflows[workflow.workflow_id] = workflow
    loaded.problems += [*problems, *_unknown_names(written, document, at)]


def _validated(
    model: type[Part], spec: Mapping[str, Any], document: Document, at: Location
) -> tuple[Part | None, list[CatalogProblem]]:
    """What was written, and what is wrong with it: that is left out, so that all the rest can be checked as well."""
    try:
        return model.model_validate(spec), []
    except ValidationError as error:
        wrong = error.errors(include_url=False)
    problems = [document.problem((*at, *e["loc"]), e["msg"]) for e in wrong]
    rest = _without(spec, [e["loc"] for e in wrong if e["type"] != "missing"])
    try:
        return model.model_validate(rest if "actionType" in rest else {"action_type": "?", **rest}), problems
    except ValidationError:
        return None, problems


def _without(value: Any, wrong: Sequence[Location]) -> Any:
    """The rest of a value when the entries of mappings that hold what is wrong are left out; WRONG without a rest."""
    if not wrong:
        return value
    if isinstance(value, dict) and all(at and at[0] in value for at in wrong):
        entries = {
            name: _without(inner, [at[1:] for at in wrong if at[0] == name]) for name, inner in value.items()
        }
        return {name: inner for name, inner in entries.items() if inner is not WRONG}
    if isinstance(value, list) and all(at and at[0] in range(len(value)) for at in wrong):
        items = [_without(inner, [at[1:] for at in wrong if at[0] == n]) for n, inner in enumerate(value)]
        return WRONG if any(inner is WRONG for inner in items) else items
    return WRONG


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
