"""Writing workflows into PostgreSQL: what a push does, and that it does all of it or nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import asyncpg
import pytest

from tests.fakes.memory_catalog import labels, workflow
from tests.postgres_server import rows
from worker.adapters.postgres_catalog import PostgresCatalog, push
from worker.adapters.postgres_catalog.database import DIRECTORY, LOCK
from worker.adapters.postgres_catalog.rows import document_of, hash_of, workflow_of
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflows import ActionText, Parameter, SelectionContext

pytestmark = pytest.mark.process

ANYWHERE = SelectionContext()
A, B, C = workflow("a", "Restart"), workflow("b", "Restart"), workflow("c", "Scale")


@pytest.fixture
async def url(postgres):
    return await postgres.new_database()


async def ids(catalog, action="Restart"):
    return [w.workflow_id for w in (await catalog.workflows(action, ANYWHERE)).workflows]


async def test_a_push_says_what_it_did_and_does_it_once(url):
    first = await push(url, [A, B], {})
    assert (("a", "b"), ("0001_catalog.sql", "0002_offered.sql")) == (first.added, first.migrations)
    second = await push(url, [A, replace(B, description="other"), C], {})
    assert (("c",), ("b",), ("a",), ()) == (second.added, second.changed, second.unchanged, second.migrations)
    before = await rows(url, "SELECT workflow_id, xmin::text FROM workflow_catalog ORDER BY 1")
    third = await push(url, [A, replace(B, description="other"), C], {})
    assert ((), (), ("a", "b", "c")) == (third.added, third.changed, third.unchanged)
    assert before == await rows(url, "SELECT workflow_id, xmin::text FROM workflow_catalog ORDER BY 1")


FIRST_VERSION = """
    CREATE TABLE workflow_catalog_migration (number integer PRIMARY KEY, name text NOT NULL);
    INSERT INTO workflow_catalog_migration VALUES (1, '0001_catalog.sql');
    INSERT INTO workflow_catalog (workflow_id, version, name, description, action_type, labels, detected_labels,
        custom_labels, parameters, container_image, document, content_hash, words)
    SELECT d->>'workflow_id', d->>'version', d->>'title', d->>'description', d->>'action_type', d->'labels',
        d->'detected_labels', d->'custom_labels', d->'parameters', d->>'container_image', '{0}', '{1}',
        to_tsvector('english', d->>'description')
    FROM (SELECT '{0}'::jsonb) AS it (d);
    INSERT INTO workflow_catalog_place SELECT 0, workflow_id, version FROM workflow_catalog;
