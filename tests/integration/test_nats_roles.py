"""Everybody at work on a server with the shipped configuration, each as their own user: nothing is denied."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from nats.js.errors import NotFoundError
from pydantic import SecretStr

from schemas.permissions import Role
from schemas.subjects import Subjects
from tests.commands import rca
from tests.fakes.llm_server import Said, ScriptedLLM
from tests.fakes.llm_server import serve as serve_llm
from tests.fakes.nats_accounts import key
from tests.integration.test_pipeline import ANSWER, BODY, CASE, TARGET
from tests.nats_roles import SUBJECTS, environment_of, settings_of, shipped_server, speaking
from tests.nats_servers import PATIENCE_SECONDS
from tests.pipeline import CATALOG, final
from tests.waiting import until
from worker.adapters.nats.journal_format import INLINE_BYTES
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.app.provisioning import connected
from worker.app.settings.environment import Settings
from worker.app.settings.groups import CatalogSettings, KubernetesSettings, LlmSettings, WorkerSettings
from worker.app.wiring import open_worker
from worker.domain.values.errors import Unavailable
from worker.sandbox.cluster_server import serve as serve_cluster
from worker.sandbox.cluster_server import write_kubeconfig

KEY = json.loads(BODY)["remediation_id"]
OUTCOME = {
    "kind": "incident",
    "incident_id": "inc-1",
    "remediation_id": KEY,
    "target": TARGET,
    "signal_type": "OOMKilled",
    "workflow_id": "increase-memory-limits-v1",
    "action_type": "IncreaseMemoryLimits",
    "outcome": "completed",
    "side_effects": ["only-the-outcome-says-this"],
    "completed_at": "2026-06-04T16:00:00Z",
}


def body(remediation_id):
    return json.dumps({**json.loads(BODY), "remediation_id": remediation_id}).encode()


@dataclass
class Model:
    """Looks around with a very long first reply, is wrong once, then right. Holds its second call until it is let go."""

    held: asyncio.Event = field(default_factory=asyncio.Event)
    free: bool = False

    def __call__(self, request, number):
        turns = len(request["messages"])
        if turns <= 3:
            return Said(text="so " * INLINE_BYTES, tool_calls=[("get_resource_context", TARGET)])
        if not self.free:
            self.held.set()
            return Said(delay_seconds=120.0)
        invented = {**ANSWER, "selected_workflow": {**ANSWER["selected_workflow"], "workflow_id": "invented"}}
        return final(invented if "Correct" not in str(request["messages"][-1]) and turns < 6 else ANSWER)


@dataclass
class Place:
    """A provisioned server, one connection for each role, and what a worker needs besides."""

    server: object
    speakers: dict
    llm: ScriptedLLM
    kubeconfig: object

    @asynccontextmanager
    async def worker(self, role=Role.WORKER):
        settings = Settings(
            nats=settings_of(self.server, role),
            kubernetes=KubernetesSettings(kubeconfig=self.kubeconfig),
            llm=LlmSettings(
                model="openai-chat:scripted", base_url=f"{self.llm.url}/v1", api_key=SecretStr("test-key")
            ),
            catalog=CatalogSettings(path=CATALOG),
            worker=WorkerSettings(slots=2, drain_seconds=0.1),
        )
        async with open_worker(settings) as worker, worker.intake.running():
            yield worker

    async def rca(self, role, *arguments):
        """An `rca` command as a role."""
        return await rca(*arguments, env=environment_of(self.server, role))

    async def result(self, key):
        """As aianalysis hears of it."""
        subject = f"rca.result.incident.{key}"
        return json.loads((await self.speakers[Role.AIANALYSIS].js.get_last_msg("RCA_RESULTS", subject)).data)


@asynccontextmanager
async def place(tmp_path, model):
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(shipped_server(tmp_path))
        llm = await stack.enter_async_context(serve_llm(model))
        write_kubeconfig(tmp_path / "kubeconfig", await stack.enter_async_context(serve_cluster(CASE)))
        speakers = {role: await stack.enter_async_context(speaking(server, role)) for role in Role}
        yield Place(server, speakers, llm, tmp_path / "kubeconfig")


async def exhaust(p, remediation_id):
    """A request that the server delivers no more."""
    provisioner, worker = p.speakers[Role.PROVISIONER], p.speakers[Role.WORKER]
    config = (await provisioner.js.consumer_info("RCA_REQUESTS", "p3")).config
    config.max_deliver = 1
    await provisioner.js.add_consumer("RCA_REQUESTS", config)
    await p.speakers[Role.GATEWAY].js.publish("rca.request.incident.p3", body(remediation_id))
    puller = await worker.js.pull_subscribe_bind(consumer="p3", stream="RCA_REQUESTS")
    [message] = await puller.fetch(1, timeout=PATIENCE_SECONDS)
    await message.nak(delay=0.05)
    await puller.unsubscribe()


@pytest.mark.timeout(600)  # many commands, each a process: minutes on a slow machine
async def test_every_role_does_its_work_without_a_denial(tmp_path):
    model = Model()
    async with place(tmp_path, model) as p:
        await _the_provisioner_makes_everything(p)
        heard = await p.speakers[Role.AIANALYSIS].nc.subscribe("rca.result.incident.*")
        events = await p.speakers[Role.AUDIT_READER].nc.subscribe("rca.audit.>")
        await exhaust(p, "rr-exhausted")
        await _a_worker_stops_in_between(p, model)
        async with p.worker() as worker:
            await _readers_read(p, heard, events)
            await _the_executor_is_believed(p, heard, tmp_path)
            await _the_gateway_hears_of_what_cannot_be_read(p)
            await _dead_letters_are_sent_again(p)
            await _requests_are_cancelled(p)
            assert 0 == (await p.rca(Role.AUDIT_READER, "audit", "verify")).code
            waited = await p.rca(Role.OPERATOR, "submit", str(_file(tmp_path, body("rr-5"))), "--wait")
            assert 0 == waited.code, waited.err
            trail = await p.rca(Role.OPERATOR, "audit", "verify")
            assert 0 == trail.code, trail.out + trail.err
            assert "" == worker.intake.trouble() + worker.intake.link.denied
        assert {role: [] for role in Role} == {role: await p.speakers[role].denied() for role in Role}
        assert [] == p.server.violations()


async def _the_provisioner_makes_everything(p):
    made = await p.rca(Role.PROVISIONER, "provision")
    assert (0, len(wanted(SUBJECTS)) + 1) == (made.code, made.out.count("created")), made.err
    assert "RCA_RESULTS/aianalysis" in made.out
    assert 0 == (await p.rca(Role.OPERATOR, "provision", "--check")).code


async def _a_worker_stops_in_between(p, model):
    """With a step in the journal that is too large for the bucket."""
    async with p.worker():
        await p.speakers[Role.GATEWAY].js.publish("rca.request.incident.p0", BODY)
        await asyncio.wait_for(model.held.wait(), 100)
    parts = await p.speakers[Role.OPERATOR].js.stream_info("OBJ_RCA_JOURNAL")
    assert parts.state.messages > 1
    model.free = True


async def _readers_read(p, heard, events):
    """Results by key, from the durable and live; audit events stored and live."""
    results = [json.loads((await heard.next_msg(40)).data) for _ in range(2)]
    [first] = [result for result in results if result["remediation_id"] == KEY]
    assert "completed" == first["status"]
    assert [False, True] == [attempt["is_valid"] for attempt in first["validation_attempts"]]
    assert first == await p.result(KEY)
    aianalysis = p.speakers[Role.AIANALYSIS]
    puller = await aianalysis.js.pull_subscribe_bind(consumer="aianalysis", stream="RCA_RESULTS")
    pulled = await puller.fetch(1, timeout=PATIENCE_SECONDS) + await puller.fetch(1, timeout=PATIENCE_SECONDS)
    for message in pulled:
        await message.ack_sync(timeout=PATIENCE_SECONDS)
    assert results == [json.loads(message.data) for message in pulled]
    stored = await p.speakers[Role.AUDIT_READER].js.get_msg("RCA_AUDIT", seq=1)
    assert stored.data == (await events.next_msg(PATIENCE_SECONDS)).data


async def _the_executor_is_believed(p, heard, tmp_path):
    await p.speakers[Role.EXECUTOR].js.publish(f"rca.outcome.{KEY}", json.dumps(OUTCOME).encode())
    sent = await p.rca(Role.GATEWAY, "submit", str(_file(tmp_path, body("rr-2"))))
    assert 0 == sent.code, sent.err
    assert "rr-2" == json.loads((await heard.next_msg(40)).data)["remediation_id"]
    assert any("only-the-outcome-says-this" in str(request) for request in p.llm.requests)


async def _the_gateway_hears_of_what_cannot_be_read(p):
    gateway = p.speakers[Role.GATEWAY]
    rejected = await gateway.nc.subscribe("rca.validation.request")
    await gateway.js.publish("rca.request.incident", b"{}")
    assert "schema" == json.loads((await rejected.next_msg(40)).data)["code"]


async def _dead_letters_are_sent_again(p):
    listed = (await p.rca(Role.OPERATOR, "dlq", "list", "--json")).json()
    assert ["rr-exhausted"] == [letter["remediation_id"] for letter in listed]
    again = await p.rca(Role.OPERATOR, "dlq", "replay", str(listed[0]["id"]))
    assert 0 == again.code, again.err
    await until(lambda: _says(p, "rr-exhausted", "completed"))
    assert "no dead letters" in (await p.rca(Role.OPERATOR, "dlq", "list")).err


async def _requests_are_cancelled(p):
    """By an operator, and by a program with the rights of the gateway."""
    gateway = p.speakers[Role.GATEWAY]
    assert 0 == (await p.rca(Role.OPERATOR, "cancel", "--ahead", "rr-3")).code
    await gateway.nc.request("$KV.RCA_CANCEL.rr-4", b"yes", timeout=PATIENCE_SECONDS)
    for name in ("rr-3", "rr-4"):
        await gateway.js.publish("rca.request.incident", body(name))
        await until(lambda name=name: _says(p, name, "needs_human_review"))


async def _says(p, key, status):
    try:
        return (await p.result(key))["status"] == status
    except NotFoundError:
        return False


def _file(tmp_path, content):
    path = tmp_path / "request.json"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        (("submit", "{file}", "--wait"), "subscribe to 'rca."),
        (("dlq", "list"), "$js.api.stream.info.rca_dlq"),
        (("provision",), "$js.api.stream.info.rca_requests"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
async def test_a_command_that_is_denied_something_says_so_at_once(tmp_path, arguments, subject):
    file = _file(tmp_path, BODY)
    async with shipped_server(tmp_path) as server:
        async with connected(settings_of(server, Role.PROVISIONER)) as nc:
            await provision(nc, wanted(SUBJECTS))
        env = environment_of(server, Role.GATEWAY)
        ended = await rca(*(argument.format(file=file) for argument in arguments), env=env)
    assert (1, "") == (ended.code, ended.out)
    assert "the NATS server does not allow this client to" in ended.err
    assert subject in ended.err


async def test_a_worker_with_the_rights_of_somebody_else_is_not_ready_and_says_why(tmp_path):
    async with place(tmp_path, Model()) as p:
        async with connected(settings_of(p.server, Role.PROVISIONER)) as nc:
            await provision(nc, wanted(SUBJECTS))
        async with p.worker(Role.OPERATOR) as worker:
            await until(
                lambda: _troubled(
                    worker, "does not allow this client to publish to '$js.api.consumer.msg.next.rca_"
                )
            )


async def _troubled(worker, text):
    return text in worker.intake.trouble()


async def test_an_inbox_of_somebody_else_is_explained(tmp_path):
    async with shipped_server(tmp_path) as server:
        env = {**environment_of(server, Role.OPERATOR), "RCA_NATS__INBOX_PREFIX": "_INBOX"}
        ended = await rca("dlq", "list", env=env)
    assert 1 == ended.code
    assert "set RCA_NATS__INBOX_PREFIX to the inbox prefix of the role" in ended.err


async def test_an_nkey_in_place_of_a_password_has_the_rights_of_its_role(tmp_path):
    """As docs/nats.md says."""
    pair = key()
    changes = {"{user: provisioner, password: $RCA_NATS_PROVISIONER_PASSWORD,": f"{{nkey: {pair.public},"}
    async with shipped_server(tmp_path, changes=changes) as server:
        with_password = settings_of(server, Role.PROVISIONER)
        seed = _file(tmp_path, pair.seed.encode())
        settings = with_password.model_copy(update={"user": "", "nkey_file": seed})
        async with connected(settings) as nc:
            assert len(wanted(SUBJECTS)) == len(await provision(nc, wanted(SUBJECTS)))
        with pytest.raises(
            Unavailable, match=r"does not allow this client to publish to 'rca\.result\.incident\.x'"
        ):
            await _publish(settings, "rca.result.incident.x")


async def _publish(settings, subject):
    async with connected(settings) as nc:
        await nc.publish(subject, b"{}")
        await asyncio.sleep(30)  # until the server says no


async def test_roles_of_another_prefix_reach_their_own_streams(tmp_path):
    subjects = Subjects("east.rca")
    async with shipped_server(tmp_path, subjects.prefix) as server:
        async with connected(settings_of(server, Role.PROVISIONER, subjects)) as nc:
            await provision(nc, wanted(subjects))
        async with connected(settings_of(server, Role.GATEWAY, subjects)) as nc:
            ack = await nc.jetstream().publish("east.rca.request.incident", b"{}")
        async with connected(settings_of(server, Role.WORKER, subjects)) as nc:
            assert [] == [f for f in await provision(nc, wanted(subjects), apply=False) if f.detail]
        assert "EAST_RCA_REQUESTS" == ack.stream
        assert [] == server.violations()
