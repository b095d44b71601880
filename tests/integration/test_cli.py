"""The command line as people and scripts use it: exit codes, JSON, messages that say what to do."""

import asyncio
import json
import re
from importlib.metadata import version
from pathlib import Path

import aiohttp
import pytest
import typer

from schemas.permissions import Role
from tests import processes
from tests.commands import rca
from tests.contract.command_lines import find_command
from tests.corpus_files import corpus_path
from tests.fakes.llm_server import serve as serve_llm
from tests.integration.test_pipeline import ANSWER, BODY, CASE
from tests.nats_servers import one_server
from tests.pipeline import CATALOG, final
from tests.processes import ready, running
from worker.app.cli.main import app


async def test_help_needs_no_configuration():
    ended = await rca("--help")
    assert 0 == ended.code
    text = " ".join(ended.out.split())
    assert "Start with rca demo" in text
    assert "130 interrupted, 141 pipe closed" in text
    commands = typer.main.get_command(app).commands
    assert set(commands) <= set(text.split())
    assert max(len(line) for line in ended.out.splitlines()) <= 80


def command_paths(command, path=()):
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from command_paths(inner, (*path, name))


@pytest.mark.parametrize("path", list(command_paths(typer.main.get_command(app))), ids=" ".join)
async def test_each_command_has_a_help_that_fits_the_screen(path):
    ended = await rca(*path, "--help", env={"RCA_TYPO": "no configuration is read"})
    assert (0, "") == (ended.code, ended.err)
    assert max(len(line) for line in ended.out.splitlines()) <= 80
    assert all(parameter.help for parameter in find_command(path)[0].params)


async def test_the_version_is_printed():
    assert f"rca {version('rca-worker')}\n" == (await rca("--version")).out


async def test_the_help_of_permissions_names_every_role():
    assert set(Role) <= set(re.findall(r"[a-z-]+", (await rca("permissions", "--help")).out))
    ended = await rca("permissions", "nobody")
    assert 2 == ended.code
    assert "audit-reader" in ended.err


async def test_an_unknown_option_is_a_usage_error():
    assert 2 == (await rca("submit", "--no-such-option")).code


async def test_every_setting_is_listed():
    ended = await rca("settings", "--json")
    names = [row["name"] for row in ended.json()]
    assert {"RCA_NATS__SERVERS", "RCA_LLM__MODEL", "RCA_WORKER__SLOTS_P0", "RCA_HTTP__PORT"} <= set(names)


async def test_settings_are_listed_by_group():
    one = await rca("settings", "LLM")
    assert "LLM: " in one.out
    assert "RCA_NATS__" not in one.out
    every = await rca("settings")
    assert every.out.index("RCA_LLM__MODEL") < every.out.index("RCA_HTTP__PORT")
    assert max(len(line) for line in every.out.splitlines() if line.startswith(" " * 6)) <= 80
    unknown = await rca("settings", "lmm")
    assert (2, True) == (unknown.code, "kubernetes" in unknown.err)


async def test_a_worker_without_a_model_says_what_to_set():
    ended = await rca("worker")
    assert 1 == ended.code
    assert "RCA_LLM__MODEL is not set" in ended.err
    assert "Traceback" not in ended.err


async def test_a_misspelt_setting_names_the_nearest():
    ended = await rca("worker", env={"RCA_LLM__MODLE": "x"})
    assert 1 == ended.code
    assert "RCA_LLM__MODLE: unknown setting; did you mean RCA_LLM__MODEL?" in ended.err


async def test_a_server_that_is_away_is_a_clear_error():
    env = {"RCA_NATS__SERVERS": "nats://127.0.0.1:9", "RCA_NATS__CONNECT_SECONDS": "1"}
    ended = await rca("provision", env=env)
    assert 1 == ended.code
    assert "RCA_NATS__SERVERS" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.process
async def test_each_sandbox_server_starts_alone_and_prints_its_address():
    async with (
        ready("sandbox", "nats") as nats,
        ready("sandbox", "cluster", str(CASE)) as cluster,
        ready("sandbox", "analyst") as analyst,
        aiohttp.ClientSession() as http,
    ):
        assert nats["url"].startswith("nats://127.0.0.1:")
        async with http.get(f"{cluster['url']}/api/v1/namespaces/ml-batch/pods") as answer:
            assert "PodList" == (await answer.json())["kind"]
        async with http.get(f"{analyst['url']}/models") as answer:
            assert 200 == answer.status


@pytest.mark.process
async def test_the_whole_sandbox_takes_a_request_and_shows_its_result():
    async with ready("sandbox", "up", "--json") as up, aiohttp.ClientSession() as http:
        env = {"RCA_NATS__SERVERS": up["nats"]}
        submitted = await rca("submit", up["incident"], "--wait", env=env)
        assert 0 == submitted.code, submitted
        key = submitted.err.split()[1]  # submitted KEY to ...
        shown = await rca("show", key, env=env)
        assert (0, "Root cause" in shown.out) == (shown.code, True)
        async with http.get(up["worker"]) as answer:
            assert 200 == answer.status
    assert not await asyncio.to_thread(Path(up["kubeconfig"]).exists)


