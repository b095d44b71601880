"""`rca alertmanager` over HTTP and a real NATS server: bodies of Alertmanager become requests, each once."""

from __future__ import annotations

import io
import json
from contextlib import asynccontextmanager
from datetime import timedelta

import aiohttp
import nats
import pytest

from schemas.subjects import Subjects
from schemas.taxonomy import RequestKind
from tests.commands import rca
from tests.corpus_files import corpus_path
from tests.fakes.memory_cluster import MemoryCluster
from tests.nats_servers import one_server
from tests.processes import ready, running
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.app.alert_receiver import AlertReceiver, serve
from worker.app.client import RequestClient
from worker.app.wiring.clock import SystemClock
from worker.domain.alerts.storm import StormRule, Stormwatch
from worker.domain.alerts.webhook import read_webhook
from worker.domain.values.errors import ClusterReason
from worker.sandbox.cluster_server import write_kubeconfig

CASE = corpus_path("cases/001-oom-shm-leak-after-limit-raises")
TOKEN = "FAKE-webhook-token"


def owned(kind, name, owner=None):
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    if owner:
        kind_of, of = owner
        reference = {
            "apiVersion": "apps/v1",
            "kind": kind_of,
            "name": of,
            "uid": f"uid-{of}",
            "controller": True,
        }
        metadata["ownerReferences"] = [reference]
    return {"apiVersion": "v1" if kind == "Pod" else "apps/v1", "kind": kind, "metadata": metadata}


CLUSTER = [
    owned("Deployment", "api"),
    owned("ReplicaSet", "api-7d9", ("Deployment", "api")),
    *(owned("Pod", f"api-7d9-{n}", ("ReplicaSet", "api-7d9")) for n in range(3)),
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "worker-3"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]},
    },
]


def alert(number=0, **labels):
    """As Alertmanager 0.27 sends it for kube-prometheus."""
    own = {
        "alertname": "KubePodCrashLooping",
        "namespace": "shop",
        "severity": "warning",
        "prometheus": "monitoring/k8s",
    }
    return {
        "status": "firing",
        "labels": own | labels,
        "annotations": {"summary": "Pod is crash looping.", "runbook_url": "https://runbooks.example.com/x"},
        "startsAt": "2026-06-04T11:58:00.123Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus.example.com/graph?g0.expr=x",
        "fingerprint": f"{number:016x}",
    }


def webhook(*alerts):
    return {
        "receiver": "rca",
        "status": "firing",
        "alerts": list(alerts),
        "groupLabels": {"namespace": "shop"},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example.com",
        "version": "4",
        "groupKey": '{}:{namespace="shop"}',
        "truncatedAlerts": 0,
    }


@asynccontextmanager
async def receiving(tmp_path, **rule):
    async with one_server(tmp_path) as server:
        nc = await nats.connect(server.url, max_reconnect_attempts=1)
        await provision(nc, wanted(Subjects()))
        client = RequestClient(nc, Subjects())
        receiver = AlertReceiver(
            MemoryCluster(CLUSTER),
            lambda body: client.submit(body, RequestKind.INCIDENT),
            SystemClock(),
            storms=Stormwatch(StormRule(timedelta(minutes=5), **rule)),
        )
        async with serve(receiver, "127.0.0.1", 0, TOKEN) as port, aiohttp.ClientSession() as http:

            async def post(body, token=TOKEN, content_type="application/json", encoding=""):
                headers = {"Authorization": f"Bearer {token}", "Content-Type": content_type}
                headers |= {"Content-Encoding": encoding} if encoding else {}
                url = f"http://127.0.0.1:{port}/webhook"
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                async with http.post(url, data=io.BytesIO(data), headers=headers) as answer:
                    return answer.status, await answer.json()

            post.receiver = receiver
            yield post, nc.jetstream(), server
            await nc.close()


async def published(js):
    state = (await js.stream_info("RCA_REQUESTS")).state
    if not state.messages:
        return []
    found = [await js.get_msg("RCA_REQUESTS", n) for n in range(state.first_seq, state.last_seq + 1)]
    return [(message.subject, json.loads(message.data)) for message in found if message.data]


async def test_pods_of_one_owner_are_one_request_about_the_owner(tmp_path):
    async with receiving(tmp_path) as (post, js, _):
        status, counts = await post(webhook(*(alert(n, pod=f"api-7d9-{n}") for n in range(3))))
        assert (200, 1, 2) == (status, counts["published"], counts["duplicate"])
        [(subject, body)] = await published(js)
    assert "rca.request.incident.p2" == subject
    assert ("Deployment", "api", "shop") == tuple(
        body[f"resource_{part}"] for part in ("kind", "name", "namespace")
    )


async def test_a_notification_that_is_sent_again_changes_nothing(tmp_path):
    async with receiving(tmp_path) as (post, js, _):
        for _ in range(3):
            assert 200 == (await post(webhook(alert(pod="api-7d9-0"))))[0]
        assert 1 == len(await published(js))


async def test_a_machine_is_found_by_its_address(tmp_path):
    labels = {
        "alertname": "NodeFilesystemSpaceFillingUp",
        "instance": "10.0.0.7:9100",
        "job": "node-exporter",
    }
    async with receiving(tmp_path) as (post, js, _):
        await post(webhook(alert(**labels, namespace="monitoring")))
        [(_, body)] = await published(js)
    assert ("Node", "worker-3", "") == tuple(
        body[f"resource_{part}"] for part in ("kind", "name", "namespace")
    )


