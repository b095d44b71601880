"""Reading from PostgreSQL: a small pool, one snapshot a call, a deadline, and a second try when a connection was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from worker.adapters.postgres_catalog.driver import LOST, asyncpg, translated
from worker.adapters.postgres_catalog.schema import check
from worker.domain.values.errors import CatalogUnavailable

Answer = TypeVar("Answer")

CONNECTIONS = 4
CONNECT_SECONDS = 3.0
CLOSE_SECONDS = 2.0
OWNER_SECONDS = 1800.0
"""For everything a push does, vectors of thousands of workflows included."""
LOCK_SECONDS = 60.0
"""How long a push waits for another one."""
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Database:
    """`url` is a postgresql:// address; its `sslmode` decides about TLS. `call_seconds` bounds one `read`, all included.

    Connections are made when they are needed, and each is checked for the tables of this version. `problem` says why the
    last call failed; empty when it did not.
    """

    def __init__(self, url: str, *, call_seconds: float) -> None:
        self._seconds = call_seconds
        self.problem = ""
        self._pool: Any = asyncpg.create_pool(
            url,
            min_size=0,
            max_size=CONNECTIONS,
            timeout=CONNECT_SECONDS,
            init=check,
            reset=_nothing,
            server_settings=_session(call_seconds),
        )

    async def __aenter__(self) -> Self:
        """Connects to nothing yet."""
        with translated(self._seconds):
            await self._pool
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connections, those in use as well."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def read(self, work: Callable[[asyncpg.Connection], Awaitable[Answer]]) -> Answer:
        """What `work` answers, all of whose statements see the same state. Raises CatalogUnavailable.

        It may be called twice: a server that was restarted is noticed by the connections that it cut.
        """
        try:
            with translated(self._seconds):
                async with asyncio.timeout(self._seconds):
                    answer = await self._twice(work)
        except CatalogUnavailable as error:
            self.problem = str(error)
            raise
        self.problem = ""
        return answer

    async def _twice(self, work: Callable[[asyncpg.Connection], Awaitable[Answer]]) -> Answer:
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
                connection.terminate()  # in whatever state it is: the next call gets another one
                raise
            return answer


@asynccontextmanager
async def as_owner(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to change things with. Raises CatalogUnavailable. What is not committed at the end is taken back."""
    with translated(OWNER_SECONDS):
        async with asyncio.timeout(OWNER_SECONDS):
            settings = {**_session(OWNER_SECONDS), "lock_timeout": _milliseconds(LOCK_SECONDS)}
            connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, server_settings=settings)
            try:
                yield connection
            finally:
                connection.terminate()


def _session(statement_seconds: float) -> dict[str, str]:
    """What a session starts with: the server ends by itself what nobody waits for any more."""
    return {"application_name": "rca-worker", "statement_timeout": _milliseconds(statement_seconds)}


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


async def _nothing(_connection: object) -> None:
    """Sessions keep no state between two calls, so there is none to reset."""
