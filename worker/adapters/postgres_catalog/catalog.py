"""The workflow catalog in PostgreSQL: an index of labels tells which workflows fit, and only the shown ones
are read.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence

from worker.adapters.postgres_catalog import statements
from worker.adapters.postgres_catalog.database import Database, has_embeddings
from worker.adapters.postgres_catalog.driver import PUSH, asyncpg
from worker.adapters.postgres_catalog.rows import Decoder, read_index, storable, storable_keys
from worker.domain.catalog.label_index import Index, Kind, LabelMatch, Places, by_weight
from worker.domain.catalog.ranking import QueryVectors, Vector, words_of
from worker.domain.catalog.search import best_matches, undecided
from worker.domain.catalog.selection import (
    PAGE_SIZE,
    for_final_choice,
    mismatches,
    workflow_of,
    workflow_page,
)
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.ports import Embedder
from worker.domain.values.workflow_search import Match, SearchPage, SearchQuery
from worker.domain.values.workflows import ActionSummary, ActionText, SelectionContext, Workflow, WorkflowPage

CALL_SECONDS = 5.0


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
        self, connection: asyncpg.Connection, vector: Vector | None, places: Sequence[int]
    ) -> Mapping[int, float] | None:
        """The nearness of the workflows of these places to the query; None if words have to decide."""
        if not vector or not places:
            return None
        name = self._embedder.name if self._embedder else ""
        self._keeps_vectors = self._keeps_vectors or await has_embeddings(connection)
        if not self._keeps_vectors:
            self._problem = "the database cannot store vectors: it has no pgvector"
            return None
        rows = await connection.fetch(statements.BY_MEANING, places, vector, len(vector), name)
        missing = len(places) - len(rows)
        self._problem = f"{missing} workflows have no vector of {name}: run `{PUSH}`" if missing else ""
        return None if missing else {row["place"]: row["score"] for row in rows}


class PostgresCatalog(Database):
    """Implements the Catalog port on tables that `rca catalog push` fills.

    A workflow that is disabled in the table is no longer offered, but counted until the next push.
    """

    def __init__(
        self, url: str, *, embedder: Embedder | None = None, call_seconds: float = CALL_SECONDS
    ) -> None:
        super().__init__(url, call_seconds=call_seconds)
        self._meaning = StoredVectors(embedder, time.monotonic)
        self._decoder = Decoder()

    @property
    def meaning_problem(self) -> str:
        """Why words rank although there is an embedder; empty when vectors do."""
        return self._meaning.problem

    async def check(self) -> None:
        """Raises CatalogUnavailable when the database cannot be read, or offers no workflow."""
        await self.actions(SelectionContext())

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]:
        """Types of action with a workflow that fits, by name."""

        async def work(connection: asyncpg.Connection) -> Sequence[ActionSummary]:
            _, labels = await _labels(connection, statements.BITS_AND_ACTIONS, context)
            rows = await connection.fetch(statements.ACTION_TEXTS)
            texts = {
                r["action_type"]: ActionText(r["description"], r["when_to_use"], r["when_not_to_use"])
                for r in rows
            }
            return labels.actions(texts)

        return await self.read(work)

    async def workflows(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        """One page of the workflows of an action type (any case) that fit."""
        name, last = action_type.strip().lower(), workflow_of(cursor)

        async def work(connection: asyncpg.Connection) -> WorkflowPage:
            asked = name if storable(name) else ""
            _, labels = await _labels(connection, statements.BITS_AND_ACTION, context, asked)
            scope = labels.of_action(name)
            order = labels.ordered(scope)
            after = await connection.fetchval(statements.PLACE, last) if last and storable(last) else None
            rest, found = iter(order[order.index(after) + 1 :] if after in order else order), list[Workflow]()
            while places := list(itertools.islice(rest, PAGE_SIZE + 1 - len(found))):
                shown = await self._shown(connection, places)
                found += [shown[place] for place in places if place in shown]
            return workflow_page(found, labels.counts(scope))

        return await self.read(work)

    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        """The workflow, None when it is unknown or does not fit. The signal type filters searches only."""
        wanted = workflow_id.strip()
        if not storable(wanted):
            return None
        row = await self.read(lambda connection: connection.fetchrow(statements.ONE, wanted))
        found = self._decoder.workflow(row["document"]) if row else None
        return None if found is None or mismatches(found, for_final_choice(context)) else found

    async def search(self, query: SearchQuery, context: SelectionContext) -> SearchPage:
        """Workflows that fit the labels and the query, best match first."""
        narrowed, vector = query.applied_to(context), await self._meaning.vector(query)
        words = " ".join(words_of(str(query)))

        async def work(connection: asyncpg.Connection) -> SearchPage:
            index, labels = await _labels(connection, statements.BITS_AND_WORDS, narrowed, words)
            tied = labels.best_first(labels.fitting)
            places = undecided(tied, query)
            scores = await self._meaning.scores(connection, vector, places)
            found = best_matches(tied, query, scores or _by_words(index, labels.size, places))
            shown = await self._shown(connection, [place for place, _ in found.shown])
            return SearchPage(
                tuple(Match(shown[place], quality) for place, quality in found.shown if place in shown),
                found.total,
                found.weaker,
                labels.counts(),
                labels.counts_alone(),
            )

        return await self.read(work)

    async def _shown(self, connection: asyncpg.Connection, places: Sequence[int]) -> Mapping[int, Workflow]:
        rows = await connection.fetch(statements.SHOWN, places) if places else []
        return {r["place"]: self._decoder.workflow(r["document"]) for r in rows}


async def _labels(
    connection: asyncpg.Connection, statement: str, context: SelectionContext, *more: str
) -> tuple[Index, LabelMatch]:
    """The entries that a statement reads, and how they match.

    Raises CatalogUnavailable when the tables are empty.
    """
    keys = zip(*storable_keys(context), strict=True)
    index = read_index(await connection.fetch(statement, *map(list, keys), *more))
    labels = LabelMatch(index, context)
    if not labels.size:
        raise CatalogUnavailable(f"no workflows in the database: run `{PUSH}`")
    return index, labels


def _by_words(index: Index, size: int, places: Sequence[int]) -> dict[int, float]:
    """The score of each place: the weights of the words of the query that its workflow has.

    Rare words weigh more, as in BM25; how often a text of a few lines repeats one, and how long it is, say
    nothing.
    """
    words = [bits for _, bits in sorted(index.get(Kind.WORD, {}).items())]
    counts = [bits.bit_count() for bits in words]
    weights = [math.log1p((size - count + 0.5) / (count + 0.5)) for count in counts]
    terms = zip(words, weights, strict=True)
    scored = by_weight(Places.of(places).bits, terms)
    return {place: score for score, bits in scored for place in Places(bits)}