async def test_a_thousand_alerts_about_many_objects_are_a_few_requests(tmp_path):
    async with receiving(tmp_path, objects=5) as (post, js, _):
        alerts = [alert(n, deployment=f"app-{n}") for n in range(1_000)]
        status, counts = await post(webhook(*alerts))
        bodies = [body for _, body in await published(js)]
    assert (200, 5, 995) == (status, counts["published"], counts["in_storm"])
    assert [False] * 4 + [True] == [body.get("is_storm", False) for body in bodies]
    assert 5 == len(bodies[-1]["affected_resources"])


async def test_each_of_ten_thousand_alerts_is_published():
    bodies = []

    async def publish(body):
        bodies.append(json.loads(body))

    alerts = [alert(n, alertname=f"A{n}", deployment=f"app-{n}") for n in range(10_000)]
    receiver = AlertReceiver(MemoryCluster(CLUSTER), publish, SystemClock())
    await receiver.receive(read_webhook(json.dumps(webhook(*alerts)).encode()))
    assert 10_000 == len({body["remediation_id"] for body in bodies})


async def test_labels_that_name_no_object_hide_no_real_alert(tmp_path):
    async with receiving(tmp_path, objects=2, alerts=2) as (post, js, _):
        await post(webhook(*(alert(n, deployment=f"<no name {n}>") for n in range(3))))
        _, counts = await post(webhook(alert(9, deployment="api")))
        assert {"invalid": 3, "published": 1} == counts
        [(_, body)] = await published(js)
    assert "api" == body["resource_name"]


async def test_a_body_that_does_not_match_its_encoding_is_rejected(tmp_path):
    async with receiving(tmp_path) as (post, _, _):
        status, answer = await post(b"not gzip", encoding="gzip")
    assert (400, True) == (status, "content-encoding" in answer["error"])


async def test_an_alert_that_could_not_be_published_is_published_when_repeated(tmp_path):
    async with receiving(tmp_path) as (post, js, _):
        config = (await js.stream_info("RCA_REQUESTS")).config
        await js.delete_stream("RCA_REQUESTS")
        status, answer = await post(webhook(alert(pod="api-7d9-0")))
        assert (503, True) == (status, "rca provision" in answer["error"])
        await js.add_stream(config)
        assert 200 == (await post(webhook(alert(pod="api-7d9-0"))))[0]
        assert 1 == len(await published(js))


@pytest.mark.parametrize(
    ("body", "token", "status"),
    [(b"{}", TOKEN, 400), (b"\xff", TOKEN, 400), (webhook(), "wrong", 401), (webhook(), "", 401)],
)
async def test_unauthorised_and_unreadable_webhooks_are_refused(tmp_path, body, token, status):
    async with receiving(tmp_path) as (post, js, _):
        got, answer = await post(body, token)
        assert (status, True) == (got, bool(answer["error"]))
        assert not await published(js)


async def test_a_page_in_a_browser_cannot_post(tmp_path):
    async with receiving(tmp_path) as (post, js, _):
        status, _ = await post(webhook(alert(pod="api-7d9-0")), content_type="text/plain")
        assert 415 == status
        assert not await published(js)


async def test_a_failed_look_up_of_a_node_is_repeated_with_the_next_alert(tmp_path):
    labels = {"alertname": "NodeDown", "instance": "10.0.0.7:9100", "job": "node-exporter"}
    node, other = alert(1, **labels), alert(2, deployment="api")
    del node["labels"]["namespace"]
    async with receiving(tmp_path) as (post, js, _):
        cluster = post.receiver.cluster
        post.receiver.cluster = MemoryCluster(CLUSTER)
        post.receiver.cluster.fail(ClusterReason.UNAVAILABLE, kind="Node")
        assert 503 == (await post(webhook(node, other)))[0]
        assert 1 == len(await published(js)), "the other alert did not have to wait"
        post.receiver.cluster = cluster
        assert 200 == (await post(webhook(node, other)))[0]
        assert 2 == len(await published(js))


async def test_an_open_address_needs_a_token():
    ended = await rca("alertmanager", env={"RCA_ALERTMANAGER__HOST": "0.0.0.0"})
    assert 1 == ended.code
    assert "RCA_ALERTMANAGER__TOKEN" in ended.err


@pytest.mark.process
async def test_the_command_takes_a_webhook_and_ends_on_sigterm(tmp_path):
    async with one_server(tmp_path) as server, ready("sandbox", "cluster", str(CASE)) as cluster:
        await rca("provision", env={"RCA_NATS__SERVERS": server.url})
        write_kubeconfig(tmp_path / "kubeconfig", cluster["url"])
        env = {
            "RCA_NATS__SERVERS": server.url,
            "RCA_KUBERNETES__KUBECONFIG": str(tmp_path / "kubeconfig"),
            "RCA_ALERTMANAGER__PORT": "0",
        }
        async with running("alertmanager", env=env) as process, aiohttp.ClientSession() as http:
            line = (await process.stdout.readline()).decode()
            body = webhook(alert(deployment="api"))
            async with http.post(line.split()[-1], json=body) as answer:
                assert (200, {"published": 1}) == (answer.status, await answer.json())
