"""`rca record` and `rca replay`, as a person uses them: from a worker that records to a replay without a cluster."""

from __future__ import annotations

import json
import shutil

import pytest

from schemas.subjects import Subjects
from tests import processes
from tests.commands import rca
from tests.fakes.llm_server import serve as serve_llm
from tests.fakes.messages import review_result
from tests.integration.test_pipeline import ANSWER, BODY, CASE, investigate_then_answer, outcome_of
from tests.nats_servers import one_server, provisioned
from tests.pipeline import CATALOG, final, running
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.app.settings.recording import RecordSettings
from worker.domain.recording.bundle import decode, encode

KEY = "rr-001-oom-shm-leak-after-limit-raises"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """For bundles of the module."""
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture
async def bundle(tmp_path, files):
    """The bundle of an incident that a worker has recorded, and its result."""
    path = files / "one.rca"
    if not path.exists():
        async with running(investigate_then_answer, CASE, tmp_path, record=RecordSettings(hours=1)) as run:
            result = await outcome_of(run, BODY)
            env = {"RCA_NATS__SERVERS": run.settings.nats.servers[0]}
            written = await rca("record", KEY, "-o", str(path), "--json", env=env)
            unknown = await rca("record", "rr-2", env=env)
        assert 0 == written.code, written.err
        told = written.json()
        assert (KEY, 0, False, str(path)) == (told["key"], told["left_out"], told["resumed"], told["file"])
        assert decode(path.read_bytes(), "").result == result.model_dump_json()
        assert 1 == unknown.code
        assert "rr-2 is unknown" in unknown.err
    return path


@pytest.mark.process
async def test_a_recorded_incident_is_replayed_to_the_same_bytes_in_a_process(bundle):
    ended = await processes.rca("replay", str(bundle))
    assert 0 == ended.code, ended.err
    assert "the same result, byte for byte" in ended.out
    document = (await rca("replay", str(bundle), "--json")).json()
    assert (True, [], [], 0) == (
        document["same"],
        document["differences"],
        document["not_recorded"],
        document["replies_out_of_place"],
    )


async def test_another_catalog_shows_its_difference(bundle, tmp_path):
    catalog = tmp_path / "catalog"
    shutil.copytree(CATALOG, catalog)
    (catalog / "increase-memory-limits-v1.yaml").unlink()
    ended = await rca("replay", str(bundle), "--catalog", str(catalog))
    assert 0 == ended.code, ended.err
    assert "increase-memory-limits-v1" in ended.out
    document = (await rca("replay", str(bundle), "--catalog", str(catalog), "--json")).json()
    changed = {each["fact"]: (each["recorded"], each["replayed"]) for each in document["differences"]}
    assert ("increase-memory-limits-v1", "") == changed["workflow"]
    assert {"catalog": str(catalog)} == document["changed"]
    assert document["replies_out_of_place"]


async def test_another_policy_decides_about_it(bundle, tmp_path):
    policy = tmp_path / "always.rego"
    policy.write_text('package rca.approval\nimport rego.v1\nrequire_approval := true\nreason := "Friday."\n')
    document = (await rca("replay", str(bundle), "--policy", str(policy), "--json")).json()
    changed = {each["fact"]: each["replayed"] for each in document["differences"]}
    assert {"approval_required": True, "approval_factors": ["policy_decision"]} == changed
    assert [] == document["not_recorded"]


async def test_another_model_is_asked_about_the_recorded_cluster(bundle):
    async with serve_llm(lambda request, number: final(ANSWER)) as llm:
        env = {"RCA_LLM__BASE_URL": f"{llm.url}/v1", "RCA_LLM__API_KEY": "test-key"}
        ended = await rca("replay", str(bundle), "--model", "openai-chat:other", "--json", env=env)
    assert 0 == ended.code, ended.err
    changed = {each["fact"]: (each["recorded"], each["replayed"]) for each in ended.json()["differences"]}
    assert ((2, 1), (3, 0)) == (changed["llm_calls"], changed["tool_calls"])
    assert "other" == llm.requests[0]["model"]


async def test_a_program_that_comes_to_another_result_says_where(bundle, tmp_path):
    made = decode(bundle.read_bytes(), "")
    result = json.loads(made.result) | {"analysis": "Something else."}
    path = tmp_path / "other.rca"
    path.write_bytes(encode(made.model_copy(update={"result": json.dumps(result)})))
    ended = await rca("replay", str(path))
    assert (1, True) == (ended.code, "analysis" in ended.out)


