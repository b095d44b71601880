"""Connections to PostgreSQL, and checks of its tables.

Reads have a small pool, one snapshot per call and a deadline. When the server is lost, or its tables are locked,
they are retried until it has been away for a while, so that a restart, a failover or a push is not noticed.
Tables are made by numbered files of SQL, each applied once.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, Self, TypeVar

from worker.adapters.postgres_catalog.driver import LOST, PUSH, ServerLost, asyncpg, translated
from worker.domain.values.errors import CatalogUnavailable

Answer = TypeVar("Answer")

CONNECTIONS = 4
CONNECT_SECONDS = 3.0
CLOSE_SECONDS = 2.0
STATEMENT, LOCK_WAIT = 0.8, 0.5
"""How much of a read one statement may take, and its wait for a lock. Before the deadline of the read, the server
then tells that it is slow or locked; one that tells nothing is away."""
AWAY_SECONDS = 15.0
"""How long after its last answer the server is waited for: less than a tool call may take."""
RETRY_SECONDS = 0.5
OWNER_SECONDS = 1800.0
"""The limit of a push, including the vectors of thousands of workflows."""
LOCK_SECONDS = 60.0
"""How long a push waits for another push."""
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
FILE = re.compile(r"(\d{4})_\w+\.sql")
DIRECTORY = files(__package__) / "migrations"
LOCK = 0x7263615F63617461
"""Key of the advisory lock of a push: one at a time."""


class Database:
    """`url` is a postgresql:// address; its `sslmode` decides about TLS.

    `call_seconds` bounds one try of a `read`.

    Connections are made when needed, and each one checks that the tables are of this version. `problem` says
    why the last call failed; empty when it succeeded.
    """

    def __init__(self, url: str, *, call_seconds: float) -> None:
        self._seconds = call_seconds
        self.problem, self._answered_at = "", float("-inf")
        self._pool: Any = asyncpg.create_pool(
            url,
            min_size=0,
            max_size=CONNECTIONS,
            timeout=CONNECT_SECONDS,
            init=check,
            reset=_nothing,
            server_settings=_session(STATEMENT * call_seconds, LOCK_WAIT * call_seconds),
        )

    async def __aenter__(self) -> Self:
        """Opens nothing yet: the first call connects."""
        with translated(self._seconds):
            await self._pool
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connections, those in use as well."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def read(self, work: Callable[[asyncpg.Connection], Awaitable[Answer]]) -> Answer:
        """The result of `work`, whose statements all see the same state. Raises CatalogUnavailable.

        `work` may be called again, because only a lost connection shows that the server was restarted. A
        server that has not answered yet is not waited for: its address may be wrong. A statement that a server
        ends because it takes too long is not repeated.
        """
        until = self._answered_at + AWAY_SECONDS
        while True:
            try:
                answer = await self._in_time(work)
            except CatalogUnavailable as error:
                self.problem = str(error)
                if not isinstance(error, ServerLost) or time.monotonic() > until:
                    raise CatalogUnavailable(self.problem) from None
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.problem, self._answered_at = "", time.monotonic()
                return answer

    async def _in_time(self, work: Callable[[asyncpg.Connection], Awaitable[Answer]]) -> Answer:
        with translated(self._seconds):
            async with asyncio.timeout(self._seconds):
                try:
                    return await self._once(work)
                except LOST:
                    await self._pool.expire_connections()
                    return await self._once(work)

    async def _once(self, work: Callable[[asyncpg.Connection], Awaitable[Answer]]) -> Answer:
        async with self._pool.acquire() as connection:
            try:
                await connection.execute(SNAPSHOT)
                answer = await work(connection)
                await connection.execute("COMMIT")
            except BaseException:
                connection.terminate()  # its state is unknown: the next call gets another connection
                raise
            return answer


@asynccontextmanager
async def as_owner(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection that may write.

    Raises CatalogUnavailable. Uncommitted changes are rolled back at the end.
    """
    with translated(OWNER_SECONDS):
        async with asyncio.timeout(OWNER_SECONDS):
            settings = _session(OWNER_SECONDS, LOCK_SECONDS)
            connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, server_settings=settings)
            try:
                yield connection
            finally:
                connection.terminate()


def _session(statement_seconds: float, lock_seconds: float) -> dict[str, str]:
    """Session settings: the server itself ends a statement that nobody waits for."""
    limits = {"statement_timeout": statement_seconds, "lock_timeout": lock_seconds}
    return {"application_name": "rca-worker", **{name: _milliseconds(s) for name, s in limits.items()}}


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


async def _nothing(_connection: object) -> None:
    """Does nothing: a session keeps no state between two calls."""


def migrations() -> list[tuple[int, str]]:
    """The number, from 1, and the name of each migration, in order."""
    found = [
        (int(match[1]), entry.name) for entry in DIRECTORY.iterdir() if (match := FILE.fullmatch(entry.name))
    ]
    return sorted(found)


NEWEST = migrations()[-1][0]


async def migrate(connection: asyncpg.Connection) -> list[str]:
    """Apply the missing migrations and return their names, in a transaction that holds LOCK.

    Raises CatalogUnavailable.
    """
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
    """True if this database can store vectors."""
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
            f"the database has tables of a newer version ({applied}; this version knows {NEWEST}): update rca-worker"
        )
    return applied
