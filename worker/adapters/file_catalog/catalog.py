"""The workflow catalog in a directory of YAML files, in memory, following the files as they change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import structlog

from worker.adapters.file_catalog.loading import Fingerprint, fingerprint, load, read_directory, rejection
from worker.domain.catalog.in_memory import CatalogSnapshot
from worker.domain.catalog.similarity import MeaningRanking
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.ports import Embedder
from worker.domain.values.workflow_search import SearchPage, SearchQuery
from worker.domain.values.workflows import ActionSummary, ActionText, SelectionContext, Workflow, WorkflowPage

log = structlog.stdlib.get_logger(__name__)


class FileCatalog:
    """Implements the Catalog port.

    `problem` says why the files as they are now are not in use; empty if they are. A slightly outdated
    catalog is better than none: while a change is invalid or cannot be read, the last valid catalog stays in
    use.

    With an embedder, workflows whose labels fit alike are ranked by meaning instead of words, once
    `embed_missing` has embedded them all. `meaning_problem` says why they are not.
    """

    def __init__(
        self,
        workflows: Iterable[Workflow],
        actions: Mapping[str, ActionText] | None = None,
        *,
        directory: Path | None = None,
        seen: Fingerprint | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self._meaning = MeaningRanking(embedder, time.monotonic) if embedder else None
        self._directory, self._tried = directory, seen
        self._rejection = self._unreadable = ""
        self._serve(CatalogSnapshot(workflows, actions or {}))

    def _serve(self, snapshot: CatalogSnapshot) -> None:
        self._snapshot = snapshot
        if self._meaning:
            self._meaning.replace_passages(snapshot.passages)

    @classmethod
    async def open(cls, directory: Path, *, embedder: Embedder | None = None) -> FileCatalog:
        """Read all files. Raises CatalogUnavailable with every problem when one document is invalid."""
        seen = await asyncio.to_thread(fingerprint, directory)
        contents = await asyncio.to_thread(read_directory, directory)
        return await asyncio.to_thread(
            cls,
            contents.workflows.values(),
            contents.actions,
            directory=directory,
            seen=seen,
            embedder=embedder,
        )

    @property
    def problem(self) -> str:
        """Why the present files are not in use; empty if they are."""
        return self._unreadable or self._rejection

    @property
    def meaning_problem(self) -> str:
        """Why words rank workflows despite an embedder; empty if not, or until the first vectors exist."""
        return self._meaning.problem if self._meaning else ""

    def __len__(self) -> int:
        """The number of workflows."""
        return len(self._snapshot)

    def __iter__(self) -> Iterator[Workflow]:
        """All workflows, by id."""
        return iter(self._snapshot)

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]:
        """Types of action with a workflow that fits, by name."""
        return self._snapshot.actions(context)

    async def workflows(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        """One page of the workflows of an action type (any case) that fit."""
        return self._snapshot.page(action_type, context, cursor)

    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        """The workflow, None when it is unknown or does not fit. The signal type filters searches only."""
        return self._snapshot.get(workflow_id, context)

    async def search(self, query: SearchQuery, context: SelectionContext) -> SearchPage:
        """Workflows that fit the labels and the query, best match first."""
        snapshot = self._snapshot
        by_meaning = await self._meaning.scores(query) if self._meaning else None
        return snapshot.search(query, context, by_meaning)

    async def embed_missing(self) -> bool:
        """Embed new workflows, if there is an embedder.

        Returns False when that failed. Until then words rank.
        """
        return self._meaning is None or self._meaning.complete or await self._meaning.embed_missing()

    async def follow(self, poll_seconds: float) -> None:
        """Follow changes of the files, and embed new workflows, until cancelled.

        A change counts once two polls in a row have found the same content, so that half-written files are
        not used.
        """
        async with asyncio.TaskGroup() as tasks:
            if self._directory:
                tasks.create_task(self._follow_files(self._directory, poll_seconds))
            if self._meaning:
                tasks.create_task(self._meaning.keep_embedding(poll_seconds, log.warning))

    async def _follow_files(self, directory: Path, poll_seconds: float) -> None:
        before = self._tried
        while True:
            await asyncio.sleep(poll_seconds)
            before = await self._poll(directory, before)

    async def _poll(self, directory: Path, before: Fingerprint | None) -> Fingerprint | None:
        try:
            now = await asyncio.to_thread(fingerprint, directory)
            if now == before != self._tried:
                await self._reload(directory, now)
        except CatalogUnavailable as error:  # retried at the next poll
            if not self._unreadable:
                log.warning("catalog_unreadable", error=str(error))
            self._unreadable = str(error)
            return None
        self._unreadable = ""
        return now

    async def _reload(self, directory: Path, seen: Fingerprint) -> None:
        contents = await asyncio.to_thread(load, directory)
        self._tried, self._rejection = seen, rejection(contents, directory)
        if self._rejection:
            log.warning("catalog_change_rejected", error=self._rejection)
            return
        self._serve(await asyncio.to_thread(CatalogSnapshot, contents.workflows.values(), contents.actions))
        log.info("catalog_reloaded", workflows=len(self))
