"""Ranking by meaning in PostgreSQL, and by words whenever that cannot be."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from schemas.taxonomy import Severity
from tests.corpus_files import corpus_path
from tests.fakes.many_workflows import many_workflows, some_contexts
from tests.fakes.memory_catalog import workflow
from tests.fakes.memory_embedder import MemoryEmbedder
from tests.postgres_server import rows
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.postgres_catalog import PostgresCatalog, embed, push
from worker.domain.values.errors import EmbedderUnavailable
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import SelectionContext

pytestmark = pytest.mark.process

CATALOG = corpus_path("catalog/restart-deployment-v1.yaml").parent
ANYWHERE = SelectionContext()
QUERY = SearchQuery("CrashLoopBackOff", Severity.CRITICAL, ("bigger", "heap"))
WORKFLOWS = [
    workflow("a", description="bigger replicas"),
    workflow("b", description="raises memory"),
    workflow("c", description="restarts"),
]
BY_WORDS, BY_MEANING = ["a", "b", "c"], ["b", "a", "c"]


@pytest.fixture
async def url(postgres):
    found = await postgres.new_database()
    await push(found, WORKFLOWS, {})
    return found


async def found(catalog):
    return [m.workflow.workflow_id for m in (await catalog.search(QUERY, ANYWHERE)).matches]


async def test_vectors_decide_between_workflows_whose_labels_fit_alike(url):
    assert 3 == await embed(url, MemoryEmbedder())
    async with PostgresCatalog(url) as plain, PostgresCatalog(url, embedder=MemoryEmbedder()) as catalog:
        assert BY_WORDS == await found(plain)
        assert (BY_MEANING, "") == (await found(catalog), catalog.meaning_problem)


async def test_answers_by_meaning_are_those_of_the_same_catalog_in_memory(postgres):
    words = ("memory", "heap", "rolls", "node", "replicas", "restarts", "cache", "host")
    many = [
        replace(w, description=" ".join(random.Random(w.workflow_id).sample(words, 3)))
        for w in many_workflows(await FileCatalog.open(CATALOG), 2_000)
    ]
    url = await postgres.new_database()
    await push(url, many, {})
    await embed(url, MemoryEmbedder())
    plain = FileCatalog(many, embedder=MemoryEmbedder())
    await plain.embed_missing()
    async with PostgresCatalog(url, embedder=MemoryEmbedder()) as catalog:
        for context in some_contexts(40):
            query = SearchQuery(context.signal_type, Severity(context.severity), ("bigger", "ram"))
            assert await plain.search(query, context) == await catalog.search(query, context)
        assert "" == catalog.meaning_problem


async def test_only_what_changed_is_embedded_again(url):
    embedder, told = MemoryEmbedder(), []
    await embed(url, embedder, progress=lambda done, total: told.append((done, total)))
    await push(url, [replace(WORKFLOWS[0], description="other"), *WORKFLOWS[1:]], {})
    assert 1 == await embed(url, embedder)
    assert ([3, 1], [(3, 3)]) == ([len(call) for call in embedder.calls], told)
    assert 0 == await embed(url, embedder)


async def test_words_rank_while_the_embedder_is_down(url):
    embedder = MemoryEmbedder()
    await embed(url, embedder)
    embedder.down = True
    async with PostgresCatalog(url, embedder=embedder) as catalog:
        assert (BY_WORDS, "the embedder is down") == (await found(catalog), catalog.meaning_problem)


async def test_words_rank_while_a_workflow_has_no_vector_of_the_model(url):
    await embed(url, MemoryEmbedder("other"))
    async with PostgresCatalog(url, embedder=MemoryEmbedder()) as catalog:
        assert BY_WORDS == await found(catalog)
        assert "3 workflows have no vector of memory: run `rca catalog push DIR`" == catalog.meaning_problem
        await embed(url, MemoryEmbedder())
        assert (BY_MEANING, "") == (await found(catalog), catalog.meaning_problem)
        await push(url, [*WORKFLOWS[:2], replace(WORKFLOWS[2], description="other")], {})
        assert BY_WORDS == await found(catalog)


async def test_words_rank_where_vectors_of_one_model_differ_in_length(url):
    await embed(url, MemoryEmbedder())
    await rows(url, "UPDATE workflow_catalog SET embedding = '[1,0]' WHERE workflow_id = 'c'")
    async with PostgresCatalog(url, embedder=MemoryEmbedder()) as catalog:
        assert BY_WORDS == await found(catalog)


async def test_words_rank_where_the_database_cannot_keep_vectors(url):
    await rows(url, "ALTER TABLE workflow_catalog DROP COLUMN embedding")
    assert 0 == await embed(url, MemoryEmbedder())
    async with PostgresCatalog(url, embedder=MemoryEmbedder()) as catalog:
        assert BY_WORDS == await found(catalog)
        assert "the database cannot store vectors: it has no pgvector" == catalog.meaning_problem


class FailsSecond(MemoryEmbedder):
    """Down after the first call."""

    async def embed(self, texts, *, query):
        answer = await super().embed(texts, query=query)
        self.down = True
        return answer


async def test_what_was_embedded_before_a_failure_stays(postgres):
    url = await postgres.new_database()
    await push(url, [workflow(f"w-{n:02}") for n in range(20)], {})
    with pytest.raises(EmbedderUnavailable):
        await embed(url, FailsSecond())
    assert 4 == await embed(url, MemoryEmbedder())
