"""Vectors of all workflows of a catalog in memory, and how near they are to a query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from worker.domain.catalog.meaning import QueryVectors, Vector, cosine
from worker.domain.values.errors import EmbedderUnavailable
from worker.domain.values.ports import Embedder
from worker.domain.values.workflow_search import SearchQuery

BATCH = 16
BATCH_SECONDS = 60.0

Scores = Callable[[Sequence[str]], Mapping[str, float]]


class MeaningRank:
    """Ranks workflows by the nearness of their vectors to that of a query.

    A workflow is embedded once for what it says, so that a changed catalog costs only its changes. Without a vector of
    the query and of every workflow there is no ranking: vectors and words give no common order.
    """

    def __init__(self, embedder: Embedder, monotonic: Callable[[], float]) -> None:
        self._embedder = embedder
        self._queries = QueryVectors(embedder, monotonic)
        self._known: dict[str, Vector] = {}
        self._passages: Mapping[str, str] = {}
        self._vectors: Mapping[str, Vector] = {}
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why meaning does not rank at the moment; empty when it does, or is about to."""
        return self._problem or self._queries.problem

    @property
    def complete(self) -> bool:
        """Whether every workflow has its vector."""
        return len(self._vectors) == len(self._passages)

    def offer(self, passages: Mapping[str, str]) -> None:
        """These are the workflows from now on: by id, what is embedded of each (`passage_of`)."""
        self._passages = passages
        self._arrange()

    async def learn(self) -> bool:
        """Embed what has no vector yet; whether all have one now. Never raises."""
        missing = list(dict.fromkeys(t for t in self._passages.values() if t not in self._known))
        try:
            for start in range(0, len(missing), BATCH):
                await self._embed(missing[start : start + BATCH])
        except TimeoutError:
            self._problem = f"{self._embedder.name} gave no vectors within {BATCH_SECONDS:g} s"
        except EmbedderUnavailable as error:
            self._problem = str(error)
        self._arrange()
        return self.complete

    async def scores(self, query: SearchQuery) -> Scores | None:
        """How near ids are to the query, by cosine; None when words have to decide."""
        vectors = self._vectors  # of the workflows that are searched now, whatever is offered meanwhile
        wanted = await self._queries.of(query) if self.complete else None
        if wanted is None:
            return None
        return lambda ids: {i: cosine(wanted, vectors[i]) for i in ids}

    async def _embed(self, texts: Sequence[str]) -> None:
        async with asyncio.timeout(BATCH_SECONDS):
            vectors = await self._embedder.embed(texts, query=False)
        self._known.update(zip(texts, map(tuple, vectors), strict=True))

    def _arrange(self) -> None:
        """Give every workflow its vector, and forget the vectors of none once all have theirs."""
        known = self._known
        self._vectors = {i: known[text] for i, text in self._passages.items() if text in known}
        if self.complete:
            self._known, self._problem = {text: known[text] for text in self._passages.values()}, ""
