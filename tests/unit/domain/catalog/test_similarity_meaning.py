"""The vectors of a catalog: complete or not used, each text embedded once."""

from __future__ import annotations

import asyncio

import pytest

from schemas.taxonomy import Severity
from tests.fakes.memory_embedder import MemoryEmbedder
from worker.domain.catalog import similarity
from worker.domain.catalog.similarity import BATCH, MeaningRanking
from worker.domain.values.workflow_search import SearchQuery

QUERY = SearchQuery("OOMKilled", Severity.CRITICAL, ("more", "ram"))
PASSAGES = {"memory": "gives more memory", "node": "drains a node"}


@pytest.fixture
def embedder():
    return MemoryEmbedder()


@pytest.fixture
def rank(embedder):
    found = MeaningRanking(embedder, lambda: 0.0)
    found.replace_passages(PASSAGES)
    return found


async def test_what_means_the_same_is_nearer(rank):
    assert True is await rank.embed_missing()
    scores = (await rank.scores(QUERY))(["memory", "node"])
    assert scores["memory"] > scores["node"]
    assert ["node"] == list((await rank.scores(QUERY))(["node"]))


async def test_nothing_is_ranked_before_everything_is_embedded(rank, embedder):
    assert (False, None) == (rank.complete, await rank.scores(QUERY))
    assert [] == embedder.calls
    assert "" == rank.problem


async def test_only_what_is_new_is_embedded(rank, embedder):
    await rank.embed_missing()
    rank.replace_passages({**PASSAGES, "again": PASSAGES["node"], "pod": "restarts a pod"})
    assert False is rank.complete
    assert True is await rank.embed_missing()
    assert [tuple(PASSAGES.values()), ("restarts a pod",)] == embedder.calls


async def test_what_is_gone_is_forgotten(rank, embedder):
    await rank.embed_missing()
    rank.replace_passages({"node": PASSAGES["node"]})
    assert True is rank.complete
    rank.replace_passages(PASSAGES)
    assert False is rank.complete
    await rank.embed_missing()
    assert (PASSAGES["memory"],) == embedder.calls[-1]


async def test_texts_are_embedded_in_batches_and_a_failure_keeps_those_that_are_done(rank, embedder):
    many = {str(n): f"passage {'x' * n}" for n in range(BATCH + 1)}
    rank.replace_passages(many)
    whole = embedder.embed

    async def fail_at_the_second(texts, *, query):
        embedder.down = len(embedder.calls) == 1
        return await whole(texts, query=query)

    embedder.embed = fail_at_the_second
    assert False is await rank.embed_missing()
    assert "the embedder is down" == rank.problem
    assert True is await rank.embed_missing()
    assert [BATCH, 1, 1] == [len(call) for call in embedder.calls]
    assert "" == rank.problem


async def test_an_embedder_that_hangs_is_reported(rank, embedder, monkeypatch):
    monkeypatch.setattr(similarity, "BATCH_SECONDS", 0.01)
    embedder.hangs = True
    async with asyncio.timeout(20):
        assert False is await rank.embed_missing()
    assert "memory gave no vectors within 0.01 s" == rank.problem


async def test_a_query_that_cannot_be_embedded_leaves_the_ranking_to_words(rank, embedder):
    await rank.embed_missing()
    embedder.down = True
    assert None is await rank.scores(QUERY)
    assert "the embedder is down" == rank.problem


async def test_a_change_while_a_query_is_embedded_does_not_matter(rank, embedder):
    await rank.embed_missing()
    asked, may_answer, whole = asyncio.Event(), asyncio.Event(), embedder.embed

    async def later(texts, *, query):
        asked.set()
        await may_answer.wait()
        return await whole(texts, query=query)

    embedder.embed = later
    scoring = asyncio.create_task(rank.scores(QUERY))
    await asked.wait()
    rank.replace_passages({"other": "something else"})
    may_answer.set()
    assert {"memory", "node"} == set((await scoring)(["memory", "node"]))


async def test_a_catalog_without_workflows_is_complete(embedder):
    assert True is await MeaningRanking(embedder, lambda: 0.0).embed_missing()
    assert [] == embedder.calls


async def test_a_change_back_to_what_is_known_ends_the_trouble(rank, embedder):
    await rank.embed_missing()
    embedder.down = True
    rank.replace_passages({**PASSAGES, "pod": "restarts a pod"})
    assert (False, "the embedder is down") == (await rank.embed_missing(), rank.problem)
    rank.replace_passages(PASSAGES)
    assert (True, "") == (rank.complete, rank.problem)
