"""What stands behind the target: pods of any owner, the maker of a pod that is gone, and the nodes of failing pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.fixed_clock import FixedClock
from tests.fakes.manifests import crashing, event, obj, pod
from tests.fakes.memory_cluster import MemoryCluster
from tests.unit.domain.enrichment.test_enrich import NODE, SHOP, bodies, look, request
from worker.domain.cluster.owners import owner_chain
from worker.domain.cluster.pod_finding import find_pods
from worker.domain.enrichment.enrich import enrich
from worker.domain.values.errors import ClusterReason
from worker.domain.values.objects import Manifest, ObjectRef

TEMPLATE = {"template": {"spec": {"containers": [{"name": "app", "image": "a:1"}]}}}


def chain(*kinds: tuple[str, str], **top: Any) -> list[Manifest]:
    """One object of each kind and API version, the top one first, each owned by the one before; a failing pod at the end."""
    made: list[Manifest] = []
    for number, (kind, api_version) in enumerate(kinds):
        owner = {"owner": made[-1]} if made else top
        made.append(obj(kind, f"n{number}", "shop", api_version, **owner))
    return [*made, pod("stray-x7k2p", status=crashing(), owner=made[-1], labels={"app": "x"})]


KNATIVE = "serving.knative.dev/v1"
CHAINS = {
    "DeploymentConfig": [("DeploymentConfig", "apps.openshift.io/v1"), ("ReplicationController", "v1")],
    "Rollout": [("Rollout", "argoproj.io/v1alpha1"), ("ReplicaSet", "apps/v1")],
    "Revision": [("Revision", KNATIVE), ("Deployment", "apps/v1"), ("ReplicaSet", "apps/v1")],
    "Service": [
        ("Service", KNATIVE),
        ("Configuration", KNATIVE),
        ("Revision", KNATIVE),
        ("Deployment", "apps/v1"),
        ("ReplicaSet", "apps/v1"),
    ],
    "CloneSet": [("CloneSet", "apps.kruise.io/v1alpha1")],
    "PostgresCluster": [("PostgresCluster", "example.com/v1"), ("StatefulSet", "apps/v1")],
}


@pytest.mark.parametrize("kind", CHAINS)
async def test_pods_of_any_owner_are_found_by_their_owner_references(kind: str) -> None:
    made = chain(*CHAINS[kind])
    other = pod("other-abcde", status=crashing(), labels={"app": "y"})
    told = [event(item, "Scaled", f"news of {item['kind']}") for item in made]
    logs = {("shop", "stray-x7k2p", "app", True): b"panic: permission denied\n"}
    cluster = MemoryCluster([SHOP, NODE, *made, *told, other], logs)
    target = request(kind, "n0", "shop", resource_api_version=made[0]["apiVersion"])
    found = await enrich(target, cluster, FixedClock())
    [pods] = bodies(found, "pods")
    assert ("stray-x7k2p" in pods, "other-abcde" in pods) == (True, False)
    assert ["panic: permission denied" in body for body in bodies(found, "logs")] == [True]
    [events] = bodies(found, "events")
    assert [f"news of {item['kind']}" in events for item in made] == [True] * len(made)


@pytest.mark.parametrize(
    "fields",
    [
        {"spec": {"selector": {"app": "x"}}},
        {"spec": {"selector": {"matchLabels": {"app": "x"}}}},
        {"status": {"selector": "app=x"}},
        {"status": {"labelSelector": "app=x"}},
    ],
    ids=str,
)
async def test_pods_of_any_owner_are_found_by_its_selector(fields: dict[str, Any]) -> None:
    owner = obj("GameServerSet", "g", "shop", "game.kruise.io/v1alpha1", **fields)
    pods = [pod("one-1", status=crashing(), labels={"app": "x"}), pod("two-2", labels={"app": "y"})]
    found = await look(MemoryCluster([SHOP, NODE, owner, *pods]), "GameServerSet", "g", "shop")
    [table] = bodies(found, "pods")
    assert ("one-1" in table, "two-2" in table) == (True, False)


async def test_owners_that_may_not_be_read_hide_no_other_pods() -> None:
    cluster = MemoryCluster([SHOP, NODE, *chain(*CHAINS["DeploymentConfig"])])
    cluster.fail(ClusterReason.FORBIDDEN, kind="ReplicationController")
    found = await look(cluster, "DeploymentConfig", "n0", "shop")
    [others] = bodies(found, "neighbours")
    assert "stray-x7k2p" in others


JOB = obj("Job", "invoice-29669", "shop", "batch/v1", spec=TEMPLATE)
GONE = "invoice-29669-zz9pl"


@pytest.mark.parametrize(
    ("maker", "gone", "message"),
    [
        (JOB, GONE, f"Deleted pod: {GONE}"),
        (obj("ReplicaSet", "api-7d9f4", "shop", "apps/v1", spec=TEMPLATE), "api-7d9f4-abcde", ""),
        (obj("StatefulSet", "db", "shop", "apps/v1", spec=TEMPLATE), "db-0", ""),
        (obj("CloneSet", "fleet", "shop", "apps.kruise.io/v1alpha1", spec=TEMPLATE), "x9", "Created pod: x9"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else None,
)
async def test_a_pod_that_is_gone_leads_to_what_made_it(maker: Manifest, gone: str, message: str) -> None:
    reason = "SuccessfulDelete" if message.startswith("Deleted") else "SuccessfulCreate"
    events = [event(maker, "Warned", "it was said"), *([event(maker, reason, message)] if message else [])]
    found = await look(MemoryCluster([SHOP, NODE, maker, *events]), "Pod", gone, "shop")
    first, shown = bodies(found, "object")
    assert f"it was made by {maker['kind']} shop/{maker['metadata']['name']}" in first
    assert f'"kind":"{maker["kind"]}"' in shown
    assert "it was said" in bodies(found, "events")[0]
    assert found.first_look.chain == ()


async def test_a_pod_that_is_gone_and_that_nothing_knows_is_only_gone() -> None:
    found = await look(MemoryCluster([SHOP, NODE, JOB]), "Pod", "else-1-abcde", "shop")
    assert ["does not exist (any more); events may still tell what happened to it"] == bodies(found, "object")


NEWS = [
    ("SystemOOM", "System OOM encountered, victim process: java", "Warning"),
    ("NTPIsDown", "clock is 40 s off", "Warning"),
    ("NodeNotReady", "Node node-1 status is now: NodeNotReady", "Normal"),
]


async def test_what_is_said_of_the_nodes_of_failing_pods_is_shown() -> None:
    about = {**NODE, "metadata": {**NODE["metadata"], "namespace": "default"}}
    events = [event(about, reason, message, type=kind) for reason, message, kind in NEWS]
    quiet = event(about, "Starting", "Starting kubelet.", type="Normal")
    cluster = MemoryCluster([SHOP, NODE, pod("p", status=crashing()), *events, quiet])
    found = await look(cluster, "Pod", "p", "shop")
    shown = " ".join(bodies(found, "nodes"))
    assert [message in shown for _, message, _ in NEWS] == [True] * len(NEWS)
    assert "Starting kubelet" not in shown
    healthy = MemoryCluster([SHOP, NODE, pod("p"), *events])
    assert "SystemOOM" not in " ".join(bodies(await look(healthy, "Pod", "p", "shop"), "nodes"))


@pytest.mark.parametrize(
    ("reason", "failed"), [(ClusterReason.UNAVAILABLE, True), (ClusterReason.FORBIDDEN, False)]
)
async def test_events_of_nodes_that_were_not_read_are_unknown(reason: ClusterReason, *, failed: bool) -> None:
    cluster = MemoryCluster([SHOP, NODE, pod("p", status=crashing())])
    cluster.fail(reason, kind="Event")
    found = await look(cluster, "Pod", "p", "shop")
    assert failed == any(source.startswith("node events ") for source in found.failed_sources)


async def test_owners_in_a_circle_end_the_search() -> None:
    one, two = (obj("ReplicaSet", name, "shop", "apps/v1") for name in ("one", "two"))
    for item, owner in ((one, two), (two, one)):
        item["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": owner["metadata"]["name"],
                "controller": True,
            }
        ]
    fleet = obj("Fleet", "f", "shop", "e.com/v1")
    cluster = MemoryCluster([SHOP, NODE, fleet, one, two, pod("p", status=crashing(), owner=one)])
    found = await look(cluster, "Fleet", "f", "shop")
    assert ([], 1) == (bodies(found, "pods"), len(bodies(found, "neighbours")))


async def test_long_lists_are_held_without_their_field_managers() -> None:
    held = pod("p", status=crashing())
    held["metadata"]["managedFields"] = [{"manager": "kubelet", "time": "2026-06-04T15:00:00Z"}]
    cluster = MemoryCluster([SHOP, NODE, held])
    found = await find_pods(cluster, await owner_chain(cluster, ObjectRef("Namespace", "shop")), None)
    assert ["managedFields" in item["metadata"] for item in found.own] == [False]
    assert "managedFields" in (await cluster.get(ObjectRef("Pod", "p", "shop")))["metadata"]
