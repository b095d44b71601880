"""Reads a catalog from a directory of YAML files: their content, their problems, and whether they changed."""

from __future__ import annotations

import difflib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from schemas.enrichment import snake_case
from worker.adapters.file_catalog.label_checks import description_problems, label_problems
from worker.adapters.file_catalog.yaml_documents import (
    MAX_FILE_BYTES,
    MAX_FILES,
    CatalogProblem,
    Location,
    YamlDocument,
    catalog_files,
    items_of,
    read_documents,
)
from worker.domain.catalog.documents import (
    ActionTypeDocument,
    ExecutionDocument,
    ParameterDocument,
    WorkflowDocument,
    action_text,
    build_workflow,
)
from worker.domain.cluster.fields import name_of
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflows import ActionText, Workflow

MAX_SHOWN_PROBLEMS = 50

Fingerprint = tuple[tuple[str, int, int, int, int], ...]
"""Name, device, inode, size and time of change of every file, symlinks followed."""
KUBERNAUT = "kubernaut.ai/v1alpha1"
GROUP = KUBERNAUT.partition("/")[0] + "/"
KINDS = ("RemediationWorkflow", "ActionType")
UNUSED: Mapping[type[BaseModel], set[str]] = {
    WorkflowDocument: {"maintainers", "rollback_parameters", "tags", "status"},
    ExecutionDocument: {"engine_config", "resources"},
    ParameterDocument: {"examples", "title"},
}
"""Fields that the schemas define and this catalog does not use, in snake_case."""

TYPO = 0.85  # similarity from which a word counts as a misspelling of another
WRONG = object()

Part = TypeVar("Part", bound=BaseModel)
CONTENT_IDS = uuid.UUID("6f1c1f3e-5f0b-5e7d-9c55-0d1a6f5d1a3b")
"""Namespace of the ids of workflows that do not declare one."""


@dataclass(slots=True)
class CatalogContents:
    """The content so far. `origin` is the file and line of each workflow, by id."""

    workflows: dict[str, Workflow] = field(default_factory=dict)
    actions: dict[str, ActionText] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    problems: list[CatalogProblem] = field(default_factory=list)


class LintReport(NamedTuple):
    """How many valid workflows the files hold, and every error and warning, by file and line."""

    workflows: int
    problems: tuple[CatalogProblem, ...]


def load(directory: Path) -> CatalogContents:
    """Read all files, and collect all problems. Raises CatalogUnavailable when a file cannot be read."""
    contents = CatalogContents()
    try:
        for path in _files(directory):
            _read_file(contents, path)
    except OSError as error:
        raise CatalogUnavailable(f"the catalog {directory} cannot be read: {error.strerror}") from error
    return contents


def rejection(contents: CatalogContents, directory: Path) -> str:
    """The errors for which the contents are rejected, one per line; empty if they are a valid catalog."""
    errors = [p for p in contents.problems if not p.warning]
    if errors:
        shown = "\n".join(str(p) for p in errors[:MAX_SHOWN_PROBLEMS])
        return f"{len(errors)} problems in the catalog {directory}:\n{shown}"
    skipped = "".join(f"\n{p}" for p in contents.problems[:MAX_SHOWN_PROBLEMS])
    return "" if contents.workflows else f"no workflows in the catalog {directory}{skipped}"


def read_directory(directory: Path) -> CatalogContents:
    """Read all files. Raises CatalogUnavailable, with every error, when one document is invalid."""
    contents = load(directory)
    if wrong := rejection(contents, directory):
        raise CatalogUnavailable(wrong)
    return contents


def lint(directory: Path) -> LintReport:
    """Check all files.

    There is an error exactly when `read_directory` raises. Raises CatalogUnavailable without a directory.
    """
    contents = load(directory)
    problems = sorted(contents.problems, key=lambda p: (p.file, p.line))
    if rejection(contents, directory) and all(p.warning for p in problems):
        problems.append(CatalogProblem(str(directory), 0, "there are no workflows"))
    return LintReport(len(contents.workflows), tuple(problems))


