"""The catalog in PostgreSQL: what the shared suite cannot ask of every catalog."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg
import pytest
from hypothesis import given, settings

from schemas.taxonomy import Severity
from tests.corpus_files import corpus_path
from tests.fakes.any_workflows import CONTEXTS, QUERIES, WORKFLOWS
from tests.fakes.many_workflows import many_workflows, some_contexts
from tests.fakes.memory_catalog import MemoryCatalog, labels, workflow
from tests.postgres_server import postgres_server
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.postgres_catalog import PostgresCatalog, push
from worker.adapters.postgres_catalog.ranking import text_query
from worker.adapters.postgres_catalog.schema import LOCK, NEWEST
from worker.adapters.postgres_catalog.statements import BITS
from worker.adapters.postgres_catalog.stored import document_of, keys_for, workflow_of
from worker.domain.catalog_index import CatalogIndex
from worker.domain.errors import CatalogUnavailable
from worker.domain.search import SearchQuery
from worker.domain.workflow import BUSINESS_LABELS, ActionText, Parameter, SelectionContext

CATALOG = corpus_path("catalog/restart-deployment-v1.yaml").parent
ANYWHERE = SelectionContext()
CONTEXT = SelectionContext(
    environment="production",
    priority="P1",
    severity="critical",
    signal_type="CrashLoopBackOff",
    components=(("apps/v1", "Deployment"),),
)
A, B, C = workflow("a", "Restart"), workflow("b", "Restart"), workflow("c", "Scale")


@pytest.fixture
async def url(postgres):
    return await postgres.new_database()


async def ids(catalog, action="Restart"):
    return [w.workflow_id for w in (await catalog.workflows(action, ANYWHERE)).workflows]


async def rows(url, statement, *values):
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement, *values)]
    finally:
        await connection.close()


# -- pushing


async def test_a_push_says_what_it_did_and_does_it_once(url):
    first = await push(url, [A, B], {})
    assert (("a", "b"), ("0001_catalog.sql",)) == (first.added, first.migrations)
    second = await push(url, [A, replace(B, description="other"), C], {})
    assert (("c",), ("b",), ("a",), ()) == (second.added, second.changed, second.unchanged, second.migrations)
    before = await rows(url, "SELECT workflow_id, xmin::text FROM workflow_catalog ORDER BY 1")
    third = await push(url, [A, replace(B, description="other"), C], {})
    assert ((), (), ("a", "b", "c")) == (third.added, third.changed, third.unchanged)
    assert before == await rows(url, "SELECT workflow_id, xmin::text FROM workflow_catalog ORDER BY 1")


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
    assert (("a",), ("0001_catalog.sql",)) == (done.added, done.migrations)
    assert [] == await rows(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")


async def test_a_push_that_fails_half_way_changes_nothing(url):
    await push(url, [A], {})
    with pytest.raises(CatalogUnavailable, match="b has a NUL character"):
        await push(url, [replace(A, description="other"), replace(B, description="x\0y")], {})
    await rows(url, "ALTER TABLE workflow_catalog_bits ADD CHECK (value <> 'evicted')")
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


# -- the tables


async def test_a_database_without_a_catalog_says_what_to_do(url):
    async with PostgresCatalog(url) as catalog:
        with pytest.raises(CatalogUnavailable, match="holds no catalog yet: run `rca catalog push DIR`"):
            await catalog.check()
        await push(url, [A], {})
        await catalog.check()


async def test_a_catalog_without_workflows_says_what_to_do(url):
    await push(url, [], {})
    async with PostgresCatalog(url) as catalog:
        with pytest.raises(CatalogUnavailable, match="no workflows in the database: run `rca catalog push"):
            await catalog.check()


async def test_tables_of_a_newer_version_are_left_alone(url):
    await push(url, [A], {})
    await rows(
        url, "INSERT INTO workflow_catalog_migration (number, name) VALUES ($1, 'later.sql')", NEWEST + 1
    )
    async with PostgresCatalog(url) as catalog:
        with pytest.raises(CatalogUnavailable, match=r"newer version .2, we know 1.: update rca-worker"):
            await catalog.check()
    with pytest.raises(CatalogUnavailable, match="newer version"):
        await push(url, [A], {})


async def test_a_table_of_that_name_that_is_not_ours_is_left_alone(url):
    await rows(url, "CREATE TABLE workflow_catalog (id int)")
    await rows(url, "CREATE SCHEMA rca")
    with pytest.raises(CatalogUnavailable, match="already exists, and not by us"):
        await push(url, [A], {})
    await push(f"{url}&search_path=rca", [A], {})
    async with PostgresCatalog(f"{url}&search_path=rca") as catalog:
        assert ["a"] == await ids(catalog)


async def test_without_pgvector_there_is_no_column_for_vectors_and_all_the_rest_works(postgres, url):
    database = url.partition("@/")[2].partition("?")[0]
    await postgres.execute(
        database, "CREATE ROLE plain LOGIN; GRANT CREATE ON SCHEMA public TO plain"
    )  # extensions need more
    done = await push(postgres.url(database, "plain"), [A, B], {})
    assert not done.embeddings
    async with PostgresCatalog(postgres.url(database, "plain")) as catalog:
        page = await catalog.search(SearchQuery("CrashLoopBackOff", Severity.CRITICAL), ANYWHERE)
        assert ["a", "b"] == [m.workflow.workflow_id for m in page.matches]
    assert (await push(url, [A, B], {})).embeddings


async def test_a_reader_needs_nothing_but_select(postgres, url):
    await push(url, [A], {})
    database = url.partition("@/")[2].partition("?")[0]
    await postgres.execute(database, "CREATE ROLE reader LOGIN")
    async with PostgresCatalog(postgres.url(database, "reader")) as catalog:
        with pytest.raises(
            CatalogUnavailable, match=r"permission denied.*needs SELECT on the tables workflow_"
        ):
            await catalog.check()
        await postgres.execute(database, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        assert ["a"] == await ids(catalog)
        assert await catalog.get("a", CONTEXT) == A
        await catalog.search(SearchQuery("CrashLoopBackOff", Severity.CRITICAL), ANYWHERE)
    with pytest.raises(CatalogUnavailable, match="permission denied"):
        await push(postgres.url(database, "reader"), [B], {})


async def test_a_workflow_disabled_by_hand_is_not_offered_any_more(url):
    await push(url, [A, B], {})
    await rows(url, "UPDATE workflow_catalog SET status = 'disabled' WHERE workflow_id = 'a'")
    async with PostgresCatalog(url) as catalog:
        assert (["b"], None) == (await ids(catalog), await catalog.get("a", ANYWHERE))
        page = await catalog.search(SearchQuery("CrashLoopBackOff", Severity.CRITICAL), ANYWHERE)
        assert ["b"] == [m.workflow.workflow_id for m in page.matches]


# -- hostile and odd values


@pytest.mark.parametrize("odd", ["\0", "\ud800", "'; DROP TABLE workflow_catalog; --", "%", "x" * 100_000])
async def test_no_value_of_a_context_or_a_query_breaks_a_look_up(url, odd):
    await push(url, [A], {})
    context = replace(
        CONTEXT, environment=odd, components=((odd, odd),), custom_labels={odd: [odd]}, signal_type=odd
    )
    async with PostgresCatalog(url) as catalog:
        assert () == (await catalog.workflows(odd, context, odd)).workflows
        assert await catalog.get(odd, context) is None
        assert {"environment": 1, "component": 1, "signal_type": 1} == (
            await catalog.search(SearchQuery(odd, Severity.CRITICAL, (odd,)), context)
        ).excluded
        assert 1 == (await catalog.actions(CONTEXT))[0].workflow_count


# -- the same answers as a walk over the list


class Index:
    """All workflows in memory, arranged for speed, which is tested against the walk elsewhere."""

    def __init__(self, workflows, url):
        self.index, self.url = CatalogIndex(workflows), url

    async def actions(self, context):
        return self.index.actions(context)

    async def workflows(self, action_type, context, cursor):
        return self.index.page(action_type, context, cursor)

    async def search(self, query, context):
        scores = await ranks(self.url, query)
        return self.index.search(query, context, lambda ids: {i: scores[i] for i in ids if i in scores})


async def ranks(url, query):
    """What PostgreSQL makes of the words of a query."""
    statement = "SELECT workflow_id, ts_rank(words, q) FROM workflow_catalog, to_tsquery('english', $1) q WHERE words @@ q"
    return dict(await rows(url, statement, text_query(query)))


class Walk(MemoryCatalog):
    """A walk over the list, with the ranks of the words that PostgreSQL gives."""

    def __init__(self, workflows, url):
        super().__init__(workflows)
        self.url, self.scores = url, {}

    async def search(self, query, context):
        self.scores = await ranks(self.url, query)
        return await super().search(query, context)

    def text_scores(self, query, ids):
        return {i: self.scores[i] for i in ids if i in self.scores}


@settings(deadline=None, max_examples=40)
@given(WORKFLOWS.filter(bool), CONTEXTS, QUERIES)
async def test_answers_are_those_of_a_walk_over_all_workflows(postgres, workflows, context, query):
    url = await postgres.new_database()
    await push(url, workflows, {})
    plain = Walk(workflows, url)
    async with PostgresCatalog(url) as catalog:
        await same_answers(plain, catalog, context, query, "RESTART")
        for w in workflows:
            assert await plain.get(w.workflow_id, context) == await catalog.get(w.workflow_id, context)


async def same_answers(plain, catalog, context, query, action_type):
    assert list(await plain.actions(context)) == list(await catalog.actions(context))
    cursor = ""
    for _ in range(2):
        page = await plain.workflows(action_type, context, cursor)
        assert page == await catalog.workflows(action_type, context, cursor)
        cursor = page.next_cursor
    assert await plain.search(query, context) == await catalog.search(query, context)


async def test_answers_are_those_of_a_walk_over_20000_workflows(url):
    many = many_workflows(await FileCatalog.open(CATALOG), 20_000)
    await push(url, many, {})
    quick, plain, chance = Index(many, url), Walk(many, url), random.Random(7)
    async with PostgresCatalog(url) as catalog:
        for number, full in enumerate(some_contexts(100)):
            context = replace(full, **{name: "" for name in BUSINESS_LABELS if chance.random() < 0.3})
            query = SearchQuery(full.signal_type, Severity(full.severity), ("rollback",), min_confidence=0.0)
            action = chance.choice(many).action_type
            await same_answers(quick if number else plain, catalog, context, query, action)


async def test_values_are_looked_up_by_the_btree_of_the_labels(url):
    """Where there are many values: a planner rather reads a table of a few pages whole."""
    many = [
        workflow(f"w-{n}", labels=labels(signal_type=f"Signal{n}"), custom_labels={"team": (f"t{n}",)})
        for n in range(3000)
    ]
    await push(url, many, {})
    keys = keys_for(replace(CONTEXT, signal_type="Signal7", custom_labels={"team": ["t7", "t8"]}))
    plan = "\n".join(
        line for (line,) in await rows(url, f"EXPLAIN {BITS}", *map(list, zip(*keys, strict=True)))
    )
    assert "Index Scan using workflow_catalog_bits_pkey" in plan
    assert "Seq Scan" not in plan


# -- failures


@asynccontextmanager
async def own_server():
    with postgres_server() as server:
        yield server


async def test_a_server_that_was_restarted_is_found_again():
    async with own_server() as server:
        url = await server.new_database()
        await push(url, [A], {})
        async with PostgresCatalog(url) as catalog:
            await asyncio.gather(*(ids(catalog) for _ in range(8)))
            server.stop()
            server.start()
            assert [["a"]] * 8 == await asyncio.gather(*(ids(catalog) for _ in range(8)))
            server.stop()
            with pytest.raises(CatalogUnavailable, match="cannot be reached"):
                await ids(catalog)
            server.start()
            assert ["a"] == await ids(catalog)


async def test_a_call_ends_at_its_deadline(url):
    await push(url, [A], {})
    holder = await asyncpg.connect(url)
    async with PostgresCatalog(url, call_seconds=0.3) as catalog:
        assert ["a"] == await ids(catalog)
        await holder.execute("BEGIN; LOCK TABLE workflow_catalog_bits")
        with pytest.raises(CatalogUnavailable, match=r"no answer within 0.3 s|took too long"):
            await ids(catalog)
        await holder.close()
        assert ["a"] == await ids(catalog)


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
    async with own_server() as server:
        await server.execute("postgres", "CREATE ROLE worker LOGIN PASSWORD 'right'")
        (server.directory / "data" / "pg_hba.conf").write_text("local all worker scram-sha-256\n")
        server.stop()
        server.start()
        async with PostgresCatalog(server.url("postgres", "worker", "wrong-one")) as catalog:
            with pytest.raises(CatalogUnavailable, match="password authentication failed") as caught:
                await catalog.check()
        assert "wrong-one" not in str(caught.value)
