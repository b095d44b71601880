"""What decides between workflows whose labels fit alike: the distance of vectors where there are any, else words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from worker.adapters.postgres_catalog import statements
from worker.adapters.postgres_catalog.driver import PUSH, asyncpg
from worker.adapters.postgres_catalog.schema import has_embeddings
from worker.domain.catalog.label_bits import Parting, by_score, places_of
from worker.domain.catalog.meaning import QueryVectors, Vector
from worker.domain.catalog.search import Part
from worker.domain.values.ports import Embedder
from worker.domain.values.workflow_search import SearchQuery


class Ranking:
    """Ranks places by the nearness of vectors to that of a query.

    Words rank without an embedder, while it gives no vector, and where a workflow has none of its model: vectors and
    words give no common order.
    """

    def __init__(self, embedder: Embedder | None, monotonic: Callable[[], float]) -> None:
        self._embedder = embedder
        self._queries = QueryVectors(embedder, monotonic) if embedder else None
        self._keeps_vectors, self._problem = False, ""

    @property
    def problem(self) -> str:
        """Why words rank although there is an embedder; empty when they do not."""
        return self._queries.problem or self._problem if self._queries else ""

    async def vector(self, query: SearchQuery) -> Vector | None:
        """That of a query, if there is one. Never raises."""
        return await self._queries.of(query) if self._queries else None

    async def nearness(
        self, connection: asyncpg.Connection, vector: Vector | None, among: Sequence[int]
    ) -> Parting | None:
        """By the nearness of these places; None when words have to decide."""
        if not vector or not among:
            return None
        name = self._embedder.name if self._embedder else ""
        self._keeps_vectors = self._keeps_vectors or await has_embeddings(connection)
        if not self._keeps_vectors:
            self._problem = "the database cannot keep vectors: it has no pgvector"
            return None
        rows = await connection.fetch(statements.BY_MEANING, among, vector, len(vector), name)
        missing = len(among) - len(rows)
        self._problem = f"{missing} workflows have no vector of {name}: run `{PUSH}`" if missing else ""
        return None if missing else by_score({row["place"]: row["score"] for row in rows})


def by_words(speakers: Sequence[int], size: int) -> Parting:
    """Parts workflows by the words of a query that they have; `speakers` are the bits of those that have a word, of `size`.

    Rare words weigh more, as in BM25; how often a text of a few lines repeats one, and how long it is, say nothing.
    """
    counts = [members.bit_count() for members in speakers]
    weights = [math.log1p((size - count + 0.5) / (count + 0.5)) for count in counts]

    def parted(members: int) -> Iterable[Part[int]]:
        found = {0.0: members}
        for having, weight in zip(speakers, weights, strict=True):
            before, found = found, {}
            for score, bits in before.items():
                said = bits & having
                for part, sum_ in ((said, score + weight), (bits ^ said, score)):
                    if part:
                        found[sum_] = found.get(sum_, 0) | part
        best_first = (found[score] for score in sorted(found, reverse=True))
        return [(places_of(bits), bits.bit_count()) for bits in best_first]

    return parted
