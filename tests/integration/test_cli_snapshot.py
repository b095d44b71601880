"""`rca snapshot`: the case that it writes leads to the same verdict as the cluster that it has read."""

from __future__ import annotations

import json

import pytest

from tests import processes
from tests.commands import rca
from tests.corpus_files import corpus_path
from worker.sandbox.cluster_server import serve as serve_cluster
from worker.sandbox.cluster_server import write_kubeconfig

CASE = corpus_path("cases/005-imagepull-missing-pull-secret/incident.json").parent
INCIDENT = json.loads((CASE / "incident.json").read_bytes())
NAMESPACE = INCIDENT["resource_namespace"]


@pytest.fixture
async def env(tmp_path):
    async with serve_cluster(CASE) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        yield {"RCA_KUBERNETES__KUBECONFIG": str(tmp_path / "kubeconfig")}


def verdict(ended):
    result = ended.json()["result"]
    chosen = result["selected_workflow"]
    return (
        result["status"],
        result["affected_resource"],
        chosen and chosen["workflow_id"],
        result["approval"]["required"],
    )


@pytest.mark.process
async def test_the_written_case_leads_to_the_same_verdict(env, tmp_path):
    directory = tmp_path / "case"
    taken = await processes.rca(
        "snapshot",
        "--namespace",
        NAMESPACE,
        "-o",
        str(directory),
        "--incident",
        str(CASE / "incident.json"),
        env=env,
    )
    assert 0 == taken.code, taken.err
    assert f"rca demo {directory}" in taken.out
    original, written = await rca("demo", str(CASE), "--json"), await rca("demo", str(directory), "--json")
    assert verdict(original) == verdict(written)


async def test_without_a_request_one_is_written_about_what_fails(env, tmp_path):
    directory = tmp_path / "case"
    taken = (await rca("snapshot", "--namespace", NAMESPACE, "-o", str(directory), "--json", env=env)).json()
    assert str(directory) == taken["directory"]
    assert taken["objects"] > 10
    assert all("forbidden" in line for line in taken["not_read"]), "a worker may not list service accounts"
    request = json.loads((directory / "incident.json").read_bytes())
    assert request == taken["request"]
    assert NAMESPACE == request["resource_namespace"]
    assert "ImagePull" in request["signal_type"]
    ended = await rca("demo", str(directory), "--json")
    assert ended.json()["result"]["status"]


async def test_mistakes_are_named(env, tmp_path):
    there = await rca("snapshot", "--namespace", NAMESPACE, "-o", str(tmp_path), env=env)
    unknown = await rca("snapshot", "--namespace", "no-such", "-o", str(tmp_path / "a"), env=env)
    assert [1, 1] == [there.code, unknown.code]
    assert "exists" in there.err
    assert "no-such" in unknown.err
    assert not (tmp_path / "a").exists()
