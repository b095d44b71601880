"""Which events are read, and what is said of those that are not."""

from __future__ import annotations

import pytest

from tests.fakes.manifests import crashing, deployment, event, pod, replica_set
from tests.fakes.memory_cluster import MemoryCluster
from worker.domain.cluster.events import MAX_EVENTS, read_events, read_events_around
from worker.domain.values.errors import ClusterReason
from worker.domain.values.objects import ObjectRef

API = deployment("api")
REVISION = replica_set(API, "5d9c7b6f4", 1)
REVISION["metadata"]["labels"] = {"app": "api"}
PODS = [
    pod(f"api-5d9c7b6f4-x2x{i:02d}", owner=REVISION, labels={"app": "api"}, status=crashing())
    for i in range(20)
]
OTHERS = [pod(f"aaa-{i}") for i in range(3)]
NOISE = [event(OTHERS[i % 3], "Pulled", f"image {i}", type="Normal", key=str(i)) for i in range(MAX_EVENTS)]
OWN = [
    event(API, "ScalingReplicaSet", "up", type="Normal"),
    event(REVISION, "SuccessfulCreate", "made", type="Normal"),
    event(PODS[0], "BackOff", "restarting"),
]


def busy(*more, noise=NOISE):
    """A namespace with more events than are read, all listed before those that matter."""
    return MemoryCluster([API, REVISION, *PODS[:2], *noise, *OWN, *more])


def reasons(found):
    return {item.reason for item in found.items}


async def asked(cluster, about):
    return await read_events(cluster, ObjectRef(*about))


async def test_events_of_an_object_are_asked_for_by_name():
    cluster = busy()
    found = await asked(cluster, ("Pod", PODS[0]["metadata"]["name"], "shop"))
    assert ({"BackOff"}, "", None) == (reasons(found), found.gap, found.error)
    [call] = cluster.calls
    assert "involvedObject.name=api-5d9c7b6f4-x2x00,involvedObject.kind=Pod" == call.query.field_selector


async def test_a_workload_keeps_its_events_in_a_namespace_with_more_than_are_read():
    found = await asked(busy(), ("Deployment", "api", "shop"))
    assert ({"ScalingReplicaSet", "SuccessfulCreate", "BackOff"}, "") == (reasons(found), found.gap)


async def test_what_could_not_be_asked_for_is_named():
    found = await asked(busy(*PODS[2:]), ("Deployment", "api", "shop"))
    assert "events of Pod shop/api-5d9c7b6f4-x2x" in found.gap
    assert {"ScalingReplicaSet", "SuccessfulCreate"} <= reasons(found)


async def test_what_belongs_to_a_workload_but_cannot_be_listed_is_named():
    cluster = busy()
    cluster.fail(ClusterReason.FORBIDDEN, kind="Pod", method="list")
    found = await asked(cluster, ("Deployment", "api", "shop"))
    assert "events of some objects of kind Pod that belong to Deployment shop/api" == found.gap
    assert {"ScalingReplicaSet", "SuccessfulCreate"} == reasons(found)


async def test_a_workload_that_cannot_be_read_has_its_events_all_the_same():
    cluster = busy()
    cluster.fail(ClusterReason.FORBIDDEN, kind="Deployment", method="get")
    assert "BackOff" in reasons(await asked(cluster, ("Deployment", "api", "shop")))


async def test_of_a_name_without_a_kind_only_its_own_events_are_certain():
    found = await asked(busy(), ("", "api", "shop"))
    assert ({"ScalingReplicaSet"}, "events of what belongs to api") == (reasons(found), found.gap)


async def test_warnings_are_found_behind_any_number_of_normal_events():
    found = await asked(busy(), ("", "", ""))
    assert "BackOff" in reasons(found)
    assert "normal events in all namespaces that come later by name" == found.gap


async def test_more_warnings_than_are_read_are_a_gap():
    warnings = [event(OTHERS[0], "Failed", f"{i}", key=str(i)) for i in range(MAX_EVENTS + 1)]
    found = await asked(MemoryCluster(warnings), ("", "", "shop"))
    assert "events in shop that come later by name" == found.gap


@pytest.mark.parametrize(
    ("reason", "calls"), [(ClusterReason.FORBIDDEN, 2), (ClusterReason.TIMEOUT, 1)], ids=str
)
async def test_the_other_api_is_asked_where_the_first_one_refuses(reason, calls):
    cluster = busy(noise=())
    cluster.fail(reason, kind="Event")
    found = await asked(cluster, ("", "", "shop"))
    assert (reason, ()) == (found.error.reason, found.items)
    assert calls == len(cluster.calls)


async def test_events_around_an_incident_are_those_of_its_objects():
    about = [ObjectRef("Pod", PODS[0]["metadata"]["name"], "shop"), ObjectRef("Deployment", "api", "shop")]
    quiet = await read_events_around(busy(noise=()), "shop", about, about[1])
    found = await read_events_around(busy(), "shop", about, about[1])
    assert (quiet.items, "") == (found.items, found.gap)
    assert {"ScalingReplicaSet", "SuccessfulCreate", "BackOff"} == reasons(found)


async def test_events_of_a_kind_are_asked_for():
    found = await asked(busy(), ("ReplicaSet", "", "shop"))
    assert {"SuccessfulCreate"} == reasons(found)
    assert "" == found.gap
