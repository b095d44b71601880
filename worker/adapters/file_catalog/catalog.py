"""The workflow catalog in a directory of YAML files."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from worker.adapters.file_catalog.reading import Loaded, read_into
from worker.adapters.file_catalog.source import (
    MAX_FILE_BYTES,
    MAX_FILES,
    CatalogProblem,
    catalog_files,
    read_documents,
)
from worker.domain.errors import CatalogUnavailable
from worker.domain.selection import action_summaries, for_final_choice, mismatches, page_of
from worker.domain.workflow import WILDCARD, ActionSummary, SelectionContext, Workflow, WorkflowPage

MAX_SHOWN_PROBLEMS = 50


class FileCatalog:
    """Workflows read once from files, in memory afterwards. Implements the Catalog port."""

    def __init__(self, workflows: Iterable[Workflow], actions: Mapping[str, str] | None = None) -> None:
        self._workflows = {w.workflow_id: w for w in workflows}
        self._descriptions = dict(actions or {})
        self._by_action: dict[str, list[Workflow]] = defaultdict(list)
        for workflow in self._workflows.values():
            self._by_action[workflow.action_type.lower()].append(workflow)

    @classmethod
    async def open(cls, directory: Path) -> FileCatalog:
        """Read all files. Raises CatalogUnavailable with every problem when one document is invalid."""
        loaded = await asyncio.to_thread(_load, directory)
        errors = [p for p in loaded.problems if not p.warning]
        if errors:
            shown = "\n".join(str(p) for p in errors[:MAX_SHOWN_PROBLEMS])
            raise CatalogUnavailable(f"{len(errors)} problems in the catalog {directory}:\n{shown}")
        if not loaded.workflows:
            raise CatalogUnavailable(f"no workflows in the catalog {directory}")
        return cls(loaded.workflows.values(), loaded.actions)

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]:
        """Types of action with a workflow that fits, by name."""
        return action_summaries(self._workflows.values(), self._descriptions, context)

    async def workflows(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        """One page of the workflows of an action type (any case) that fit."""
        return page_of(self._by_action.get(action_type.strip().lower(), ()), context, cursor)

    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        """The workflow, None when it is unknown or does not fit. The signal type filters searches only."""
        workflow = self._workflows.get(workflow_id.strip())
        if workflow is None or mismatches(workflow, for_final_choice(context)):
            return None
        return workflow

    async def signal_types(self) -> frozenset[str]:
        """Every signal type a workflow is declared for."""
        declared = (w.labels.get("signal_type", ()) for w in self._workflows.values())
        return frozenset(value for values in declared for value in values if value != WILDCARD)


def lint(directory: Path) -> tuple[CatalogProblem, ...]:
    """Everything that is wrong or doubtful in the files, by file and line. Raises CatalogUnavailable without a directory."""
    return tuple(sorted(_load(directory).problems, key=lambda p: (p.file, p.line)))


def _load(directory: Path) -> Loaded:
    loaded = Loaded()
    try:
        if not directory.is_dir():
            raise CatalogUnavailable(f"the catalog {directory} is not a directory")
        files = catalog_files(directory)
        if len(files) > MAX_FILES:
            raise CatalogUnavailable(f"the catalog {directory} has more than {MAX_FILES} files")
        for path in files:
            _read_file(loaded, path)
    except OSError as error:
        raise CatalogUnavailable(f"the catalog {directory} cannot be read: {error.strerror}") from error
    return loaded


def _read_file(loaded: Loaded, path: Path) -> None:
    with path.open("rb") as stream:
        raw = stream.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        loaded.problems.append(CatalogProblem(str(path), 0, f"larger than {MAX_FILE_BYTES} bytes"))
        return
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        loaded.problems.append(CatalogProblem(str(path), 0, "not UTF-8"))
        return
    documents, problems = read_documents(text, str(path))
    loaded.problems += problems
    for document in documents:
        read_into(loaded, document)