def fingerprint(directory: Path) -> Fingerprint:
    """A value that differs after any change of the files. Raises CatalogUnavailable.

    Kubernetes updates a mounted ConfigMap by swapping a symlink above the files: their inodes differ
    afterwards.
    """
    try:
        found = [(str(path), path.stat()) for path in _files(directory)]
    except OSError as error:
        raise CatalogUnavailable(f"the catalog {directory} cannot be read: {error.strerror}") from error
    return tuple((name, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in found)


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise CatalogUnavailable(f"the catalog {directory} is not a directory")
    files = catalog_files(directory)
    if len(files) > MAX_FILES:
        raise CatalogUnavailable(f"the catalog {directory} has more than {MAX_FILES} files")
    return files


def _read_file(contents: CatalogContents, path: Path) -> None:
    with path.open("rb") as stream:
        raw = stream.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        contents.problems.append(
            CatalogProblem(str(path), 0, f"the file is larger than {MAX_FILE_BYTES} bytes: split it")
        )
        return
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        contents.problems.append(CatalogProblem(str(path), 0, "the file is not UTF-8"))
        return
    documents, problems = read_documents(text, str(path))
    contents.problems += problems
    for document in documents:
        read_into(contents, document)


def read_into(contents: CatalogContents, document: YamlDocument) -> None:
    """Add what the document declares, or each item of a List.

    Kubernetes objects of other kinds are skipped.
    """
    value = document.value
    if not isinstance(value, dict):
        contents.problems.append(document.problem((), "a document must be a mapping of names to values"))
    elif (inherited := _of_items(value)) is not None:
        for item in items_of(document, inherited):
            read_into(contents, item)
    elif "kind" in value or "apiVersion" in value:
        _read_kubernaut(contents, document, value)
    elif "workflow_id" in value or "action_type" in value:
        _read_workflow(contents, document, value, (), "")
    else:
        contents.problems.append(
            document.problem(
                (), "skipped: neither workflow_id nor action_type says that this is a workflow", warning=True
            )
        )


def _of_items(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The fields that the items of a list inherit; None if the value is not a list of catalog objects.

    `kubectl get -o yaml` writes a `List` of whole objects. The API writes a list of one kind and names it
    once.
    """
    kind, version = str(value.get("kind")), str(value.get("apiVersion"))
    if (kind, version) == ("List", "v1"):
        return {}
    of_ours = kind.endswith("List") and kind.removesuffix("List") in KINDS and version.startswith(GROUP)
    return {"apiVersion": version, "kind": kind.removesuffix("List")} if of_ours else None


def _read_kubernaut(contents: CatalogContents, document: YamlDocument, value: Mapping[str, Any]) -> None:
    kind, version, spec = value.get("kind"), value.get("apiVersion"), value.get("spec")
    if kind not in KINDS or not str(version or GROUP).startswith(GROUP):
        contents.problems += _doubts_of_skipped(document, value)
        return
    if version != KUBERNAUT or not isinstance(spec, dict):
        contents.problems.append(
            document.problem(("apiVersion",), f"{kind} requires apiVersion {KUBERNAUT} and a spec")
        )
        return
    name = name_of(value)
    if kind == "ActionType":
        _read_action(contents, document, spec, name)
    else:
        _read_workflow(contents, document, spec, ("spec",), name)


def _doubts_of_skipped(document: YamlDocument, value: Mapping[str, Any]) -> Iterator[CatalogProblem]:
    """A warning when a skipped object was probably meant to be a catalog object."""
    kind, spec = str(value.get("kind") or "an object without kind"), value.get("spec")
    version = str(value.get("apiVersion") or GROUP)
    near = difflib.get_close_matches(kind.lower(), [ours.lower() for ours in KINDS], 1, TYPO)
    fields = {snake_case(str(name)) for name in spec} if isinstance(spec, dict) else set()
    meant = next(
        (ours for ours in KINDS if [ours.lower()] == near), KINDS[0] if "action_type" in fields else ""
    )
    if "workflow_id" in value or "action_type" in value:
        message = "skipped: a workflow in the flat form must not have kind or apiVersion"
        yield document.problem((), message, warning=True)
    elif meant and kind not in KINDS and (version.startswith(GROUP) or not near):
        yield document.problem(("kind",), f"{kind} is skipped: did you mean {meant}?", warning=True)
    elif meant and not version.startswith(GROUP):
        message = f"{kind} of {version} is skipped: did you mean {KUBERNAUT}?"
        yield document.problem(("apiVersion",), message, warning=True)


def _read_action(
    contents: CatalogContents, document: YamlDocument, spec: Mapping[str, Any], name: str
) -> None:
    action, problems = _validated(ActionTypeDocument, spec, document, ("spec",))
    contents.problems += problems
    if action is not None and not problems:
        contents.actions[action.name or name] = action_text(action.description)


def _read_workflow(
    contents: CatalogContents, document: YamlDocument, spec: Mapping[str, Any], at: Location, name: str
) -> None:
    written, problems = _validated(WorkflowDocument, spec, document, at)
    if written is None:
        contents.problems += problems
        return
    workflow, more = _workflow(written, document, at, name)
    problems += more
    here = f"{document.file}:{document.line(at)}"
    first = contents.origin.setdefault(workflow.workflow_id, here)
    if first != here:
        message = f"{workflow.workflow_id} is declared twice, first at {first}"
        problems.append(document.problem((*at, "workflow_id"), message))
    if all(p.warning for p in problems):
        contents.workflows[workflow.workflow_id] = workflow
    contents.problems += [*problems, *_unknown_names(written, document, at)]


def _workflow(
    written: WorkflowDocument, document: YamlDocument, at: Location, name: str
) -> tuple[Workflow, list[CatalogProblem]]:
    """The workflow, and its problems. `name` is that of the Kubernetes object; empty in the flat form."""
    own_id = written.workflow_id or _content_id(document, at, name)
    workflow, flaws = build_workflow(written, own_id, name)
    problems = [document.problem((*at, *flaw.at), flaw.message) for flaw in flaws]
    problems += label_problems(written, document, at)
    if not at:
        problems += description_problems(workflow, document)
    return workflow, problems


def _content_id(document: YamlDocument, at: Location, name: str) -> str:
    """An id derived from the content, so that a copy of the catalog has the same ids."""
    content = document.value[at[0]] if at else document.value
    return str(uuid.uuid5(CONTENT_IDS, json.dumps([name, content], sort_keys=True)))


def _validated(
    model: type[Part], spec: Mapping[str, Any], document: YamlDocument, at: Location
) -> tuple[Part | None, list[CatalogProblem]]:
    """The validated document and its problems.

    Invalid fields are left out, so that all others are checked as well.
    """
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
    """The value without those entries of its mappings that hold an invalid field; WRONG when nothing is left."""
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


def _unknown_names(part: BaseModel, document: YamlDocument, at: Location) -> Iterator[CatalogProblem]:
    """A warning for each unknown field: it may be misspelt."""
    for name in part.model_extra or ():
        if snake_case(name) not in UNUSED.get(type(part), ()):
            yield document.problem((*at, name), "unknown field, ignored: check its spelling", warning=True)
    for name, value in part:
        parts = enumerate(value) if isinstance(value, tuple) else [(None, value)]
        for number, inner in parts:
            if isinstance(inner, BaseModel):
                yield from _unknown_names(
                    inner, document, (*at, name, *(() if number is None else (number,)))
                )
