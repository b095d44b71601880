"""`rca worker` as a process: it waits for what it needs, stops when told, and another one goes on where it stopped."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest

from schemas.subjects import Subjects
from tests import processes
from tests.commands import rca
from tests.drills.workers import Worker
from tests.fakes.earlier_journal import earlier_body
from tests.fakes.llm_server import Said
from tests.fakes.llm_server import serve as serve_llm
from tests.integration.test_pipeline import ANSWER, BODY, CASE, TARGET
from tests.nats_servers import PATIENCE_SECONDS, Case, connect, free_ports, one_server, provisioned
from tests.pipeline import CATALOG, final
from tests.waiting import until
from worker.adapters.nats.journal import NatsJournal
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.adapters.nats.stream import FencedStream
from worker.sandbox.cluster_server import serve as serve_cluster
from worker.sandbox.cluster_server import write_kubeconfig
from worker.sandbox.nats_server import NatsServer

pytestmark = pytest.mark.process

KEY = json.loads(BODY)["remediation_id"]


async def said(worker):
    """What /readyz says."""
    try:
        return (await worker._get("/readyz"))[1]
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        return ""


@dataclass
class Held:
    """A model that answers no call from the n-th on, before it is let go."""

    number: int
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    free: bool = False

    def __call__(self, request, number):
        if number >= self.number and not self.free:
            self.asked.set()
            return Said(delay_seconds=120.0)
        if len(request["messages"]) > 3:  # there are results of tools
            return final(ANSWER)
        return Said(tool_calls=[("get_resource_context", TARGET)])


@dataclass
class Stage:
    """Servers, and the environment of workers on them."""

    case: Case
    llm: object
    env: dict[str, str]
    directory: object

    def worker(self, name="w0", **env):
        return Worker(name, {**self.env, **env}, self.directory)

    async def submit(self):
        await self.case.js.publish("rca.request.incident", BODY)

    async def result(self):
        found = await self.case.messages("RCA_RESULTS", f"rca.result.incident.{KEY}")
        return json.loads(found[-1].data) if found else None

    async def answered(self):
        return await self.result() is not None and await self.case.count("RCA_REQUESTS") == 0


def settings(server, llm, kubeconfig):
    return {
        "RCA_NATS__SERVERS": server.url,
        "RCA_KUBERNETES__KUBECONFIG": str(kubeconfig),
        "RCA_LLM__MODEL": "openai-chat:scripted",
        "RCA_LLM__BASE_URL": f"{llm.url}/v1",
        "RCA_LLM__API_KEY": "test-key",
        "RCA_CATALOG__PATH": str(CATALOG),
        "RCA_WORKER__ACK_WAIT_SECONDS": "2",
    }


@asynccontextmanager
async def stage(tmp_path, script):
    kubeconfig = tmp_path / "kubeconfig"
    async with (
        one_server(tmp_path) as server,
        provisioned([server], ack_wait_seconds=2) as case,
        serve_llm(script) as llm,
        serve_cluster(CASE) as url,
    ):
        write_kubeconfig(kubeconfig, url)
        yield Stage(case, llm, settings(server, llm, kubeconfig), tmp_path)


@asynccontextmanager
async def started(worker):
    await worker.start()
    try:
        await worker.ready()
        yield worker
    finally:
        await worker.kill()


# -- Starting


async def test_a_worker_waits_for_whatever_is_missing_and_says_so(tmp_path):
    kubeconfig, [port] = tmp_path / "kubeconfig", free_ports(1)
    write_kubeconfig(kubeconfig, f"http://127.0.0.1:{port}")
    server = NatsServer(tmp_path / "n")
    await server.start()
    await server.stop()
    async with serve_llm(lambda request, number: final(ANSWER)) as llm:
        worker = Worker("w0", settings(server, llm, kubeconfig), tmp_path)
        await worker.start()
        try:
            await until(lambda: _says(worker, "no NATS server answers at nats://127.0.0.1"))
            assert 200 == (await worker._get("/livez"))[0]
            await server.start()
            await until(lambda: _says(worker, "run `rca provision`"))
            nc = await connect([server])
            await provision(nc, wanted(Subjects()))
            await until(lambda: _says(worker, "kubernetes: the API server cannot be read"))
            assert "nats" not in await said(worker)
            assert [] == worker.events("worker_started")
            async with serve_cluster(CASE, port=port):
                await worker.ready()
                waited = " ".join(event["reason"] for event in worker.events("startup_waiting"))
                assert all(what in waited for what in ("no NATS server", "rca provision"))
                worker.send(signal.SIGTERM)
                assert 0 == await worker.ended()
            await nc.close()
        finally:
            await worker.kill()
            await server.stop()


async def _says(worker, text):
    return text in await said(worker)


async def test_a_worker_that_waits_stops_when_told(tmp_path):
    [port] = free_ports(1)
    env = {
        "RCA_NATS__SERVERS": f"nats://127.0.0.1:{port}",
        "RCA_KUBERNETES__KUBECONFIG": str(tmp_path / "kubeconfig"),
        "RCA_LLM__MODEL": "openai-chat:x",
        "RCA_LLM__BASE_URL": "http://127.0.0.1:9/v1",
    }
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    worker = Worker("w0", env, tmp_path)
    await worker.start()
    await until(lambda: _says(worker, "nats: not connected yet"))
    worker.send(signal.SIGTERM)
    assert 0 == await worker.ended()
    assert "Traceback" not in worker.tail()


@pytest.mark.parametrize("command", ["worker", "provision"])
async def test_refused_credentials_are_a_clear_error(tmp_path, command):
    users = 'authorization { users: [ {user: "rca", password: "right"} ] }'
    server = NatsServer(tmp_path / "n", cluster=users)
    await server.start()
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    env = {
        "RCA_NATS__SERVERS": server.url,
        "RCA_NATS__USER": "rca",
        "RCA_NATS__PASSWORD": "wrong-one",
        "RCA_LLM__MODEL": "openai-chat:x",
        "RCA_LLM__BASE_URL": "http://127.0.0.1:9/v1",
        "RCA_KUBERNETES__KUBECONFIG": str(tmp_path / "kubeconfig"),
        "RCA_HTTP__PORT": "0",
        "RCA_HTTP__HOST": "127.0.0.1",
    }
    ended = await processes.rca(command, env=env)
    await server.stop()
    assert 1 == ended.code
    assert "refuses the credentials" in ended.err
    assert "RCA_NATS__PASSWORD" in ended.err
    assert "wrong-one" not in ended.err
    assert "Traceback" not in ended.err


# -- Dying and stopping


async def _as_an_earlier_version(case):
    """The journal of the request as an earlier version would have written it."""
    stream = FencedStream(case.nc, "KV_RCA_JOURNAL")
    for step in (await NatsJournal(stream, case.nc).open(KEY, "look")).past:
        await case.js.publish(f"$KV.RCA_JOURNAL.{KEY}.{step.number}", earlier_body(step))


@pytest.mark.parametrize("upgraded", [False, True])
async def test_after_a_kill_another_worker_pays_only_for_the_call_that_was_outstanding(tmp_path, upgraded):
    script = Held(2)
    async with stage(tmp_path, script) as s:
        async with started(s.worker()) as first:
            await s.submit()
            await asyncio.wait_for(script.asked.wait(), 100)
            await first.kill()
        if upgraded:
            await _as_an_earlier_version(s.case)
        script.free = True
        async with started(s.worker("w1")):
            await until(s.answered)
        result, audits = await s.result(), await s.case.messages("RCA_AUDIT", "rca.audit.>")
    assert ("completed", 2, 3) == (result["status"], result["usage"]["llm_calls"], len(s.llm.requests))
    assert s.llm.requests[1] == s.llm.requests[2]
    events = [json.loads(message.data) for message in audits]
    assert len(events) == len({event["event_id"] for event in events})
    assert list(range(1, len(events) + 1)) == sorted(event["sequence"] for event in events)
    assert 1 == sum(event["event_type"] == "request.resumed" for event in events)


async def test_a_worker_that_is_told_twice_gives_back_at_once_what_it_has_not_finished(tmp_path):
    script = Held(1)
    async with stage(tmp_path, script) as s:
        async with started(s.worker(RCA_WORKER__DRAIN_SECONDS="600")) as first:
            await s.submit()
            await asyncio.wait_for(script.asked.wait(), 100)
            first.send(signal.SIGTERM)
            await until(lambda: _not_ready(first))
            first.send(signal.SIGTERM)
            assert 0 == await first.ended()
        heads = await _journal(s)
        assert [False] == [head["notes"]["alone"] for head in heads if head["kind"] == "begin"]
        assert ["released"] == [head["notes"]["outcome"] for head in heads if head["kind"] == "end"]
        script.free = True
        async with started(s.worker("w1")):
            await until(s.answered)
            await until(lambda: _is_short(s))


async def _journal(s):
    """The heads of all steps of the request."""
    steps = await s.case.messages("KV_RCA_JOURNAL", f"$KV.RCA_JOURNAL.{KEY}.*")
    return [json.loads(message.data.partition(b"\n")[0]) for message in steps]


async def _is_short(s):
    """Its result is stored, so one step is left."""
    return ["finished"] == [head["kind"] for head in await _journal(s)]


async def _not_ready(worker):
    return await worker.readiness() != 200


# -- Operators


async def test_dead_letters_are_shown_sent_again_and_deleted(tmp_path):
    async with stage(tmp_path, Held(1, free=True)) as s:
        await _exhaust(s)
        async with started(s.worker()):
            await until(lambda: _count(s, "RCA_DLQ", "rca.dlq.>", 2))
            assert "failed" == (await s.result())["status"]
            listed = json.loads((await rca("dlq", "list", "--json", env=s.env)).out)
            assert {KEY: "max_deliveries", "rr-2": "max_deliveries"} == {
                letter["remediation_id"]: letter["reason"] for letter in listed
            }
            ids = {letter["remediation_id"]: str(letter["id"]) for letter in listed}
            first, second = ids[KEY], ids["rr-2"]
            shown = await rca("dlq", "show", first, "--json", env=s.env)
            assert BODY.decode() == json.loads(shown.out)["body"]
            again = await rca("dlq", "replay", first, "999", env=s.env)
            assert (1, True) == (again.code, again.out.startswith(f"{first}: "))
            assert "there is no dead letter 999" in again.err
            await until(lambda: _completed(s))
            await until(lambda: _count(s, "RCA_REQUESTS", "rca.request.>", 0))  # acknowledged last
        dropped = await rca("dlq", "drop", second, env=s.env)
        assert (0, True) == (dropped.code, dropped.out.startswith(f"{second}: "))
        assert "no dead letters" in (await rca("dlq", "list", env=s.env)).err


async def _exhaust(s):
    """Two requests that the server delivers no more."""
    config = (await s.case.js.consumer_info("RCA_REQUESTS", "p2")).config
    config.max_deliver = 1
    await s.case.js.add_consumer("RCA_REQUESTS", config)
    await s.submit()
    other = json.dumps({**json.loads(BODY), "remediation_id": "rr-2"}).encode()
    await s.case.js.publish("rca.request.incident", other)
    puller = await s.case.js.pull_subscribe_bind(consumer="p2", stream="RCA_REQUESTS")
    for _ in range(2):
        for message in await puller.fetch(1, timeout=PATIENCE_SECONDS):
            await message.nak(delay=0.05)
    await puller.unsubscribe()


async def _count(s, stream, subject, number):
    return len(await s.case.messages(stream, subject)) == number


async def _completed(s):
    return (await s.result())["status"] == "completed"


async def test_requests_are_cancelled_while_they_run_and_while_they_wait(tmp_path):
    script = Held(2)
    async with stage(tmp_path, script) as s:
        assert 0 == (await rca("cancel", "--ahead", "rr-2", env=s.env)).code
        async with started(s.worker(RCA_LLM__CALL_SECONDS="5", RCA_LLM__RETRY_SECONDS="0.1")):
            await s.submit()
            await asyncio.wait_for(script.asked.wait(), 100)
            assert 0 == (await rca("cancel", KEY, env=s.env)).code
            waiting = json.dumps({**json.loads(BODY), "remediation_id": "rr-2"}).encode()
            await s.case.js.publish("rca.request.incident", waiting)
            await until(lambda: _count(s, "RCA_RESULTS", "rca.result.>", 2))
        results = [json.loads(m.data) for m in await s.case.messages("RCA_RESULTS", "rca.result.>")]
        late = await rca("cancel", KEY, env=s.env)
        unknown = await rca("cancel", "no-such-request", env=s.env)
    assert {"operator_escalation"} == {result["human_review_reason"] for result in results}
    assert {KEY: 1, "rr-2": 0} == {r["remediation_id"]: r["usage"]["llm_calls"] for r in results}
    assert (1, True) == (late.code, "needs_human_review" in late.err)
    assert (1, "") == (unknown.code, unknown.out)


@pytest.mark.parametrize("drain_seconds", ["600", "0.5"])
async def test_a_request_is_cancelled_while_its_worker_shuts_down(tmp_path, drain_seconds):
    """No further call is made, whether this worker ends the request or the next one does."""
    script = Held(2)
    hurried = {"RCA_LLM__CALL_SECONDS": "5", "RCA_LLM__RETRY_SECONDS": "0.1"}
    async with stage(tmp_path, script) as s:
        async with started(s.worker(RCA_WORKER__DRAIN_SECONDS=drain_seconds, **hurried)) as first:
            await s.submit()
            await asyncio.wait_for(script.asked.wait(), 100)
            first.send(signal.SIGTERM)
            await until(lambda: _not_ready(first))
            assert 0 == (await rca("cancel", KEY, env=s.env)).code
            asked = len(s.llm.requests)
            assert 0 == await first.ended()
        async with started(s.worker("w1", **hurried)):
            await until(s.answered)
        result = await s.result()
    assert ("operator_escalation", asked) == (result["human_review_reason"], len(s.llm.requests))
