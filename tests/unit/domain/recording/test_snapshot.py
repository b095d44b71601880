"""A snapshot of namespaces: what is read, what is left out, and the request about the worst of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.fakes.canaries import FORMS, Aviary
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.scripted import LOGS, recovered, shop
from worker.domain.recording.snapshot import MAX_LOGS, incident_of, take_snapshot
from worker.domain.values.errors import ClusterError, ClusterReason, ReportedError

NOW = datetime(2026, 6, 4, 15, 35, tzinfo=UTC)


def names(snapshot):
    return {f"{item['kind']}/{item['metadata']['name']}" for item in snapshot.objects}


def made(kind, name, namespace="shop", api_version="v1", **fields):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


class Refusing(MemoryCluster):
    """Refuses to list some kinds; of others it has more than it lists."""

    refused, endless = (), ()

    async def list(self, query):
        if query.kind in self.refused:
            raise ClusterError(ClusterReason.FORBIDDEN, "may not list it")
        return replace(await super().list(query), complete=query.kind not in self.endless)


async def test_objects_of_the_namespace_their_nodes_and_logs_are_read():
    elsewhere = made("ConfigMap", "other", "billing", data={})
    idle = made("Node", "worker-9", "")
    taken = await take_snapshot(MemoryCluster([*shop(), elsewhere, idle], LOGS), ["shop"])
    assert {
        "Namespace/shop",
        "Node/worker-1",
        "Deployment/api",
        "Pod/api-7d9-x2x",
        "ConfigMap/api-config",
    } <= names(taken)
    assert not {"ConfigMap/other", "Node/worker-9"} & names(taken)
    assert LOGS == dict(taken.logs)
    assert () == taken.unread


async def test_events_of_nodes_volumes_and_owners_of_other_kinds_are_read():
    controller = [
        {"apiVersion": "example.com/v1", "kind": "Shop", "name": "main", "uid": "u", "controller": True}
    ]
    objects = [
        *shop(),
        made("PersistentVolumeClaim", "data", spec={"volumeName": "pv-1"}),
        made("PersistentVolume", "pv-1", ""),
        made(
            "Event",
            "worker-1.1",
            "default",
            involvedObject={"kind": "Node", "name": "worker-1"},
            type="Warning",
        ),
        made("Shop", "main", api_version="example.com/v1"),
        made("StatefulSet", "cache", api_version="apps/v1", metadata={"ownerReferences": controller}),
    ]
    taken = await take_snapshot(MemoryCluster(objects, LOGS), ["shop"])
    assert {"PersistentVolume/pv-1", "Event/worker-1.1", "Shop/main"} <= names(taken)


async def test_secrets_are_never_read_and_everything_is_redacted():
    aviary = Aviary()
    objects = [*shop(), made("Secret", "db", data={"password": "c2VjcmV0"})]
    for item in objects:
        if item["kind"] == "ConfigMap":
            item["data"] |= {c.marker: c.text for c in aviary.at("data")}
    logs = {key: "".join(f"{c.line}\n" for c in aviary.at("log")).encode() for key in LOGS}
    cluster = MemoryCluster(objects, logs)
    taken = await take_snapshot(cluster, ["shop"])
    told = [str(taken.objects), *(log.decode() for log in taken.logs.values())]
    assert [] == aviary.seen_in(told)
    assert "Secret" not in {item["kind"] for item in taken.objects}
    assert all(aviary.planted[n].marker in told[0] for n in range(len(FORMS)))


async def test_what_cannot_be_read_is_named():
    cluster = Refusing(shop(), LOGS)
    cluster.refused, cluster.endless = ("NetworkPolicy",), ("ConfigMap",)
    taken = await take_snapshot(cluster, ["shop"])
    named = {"NetworkPolicy shop: may not list it", "ConfigMap shop: there are more than 1"}
    assert named == set(taken.unread)


async def test_what_is_gone_by_now_is_no_fault():
    objects = [made("Pod", "lost", spec={"nodeName": "gone", "containers": [{"name": "app"}]}), *shop()]
    taken = await take_snapshot(MemoryCluster(objects, {}), ["shop"])
    assert () == taken.unread
    assert {} == taken.logs


async def test_without_pods_there_is_no_snapshot():
    cluster = Refusing(shop(), LOGS)
    cluster.refused = ("Pod",)
    with pytest.raises(ClusterError):
        await take_snapshot(cluster, ["shop"])
    with pytest.raises(ClusterError):
        await take_snapshot(MemoryCluster(shop(), LOGS), ["no-such"])


async def test_of_many_logs_those_of_failing_pods_are_read():
    healthy = [
        made("Pod", f"idle-{n}", spec={"containers": [{"name": "app"}]}, status={"phase": "Succeeded"})
        for n in range(MAX_LOGS)
    ]
    taken = await take_snapshot(MemoryCluster([*healthy, *shop()], LOGS), ["shop"])
    assert set(LOGS) <= set(taken.logs)
    assert ("logs of 2 more containers",) == taken.unread


async def test_the_request_is_about_what_runs_the_worst_pod():
    taken = await take_snapshot(MemoryCluster(shop(), LOGS), ["shop"])
    body = incident_of(taken, NOW)
    assert ("Deployment", "api", "shop", "CrashLoopBackOff") == (
        body["resource_kind"],
        body["resource_name"],
        body["resource_namespace"],
        body["signal_type"],
    )
    assert "exit 1" in body["error_message"]


async def test_where_nothing_fails_the_request_must_be_given():
    taken = await take_snapshot(MemoryCluster(recovered(), LOGS), ["shop"])
    assert () == taken.failing
    with pytest.raises(ReportedError, match="--incident"):
        incident_of(taken, NOW)
