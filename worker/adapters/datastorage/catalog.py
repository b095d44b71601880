"""The workflow catalog of a DataStorage: read over HTTP, kept for a short while, matched and ranked here.

What the server answers is gated again with the labels of each record (`selection`), so one that answers what does not
fit gets it through neither into a list nor into the final choice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

import structlog

from worker.adapters.datastorage.client import DataStorageClient, Exchange, FailedError
from worker.adapters.datastorage.playbooks_api import PlaybooksApi
from worker.adapters.datastorage.source import Found, NoSuchApiError, Source
from worker.adapters.datastorage.workflows_api import WorkflowsApi
from worker.domain.catalog_index import CatalogIndex
from worker.domain.errors import CatalogUnavailable
from worker.domain.search import SearchPage, SearchQuery
from worker.domain.selection import for_final_choice, mismatches
from worker.domain.text_index import TextIndex
from worker.domain.workflow import ActionSummary, SelectionContext, Workflow, WorkflowPage

MAX_SHELVES = 32
SHOWN_BAD = 5

log = structlog.stdlib.get_logger(__name__)


Answered = TypeVar("Answered")


@dataclass(frozen=True, slots=True)
class _Shelf:
    """One state of the catalog, good until `until` (monotonic)."""

    workflows: CatalogIndex
    texts: TextIndex
    until: float


class DataStorageCatalog:
    """Implements the Catalog port. `url` is the base address; `call_seconds` bounds one call of the port.

    Workflows are kept for `cache_seconds` and never used after that. The final choice is asked for anew. Newer servers
    have the three steps of DD-HAPI-017, older ones only the search of DD-LLM-001: which it is shows by a 404.

    `problem` says what is wrong: why the last look failed, or which records were left out.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        call_seconds: float = 10.0,
        cache_seconds: float = 30.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cache_seconds, self._monotonic = cache_seconds, monotonic
        self._client = DataStorageClient(
            url, CatalogUnavailable, token=token, call_seconds=call_seconds, monotonic=monotonic, sleep=sleep
        )
        self._source: Source = WorkflowsApi()
        self._shelves: dict[Hashable, _Shelf] = {}
        self._reading = asyncio.Lock()
        self._failure = self._left_out = ""

    async def __aenter__(self) -> Self:
        """Opens nothing yet: connections are made with the first look."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connections."""
        await self._client.aclose()

    @property
    def problem(self) -> str:
        """Why the last look failed, or which records were left out; empty when all is well."""
        return self._failure or self._left_out

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]:
        """Types of action with a workflow that fits, by name."""
        return (await self._shelf(context)).workflows.actions(context)

    async def workflows(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        """One page of the workflows of an action type (any case) that fit."""
        return (await self._shelf(context)).workflows.page(action_type, context, cursor)

    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        """The workflow as the server has it now, None when it is unknown or does not fit."""

        async def look(exchange: Exchange) -> Workflow | None:
            shelf = self._fresh(context) or await self._read(exchange, context)
            listed = shelf.workflows.get(workflow_id, context)
            return listed and await self._source.confirm(exchange, listed, context)

        now = await self._call(look)
        return None if now is None or mismatches(now, for_final_choice(context)) else now

    async def search(self, query: SearchQuery, context: SelectionContext) -> SearchPage:
        """Workflows that fit the labels and the query, best match first."""
        shelf = await self._shelf(query.applied_to(context))
        return shelf.workflows.search(query, context, lambda ids: shelf.texts.scores(str(query), ids))

    async def follow(self, poll_seconds: float) -> None:
        """Keep what is known fresh, and `problem` with it, until cancelled."""
        while True:
            with contextlib.suppress(CatalogUnavailable):  # it stands in `problem`
                await self.actions(SelectionContext())
            await asyncio.sleep(poll_seconds)

    async def _shelf(self, context: SelectionContext) -> _Shelf:
        if shelf := self._fresh(context):
            return shelf
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

    def _fresh(self, context: SelectionContext) -> _Shelf | None:
        shelf = self._shelves.get(self._source.key(context))
        return shelf if shelf is not None and self._monotonic() < shelf.until else None

    async def _read(self, exchange: Exchange, context: SelectionContext) -> _Shelf:
        async with self._reading:  # whoever waited finds what the other one has read
            if shelf := self._fresh(context):
                return shelf
            until = self._monotonic() + self._cache_seconds
            found = await self._found(exchange, context)
            self._note(found)
            shelf = await asyncio.to_thread(_arranged, found, until)
            if len(self._shelves) >= MAX_SHELVES:
                self._shelves.clear()
            self._shelves[self._source.key(context)] = shelf
            return shelf

    async def _found(self, exchange: Exchange, context: SelectionContext) -> Found:
        try:
            return await self._source.read(exchange, context)
        except NoSuchApiError:
            other = PlaybooksApi() if isinstance(self._source, WorkflowsApi) else WorkflowsApi()
            found = await other.read(exchange, context)
        self._source = other
        self._shelves.clear()
        return found

    def _note(self, found: Found) -> None:
        """Raises FailedError when nothing of what came can be used: that is another contract, no empty catalog."""
        before, count = self._left_out, len(found.bad)
        if count and not found.workflows:
            raise FailedError(f"nothing of what it answers can be used: {found.bad[0]}")
        shown = "; ".join(found.bad[:SHOWN_BAD])
        self._left_out = f"{count} records of the catalog are left out: {shown}" if count else ""
        if not found.workflows:
            self._left_out = "the catalog has no workflows"
        if self._left_out not in {"", before}:
            log.warning("catalog_incomplete", problem=self._left_out)


def _arranged(found: Found, until: float) -> _Shelf:
    workflows = list(found.workflows.values())
    return _Shelf(CatalogIndex(workflows, found.texts), TextIndex(workflows), until)
