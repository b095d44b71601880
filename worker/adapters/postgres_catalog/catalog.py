"""The workflow catalog in PostgreSQL.

The declarations of all workflows are kept in memory; only the workflows that are shown are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence

from worker.adapters.postgres_catalog import statements
from worker.adapters.postgres_catalog.database import Database, has_embeddings
from worker.adapters.postgres_catalog.driver import PUSH, asyncpg
from worker.adapters.postgres_catalog.rows import storable, workflow_of
from worker.domain.catalog import selection
from worker.domain.catalog.candidates import Candidates
from worker.domain.catalog.search import best_matches, undecided
from worker.domain.catalog.similarity import QueryVectors, Vector, words_of
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.ports import Embedder
from worker.domain.values.workflow_search import SearchPage, SearchQuery
from worker.domain.values.workflows import ActionSummary, ActionText, SelectionContext, Workflow, WorkflowPage

CALL_SECONDS = 5.0
MAX_KEPT = 1_536
"""How many decoded documents are cached: about 13 KB each."""


class StoredVectors:
    """The vectors in the database, which rank workflows by how near they are to the vector of a query.

    Workflows are ranked by words without an embedder, while it gives no vector, and if a workflow has no
    vector of its model: vectors and words give no common order.
    """

    def __init__(self, embedder: Embedder | None, monotonic: Callable[[], float]) -> None:
        self._embedder = embedder
        self._queries = QueryVectors(embedder, monotonic) if embedder else None
        self._keeps_vectors, self._problem = False, ""

    @property
    def problem(self) -> str:
        """Why words rank although there is an embedder; empty when vectors do."""
        return self._queries.problem or self._problem if self._queries else ""

    async def vector(self, query: SearchQuery) -> Vector | None:
        """The vector of a query, if the embedder gives one. Never raises."""
        return await self._queries.of(query) if self._queries else None

    async def scores(
        self, connection: asyncpg.Connection, vector: Vector | None, ids: Sequence[str]
    ) -> Mapping[str, float] | None:
        """The nearness of these workflows to the query; None if words have to decide."""
        if not vector or not ids:
            return None
        name = self._embedder.name if self._embedder else ""
        self._keeps_vectors = self._keeps_vectors or await has_embeddings(connection)
        if not self._keeps_vectors:
            self._problem = "the database cannot store vectors: it has no pgvector"
            return None
        rows = await connection.fetch(statements.BY_MEANING, ids, vector, len(vector), name)
        missing = len(ids) - len(rows)
        self._problem = f"{missing} workflows have no vector of {name}: run `{PUSH}`" if missing else ""
        return None if missing else {row["workflow_id"]: row["score"] for row in rows}


class PostgresCatalog(Database):
    """Implements the Catalog port on tables that `rca catalog push` fills.

    A workflow that is disabled in the table is no longer offered, but counted until the next push.
    """

    def __init__(
        self, url: str, *, embedder: Embedder | None = None, call_seconds: float = CALL_SECONDS
    ) -> None:
        super().__init__(url, call_seconds=call_seconds)
        self._meaning = StoredVectors(embedder, time.monotonic)
        self._workflow = functools.lru_cache(MAX_KEPT)(workflow_of)
        self._loaded = "", Candidates([])
        self._reading = asyncio.Lock()

    @property
    def meaning_problem(self) -> str:
        """Why words rank although there is an embedder; empty when vectors do."""
        return self._meaning.problem

    async def check(self) -> None:
        """Raises CatalogUnavailable when the database cannot be read, or offers no workflow."""
        await self.actions(SelectionContext())

    async def follow(self, poll_seconds: float) -> None:
        """Check it again and again until cancelled, so that `problem` is known before an incident needs it."""
        while True:
            await asyncio.sleep(poll_seconds)
            with contextlib.suppress(CatalogUnavailable):
                await self.check()

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]:
        """Types of action with a workflow that fits, by name."""

        async def work(connection: asyncpg.Connection) -> Sequence[ActionSummary]:
            candidates = await self._declared(connection)
            rows = await connection.fetch(statements.ACTION_TEXTS)
            return candidates.actions(context, {name: ActionText(*text) for name, *text in rows})

        return await self.read(work)

    async def workflows(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        """One page of the workflows of an action type (any case) that fit."""

        async def work(connection: asyncpg.Connection) -> WorkflowPage:
            selected = (await self._declared(connection)).of_action(action_type, context)
            rest, found = selection.after_cursor(selected.ids, cursor), list[Workflow]()
            while len(found) <= selection.PAGE_SIZE and rest:  # some may have been disabled since the push
                size = selection.PAGE_SIZE + 1 - len(found)
                shown = await self._shown(connection, rest[:size])
                found += [shown[i] for i in rest[:size] if i in shown]
                rest = rest[size:]
            return selection.workflow_page(found, selected.excluded)

        return await self.read(work)

    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        """The workflow, None when it is unknown or does not fit. The signal type filters searches only."""
        wanted = workflow_id.strip()
        if not storable(wanted):
            return None
        row = await self.read(lambda connection: connection.fetchrow(statements.ONE, wanted))
        found = self._workflow(row["document"]) if row else None
        return selection.if_fitting(found, context)

    async def search(self, query: SearchQuery, context: SelectionContext) -> SearchPage:
        """Workflows that fit the labels and the query, best match first."""
        narrowed, vector = query.applied_to(context), await self._meaning.vector(query)
        words = " ".join(words_of(str(query)))

        async def work(connection: asyncpg.Connection) -> SearchPage:
            candidates = await self._declared(connection)
            selected = candidates.select(narrowed)
            ids = undecided(selected.tied, query)
            scores = await self._meaning.scores(connection, vector, ids)
            if scores is None:
                rows = await connection.fetch(statements.BY_WORDS, ids, words) if ids else []
                scores = {i: _word_score(counts, len(candidates)) for i, counts in rows}
            found = best_matches(selected.tied, query, scores)
            return selected.page(found, await self._shown(connection, [i for i, _ in found.shown]))

        return await self.read(work)

    async def _declared(self, connection: asyncpg.Connection) -> Candidates:
        """The workflows of the last push. Raises CatalogUnavailable when there are none."""
        pushed = await connection.fetchval(statements.PUSHED)
        if not pushed:
            raise CatalogUnavailable(f"no workflows in the database: run `{PUSH}`")
        async with self._reading:
            if self._loaded[0] != pushed:
                await asyncio.to_thread(self._load, pushed, await connection.fetch(statements.DECLARED))
            return self._loaded[1]

    def _load(self, pushed: str, rows: Sequence[asyncpg.Record]) -> None:
        """Ends in its thread even after the deadline of the call, so that the next call need not begin again."""
        self._loaded = pushed, Candidates(workflow_of(row["document"]) for row in rows)

    async def _shown(self, connection: asyncpg.Connection, ids: Sequence[str]) -> Mapping[str, Workflow]:
        rows = await connection.fetch(statements.SHOWN, ids) if ids else []
        return {i: self._workflow(document) for i, document in rows}


def _word_score(counts: Sequence[int], size: int) -> float:
    """The weights of the words of a query that a workflow has; each is in so many workflows out of `size`.

    Rare words weigh more, as in BM25; how often a text of a few lines repeats one, and how long it is, say
    nothing.
    """
    return sum(math.log1p((size - count + 0.5) / (count + 0.5)) for count in counts)
