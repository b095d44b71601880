"""A PostgreSQL that is down, slow, restarted, misspelt or refuses us."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import asyncpg
import pytest

from tests.fakes.memory_catalog import workflow
from tests.nats_servers import free_ports
from tests.postgres_server import OWNER, postgres_server, rows
from tests.waiting import until
from worker.adapters.postgres_catalog import PostgresCatalog, push
from worker.adapters.postgres_catalog.driver import translated
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflows import SelectionContext

pytestmark = pytest.mark.process

ANYWHERE = SelectionContext()
A, B, C = workflow("a", "Restart"), workflow("b", "Restart"), workflow("c", "Scale")


@pytest.fixture
async def url(postgres):
    return await postgres.new_database()


async def ids(catalog, action="Restart"):
    return [w.workflow_id for w in (await catalog.workflows(action, ANYWHERE)).workflows]


async def test_a_server_that_was_restarted_is_found_again():
    with postgres_server() as server:
        url = await server.new_database()
        await push(url, [A], {})
        async with PostgresCatalog(url) as catalog:
            await asyncio.gather(*(ids(catalog) for _ in range(8)))
            server.stop()
            server.start()
            assert [["a"]] * 8 == await asyncio.gather(*(ids(catalog) for _ in range(8)))
            server.stop()
            with hurried(catalog), pytest.raises(CatalogUnavailable, match="cannot be reached"):
                await ids(catalog)
            server.start()
            assert ["a"] == await ids(catalog)


@contextlib.contextmanager
def hurried(catalog):
    """For calls that must not be answered: a short deadline, and a server that has been away for long.

    All others have plenty of time, for slow machines.
    """
    catalog._seconds, patient, catalog._answered_at = 0.3, catalog._seconds, float("-inf")
    yield
    catalog._seconds = patient


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
async def test_a_server_that_is_away_for_a_moment_is_waited_for(how):
    with postgres_server() as server:
        url = await server.new_database()
        await push(url, [A], {})
        async with PostgresCatalog(url) as catalog:
            assert ["a"] == await ids(catalog)
            catalog._answered_at += 300.0  # a slow machine is no long outage
            server.stop(how)
            asking = asyncio.gather(*(ids(catalog) for _ in range(8)))
            await until(lambda: "cannot be reached" in catalog.problem)
            assert not asking.done()
            await asyncio.to_thread(server.start)
            assert [["a"]] * 8 == await asking
            assert "" == catalog.problem


async def test_a_server_that_has_never_answered_is_not_waited_for():
    with postgres_server() as server:
        url = await server.new_database()
        server.stop()
        async with PostgresCatalog(url) as catalog:
            with pytest.raises(CatalogUnavailable, match="cannot be reached"):
                await asyncio.wait_for(catalog.check(), 10)
            server.start()


async def test_an_idle_catalog_notices_that_its_server_is_away_and_back():
    with postgres_server() as server:
        url = await server.new_database()
        await push(url, [A], {})
        async with PostgresCatalog(url) as catalog:
            following = asyncio.create_task(catalog.follow(0.05))
            server.stop()
            await until(lambda: "cannot be reached" in catalog.problem)
            await asyncio.to_thread(server.start)
            await until(lambda: not catalog.problem)
            following.cancel()


async def test_a_call_ends_at_its_deadline(url):
    await push(url, [A], {})
    holder = await asyncpg.connect(url)
    async with PostgresCatalog(url, call_seconds=30.0) as catalog:
        assert ["a"] == await ids(catalog)
        await holder.execute("BEGIN; LOCK TABLE workflow_catalog_offered")
        with hurried(catalog), pytest.raises(CatalogUnavailable, match=r"no answer within 0.3 s"):
            await ids(catalog)
        await holder.close()
        assert ["a"] == await ids(catalog)


async def test_a_slow_statement_of_a_server_that_answers_is_not_repeated(url):
    await push(url, [A], {})
    asked = []

    async def work(connection):
        asked.append(connection)
        await connection.fetch("SELECT pg_sleep(300)")

    async with PostgresCatalog(url, call_seconds=2.5) as catalog:
        assert ["a"] == await ids(catalog)
        with pytest.raises(CatalogUnavailable, match="a statement took too long"):
            await catalog.read(work)
        assert 1 == len(asked)
        assert "a statement took too long" in catalog.problem


async def test_a_locked_table_is_waited_for(url):
    await push(url, [A], {})
    holder = await asyncpg.connect(url)
    async with PostgresCatalog(url, call_seconds=2.5) as catalog:
        assert ["a"] == await ids(catalog)
        catalog._answered_at += 300.0  # a slow machine is no long outage
        await holder.execute("BEGIN; LOCK TABLE workflow_catalog_offered")
        asking = asyncio.create_task(ids(catalog))
        await until(lambda: "locked" in catalog.problem)
        await holder.close()
        assert ["a"] == await asking


SECRET = "p/w@ss:word"


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://user:{SECRET}@127.0.0.1:1/x",
        "postgresql://user:p%2Fw%40ss:word@127.0.0.1:1/x",
        "postgresql://user:secret@127.0.0.1:port/x",
        f"mysql://user:{SECRET}@db/x",
        "postgresql://user:secret@127.0.0.1:1/x?sslmode=maybe",
        "postgresql://user:secret@db.invalid/x",
        "postgresql://user:secret@[::1/x",
        "",
    ],
)
async def test_no_message_holds_the_password(address):
    async with PostgresCatalog(address) as catalog:
        for call in (catalog.check(), push(address, [A], {})):
            with pytest.raises(CatalogUnavailable) as caught:
                await call
            told = str(caught.value)
            assert caught.value.__suppress_context__
            assert not [part for part in ("secret", "p/w", "ss:word", "user:") if part in told], told


async def test_a_wrong_password_is_told_without_it():
    with postgres_server() as server:
        await server.execute("postgres", "CREATE ROLE worker LOGIN PASSWORD 'right'")
        (server.directory / "data" / "pg_hba.conf").write_text("local all worker scram-sha-256\n")
        server.stop()
        server.start()
        async with PostgresCatalog(server.url("postgres", "worker", "wrong-one")) as catalog:
            with pytest.raises(CatalogUnavailable, match="password authentication failed") as caught:
                await catalog.check()
        assert "wrong-one" not in str(caught.value)


async def test_tls_that_was_asked_for_is_never_left_out(postgres):
    async with PostgresCatalog(f"{postgres.url('postgres')}&sslmode=prefer") as catalog:
        with pytest.raises(CatalogUnavailable, match="holds no catalog yet"):
            await catalog.check()
    with postgres_server(free_ports(1)[0]) as server:
        for mode, told in (("require", "does not offer TLS"), ("verify-full", "add sslrootcert=FILE")):
            address = f"postgresql://{OWNER}@127.0.0.1:{server.port}/postgres?sslmode={mode}"
            async with PostgresCatalog(address) as catalog:
                with pytest.raises(CatalogUnavailable, match=told):
                    await catalog.check()


async def test_a_backend_that_hangs_is_not_waited_for_beyond_the_deadline():
    with postgres_server() as server:
        url = await server.new_database()
        await push(url, [A], {})
        async with PostgresCatalog(url, call_seconds=30.0) as catalog:
            assert ["a"] == await ids(catalog)
            [(backend,)] = await rows(
                url,
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'rca-worker' AND state = 'idle'",
            )
            os.kill(backend, signal.SIGSTOP)
            try:
                with hurried(catalog), pytest.raises(CatalogUnavailable, match=r"no answer within 0.3 s"):
                    await ids(catalog)
                assert ["a"] == await ids(catalog)
            finally:
                os.kill(backend, signal.SIGCONT)


async def test_a_push_does_not_wait_for_ever_for_another_one():
    with pytest.raises(CatalogUnavailable, match="such as another push"), translated(1):
        raise asyncpg.LockNotAvailableError("canceling statement due to lock timeout")


async def test_servers_of_which_none_is_the_primary_now_are_waited_for():
    """As in the middle of a switchover, with `target_session_attrs` in the address."""
    with postgres_server() as server:
        url = await server.new_database()
        await push(url, [A], {})
        async with PostgresCatalog(f"{url}&target_session_attrs=standby", call_seconds=30.0) as catalog:
            catalog._answered_at = time.monotonic() + 300.0  # it has answered when it was a standby
            asking = asyncio.create_task(ids(catalog))
            await until(lambda: "target_session_attrs" in catalog.problem or asking.done())
            assert not asking.done()
            asking.cancel()
