from __future__ import annotations

import pytest

from tests.fakes.manifests import deployment, obj, pod, replica_set
from tests.fakes.memory_cluster import MemoryCluster
from worker.domain.cluster.fields import reference
from worker.domain.cluster.owners import MAX_OWNERS, owner_chain
from worker.domain.values.errors import ClusterReason
from worker.domain.values.objects import ObjectRef

API = deployment("api")
REVISION = replica_set(API, "7d9", 1)
API_POD = pod("api-7d9-x", owner=REVISION)


def names(found):
    return [str(ref) for ref in found.chain]


async def test_the_chain_goes_from_the_object_to_its_top_controller():
    found = await owner_chain(MemoryCluster([API, REVISION, API_POD]), ObjectRef("Pod", "api-7d9-x", "shop"))
    assert ["Pod shop/api-7d9-x", "ReplicaSet shop/api-7d9", "Deployment shop/api"] == names(found)
    assert reference(API) == found.root
    assert (True, True, "") == (found.complete, found.exists, found.note)
    assert "api" == found.root_manifest["metadata"]["name"]


async def test_an_object_without_owners_is_its_own_root():
    found = await owner_chain(MemoryCluster([API]), ObjectRef("Deployment", "api", "shop"))
    assert found.start == found.root
    assert found.complete


async def test_custom_resources_are_followed():
    cluster = obj("Cluster", "pg", api_version="postgresql.cnpg.io/v1")
    found = await owner_chain(
        MemoryCluster([cluster, pod("pg-1", owner=cluster)]), ObjectRef("Pod", "pg-1", "shop")
    )
    assert ["Pod shop/pg-1", "Cluster shop/pg"] == names(found)


async def test_owners_that_are_no_controllers_are_not_followed():
    owned = obj("Job", "unpack", api_version="batch/v1", owner=obj("ConfigMap", "bundle"))
    owned["metadata"]["ownerReferences"][0]["controller"] = False
    found = await owner_chain(MemoryCluster([owned]), ObjectRef("Job", "unpack", "shop"))
    assert ["Job shop/unpack"] == names(found)


async def test_cluster_scoped_owners_have_no_namespace():
    node = obj("Node", "node-1", namespace="")
    found = await owner_chain(
        MemoryCluster([node, pod("etcd", owner=node)]), ObjectRef("Pod", "etcd", "shop")
    )
    assert ["Pod shop/etcd", "Node node-1"] == names(found)


async def test_an_owner_of_the_same_name_but_another_uid_is_not_followed_further():
    new = {**API, "metadata": {**API["metadata"], "uid": "another"}}
    found = await owner_chain(MemoryCluster([new, REVISION]), ObjectRef("ReplicaSet", "api-7d9", "shop"))
    assert ["ReplicaSet shop/api-7d9", "Deployment shop/api"] == names(found)
    assert "replaced" in found.note
    assert None is found.root_manifest


@pytest.mark.parametrize("reason", [ClusterReason.FORBIDDEN, ClusterReason.NOT_FOUND, ClusterReason.TIMEOUT])
async def test_an_owner_that_cannot_be_read_is_kept_by_name(reason):
    cluster = MemoryCluster([API, REVISION])
    cluster.fail(reason, kind="Deployment", method="get")
    found = await owner_chain(cluster, ObjectRef("ReplicaSet", "api-7d9", "shop"))
    assert ["ReplicaSet shop/api-7d9", "Deployment shop/api"] == names(found)
    assert not found.complete
    assert found.exists


async def test_a_cycle_ends_the_chain():
    one = obj("Cluster", "a", api_version="example.com/v1")
    two = obj("Cluster", "b", api_version="example.com/v1", owner=one)
    one = obj("Cluster", "a", api_version="example.com/v1", owner=two)
    found = await owner_chain(MemoryCluster([one, two]), ObjectRef("Cluster", "a", "shop", "example.com/v1"))
    assert ["Cluster shop/a", "Cluster shop/b"] == names(found)
    assert not found.complete


async def test_the_chain_is_bounded():
    members = [obj("Cluster", "c0", api_version="example.com/v1")]
    for i in range(1, 10):
        members.append(obj("Cluster", f"c{i}", api_version="example.com/v1", owner=members[-1]))
    found = await owner_chain(MemoryCluster(members), ObjectRef("Cluster", "c9", "shop", "example.com/v1"))
    assert 1 + MAX_OWNERS == len(found.chain)
    assert not found.complete


@pytest.mark.parametrize(
    ("reason", "exists"),
    [
        (ClusterReason.NOT_FOUND, False),
        (ClusterReason.UNKNOWN_KIND, False),
        (ClusterReason.FORBIDDEN, None),
        (ClusterReason.UNAVAILABLE, None),
    ],
)
async def test_whether_the_object_exists_is_told_apart_from_not_knowing(reason, exists):
    cluster = MemoryCluster([API])
    cluster.fail(reason, method="get")
    found = await owner_chain(cluster, ObjectRef("Deployment", "api", "shop"))
    assert exists is found.exists
    assert ["Deployment shop/api"] == names(found)


async def test_metadata_of_a_wrong_type_is_survived():
    odd = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "namespace": "shop", "ownerReferences": {"a": 1}},
    }
    found = await owner_chain(MemoryCluster([odd]), ObjectRef("Pod", "x", "shop"))
    assert found.complete


async def test_an_owner_of_a_kind_that_discovery_does_not_know_is_looked_for_in_the_same_namespace():
    ghost = {"kind": "Ghost", "name": "g", "apiVersion": "e.com/v1", "controller": True, "uid": "u"}
    orphan = pod("api-0")
    orphan["metadata"]["ownerReferences"] = [ghost]
    found = await owner_chain(MemoryCluster([orphan]), reference(orphan))
    assert ObjectRef("Ghost", "g", "shop", "e.com/v1", "u") == found.root
    assert not found.complete
