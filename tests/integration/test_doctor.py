"""`rca doctor` on real servers: a healthy place has no fault, and each planted one is named with its remedy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import nats
import pytest

from tests.commands import rca
from tests.corpus_files import corpus_path
from tests.fakes.faulty_api import Fault, FaultPlan, FaultyApi
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.llm_server import Said, ScriptedLLM
from tests.fakes.llm_server import serve as serve_llm
from tests.nats_servers import one_server
from tests.pipeline import CATALOG
from worker.adapters.nats.provision import provision
from worker.app.doctor import Level, _clock
from worker.app.provisioning import wanted_streams
from worker.app.server_clock import ServerClock
from worker.app.settings.environment import Settings
from worker.sandbox.cluster_server import Rights, serve_api, shipped_rights, write_kubeconfig
from worker.sandbox.cluster_store import Snapshot

CASE = corpus_path("cases/001-oom-shm-leak-after-limit-raises")
READY = Said(tool_calls=[("report_ready", {"word": "ready"})])


@dataclass
class Place:
    """Everything a worker needs, healthy, and where to break it."""

    folder: Path
    nc: nats.NATS
    cluster: FaultyApi
    llm: ScriptedLLM
    env: dict[str, str] = field(default_factory=dict)


@pytest.fixture
async def place(tmp_path):
    api = FaultyApi(Snapshot.read(CASE), token="FAKE-token", rights=shipped_rights())
    async with (
        one_server(tmp_path) as server,
        serve_api(api) as url,
        serve_llm(lambda request, number: READY) as llm,
    ):
        write_kubeconfig(tmp_path / "kubeconfig", url, token="FAKE-token")
        nc = await nats.connect(server.url)
        await provision(nc, wanted_streams(Settings()))
        env = {
            "RCA_NATS__SERVERS": server.url,
            "RCA_NATS__CONNECT_SECONDS": "2",
            "RCA_KUBERNETES__KUBECONFIG": str(tmp_path / "kubeconfig"),
            "RCA_LLM__MODEL": "openai-chat:gpt-5",
            "RCA_LLM__BASE_URL": f"{llm.url}/v1",
            "RCA_LLM__API_KEY": "test-key",
            "RCA_CATALOG__PATH": str(CATALOG),
        }
        yield Place(tmp_path, nc, api, llm, env)
        await nc.close()


async def examined(place):
    ended = await rca("doctor", "--json", env=place.env)
    return ended.code, ended.json()


async def test_a_healthy_place_has_no_fault(place):
    code, rows = await examined(place)
    assert (0, set()) == (code, {row["text"] for row in rows if row["level"] == "fault"})
    assert {"nats", "streams", "clock", "kubernetes", "model", "catalog", "policy"} <= {
        row["area"] for row in rows
    }
    shown = await rca("doctor", env=place.env)
    assert 0 == shown.code
    assert "0 faults" in shown.out.splitlines()[-1]
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.parametrize(("mebibytes", "warnings"), [("8192", 0), ("4096", 1)])
async def test_streams_that_differ_from_the_settings_are_one_warning(place, mebibytes, warnings):
    place.env["RCA_NATS__STORE_MEBIBYTES"] = mebibytes
    _, rows = await examined(place)
    told = [row["text"] for row in rows if (row["area"], row["level"]) == ("streams", "warning")]
    assert ([True] * warnings) == [text.startswith("RCA_REQUESTS differs") for text in told]


def set_to(**changes: str) -> Callable[[Place], Awaitable[None]]:
    async def plant(place: Place) -> None:
        place.env.update(
            {f"RCA_{name}": value.format(folder=place.folder) for name, value in changes.items()}
        )

    return plant


def traces_to(endpoint: str, protocol: str) -> Callable[[Place], Awaitable[None]]:
    async def plant(place: Place) -> None:
        names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TIMEOUT")
        place.env |= dict(zip(names, (endpoint, protocol, "1"), strict=True))

    return plant


def model_says(said: Said) -> Callable[[Place], Awaitable[None]]:
    async def plant(place: Place) -> None:
        place.llm.script = lambda request, number: said

    return plant


async def no_model(place):
    del place.env["RCA_LLM__MODEL"]


async def no_streams(place):
    await place.nc.jetstream().delete_stream("RCA_AUDIT")


async def a_lane_is_gone(place):
    await place.nc.jetstream().delete_consumer("RCA_REQUESTS", "p1")


async def another_retention(place):
    js = place.nc.jetstream()
    await js.delete_stream("RCA_DLQ")
    await js.add_stream(name="RCA_DLQ", subjects=["rca.dlq.>"], retention="workqueue")


async def a_shorter_ack_wait(place):
    info = await place.nc.jetstream().consumer_info("RCA_REQUESTS", "p2")
    info.config.ack_wait = 5
    await place.nc.jetstream().add_consumer("RCA_REQUESTS", info.config)


async def a_full_stream(place):
    js = place.nc.jetstream()
    info = await js.stream_info("RCA_DLQ")
    info.config.max_bytes = 100_000
    await js.update_stream(info.config)
    await js.publish("rca.dlq.internal_error", b"x" * 80_000)


async def no_context(place):
    place.env["RCA_KUBERNETES__CONTEXT"] = "another-cluster"


async def an_expired_token(place):
    kubeconfig = place.folder / "kubeconfig"
    kubeconfig.write_text(kubeconfig.read_text().replace("FAKE-token", "OLD-token"))


async def no_rights(place):
    place.cluster.rights = Rights()


async def no_right_for_events(place):
    rules = shipped_rights().rules
    kept = [{**rule, "resources": [r for r in rule["resources"] if r != "events"]} for rule in rules]
    place.cluster.rights = Rights(tuple(kept))


async def a_proxy_in_between(place):
    place.cluster.faults = FaultPlan([Fault(status=502, page="<html>Bad gateway</html>")])


async def a_broken_workflow(place):
    (place.folder / "catalog").mkdir()
    (place.folder / "catalog" / "a.yaml").write_text("workflow_id: [")
    place.env["RCA_CATALOG__PATH"] = str(place.folder / "catalog")


async def a_policy_without_decision(place):
    (place.folder / "policy.rego").write_text("package rca.approval\ndefault require_approval := tru")
    place.env["RCA_POLICY__PATH"] = str(place.folder / "policy.rego")


async def a_broken_policy(place):
    (place.folder / "policy.rego").write_text("package rca.approval\nimport rego.v1\ndecision := {")
    place.env["RCA_POLICY__PATH"] = str(place.folder / "policy.rego")


WARNING, FAULT = "warning", "fault"
PLANTED = {
    "a misspelt setting": (set_to(LLM__MODLE="x"), "settings", FAULT, "RCA_LLM__MODEL"),
    "no NATS server": (set_to(NATS__SERVERS="nats://127.0.0.1:9"), "nats", FAULT, "RCA_NATS__SERVERS"),
    "a stream is missing": (no_streams, "streams", FAULT, "RCA_AUDIT"),
    "a lane is missing": (a_lane_is_gone, "streams", FAULT, "p1"),
    "a stream of another kind": (another_retention, "streams", FAULT, "retention"),
    "a consumer with another ack_wait": (a_shorter_ack_wait, "streams", WARNING, "ack_wait"),
    "a stream that fills": (a_full_stream, "streams", WARNING, "RCA_DLQ holds"),
    "no kubeconfig": (set_to(KUBERNETES__KUBECONFIG="{folder}/none"), "kubernetes", FAULT, "none"),
    "no such context": (no_context, "kubernetes", FAULT, "another-cluster"),
    "an expired token": (an_expired_token, "kubernetes", FAULT, "Unauthorized"),
    "no rights": (no_rights, "kubernetes", FAULT, "rbac.yaml"),
    "no right to read events": (no_right_for_events, "kubernetes", WARNING, "Event"),
    "a proxy in front of the cluster": (a_proxy_in_between, "kubernetes", FAULT, "502"),
    "no model": (no_model, "model", FAULT, "RCA_LLM__MODEL"),
    "a wrong key": (model_says(Said(status=401)), "model", FAULT, "401"),
    "a wrong model name": (model_says(Said(status=404)), "model", FAULT, "404"),
    "a model without tools": (model_says(Said(text="ready")), "model", FAULT, "does not call tools"),
    "a model server that is away": (
        set_to(LLM__BASE_URL="http://127.0.0.1:9/v1"),
        "model",
        FAULT,
        "127.0.0.1:9",
    ),
    "an unknown price": (set_to(LLM__MODEL="openai-chat:ours"), "model", WARNING, "price"),
    "no catalog": (set_to(CATALOG__PATH="{folder}/none"), "catalog", FAULT, "none"),
    "a broken workflow": (a_broken_workflow, "catalog", FAULT, "a.yaml"),
    "a broken policy": (a_broken_policy, "policy", FAULT, "policy.rego"),
    "a policy that cannot decide": (a_policy_without_decision, "policy", FAULT, "policy.rego:2"),
    "no signing key": (set_to(AUDIT__SIGNING_KEY_FILE="{folder}/none"), "audit", FAULT, "none"),
    "no Prometheus": (set_to(PROMETHEUS__URL="http://127.0.0.1:9"), "prometheus", FAULT, "127.0.0.1:9"),
    "no collector": (traces_to("http://127.0.0.1:9", "http/protobuf"), "traces", WARNING, "127.0.0.1:9"),
    "a collector for gRPC": (traces_to("http://127.0.0.1:9", "grpc"), "traces", WARNING, "http/protobuf"),
    "no history": (set_to(HISTORY__URL="http://127.0.0.1:9"), "history", FAULT, "127.0.0.1:9"),
}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda name: name.replace(" ", "-"))
async def test_a_planted_fault_is_named_with_its_remedy(place, planted):
    plant, area, level, words = PLANTED[planted]
    await plant(place)
    code, rows = await examined(place)
    found = [row for row in rows if (row["area"], row["level"]) == (area, level)]
    assert any(words in row["text"] + row["remedy"] for row in found), rows
    assert all(row["remedy"] for row in found)
    assert (level == FAULT) == bool(code)
    assert {area} >= {row["area"] for row in rows if row["level"] == FAULT}, "nothing else is blamed"


@pytest.mark.parametrize(("seconds", "level"), [(0, "ok"), (7200, "warning"), (-60, "warning")])
def test_a_clock_that_is_wrong_is_named(seconds, level):
    machine = FixedClock()
    clock = ServerClock(machine)
    clock.compare([machine.now() - timedelta(seconds=seconds)], clock.monotonic())
    assert Level(level) is _clock(clock).level
