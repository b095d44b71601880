"""What decides between workflows whose labels fit alike: the distance of vectors where there are any, else words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from worker.adapters.postgres_catalog import statements
from worker.adapters.postgres_catalog.driver import PUSH, asyncpg
from worker.adapters.postgres_catalog.schema import has_embeddings
from worker.domain.catalog.label_bits import Fit, places_of
from worker.domain.catalog.meaning import QueryVectors, Vector
from worker.domain.catalog.search import SearchQuery
from worker.domain.ports import Embedder


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

    async def nearness(
        self, connection: asyncpg.Connection, vector: Vector | None, fit: Fit
    ) -> Mapping[int, float] | None:
        """How near what fits is; None when words have to decide."""
        if not vector or not fit.fits:
            return None
        places = list(places_of(fit.fits))
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


def by_words(holders: Sequence[int], fit: Fit, size: int) -> Mapping[int, float]:
    """How many words of a query what fits has; a place without any is absent.

    `holders` are the bits of the workflows that say a word, of `size` in all. Rare words weigh more, as in BM25; how often
    a text of a few lines repeats one, and how long it is, say nothing.
    """
    scores: dict[int, float] = {}
    for members in holders:
        count = members.bit_count()
        weight = math.log1p((size - count + 0.5) / (count + 0.5))
        for place in places_of(members & fit.fits):
            scores[place] = scores.get(place, 0.0) + weight
    return scores
