"""Mistakes in the settings: which one is told first, and with which words."""

from __future__ import annotations

from tests.pipeline import CATALOG
from tests.processes import rca

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
