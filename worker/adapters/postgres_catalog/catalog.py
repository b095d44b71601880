"""The workflow catalog in PostgreSQL: what fits comes from an index of labels, what is shown from the rows of workflows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from worker.adapters.postgres_catalog import statements
from worker.adapters.postgres_catalog.database import Database
from worker.adapters.postgres_catalog.driver import PUSH, asyncpg
from worker.adapters.postgres_catalog.ranking import Ranking, by_words
from worker.adapters.postgres_catalog.stored import Decoder, bits_of, keys_for, storable, words_in
from worker.domain.catalog.cursor import workflow_of
from worker.domain.catalog.index import PAGE_SIZE
from worker.domain.catalog.label_bits import LabelBits, places_of
from worker.domain.catalog.search import contested, graded, search_page
from worker.domain.catalog.selection import for_final_choice, mismatches, workflow_page
from worker.domain.catalog.text_index import words_of
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.ports import Embedder
from worker.domain.values.workflow_search import SearchPage, SearchQuery
from worker.domain.values.workflows import ActionSummary, ActionText, SelectionContext, Workflow, WorkflowPage

CALL_SECONDS = 5.0


class PostgresCatalog:
    """Implements the Catalog port on tables that `rca catalog push` fills.

    A workflow that is disabled in the table is not offered from then on; it is counted until the next push.
    """

    def __init__(
        self,
        url: str,
        *,
        embedder: Embedder | None = None,
        call_seconds: float = CALL_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = Database(url, call_seconds=call_seconds)
        self._ranking = Ranking(embedder, monotonic)
        self._decoder = Decoder()

    async def __aenter__(self) -> Self:
        """Connects to nothing yet."""
        await self._database.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connections."""
        await self._database.__aexit__(kind, error, trace)

    @property
    def problem(self) -> str:
        """Why the last look-up failed; empty when it did not."""
        return self._database.problem

    @property
    def meaning_problem(self) -> str:
        """Why words rank although there is an embedder; empty when they do not."""
        return self._ranking.problem

    async def check(self) -> None:
        """Raises CatalogUnavailable when there is nothing to offer, or no database."""
        await self.actions(SelectionContext())

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]:
        """Types of action with a workflow that fits, by name."""

        async def work(connection: asyncpg.Connection) -> Sequence[ActionSummary]:
            bits = _offered(await _rows(connection, statements.BITS_AND_ACTIONS, context))
            rows = await connection.fetch(statements.ACTION_TEXTS)
            texts = {
                r["action_type"]: ActionText(r["description"], r["when_to_use"], r["when_not_to_use"])
                for r in rows
            }
            return bits.summaries(context, texts)

        return await self._database.read(work)

    async def workflows(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        """One page of the workflows of an action type (any case) that fit."""
        name, last = action_type.strip().lower(), workflow_of(cursor)
        known = name if storable(name) else ""

        async def work(connection: asyncpg.Connection) -> WorkflowPage:
            bits = _offered(await _rows(connection, statements.BITS_AND_ACTION, context, known))
            after = await connection.fetchval(statements.PLACE, last) if last and storable(last) else None
            fit, scope = bits.fit(context), bits.of_action(action_type)
            order, found = fit.places(scope, after), list[Workflow]()
            while places := list(itertools.islice(order, PAGE_SIZE + 1 - len(found))):
                shown = await self._shown(connection, places)
                found += [shown[place] for place in places if place in shown]
            return workflow_page(found, PAGE_SIZE, fit.left_out(scope))

        return await self._database.read(work)

    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        """The workflow, None when it is unknown or does not fit. The signal type filters searches only."""
        wanted = workflow_id.strip()
        if not storable(wanted):
            return None
        row = await self._database.read(lambda connection: connection.fetchrow(statements.ONE, wanted))
        found = self._decoder.workflow(row["document"]) if row else None
        return None if found is None or mismatches(found, for_final_choice(context)) else found

    async def search(self, query: SearchQuery, context: SelectionContext) -> SearchPage:
        """Workflows that fit the labels and the query, best match first."""
        narrowed, vector = query.applied_to(context), await self._ranking.vector(query)
        words = " ".join(words_of(str(query)))

        async def work(connection: asyncpg.Connection) -> SearchPage:
            rows = await _rows(connection, statements.BITS_AND_WORDS, narrowed, words)
            bits = _offered(rows)
            fit = bits.fit(narrowed)
            tied = fit.tied()
            among = [place for bits in contested(tied, query) for place in places_of(bits)]
            near = await self._ranking.nearness(connection, vector, among)
            best = graded(tied, query, near or by_words(words_in(rows), bits.size))
            found = await self._shown(connection, [place for place, _ in best.best])
            there = best._replace(best=tuple(match for match in best.best if match[0] in found))
            return search_page(there, found.__getitem__, fit.left_out(-1), fit.left_out_alone())

        return await self._database.read(work)

    async def _shown(self, connection: asyncpg.Connection, places: Sequence[int]) -> Mapping[int, Workflow]:
        rows = await connection.fetch(statements.SHOWN, places) if places else []
        return {r["place"]: self._decoder.workflow(r["document"]) for r in rows}


async def _rows(
    connection: asyncpg.Connection, statement: str, context: SelectionContext, *more: str
) -> Sequence[asyncpg.Record]:
    keys = zip(*keys_for(context), strict=True)
    return await connection.fetch(statement, *map(list, keys), *more)


def _offered(rows: Sequence[asyncpg.Record]) -> LabelBits:
    bits = bits_of(rows)
    if not bits.size:
        raise CatalogUnavailable(f"no workflows in the database: run `{PUSH}`")
    return bits
