"""The catalog in PostgreSQL: what the shared suite cannot ask of every catalog."""

from __future__ import annotations

import functools
import math
import operator
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given

from schemas.taxonomy import Severity
from tests.corpus_files import corpus_path
from tests.examples import examples
from tests.fakes.any_workflows import CONTEXTS, QUERIES, WORKFLOWS
from tests.fakes.many_workflows import many_workflows, some_contexts
from tests.fakes.memory_catalog import MemoryCatalog, workflow
from tests.postgres_server import rows
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.postgres_catalog import PostgresCatalog, push
from worker.adapters.postgres_catalog.database import NEWEST
from worker.domain.catalog.in_memory import CatalogSnapshot
from worker.domain.catalog.similarity import words_of
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import BUSINESS_LABELS, SelectionContext

pytestmark = pytest.mark.process

CATALOG = corpus_path("catalog/restart-deployment-v1.yaml").parent
ANYWHERE = SelectionContext()
CONTEXT = SelectionContext(
    environment="production",
    priority="P1",
    severity="critical",
    signal_type="CrashLoopBackOff",
    components=(("apps/v1", "Deployment"),),
)
SAID = "SELECT workflow_id, tsvector_to_array(words) FROM workflow_catalog"
A, B, C = workflow("a", "Restart"), workflow("b", "Restart"), workflow("c", "Scale")


@pytest.fixture
async def url(postgres):
    return await postgres.new_database()


async def ids(catalog, action="Restart"):
    return [w.workflow_id for w in (await catalog.workflows(action, ANYWHERE)).workflows]


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
        with pytest.raises(
            CatalogUnavailable, match=r"newer version .3; this version knows 2.: update rca-worker"
        ):
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


async def test_a_document_changed_by_hand_is_what_decides(url):
    staging = replace(A, labels={"environment": ("staging",)})
    await push(url, [staging], {})
    async with PostgresCatalog(url) as catalog:
        assert staging == await catalog.get("a", SelectionContext(environment="staging"))
        await rows(
            url, "UPDATE workflow_catalog SET document = replace(document::text, 'staging', 'dev')::json"
        )
        assert None is await catalog.get("a", SelectionContext(environment="staging"))
        assert ("dev",) == (await catalog.get("a", SelectionContext(environment="dev"))).labels["environment"]


async def test_pages_go_on_behind_workflows_disabled_by_hand(url):
    await push(url, [workflow(f"w-{n:02}", "Restart") for n in range(25)], {})
    await rows(
        url, "UPDATE workflow_catalog SET status = 'disabled' WHERE workflow_id BETWEEN 'w-03' AND 'w-08'"
    )
    async with PostgresCatalog(url) as catalog:
        first = await catalog.workflows("Restart", ANYWHERE)
        second = await catalog.workflows("Restart", ANYWHERE, first.next_cursor)
        seen = [int(w.workflow_id[2:]) for page in (first, second) for w in page.workflows]
    assert ([0, 1, 2, *range(9, 25)], "") == (seen, second.next_cursor)


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
        self.index, self.words, self.scores = CatalogSnapshot(workflows), Words(url), {}

    async def actions(self, context):
        return self.index.actions(context)

    async def workflows(self, action_type, context, cursor):
        return self.index.page(action_type, context, cursor)

    async def search(self, query, context):
        words = str(query)
        if words not in self.scores:
            self.scores[words] = await self.words.ranks(query)
        scores = self.scores[words]
        return self.index.search(query, context, lambda ids: {i: scores[i] for i in ids if i in scores})


class Words:
    """The words that workflows share with a query, rare ones weighing more, workflow by workflow."""

    def __init__(self, url):
        self.url, self.said = url, {}

    async def ranks(self, query):
        if not self.said:
            self.said = {i: set(words) for i, words in await rows(self.url, SAID)}
        asked = " ".join(words_of(str(query)))
        [(stems,)] = await rows(self.url, "SELECT tsvector_to_array(to_tsvector('english', $1))", asked)
        counts = Counter(word for words in self.said.values() for word in words.intersection(stems))
        weights = {w: math.log1p((len(self.said) - n + 0.5) / (n + 0.5)) for w, n in sorted(counts.items())}
        shared = {i: [n for w, n in weights.items() if w in words] for i, words in self.said.items()}
        return {i: functools.reduce(operator.add, found) for i, found in shared.items() if found}


class Walk(MemoryCatalog):
    """A walk over the list, with the ranks of the words that PostgreSQL gives."""

    def __init__(self, workflows, url):
        super().__init__(workflows)
        self.words, self.scores = Words(url), {}

    async def search(self, query, context):
        self.scores = await self.words.ranks(query)
        return await super().search(query, context)

    def text_scores(self, query, ids):
        return {i: self.scores[i] for i in ids if i in self.scores}


@examples(25)
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


@pytest.mark.slow
@pytest.mark.unmeasured
async def test_answers_are_those_of_a_walk_over_20000_workflows(url):
    many = many_workflows(await FileCatalog.open(CATALOG), 20_000)
    await push(url, many, {})
    quick, plain, chance = Index(many, url), Walk(many, url), random.Random(7)
    async with PostgresCatalog(url) as catalog:
        for number, full in enumerate(some_contexts(40)):
            context = replace(full, **{name: "" for name in BUSINESS_LABELS if chance.random() < 0.3})
            query = SearchQuery(full.signal_type, Severity(full.severity), ("rollback",), min_confidence=0.0)
            action = chance.choice(many).action_type
            await same_answers(quick if number else plain, catalog, context, query, action)
