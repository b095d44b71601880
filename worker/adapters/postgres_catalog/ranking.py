"""What decides between workflows whose labels fit alike: the distance of vectors where there are any, else words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from worker.adapters.postgres_catalog import statements
from worker.adapters.postgres_catalog.driver import PUSH, asyncpg
from worker.adapters.postgres_catalog.schema import has_embeddings
from worker.domain.label_bits import Fit, places_of
from worker.domain.meaning import QueryVectors, Vector
from worker.domain.ports import Embedder
from worker.domain.search import SearchQuery
from worker.domain.text_index import words_of


class Ranking:
    """Ranks places by the nearness of vectors to that of a query.

    Words rank without an embedder, while it gives no vector, and where a workflow has none of its model: vectors and
    words give no common order.
    """

    def __init__(self, embedder: Embedder | None, monotonic: Callable[[], float]) -> None:
        self._embedder = embedder
        self._queries = QueryVectors(embedder, monotonic) if embedder else None
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why words rank although there is an embedder; empty when they do not."""
        return self._queries.problem or self._problem if self._queries else ""

    async def vector(self, query: SearchQuery) -> Vector | None:
        """That of a query, if there is one. Never raises."""
        return await self._queries.of(query) if self._queries else None

    async def scores(
        self, connection: asyncpg.Connection, query: SearchQuery, vector: Vector | None, fit: Fit
    ) -> Mapping[int, float]:
        """Of what fits, the higher the better; a place without a word of the query is absent."""
        places = list(places_of(fit.fits))
        if not places:
            return {}
        near = await self._nearness(connection, vector, places) if vector else None
        return await _by_words(connection, query, places) if near is None else near

    async def _nearness(
        self, connection: asyncpg.Connection, vector: Vector, places: Sequence[int]
    ) -> Mapping[int, float] | None:
        name = self._embedder.name if self._embedder else ""
        if not await has_embeddings(connection):
            self._problem = "the database cannot keep vectors: it has no pgvector"
            return None
        rows = await connection.fetch(statements.BY_MEANING, places, vector_text(vector), len(vector), name)
        missing = len(places) - len(rows)
        self._problem = f"{missing} workflows have no vector of {name}: run `{PUSH}`" if missing else ""
        return None if missing else {row["place"]: row["score"] for row in rows}


def vector_text(vector: Sequence[float]) -> str:
    """A vector as pgvector reads it."""
    return f"[{','.join(map(str, vector))}]"


async def _by_words(
    connection: asyncpg.Connection, query: SearchQuery, places: Sequence[int]
) -> Mapping[int, float]:
    rows = await connection.fetch(statements.BY_TEXT, places, " ".join(words_of(str(query))))
    return {row["place"]: row["score"] for row in rows}