async def test_provision_can_be_repeated_and_checked(tmp_path):
    async with one_server(tmp_path) as server:
        env = {"RCA_NATS__SERVERS": server.url}
        before = await rca("provision", "--check", env=env)
        made = await rca("provision", "--json", env=env)
        again = await rca("provision", "--check", "--json", env=env)
    assert 1 == before.code
    assert "would create" in before.out
    assert {"created"} == {row["action"] for row in made.json()}
    assert (0, {"same"}) == (again.code, {row["action"] for row in again.json()})


@pytest.mark.process
async def test_an_operator_starts_commands_as_processes(tmp_path):
    commands = (("provision",), ("cancel", "rr-1", "--ahead"), ("dlq", "list"), ("audit", "verify"))
    async with one_server(tmp_path) as server:
        env = {"RCA_NATS__SERVERS": server.url}
        ends = [await processes.rca(*command, env=env) for command in commands]
    assert [0, 0, 0, 0] == [ended.code for ended in ends], ends


async def test_submitting_without_streams_says_what_to_run(tmp_path):
    async with one_server(tmp_path) as server:
        ended = await rca("submit", str(CASE / "incident.json"), env={"RCA_NATS__SERVERS": server.url})
    assert 1 == ended.code
    assert "rca provision" in ended.err


@pytest.fixture
async def worker_environment(tmp_path):
    """A worker process on stand-ins; yields the environment of its users."""
    kubeconfig = tmp_path / "kubeconfig"
    async with (
        ready("sandbox", "nats", "--provisioned") as nats,
        ready("sandbox", "cluster", str(CASE), "--kubeconfig", str(kubeconfig)),
        serve_llm(lambda request, number: final(ANSWER)) as llm,
    ):
        env = {
            "RCA_NATS__SERVERS": nats["url"],
            "RCA_KUBERNETES__KUBECONFIG": str(kubeconfig),
            "RCA_LLM__MODEL": "openai-chat:scripted",
            "RCA_LLM__BASE_URL": f"{llm.url}/v1",
            "RCA_LLM__API_KEY": "test-key",
            "RCA_CATALOG__PATH": str(CATALOG),
            "RCA_HTTP__PORT": "0",
            "RCA_HTTP__HOST": "127.0.0.1",
        }
        async with running("worker", env=env) as process:
            assert process.stderr is not None
            lines = []
            while not any("worker_started" in line for line in lines):
                lines.append((await asyncio.wait_for(process.stderr.readline(), 100)).decode())
                assert lines[-1], lines
            listening = next(json.loads(line) for line in lines if "http_listening" in line)
            yield {**env, "health": f"http://127.0.0.1:{listening['port']}"}


@pytest.mark.process
async def test_submit_waits_for_the_outcome_of_a_request(worker_environment):
    env = dict(worker_environment)
    health = env.pop("health")
    result = await rca("submit", "-", "--wait", "--json", env=env, stdin=BODY)
    shown = await rca("submit", str(CASE / "incident.json"), "--wait", env=env)
    rejected = await rca("submit", "-", "--unchecked", "--wait", env=env, stdin=b'{"incident_id": ""}')
    other = corpus_path("payloads/48-recovery-reason-unknown-code.json")
    recovery = await rca("submit", str(other), "--recovery", "--new-id", "--wait", "--json", env=env)
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{health}/livez") as answer:
            assert 200 == answer.status
        async with http.get(f"{health}/readyz") as answer:
            assert (200, "ok\n") == (answer.status, await answer.text())
        async with http.get(f"{health}/metrics") as answer:
            metrics = await answer.text()
    assert (0, "completed") == (result.code, result.json()["status"])
    assert 0 == shown.code
    assert "increase-memory-limits-v1" in shown.out
    assert "MAY RUN  increase-memory-limits-v1" in shown.out
    assert max(len(line) for line in shown.out.splitlines()) <= 80
    assert 5 == rejected.code
    assert "remediation_id" in rejected.err
    assert (0, "recovery") == (recovery.code, recovery.json()["kind"])
    assert 'rca_results_total{kind="incident",reason="none",status="completed"} 1.0' in metrics


@pytest.mark.process
async def test_a_port_of_the_worker_that_is_in_use_names_the_setting(worker_environment):
    port = worker_environment.pop("health").rpartition(":")[2]
    ended = await rca("worker", env={**worker_environment, "RCA_HTTP__PORT": port})
    assert 1 == ended.code
    said = f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another address with RCA_HTTP__HOST and RCA_HTTP__PORT"
    assert f"error: {said}" == ended.err.splitlines()[-1]


async def test_submit_times_out_without_a_worker(tmp_path):
    async with one_server(tmp_path) as server:
        env = {"RCA_NATS__SERVERS": server.url}
        assert 0 == (await rca("provision", env=env)).code
        ended = await rca("submit", "-", "--wait", "--timeout", "1", env=env, stdin=BODY)
    assert 4 == ended.code
    assert "the request stays in the queue" in ended.err
