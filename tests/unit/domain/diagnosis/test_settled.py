"""Which statements of an object are the contrary of what an alert speaks of, and since when they hold."""

from __future__ import annotations

import copy
from datetime import UTC, datetime

import pytest

from tests.fakes.memory_cluster import MemoryCluster
from worker.domain.diagnosis.driver import Investigator
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.settled import NODE_NOT_READY, NODE_PRESSURE, PODS_NOT_READY, settled_since
from worker.domain.values.errors import ClusterReason
from worker.domain.values.objects import ObjectRef

SINCE = datetime(2026, 6, 4, 9, tzinfo=UTC)
EARLIER, AT, LATER = "2026-06-04T08:00:00Z", "2026-06-04T09:00:00Z", "2026-06-04T09:40:00Z"
API = ObjectRef("Deployment", "api", "shop", "apps/v1")
NODE = ObjectRef("Node", "w1", "", "v1")
CLAIM = ObjectRef("PersistentVolumeClaim", "data", "shop", "v1")


def condition(kind, status="True", since=AT):
    return {"type": kind, "status": status, "lastTransitionTime": since}


def pod(name):
    container = {"name": "app", "ready": True, "state": {"running": {"startedAt": EARLIER}}}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "api-1", "uid": "r", "controller": True}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "app", "image": "a"}]},
        "status": {"phase": "Running", "conditions": [condition("Ready")], "containerStatuses": [container]},
    }  # fmt: skip


def healthy():
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api", "uid": "d", "controller": True}
    place = {"namespace": "shop"}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "api", "generation": 4, **place}, "spec": {"replicas": 2},
         "status": {"observedGeneration": 4, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "api-1", "ownerReferences": [owner], **place}},
        pod("api-1-a"), pod("api-1-b"),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}, "status": {"conditions": [
            condition("Ready"), *(condition(f"{what}Pressure", "False", EARLIER) for what in ("Memory", "Disk", "PID"))]}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", **place}, "status": {"phase": "Bound"}},
    ]  # fmt: skip


async def since(signal, spoken_of, *changes, fail=None):
    manifests = copy.deepcopy(healthy())
    for kind, change in changes:
        change(next(m for m in manifests if m["kind"] == kind))
    cluster = MemoryCluster(manifests)
    if fail:
        cluster.fail(ClusterReason.FORBIDDEN, kind=fail)
    facts = ClusterFacts()
    return await Investigator(cluster).conclude(facts, lambda known: settled_since(known, signal, spoken_of))


@pytest.mark.parametrize("spoken_of", [*PODS_NOT_READY, " kubepodcrashlooping"])
@pytest.mark.parametrize("signal", [API, ObjectRef("Pod", "api-1-a", "shop", "v1")])
async def test_ready_pods_are_the_contrary(signal, spoken_of):
    assert await since(signal, spoken_of) == SINCE


@pytest.mark.parametrize("spoken_of", [*NODE_NOT_READY, *NODE_PRESSURE])
async def test_the_conditions_of_a_node_are_the_contrary(spoken_of):
    assert await since(NODE, spoken_of) == SINCE


@pytest.mark.parametrize("signal", [API, NODE, CLAIM])
@pytest.mark.parametrize(
    "spoken_of",
    [
        "", "KubePersistentVolumeFillingUp", "KubePersistentVolumeErrors", "NodeFilesystemAlmostOutOfSpace", "NodeRAIDDegraded",
        "NodeClockNotSynchronising", "NodeNetworkReceiveErrs", "NodeMemoryHighUtilization", "NodeNotReadyRatioHigh",
        "ContainerMemoryUsageHigh", "KubeletTooManyPods", "PodcastApiErrorRateHigh", "PodcastApi", "ImageServiceLatencyHigh",
        "VolumeDiscountJobLate", "NodeJsEventLoopLag", "HealthcareApi5xx", "ReplicationLagHigh", "OOMKilled", "Evicted",
        "BackoffLimitExceeded", "KubeJobFailed", "HighErrorRate", "Node", "Pod",
    ],
)  # fmt: skip
async def test_nothing_else_has_a_contrary(signal, spoken_of):
    assert await since(signal, spoken_of) is None


@pytest.mark.parametrize(
    ("signal", "spoken_of"), [(API, "NodeNotReady"), (NODE, "KubePodCrashLooping"), (CLAIM, "FailedMount")]
)
async def test_an_object_of_another_kind_states_nothing(signal, spoken_of):
    assert await since(signal, spoken_of) is None


def put(*path):
    *keys, last, value = path

    def change(manifest):
        for key in keys:
            manifest = manifest[key]
        manifest[last] = value

    return change


READY = ("status", "conditions", 0)
CONTAINER = ("status", "containerStatuses", 0)


@pytest.mark.parametrize(
    "change",
    [
        ("Pod", put(*READY, "lastTransitionTime", LATER)),
        ("Pod", put(*CONTAINER, "state", {"running": {"startedAt": LATER}})),
    ],
)
async def test_the_last_change_counts(change):
    assert await since(API, "CrashLoopBackOff", change) == datetime(2026, 6, 4, 9, 40, tzinfo=UTC)


@pytest.mark.parametrize(
    "change",
    [
        ("Pod", put(*READY, "status", "False")),
        ("Pod", put(*READY, "status", "Unknown")),
        ("Pod", put(*READY, "lastTransitionTime", None)),
        ("Pod", put(*CONTAINER, "state", {"running": {}})),
        ("Pod", put(*CONTAINER, "ready", False)),
        ("Pod", put(*CONTAINER, "state", {"waiting": {"reason": "CrashLoopBackOff"}})),
        ("Pod", put("metadata", "deletionTimestamp", LATER)),
        ("Pod", put("metadata", "ownerReferences", [])),
        ("Deployment", put("spec", "replicas", 3)),
        ("Deployment", put("spec", "replicas", 0)),
        ("Deployment", put("spec", "replicas", None)),
        ("Deployment", put("metadata", "generation", 5)),
        ("Deployment", put("status", "updatedReplicas", 1)),
        ("Deployment", put("status", "readyReplicas", 1)),
        ("Deployment", put("status", {})),
    ],
)
async def test_a_workload_that_is_not_all_well_states_no_contrary(change):
    assert await since(API, "CrashLoopBackOff", change) is None


@pytest.mark.parametrize("number", [0, 1, 2, 3])
@pytest.mark.parametrize("status", ["Unknown", "?"])
async def test_a_condition_of_a_node_that_is_not_known_is_no_contrary(number, status):
    assert (
        await since(NODE, "NodePressure", ("Node", put("status", "conditions", number, "status", status)))
        is None
    )


@pytest.mark.parametrize(
    ("signal", "spoken_of", "kind"), [(API, "PodPending", "Pod"), (NODE, "NodeNotReady", "Node")]
)
async def test_what_cannot_be_read_states_nothing(signal, spoken_of, kind):
    assert await since(signal, spoken_of, fail=kind) is None


@pytest.mark.parametrize("updated", [[], {}, "2"])
async def test_a_number_of_updated_pods_that_is_no_number(updated):
    odd = ("Deployment", lambda manifest: manifest["status"].update(updatedReplicas=updated))
    assert await since(API, "KubePodNotReady", odd) is None
