"""Vectors of the workflows in the database, made after a push: it holds without them, and words rank until then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from worker.adapters.postgres_catalog import statements
from worker.adapters.postgres_catalog.database import as_owner
from worker.adapters.postgres_catalog.driver import asyncpg
from worker.adapters.postgres_catalog.schema import has_embeddings
from worker.adapters.postgres_catalog.stored import workflow_of
from worker.domain.catalog.meaning import passage_of
from worker.domain.values.errors import EmbedderUnavailable
from worker.domain.values.ports import Embedder

BATCH = 16
BATCH_SECONDS = 60.0


async def embed(
    url: str, embedder: Embedder, *, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> int:
    """Give every workflow that is offered a vector of this model, and answer how many had none.

    Without pgvector none gets one. What was embedded before a failure stays. Raises CatalogUnavailable and
    EmbedderUnavailable.
    """
    async with as_owner(url) as connection:
        if not await has_embeddings(connection):
            return 0
        waiting = await connection.fetch(statements.WITHOUT_VECTOR, embedder.name)
        for start in range(0, len(waiting), BATCH):
            await _embed(connection, embedder, waiting[start : start + BATCH])
            progress(min(start + BATCH, len(waiting)), len(waiting))
        return len(waiting)


async def _embed(connection: asyncpg.Connection, embedder: Embedder, rows: list[asyncpg.Record]) -> None:
    passages = [passage_of(workflow_of(row["document"])) for row in rows]
    try:
        async with asyncio.timeout(BATCH_SECONDS):
            vectors = await embedder.embed(passages, query=False)
    except TimeoutError:
        raise EmbedderUnavailable(f"{embedder.name} gave no vectors within {BATCH_SECONDS:g} s") from None
    values = [
        (r["workflow_id"], r["version"], r["content_hash"], vector, embedder.name)
        for r, vector in zip(rows, vectors, strict=True)
    ]
    await connection.executemany(statements.SAVE_VECTOR, values)
