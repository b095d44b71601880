from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.hostile import OBJECTS, VALUES
from tests.fakes.manifests import deployment, obj, replica_set
from tests.fakes.memory_cluster import MemoryCluster
from worker.domain.cluster.changes import (
    describe_changes,
    differences,
    read_changes,
    revision_number,
    revisions_of,
)
from worker.domain.cluster.fields import reference
from worker.domain.values.errors import ClusterError

API = deployment("api")


def memory(limit):
    return {"resources": {"limits": {"memory": limit}}}


@pytest.mark.parametrize("mark", ["deployment.kubernetes.io/revision", "rollout.argoproj.io/revision"])
def test_revisions_are_numbered_by_their_controller(mark):
    assert revision_number(obj("ReplicaSet", "api-1", annotations={mark: "12"})) == 12
    assert revision_number(obj("ControllerRevision", "db-1", revision=3)) == 3


def test_fields_that_differ_are_named_with_both_values():
    old = {"spec": {"containers": [{"name": "app", "image": "a:1", "args": ["-x"]}, {"name": "old"}]}}
    new = {"spec": {"containers": [{"name": "app", "image": "a:2", "args": ["-y"]}, {"name": "new"}]}}
    assert [
        "spec.containers[app].image: a:1 -> a:2",
        'spec.containers[app].args: ["-x"] -> ["-y"]',
        'spec.containers[old]: {"name":"old"} -> (none)',
        'spec.containers[new]: (none) -> {"name":"new"}',
    ] == differences(old, new)


def test_the_order_of_named_elements_is_no_difference():
    one, two = {"name": "a"}, {"name": "b"}
    assert [] == differences({"containers": [one, two]}, {"containers": [two, one]})


async def test_newest_revision_is_compared_with_the_one_before():
    revisions = [replica_set(API, "b", 2, **memory("16Mi")), replica_set(API, "a", 1, **memory("256Mi"))]
    found = await read_changes(MemoryCluster([API, *revisions]), reference(API))
    assert [
        "revision 2 (created 2026-06-02T10:00:00Z, ReplicaSet api-b, 0/1 ready) changed:",
        "  spec.containers[app].resources.limits.memory: 256Mi -> 16Mi",
        "revision 1 (created 2026-06-01T10:00:00Z, ReplicaSet api-a, 0/1 ready)",
    ] == found


async def test_a_revision_without_pods_is_told_by_its_number():
    old = replica_set(API, "a", 1, **memory("256Mi"))
    old["spec"]["replicas"] = 0
    cluster = MemoryCluster([API, replica_set(API, "b", 2, **memory("16Mi")), old])
    assert (await read_changes(cluster, reference(API)))[-1] == (
        "revision 1 (created 2026-06-01T10:00:00Z, scaled to 0)"
    )


async def test_revisions_of_other_workloads_are_left_out():
    other = replica_set(deployment("other"), "x", 9)
    assert ["api-a"] == [
        r["metadata"]["name"] for r in revisions_of(reference(API), [other, replica_set(API, "a", 1)])
    ]
    assert [] == await read_changes(MemoryCluster([API, other, replica_set(API, "a", 1)]), reference(API))


async def test_controller_revisions_tell_what_changed_in_a_stateful_set():
    db = obj("StatefulSet", "db", api_version="apps/v1")
    revisions = [
        obj(
            "ControllerRevision", f"db-{n}", api_version="apps/v1", owner=db, revision=n,
            data={"spec": {"template": {"spec": {"containers": [{"name": "db", "image": f"db:{n}"}]}}}},
        )
        for n in (1, 2)
    ]  # fmt: skip
    found = await read_changes(MemoryCluster([db, *revisions]), reference(db))
    assert "  spec.containers[db].image: db:1 -> db:2" == found[1]


def test_values_that_may_be_secrets_are_not_shown():
    def with_env(revision, value):
        return replica_set(API, f"r{revision}", revision, env=[{"name": "DB_CONN", "value": value}])

    shown = "\n".join(describe_changes([with_env(1, "password=old"), with_env(2, "password=new")]))
    assert "password" not in shown


async def test_revisions_are_found_in_a_namespace_with_more_than_one_list_holds():
    others = [replica_set(deployment("aaa"), f"{i:03d}", 1) for i in range(500)]
    revisions = [replica_set(API, "a", 1, image="a:1"), replica_set(API, "b", 2, image="a:2")]
    for revision in revisions:
        revision["metadata"]["labels"] = {"app": "api"}
    cluster = MemoryCluster([API, *others, *revisions])
    assert "  spec.containers[app].image: a:1 -> a:2" in await read_changes(cluster, reference(API))


async def test_revisions_that_cannot_all_be_read_are_unknown():
    revisions = [replica_set(API, f"{i:03d}", 1) for i in range(501)]
    for revision in revisions:
        revision["metadata"]["labels"] = {"app": "api"}
    with pytest.raises(ClusterError, match="more objects of kind ReplicaSet"):
        await read_changes(MemoryCluster([API, *revisions]), reference(API))


async def test_kinds_without_revisions_have_no_changes():
    assert [] == await read_changes(MemoryCluster(), reference(obj("Job", "j")))


@given(st.lists(OBJECTS, max_size=3), VALUES, VALUES)
def test_any_objects_can_be_compared(revisions, old, new):
    assert all(isinstance(line, str) for line in describe_changes(revisions))
    assert (old == new) <= (differences(old, new) == [])


async def test_of_many_differences_the_first_ones_are_shown():
    many = [{f"FIELD_{i}": str(i) for i in range(20)}, {}]
    revisions = [replica_set(API, "a", 1, **many[0]), replica_set(API, "b", 2, **many[1])]
    assert "  and 4 more differences" == describe_changes(revisions)[-2]
