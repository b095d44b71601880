"""The workflow catalog in a directory of YAML files, in memory, following the files as they change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from worker.adapters.file_catalog.loading import Stamp, fault, load, stamp
from worker.domain.catalog_index import CatalogIndex
from worker.domain.errors import CatalogUnavailable
from worker.domain.search import SearchPage, SearchQuery
from worker.domain.text_index import TextIndex
from worker.domain.workflow import ActionSummary, ActionText, SelectionContext, Workflow, WorkflowPage

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Shelf:
    """One state of the catalog. A change of the files makes another one; a look-up sees one of them only."""

    workflows: CatalogIndex
    texts: TextIndex

    @classmethod
    def of(cls, workflows: Iterable[Workflow], actions: Mapping[str, ActionText]) -> _Shelf:
        """Everything arranged for look-ups: about 0.1 s for 2,000 workflows."""
        known = list(workflows)
        return cls(CatalogIndex(known, actions), TextIndex(known))


class FileCatalog:
    """Implements the Catalog port.

    `problem` says why the files as they are now are not what is served; empty when they are. A worker with a good
    catalog that is a little old serves better than none, so a change that cannot be read leaves all as it was: that is
    for `problem` to tell.
    """

    def __init__(
        self,
        workflows: Iterable[Workflow],
        actions: Mapping[str, ActionText] | None = None,
        *,
        directory: Path | None = None,
        seen: Stamp | None = None,
    ) -> None:
        self._shelf = _Shelf.of(workflows, actions or {})
        self._directory, self._tried = directory, seen
        self._fault = self._unreadable = ""

    @classmethod
    async def open(cls, directory: Path) -> FileCatalog:
        """Read all files. Raises CatalogUnavailable with every problem when one document is invalid."""
        seen = await asyncio.to_thread(stamp, directory)
        loaded = await asyncio.to_thread(load, directory)
        if wrong := fault(loaded, directory):
            raise CatalogUnavailable(wrong)
        return await asyncio.to_thread(
            cls, loaded.workflows.values(), loaded.actions, directory=directory, seen=seen
        )

    @property
    def problem(self) -> str:
        """Why the files are not what is served; empty when they are."""
        return self._unreadable or self._fault

    def __len__(self) -> int:
        """How many workflows there are."""
        return len(self._shelf.workflows)

    def __iter__(self) -> Iterator[Workflow]:
        """All workflows, by id."""
        return iter(self._shelf.workflows)

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]:
        """Types of action with a workflow that fits, by name."""
        return self._shelf.workflows.actions(context)

    async def workflows(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        """One page of the workflows of an action type (any case) that fit."""
        return self._shelf.workflows.page(action_type, context, cursor)

    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        """The workflow, None when it is unknown or does not fit. The signal type filters searches only."""
        return self._shelf.workflows.get(workflow_id, context)

    async def search(self, query: SearchQuery, context: SelectionContext) -> SearchPage:
        """Workflows that fit the labels and the query, best match first."""
        shelf = self._shelf
        return shelf.workflows.search(query, context, lambda ids: shelf.texts.scores(str(query), ids))

    async def follow(self, poll_seconds: float) -> None:
        """Take over changes of the files it was opened from, until cancelled.

        A change counts once two looks in a row have seen the same, so that files are not read while they are written.
        """
        if self._directory is None:
            return
        before = self._tried
        while True:
            await asyncio.sleep(poll_seconds)
            before = await self._look(self._directory, before)

    async def _look(self, directory: Path, before: Stamp | None) -> Stamp | None:
        try:
            now = await asyncio.to_thread(stamp, directory)
            if now == before != self._tried:
                await self._reload(directory, now)
        except CatalogUnavailable as error:  # tried again at the next look
            if not self._unreadable:
                log.warning("catalog_unreadable", error=str(error))
            self._unreadable = str(error)
            return None
        self._unreadable = ""
        return now

    async def _reload(self, directory: Path, seen: Stamp) -> None:
        loaded = await asyncio.to_thread(load, directory)
        self._tried, self._fault = seen, fault(loaded, directory)
        if self._fault:
            log.warning("catalog_change_refused", error=self._fault)
            return
        self._shelf = await asyncio.to_thread(_Shelf.of, loaded.workflows.values(), loaded.actions)
        log.info("catalog_reloaded", workflows=len(self))
