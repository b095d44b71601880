"""Mistakes in the settings: which one is told first, and with which words."""

from __future__ import annotations

import socket

import pytest

from tests.commands import rca
from tests.corpus_files import corpus_path
from tests.pipeline import CATALOG

CASE = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json").parent
NO_CLUSTER = {"RCA_KUBERNETES__KUBECONFIG": "/nope"}


async def test_a_model_without_a_provider_is_told_before_the_cluster_is_asked():
    ended = await rca("worker", env={**NO_CLUSTER, "RCA_LLM__MODEL": "foo"})
    assert 1 == ended.code
    assert ended.err.startswith("error: RCA_LLM__MODEL: foo cannot be used")


async def test_a_missing_kubeconfig_is_one_line_and_no_log_of_a_library():
    model = {"RCA_LLM__MODEL": "openai-chat:x", "RCA_LLM__BASE_URL": "http://127.0.0.1:9/v1"}
    ended = await rca("worker", env={**NO_CLUSTER, **model})
    assert 1 == ended.code
    assert "Config not found" not in ended.err
    assert "error: the cluster cannot be used: " in ended.err


async def test_a_directory_given_as_an_argument_is_not_blamed_on_a_setting(tmp_path):
    ended = await rca("catalog", "list", str(tmp_path / "nope"))
    assert (1, f"error: the catalog {tmp_path / 'nope'} is not a directory\n") == (ended.code, ended.err)


async def test_a_directory_of_a_worker_is_blamed_on_its_setting(tmp_path):
    model = {"RCA_LLM__MODEL": "openai-chat:x", "RCA_LLM__BASE_URL": "http://127.0.0.1:9/v1"}
    ended = await rca("worker", env={**model, "RCA_CATALOG__PATH": str(tmp_path / "nope")})
    assert 1 == ended.code
    assert f"error: RCA_CATALOG__PATH: the catalog {tmp_path / 'nope'} is not a directory" in ended.err


async def test_a_refused_push_names_the_address_and_not_the_password():
    env = {"RCA_CATALOG__DATABASE_URL": "postgresql://rca:FAKE-hunter2@127.0.0.1:1/rca?sslmode=disable"}
    ended = await rca("catalog", "push", str(CATALOG), env=env)
    assert 1 == ended.code
    assert "at 127.0.0.1:1, from RCA_CATALOG__DATABASE_URL (Connection refused)" in ended.err
    assert "hunter2" not in ended.err


@pytest.fixture
def taken():
    """A port of loopback that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("sandbox", "nats", "--port", "{port}"), "choose another with --port"),
        (("sandbox", "analyst", "--port", "{port}"), "choose another with --port"),
        (("sandbox", "cluster", str(CASE), "--port", "{port}"), "choose another with --port"),
        (("mcp", "--http", "127.0.0.1:{port}"), "choose another with --http"),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
async def test_a_port_in_use_is_named_with_the_setting_that_changes_it(taken, arguments, advice):
    ended = await rca(*(argument.format(port=taken) for argument in arguments))
    said = f"error: cannot listen on 127.0.0.1:{taken}: Address already in use; {advice}\n"
    assert (1, "", said) == (ended.code, ended.out, ended.err)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("submit", "{dir}/none.json"), "{dir}/none.json: No such file or directory"),
        (("submit", "{dir}"), "{dir}: Is a directory"),
        (("policy", "test", "{dir}", "{dir}/none.json"), "{dir}/none.json: No such file or directory"),
        (("demo", "--output", "{dir}/none/run.json"), "--output {dir}/none/run.json: no such directory"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
async def test_a_file_that_cannot_be_used_is_named_without_a_number(tmp_path, arguments, said):
    ended = await rca(*(argument.format(dir=tmp_path) for argument in arguments))
    assert (1, "", f"error: {said.format(dir=tmp_path)}\n") == (ended.code, ended.out, ended.err)


@pytest.mark.parametrize(
    ("content", "why"), [("", ""), ('{\n"a": 1\n}\n' * 100, " (line 1: not JSON)")], ids=["empty", "other"]
)
@pytest.mark.parametrize("more", [(), ("--json",)])
async def test_a_file_without_any_audit_event_is_no_good_trail(tmp_path, content, why, more):
    path = tmp_path / "other.json"
    path.write_text(content)
    ended = await rca("audit", "verify", "--file", str(path), *more)
    said = f"error: {path} holds no audit events{why}; `rca audit export` writes such files\n"
    assert (1, "", said) == (ended.code, ended.out, ended.err)


@pytest.mark.parametrize("empty", ["an empty file", "a directory without an archive"])
async def test_a_trail_without_events_is_not_good(tmp_path, empty):
    path = tmp_path / "trail"
    if empty == "an empty file":
        path.write_bytes(b"")
    else:
        path.mkdir()
    ended = await rca("audit", "verify", "--file", str(path))
    assert (1, "") == (ended.code, ended.out)
    assert "holds no audit events" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "--file", "{path}", "--archive", "{path}"),
        ("export", "--to", "{path}", "--request", "rr-1"),
    ],
)
async def test_options_of_the_audit_trail_that_exclude_each_other(tmp_path, arguments):
    ended = await rca("audit", *(argument.format(path=tmp_path) for argument in arguments))
    assert (2, "") == (ended.code, ended.out)
