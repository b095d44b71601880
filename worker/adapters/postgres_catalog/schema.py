"""The tables: numbered files of SQL, each applied once."""

from __future__ import annotations

import re
from importlib.resources import files

from worker.adapters.postgres_catalog.driver import PUSH, asyncpg
from worker.domain.values.errors import CatalogUnavailable

FILE = re.compile(r"(\d{4})_\w+\.sql")
DIRECTORY = files(__package__) / "migrations"
LOCK = 0x7263615F63617461
"""Key of the advisory lock that changes of the catalog hold: one at a time."""


def migrations() -> list[tuple[int, str]]:
    """Numbers from 1 and names, in order."""
    found = [
        (int(match[1]), entry.name) for entry in DIRECTORY.iterdir() if (match := FILE.fullmatch(entry.name))
    ]
    return sorted(found)


NEWEST = migrations()[-1][0]


async def migrate(connection: asyncpg.Connection) -> list[str]:
    """Apply what is missing and answer its names. Runs in a transaction that holds LOCK. Raises CatalogUnavailable."""
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS workflow_catalog_migration"
        " (number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
    )
    applied = await _applied(connection)
    missing = [(number, name) for number, name in migrations() if number > applied]
    for number, name in missing:
        try:
            await connection.execute((DIRECTORY / name).read_text("utf-8"))
        except asyncpg.DuplicateTableError as error:
            raise CatalogUnavailable(
                f"PostgreSQL: {error.args[0]}, and not by us: use another database, or another schema"
                " (?search_path=NAME at the end of the address)"
            ) from None
        await connection.execute(
            "INSERT INTO workflow_catalog_migration (number, name) VALUES ($1, $2)", number, name
        )
    await connection.execute((DIRECTORY / "embedding.sql").read_text("utf-8"))
    return [name for _, name in missing]


async def check(connection: asyncpg.Connection) -> None:
    """Raises CatalogUnavailable when the tables are not those of this version."""
    try:
        applied = await _applied(connection)
    except asyncpg.UndefinedTableError:
        applied = 0
    if applied < NEWEST:
        state = "holds no catalog yet" if not applied else "has tables of an older version"
        raise CatalogUnavailable(f"the database {state}: run `{PUSH}`")


async def has_embeddings(connection: asyncpg.Connection) -> bool:
    """Whether workflows can have vectors here."""
    found = await connection.fetchval(
        "SELECT 1 FROM pg_attribute WHERE attrelid = 'workflow_catalog'::regclass"
        " AND attname = 'embedding' AND NOT attisdropped"
    )
    return found is not None


async def _applied(connection: asyncpg.Connection) -> int:
    applied: int = await connection.fetchval(
        "SELECT coalesce(max(number), 0) FROM workflow_catalog_migration"
    )
    if applied > NEWEST:
        raise CatalogUnavailable(
            f"the database has tables of a newer version ({applied}, we know {NEWEST}): update rca-worker"
        )
    return applied
