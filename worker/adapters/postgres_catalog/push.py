"""Writes the catalog: all workflows of a directory in one transaction, then vectors."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from worker.adapters.postgres_catalog import statements
from worker.adapters.postgres_catalog.database import LOCK, as_owner, has_embeddings, migrate
from worker.adapters.postgres_catalog.driver import asyncpg
from worker.adapters.postgres_catalog.rows import document_of, hash_of, workflow_of
from worker.domain.catalog.similarity import passage_of, text_of
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.errors import CatalogUnavailable, EmbedderUnavailable
from worker.domain.values.ports import Embedder
from worker.domain.values.workflows import ActionText, Workflow

BATCH = 500
TEXTS_BATCH = 16
TEXTS_SECONDS = 60.0
ID_CHARS = 100
NULL_CHARACTER = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True)
class Pushed:
    """Workflow ids by what a push did.

    `left` are in the database but not in the directory, and stay without `prune`.

    `migrations` are the files that were applied, `embeddings` says whether the database can store vectors.
    """

    added: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    left: tuple[str, ...]
    migrations: tuple[str, ...] = ()
    embeddings: bool = False


async def push(
    url: str,
    workflows: Sequence[Workflow],
    actions: Mapping[str, ActionText],
    *,
    prune: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Pushed:
    """Make the database offer these workflows. If it raises CatalogUnavailable, nothing has changed.

    Missing tables are created. With `prune`, workflows that are not given are disabled. A dry run is rolled
    back. `progress` is called with the number of workflows written so far and the number of all to write.
    """
    async with as_owner(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        done = await _push(connection, workflows, actions, prune=prune, progress=progress)
        await (transaction.rollback() if dry_run else transaction.commit())
        return done


async def _push(
    connection: asyncpg.Connection,
    workflows: Sequence[Workflow],
    actions: Mapping[str, ActionText],
    *,
    prune: bool,
    progress: Callable[[int, int], None],
) -> Pushed:
    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
    migrations = await migrate(connection)
    written = {w.workflow_id: (w, _document(w)) for w in workflows}
    done = _difference(
        {i: (w.version, hash_of(document)) for i, (w, document) in written.items()},
        {
            r["workflow_id"]: (r["version"], r["content_hash"])
            for r in await connection.fetch(statements.CURRENT)
        },
        prune=prune,
    )
    done = replace(done, migrations=tuple(migrations), embeddings=await has_embeddings(connection))
    fresh = [written[i] for i in (*done.added, *done.changed)]
    await connection.execute(statements.SUPERSEDE, [w.workflow_id for w, _ in fresh])
    for start in range(0, len(fresh), BATCH):
        await connection.executemany(statements.SAVE, [_row(*each) for each in fresh[start : start + BATCH]])
        progress(min(start + BATCH, len(fresh)), len(fresh))
    await connection.execute(statements.DISABLE, done.removed)
    await _save_actions(connection, actions, prune=prune)
    if fresh or done.removed:
        await _offer(connection, [*written, *done.left])
    return done


def _difference(
    wanted: Mapping[str, tuple[str, str]], current: Mapping[str, tuple[str, str]], *, prune: bool
) -> Pushed:
    """Compare the workflows to push with those in the database: version and hash by id."""
    gone = tuple(sorted(current.keys() - wanted.keys()))
    return Pushed(
        added=tuple(sorted(wanted.keys() - current.keys())),
        changed=tuple(sorted(i for i in wanted.keys() & current.keys() if wanted[i] != current[i])),
        unchanged=tuple(sorted(i for i in wanted.keys() & current.keys() if wanted[i] == current[i])),
        removed=gone if prune else (),
        left=() if prune else gone,
    )


def _document(workflow: Workflow) -> str:
    """The document. Raises CatalogUnavailable when PostgreSQL cannot store it."""
    try:
        document = document_of(workflow)
    except ValueError:
        document = ""
    if not document or NULL_CHARACTER.search(document):
        raise CatalogUnavailable(
            f"{one_line(workflow.workflow_id, ID_CHARS)} has a character that PostgreSQL cannot store"
        )
    return document


def _row(workflow: Workflow, document: str) -> tuple[object, ...]:
    fields = json.loads(document)
    parts = ("labels", "detected_labels", "custom_labels", "parameters")
    return (
        workflow.workflow_id,
        workflow.version,
        workflow.title,
        workflow.description,
        workflow.action_type,
        *(json.dumps(fields[name]) for name in parts),
        workflow.container_image,
        workflow.success_rate,
        document,
        hash_of(document),
        text_of(workflow),
    )


async def _save_actions(
    connection: asyncpg.Connection, actions: Mapping[str, ActionText], *, prune: bool
) -> None:
    rows = [(name, a.description, a.when_to_use, a.when_not_to_use) for name, a in actions.items()]
    await connection.executemany(statements.SAVE_ACTION, rows)
    if prune:
        await connection.execute(statements.FORGET_ACTIONS, list(actions))


async def _offer(connection: asyncpg.Connection, workflow_ids: Sequence[str]) -> None:
    """Replace the list of the workflows that are offered, and the counts of their words.

    Readers see the old list until the transaction ends.
    """
    await connection.execute("DELETE FROM workflow_catalog_offered")
    await connection.execute("DELETE FROM workflow_catalog_word")
    await connection.execute(statements.SAVE_OFFERED, workflow_ids)
    await connection.execute(statements.SAVE_WORDS)
    await connection.execute("ANALYZE workflow_catalog, workflow_catalog_offered, workflow_catalog_word")


async def embed(
    url: str, embedder: Embedder, *, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> int:
    """Store a vector of this model for every workflow without one, and return their number; 0 without pgvector.

    The catalog can be used without vectors: words then rank. Vectors stored before a failure stay.
    Raises CatalogUnavailable and EmbedderUnavailable.
    """
    async with as_owner(url) as connection:
        if not await has_embeddings(connection):
            return 0
        waiting = await connection.fetch(statements.WITHOUT_VECTOR, embedder.name)
        for start in range(0, len(waiting), TEXTS_BATCH):
            await _embed(connection, embedder, waiting[start : start + TEXTS_BATCH])
            progress(min(start + TEXTS_BATCH, len(waiting)), len(waiting))
        return len(waiting)


async def _embed(connection: asyncpg.Connection, embedder: Embedder, rows: list[asyncpg.Record]) -> None:
    passages = [passage_of(workflow_of(row["document"])) for row in rows]
    try:
        async with asyncio.timeout(TEXTS_SECONDS):
            vectors = await embedder.embed(passages, query=False)
    except TimeoutError:
        raise EmbedderUnavailable(f"{embedder.name} gave no vectors within {TEXTS_SECONDS:g} s") from None
    values = [
        (r["workflow_id"], r["version"], r["content_hash"], vector, embedder.name)
        for r, vector in zip(rows, vectors, strict=True)
    ]
    await connection.executemany(statements.SAVE_VECTOR, values)