"""


async def test_the_tables_of_the_first_version_are_migrated_with_their_content(url):
    raises = replace(A, description="raises memory")
    document = document_of(raises)
    connection = await asyncpg.connect(url)
    await connection.execute((DIRECTORY / "0001_catalog.sql").read_text())
    await connection.execute(FIRST_VERSION.format(document, hash_of(document)))
    await connection.close()
    async with PostgresCatalog(url) as catalog:
        with pytest.raises(CatalogUnavailable, match="older version: run `rca catalog push"):
            await catalog.check()
        done = await push(url, [raises], {})
        assert (("a",), ("0002_offered.sql",)) == (done.unchanged, done.migrations)
        assert ["a"] == await ids(catalog)
    assert [("memori", 1), ("rais", 1)] == await rows(url, "SELECT * FROM workflow_catalog_word ORDER BY 1")


async def test_what_is_no_longer_there_stays_until_it_is_pruned(url):
    await push(url, [A, B], {"Restart": ActionText("restarts"), "Scale": ActionText("scales")})
    async with PostgresCatalog(url) as catalog:
        kept = await push(url, [A, C], {"Restart": ActionText("restarts anew")})
        assert (("b",), (), ["a", "b"]) == (kept.left, kept.removed, await ids(catalog))
        pruned = await push(url, [A, C], {"Restart": ActionText("restarts anew")}, prune=True)
        assert (("b",), (), ["a"]) == (pruned.removed, pruned.left, await ids(catalog))
        assert ["restarts anew", ""] == [a.text.description for a in await catalog.actions(ANYWHERE)]
        assert await catalog.get("b", ANYWHERE) is None
        again = await push(url, [A, B, C], {})
        assert (("b",), ["a", "b"]) == (again.added, await ids(catalog))


async def test_a_new_version_replaces_the_old_one_which_is_kept(url):
    await push(url, [replace(A, version="1")], {})
    assert ("a",) == (await push(url, [replace(A, version="2")], {})).changed
    async with PostgresCatalog(url) as catalog:
        assert "2" == (await catalog.get("a", ANYWHERE)).version
        assert ("a",) == (await push(url, [replace(A, version="1")], {})).changed
        assert "1" == (await catalog.get("a", ANYWHERE)).version
    kept = await rows(url, "SELECT version, is_latest_version FROM workflow_catalog ORDER BY version")
    assert [("1", True), ("2", False)] == kept


async def test_a_dry_run_changes_nothing(url):
    done = await push(url, [A], {}, dry_run=True)
    assert (("a",), ("0001_catalog.sql", "0002_offered.sql")) == (done.added, done.migrations)
    assert [] == await rows(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")


async def test_a_push_that_fails_half_way_changes_nothing(url):
    await push(url, [A], {})
    with pytest.raises(CatalogUnavailable, match="b has a character that PostgreSQL"):
        await push(url, [replace(A, description="other"), replace(B, description="x\0y")], {})
    with pytest.raises(CatalogUnavailable, match="b has a character that PostgreSQL"):
        await push(url, [replace(A, description="other"), replace(B, description="x\ud800y")], {})
    await rows(url, "ALTER TABLE workflow_catalog_word ADD CHECK (word <> 'evict')")
    with pytest.raises(CatalogUnavailable, match="check constraint"):
        await push(url, [replace(A, description="other", labels=labels(signal_type="Evicted")), B], {})
    async with PostgresCatalog(url) as catalog:
        assert (["a"], A) == (await ids(catalog), await catalog.get("a", ANYWHERE))


async def test_columns_are_those_of_the_documents_that_define_the_table(url):
    await push(url, [replace(A, title="restart", success_rate=0.9)], {})
    [found] = await rows(
        url,
        "SELECT workflow_id, version, name, labels->'severity'->>0, parameters->0->>'name', status,"
        " is_latest_version, success_rate, container_image FROM workflow_catalog",
    )
    assert (
        "a",
        "1.2.0",
        "restart",
        "critical",
        "TARGET_RESOURCE_NAME",
        "active",
        True,
        0.9,
        A.container_image,
    ) == found


async def test_progress_is_told_batch_by_batch(url):
    seen = []
    many = [workflow(f"w-{n:04}") for n in range(1200)]
    await push(url, many, {}, progress=lambda done, total: seen.append((done, total)))
    assert [(500, 1200), (1000, 1200), (1200, 1200)] == seen


async def test_two_pushes_at_once_come_one_after_the_other(url):
    both = await asyncio.gather(push(url, [A, B], {}), push(url, [A, B], {}))
    assert [(), ("a", "b")] == sorted(done.added for done in both)


async def test_readers_see_the_old_catalog_until_a_push_is_through(url):
    await push(url, [A], {})
    holder = await asyncpg.connect(url)
    async with PostgresCatalog(url) as catalog:
        await holder.execute("SELECT pg_advisory_lock($1)", LOCK)
        pushing = asyncio.create_task(push(url, [A, B], {}))
        await asyncio.sleep(0.05)
        assert ["a"] == await ids(catalog)
        await holder.close()
        await pushing
        assert ["a", "b"] == await ids(catalog)


async def test_a_workflow_comes_back_as_it_was():
    made = replace(
        A,
        detected_labels={"stateful": True, "gitops_tool": "argocd"},
        custom_labels={"z": ("1",), "a": ("2", "*")},
        parameters=(
            Parameter("P", default=[1, "x", None], enum=(1.5, "2"), minimum=1, items=Parameter("I")),
        ),
    )
    found = workflow_of(document_of(made))
    assert (made, list(made.custom_labels)) == (found, list(found.custom_labels))