async def test_nothing_in_a_file_controls_the_terminal(bundle, tmp_path):
    made, path = decode(bundle.read_bytes(), ""), tmp_path / "hostile.rca"
    hostile = {"key": "a\x1b[2Jb", "versions": made.versions.model_copy(update={"program": "\x1b]0;x\x07"})}
    for more in ({}, {"result": "{}"}, {"rules": {"limits": "\x1b[2J"}}):
        path.write_bytes(encode(made.model_copy(update=hostile | more)))
        ended = await rca("replay", str(path))
        assert "\x1b" not in ended.out + ended.err
        assert (1 if more else 0) == ended.code


async def test_damaged_files_are_named(bundle, tmp_path):
    path = tmp_path / "cut.rca"
    path.write_bytes(bundle.read_bytes()[:-10])
    ended = await rca("replay", str(path))
    assert (1, "") == (ended.code, ended.out)
    assert f"{path} is damaged" in " ".join(ended.err.split())


async def test_a_request_without_a_recording_says_how_to_get_one(tmp_path):
    async with one_server(tmp_path) as server, provisioned([server]) as case:
        env = {"RCA_NATS__SERVERS": server.url}
        nothing = await rca("record", "rr-1", env=env)
        assert (1, True) == (nothing.code, "rca provision" in nothing.err)
        assert "RCA_RECORD__HOURS" in nothing.err
        del case


async def test_why_there_is_no_recording_depends_on_where_the_request_is(tmp_path):
    async with one_server(tmp_path) as server, provisioned([server]) as case:
        await provision(case.nc, wanted(Subjects(), recording_hours=1, recording_bytes=1 << 23))
        env = {"RCA_NATS__SERVERS": server.url}
        await case.js.publish("rca.request.incident", BODY)
        waiting = await rca("record", KEY, env=env)
        await case.js.publish(f"$KV.RCA_JOURNAL.{KEY}.1", b"{}")
        begun = await rca("record", KEY, env=env)
        await case.js.purge_stream("KV_RCA_JOURNAL")
        await case.js.purge_stream("RCA_REQUESTS")
        await case.js.publish(f"rca.result.incident.{KEY}", review_result(KEY).model_dump_json().encode())
        ended = await rca("record", KEY, env=env)
    assert [1, 1, 1] == [waiting.code, begun.code, ended.code]
    assert "in the queue" in waiting.err
    assert "still being analysed" in begun.err
    assert "RCA_RECORD__HOURS" in ended.err


# -- rca eval


@pytest.fixture
def folder(bundle, tmp_path):
    """Three recordings."""
    directory = tmp_path / "recordings"
    directory.mkdir()
    for name in ("a", "b", "c"):
        shutil.copy(bundle, directory / f"{name}.rca")
    return directory


async def test_recordings_are_compared_with_another_catalog(folder, tmp_path):
    catalog = tmp_path / "catalog"
    shutil.copytree(CATALOG, catalog)
    (catalog / "increase-memory-limits-v1.yaml").unlink()
    against = ("--against-catalog", str(catalog))
    ended = await rca("eval", str(folder), *against, "--json")
    assert 0 == ended.code, ended.err
    figures = {row["figure"]: row for row in ended.json()["figures"]}
    assert (1.0, 0.0, -1.0) == tuple(
        figures["same_workflow"][name] for name in ("recorded", "replayed", "low")
    )
    assert 0.0 == figures["llm_calls"]["difference"]
    shown = await rca("eval", str(folder), *against, "--seed", "3")
    assert "same_workflow" in shown.out
    assert "3 recordings" in shown.out


async def test_a_damaged_recording_is_named_and_the_others_are_compared(folder):
    (folder / "b.rca").write_bytes(b"no")
    (folder / "d.rca").mkdir()
    ended = await rca("eval", str(folder))
    assert (1, True) == (ended.code, "2 recordings" in ended.out)
    assert all(f"not replayed: {name}" in ended.err for name in ("b.rca", "d.rca"))


async def test_cases_need_a_catalog(tmp_path):
    ended = await rca("eval", str(tmp_path))
    assert (2, True) == (ended.code, "--catalog" in ended.err)


async def test_cases_that_are_not_there_are_named_before_what_else_is_missing(tmp_path):
    ended = await rca("eval", str(tmp_path / "none"))
    assert (2, True) == (ended.code, "--catalog" not in ended.err)
