"""Texts that stand for workflows and queries, vectors as models give them, and the vectors of queries."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.taxonomy import Severity
from tests.fakes.memory_catalog import workflow
from tests.fakes.memory_embedder import MemoryEmbedder, vector
from worker.domain.catalog.similarity import (
    KEPT_QUERIES,
    MAX_TEXT_CHARS,
    QueryVectors,
    cosine,
    passage_of,
    query_text,
    unit_vectors,
)
from worker.domain.values.errors import EmbedderUnavailable
from worker.domain.values.workflow_search import SearchQuery


def query(*keywords):
    return SearchQuery("OOMKilled", Severity.CRITICAL, keywords)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"description": "OOMKilled critical: raises the memory limit."},
            "Restart Workload: raises the memory limit.",
        ),
        ({"description": "Patches a ConfigMap."}, "Restart Workload: Patches a Config Map."),
        ({"description": "Beware: it deletes."}, "Restart Workload: Beware: it deletes."),
        ({"description": "Please note: it deletes."}, "Restart Workload: Please note: it deletes."),
        (
            {"description": "Moves what is not critical: it waits."},
            "Restart Workload: Moves what is not critical: it waits.",
        ),
        ({"title": "Raise", "when_to_use": "Never."}, "Restart Workload: Raise"),
        ({"when_to_use": "Never."}, "Restart Workload: Never."),
        ({}, "Restart Workload: "),
    ],
)
def test_a_workflow_stands_for_what_it_does(fields, expected):
    assert expected == passage_of(workflow(**fields))


def test_a_long_description_is_cut():
    assert MAX_TEXT_CHARS == len(passage_of(workflow(description="x" * 9_000)))


def test_a_query_stands_for_its_keywords():
    assert "restart Stateful Set" == query_text(query("restart", "StatefulSet"))
    assert "" == query_text(query())


numbers = st.floats(-1e6, 1e6).filter(lambda n: abs(n) > 1e-3)


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=5))
def test_vectors_are_made_as_long_as_each_other(rows):
    found = unit_vectors(rows, len(rows), 3)
    assert all(math.isclose(1, math.hypot(*v)) for v in found)
    assert all(abs(cosine(v, w)) <= 1 + 1e-9 for v in found for w in found)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(anything, st.integers(1, 4), st.integers(0, 4))
def test_whatever_a_model_gives_is_vectors_or_refused(rows, count, dimensions):
    try:
        found = unit_vectors(rows, count, dimensions)
    except EmbedderUnavailable:
        return
    assert count == len(found)
    assert {dimensions or len(found[0])} == {len(v) for v in found}
    assert all(math.isclose(1, math.hypot(*v)) for v in found)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [((1.0, 0.0), (1.0, 0.0), 1.0), ((1.0, 0.0), (0.0, 1.0), 0.0), ((1.0, 0.0), (-1.0, 0.0), -1.0)],
)
def test_the_cosine_of_two_directions(one, other, expected):
    assert pytest.approx(expected) == cosine(one, other)


class Clock:
    def __init__(self):
        self.time = 100.0

    def monotonic(self):
        return self.time


@pytest.fixture
def clock():
    return Clock()


async def test_the_vector_of_a_query_is_asked_for_once(clock):
    embedder = MemoryEmbedder()
    vectors = QueryVectors(embedder, clock.monotonic)
    for _ in range(3):
        assert tuple(vector("raise memory")) == await vectors.of(query("raise", "memory"))
    assert [("raise memory",)] == embedder.calls
    assert "" == vectors.problem


async def test_the_oldest_queries_are_forgotten(clock):
    embedder = MemoryEmbedder()
    vectors = QueryVectors(embedder, clock.monotonic)
    for n in range(KEPT_QUERIES):
        await vectors.of(query(f"word{n}"))
    await vectors.of(query("word0"))
    await vectors.of(query("one", "more"))
    before = len(embedder.calls)
    await vectors.of(query("word0"))
    assert before == len(embedder.calls)
    await vectors.of(query("word1"))
    assert before + 1 == len(embedder.calls)


async def test_a_query_without_keywords_has_none(clock):
    embedder = MemoryEmbedder()
    assert None is await QueryVectors(embedder, clock.monotonic).of(query())
    assert [] == embedder.calls


async def test_after_a_failure_the_embedder_is_left_alone_for_a_while(clock):
    embedder = MemoryEmbedder(down=True)
    vectors = QueryVectors(embedder, clock.monotonic, rest_seconds=30.0)
    assert None is await vectors.of(query("memory"))
    assert "the embedder is down" == vectors.problem
    embedder.down = False
    clock.time += 29.0
    assert None is await vectors.of(query("memory"))
    assert 1 == len(embedder.calls)
    clock.time += 1.0
    assert tuple(vector("memory")) == await vectors.of(query("memory"))
    assert "" == vectors.problem


async def test_a_late_vector_is_not_waited_for(clock):
    vectors = QueryVectors(MemoryEmbedder(hangs=True), clock.monotonic, call_seconds=0.01)
    async with asyncio.timeout(20):
        assert None is await vectors.of(query("memory"))
    assert "memory gave no vector within 0.01 s" == vectors.problem
