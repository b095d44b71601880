"""The workflow catalog of a DataStorage: read over HTTP, cached for a short time, matched and ranked here.

The labels of each record are checked again here (`selection`), so that a workflow that does not fit is
neither listed nor chosen, even if the server offers it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TypeVar

import structlog

from worker.adapters.datastorage.apis import (
    ApiMissingError,
    CatalogApi,
    CatalogRecords,
    PlaybooksApi,
    WorkflowsApi,
)
from worker.adapters.datastorage.client import DataStorageClient
from worker.adapters.json_server import Exchange, RequestFailedError, ServerClient
from worker.domain.catalog.in_memory import CatalogSnapshot
from worker.domain.catalog.selection import if_fitting
from worker.domain.catalog.similarity import MeaningRanking
from worker.domain.values.bounded import BoundedDict
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.ports import Embedder
from worker.domain.values.workflow_search import SearchPage, SearchQuery
from worker.domain.values.workflows import ActionSummary, SelectionContext, Workflow, WorkflowPage

MAX_KEPT = 32

log = structlog.stdlib.get_logger(__name__)


Answered = TypeVar("Answered")


class DataStorageCatalog(ServerClient):
    """Implements the Catalog port.

    Workflows are cached for `cache_seconds` and never used after that. Newer servers have the three steps of
    DD-HAPI-017, and confirm the final choice; older ones have only the search of DD-LLM-001. A 404 tells them
    apart.

    `problem` says why the last look-up failed, or which records were left out. With an embedder, workflows
    whose labels fit alike are ranked by meaning instead of words, once `follow` has embedded them all;
    `meaning_problem` says why not.
    """

    def __init__(
        self, client: DataStorageClient, *, embedder: Embedder | None = None, cache_seconds: float = 30.0
    ) -> None:
        super().__init__(client.server)
        self._client, self._cache_seconds, self._monotonic = client, cache_seconds, client.monotonic
        self._api: CatalogApi = WorkflowsApi()
        self._kept = BoundedDict[Hashable, tuple[float, CatalogSnapshot]](MAX_KEPT)  # until when, and what
        self._meaning = MeaningRanking(embedder, client.monotonic) if embedder else None
        self._embedded: CatalogSnapshot | None = None
        self._reading = asyncio.Lock()
        self._failure = self._left_out = ""

    @property
    def problem(self) -> str:
        """Why the last look-up failed, or which records were left out; empty when there is no problem."""
        return self._failure or self._left_out

    @property
    def meaning_problem(self) -> str:
        """Why words rank workflows despite an embedder; empty if not, or until the first vectors exist."""
        return self._meaning.problem if self._meaning else ""

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]:
        """Types of action with a workflow that fits, by name."""
        return (await self._snapshot(context)).actions(context)

    async def workflows(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        """One page of the workflows of an action type (any case) that fit."""
        return (await self._snapshot(context)).page(action_type, context, cursor)

    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        """The present workflow of the server, or None if it is unknown or does not fit."""

        async def look(exchange: Exchange) -> Workflow | None:
            snapshot = self._fresh(context) or await self._read(exchange, context)
            listed = snapshot.get(workflow_id, context)
            return listed and await self._api.confirm(exchange, listed, context)

        now = await self._call(look)
        return if_fitting(now, context)

    async def search(self, query: SearchQuery, context: SelectionContext) -> SearchPage:
        """Workflows that fit the labels and the query, best match first."""
        snapshot = await self._snapshot(query.applied_to(context))
        known = self._meaning if snapshot is self._embedded else None
        return snapshot.search(query, context, await known.scores(query) if known else None)

    async def follow(self, poll_seconds: float) -> None:
        """Refresh the cache and `problem`, and embed new workflows, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_fresh(poll_seconds))
            if self._meaning:
                tasks.create_task(self._meaning.keep_embedding(poll_seconds, log.warning))

    async def _keep_fresh(self, poll_seconds: float) -> None:
        while True:
            with contextlib.suppress(CatalogUnavailable):  # `problem` says why
                await self.actions(SelectionContext())
            await asyncio.sleep(poll_seconds)

    async def _snapshot(self, context: SelectionContext) -> CatalogSnapshot:
        if snapshot := self._fresh(context):
            return snapshot
        return await self._call(lambda exchange: self._read(exchange, context))

    async def _call(self, work: Callable[[Exchange], Awaitable[Answered]]) -> Answered:
        try:
            found = await self._client.call(work)
        except CatalogUnavailable as error:
            if not self._failure:
                log.warning("catalog_unavailable", error=str(error))
            self._failure = str(error)
            raise
        self._failure = ""
        return found

    def _fresh(self, context: SelectionContext) -> CatalogSnapshot | None:
        kept = self._kept.get(self._api.key(context))
        return kept[1] if kept and self._monotonic() < kept[0] else None

    async def _read(self, exchange: Exchange, context: SelectionContext) -> CatalogSnapshot:
        async with self._reading:  # another call may have read it meanwhile
            if snapshot := self._fresh(context):
                return snapshot
            until = self._monotonic() + self._cache_seconds
            found = await self._found(exchange, context)
            self._note(found)
            snapshot = await asyncio.to_thread(CatalogSnapshot, found.workflows.values(), found.texts)
            self._kept[self._api.key(context)] = until, snapshot
            if self._meaning:
                self._meaning.replace_passages(snapshot.passages)
                self._embedded = snapshot
            return snapshot

    async def _found(self, exchange: Exchange, context: SelectionContext) -> CatalogRecords:
        try:
            return await self._api.read(exchange, context)
        except ApiMissingError:
            other: CatalogApi = PlaybooksApi() if isinstance(self._api, WorkflowsApi) else WorkflowsApi()
            found = await other.read(exchange, context)
        self._api = other
        self._kept.clear()
        return found

    def _note(self, found: CatalogRecords) -> None:
        """Note the records that were left out.

        Raises RequestFailedError if no record can be used: then the server has another contract, not an empty
        catalog.
        """
        before, count = self._left_out, found.left_out
        if count and not found.workflows:
            raise RequestFailedError(f"no record of its answer can be used: {found.reasons[0]}")
        shown = "; ".join(found.reasons)
        self._left_out = f"{count} records of the catalog are left out: {shown}" if count else ""
        if not found.workflows:
            self._left_out = "the catalog has no workflows"
        if self._left_out not in {"", before}:
            log.warning("catalog_incomplete", problem=self._left_out)
