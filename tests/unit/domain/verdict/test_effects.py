"""What keeps an action that fits from taking effect."""

import copy
from dataclasses import replace

import pytest

from tests.fakes.manifests import crashing, obj, replica_set
from tests.fakes.memory_cluster import MemoryCluster
from tests.unit.domain.diagnosis.small_clusters import claim, node, workload
from worker.domain.cluster.fields import reference
from worker.domain.diagnosis.causes import Cause, Remedy, stated
from worker.domain.diagnosis.driver import Investigator
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.verdict.effects import GROWTH, hindrance

LIMITED = {"resources": {"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}}}
GROW, BACK = "IncreaseMemoryLimits", "RollbackDeployment"


async def hindered(
    *manifests,
    action=GROW,
    also=(),
    remedy=Remedy.INCREASE_MEMORY,
    revision=0,
    targets=None,
    replicas=None,
    growth=GROWTH,
):
    """Whether something keeps the action on the first object, or on its targets, from taking effect."""
    ref = reference(manifests[0])
    remedies = {Remedy.ROLL_BACK, remedy}
    found = stated(Cause.OUT_OF_MEMORY, ref, "x", remedies, also=also)
    found = replace(found, container="app", revision=revision)
    proposed = claim(manifests[0], action, targets=targets or (ref,), replicas=replicas).action
    investigator = Investigator(MemoryCluster(manifests))
    return bool(await investigator.conclude(ClusterFacts(), lambda f: hindrance(f, proposed, found, growth)))


def api(**spec):
    made = workload(status=crashing("OOMKilled", 137), **copy.deepcopy(LIMITED))
    made[0]["spec"] |= spec
    return made


def quota(hard, used, **spec):
    return obj("ResourceQuota", "q", spec={"hard": hard, **spec}, status={"hard": hard, "used": used})


@pytest.mark.parametrize("resource", ["limits.memory", "requests.memory", "pods"])
async def test_a_full_quota_leaves_no_room_to_grow(resource):
    assert await hindered(*api(), quota({resource: "1"}, {resource: "1"}))
    assert not await hindered(*api(), quota({resource: "1Gi"}, {resource: "1Mi"}))
    assert not await hindered(*api(), quota({resource: "1"}, {resource: "1"}), action=BACK)


async def test_a_quota_may_be_used_up_exactly():
    made = api()
    made[0]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    up = {"action": "ScaleReplicas", "remedy": Remedy.SCALE_UP}
    assert not await hindered(*made, quota({"cpu": "300m"}, {"cpu": "200m"}), **up)
    assert await hindered(*made, quota({"cpu": "300m"}, {"cpu": "201m"}), **up)


def scope(name, operator="Exists", *values):
    return {"matchExpressions": [{"scopeName": name, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("scopes", "kept"),
    [
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopeSelector": scope("PriorityClass", "In", "vital")}, True),
        ({"scopeSelector": scope("PriorityClass", "In", "bulk")}, False),
        ({"scopeSelector": scope("PriorityClass", "NotIn", "vital")}, False),
        ({"scopeSelector": scope("CrossNamespacePodAffinity")}, False),
    ],
)
async def test_a_quota_counts_only_the_pods_of_its_scopes(scopes, kept):
    made = api()
    made[0]["spec"]["template"]["spec"]["priorityClassName"] = "vital"
    assert await hindered(*made, quota({"pods": "0"}, {"pods": "0"}, **scopes)) is kept


async def test_a_quota_of_a_priority_class_does_not_count_pods_without_one():
    full = {"pods": "0"}
    assert not await hindered(*api(), quota(full, full, scopeSelector=scope("PriorityClass")))


async def test_an_autoscaler_grows_what_it_scales():
    made = api()
    scaler = obj("HorizontalPodAutoscaler", "api", api_version="autoscaling/v2")
    also, raised = (reference(made[0]),), Remedy.RAISE_AUTOSCALER
    full = quota({"pods": "1"}, {"pods": "1"})
    assert await hindered(scaler, *made, full, action="PatchHPA", also=also, remedy=raised)
    assert not await hindered(scaler, *made, action="PatchHPA", also=also, remedy=raised)


@pytest.mark.parametrize(("most", "kept"), [("64Mi", True), ("100Mi", True), ("128Mi", False)])
async def test_a_larger_limit_that_its_namespace_does_not_admit(most, kept):
    bounds = obj("LimitRange", "bounds", spec={"limits": [{"type": "Container", "max": {"memory": most}}]})
    assert await hindered(*api(), bounds) is kept
    assert not await hindered(*api(), bounds, action=BACK)


@pytest.mark.parametrize(("most", "kept"), [("150Mi", True), ("192Mi", False)])
async def test_the_limit_of_a_pod_counts_all_its_containers(most, kept):
    made = api()
    made[0]["spec"]["template"]["spec"]["containers"].append({"name": "side", **LIMITED})
    bounds = obj("LimitRange", "bounds", spec={"limits": [{"type": "Pod", "max": {"memory": most}}]})
    assert await hindered(*made, bounds) is kept


@pytest.mark.parametrize(("free", "kept"), [("64Mi", True), ("127Mi", True), ("128Mi", False)])
async def test_the_first_pod_of_a_rollout_is_counted_at_its_new_size(free, kept):
    assert await hindered(*api(), quota({"limits.memory": free}, {"limits.memory": "0"})) is kept


@pytest.mark.parametrize(
    "strategy", [{"type": "Recreate"}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}]
)
async def test_only_the_growth_is_counted_where_a_pod_is_deleted_first(strategy):
    made = api(strategy=strategy)
    assert not await hindered(*made, quota({"limits.memory": "128Mi"}, {"limits.memory": "64Mi"}))
    assert not await hindered(*made, quota({"pods": "1"}, {"pods": "1"}))
    assert await hindered(*made, quota({"limits.memory": "127Mi"}, {"limits.memory": "64Mi"}))


@pytest.mark.parametrize(("replicas", "partition", "kept"), [(3, 3, True), (3, 2, False), (0, 0, False)])
async def test_a_partition_that_leaves_all_pods_as_they_are(replicas, partition, kept):
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
    spec = {"replicas": replicas, "updateStrategy": strategy}
    made = obj("StatefulSet", "db", api_version="apps/v1", spec=spec)
    assert await hindered(made) is kept
    assert not await hindered(made, action="ScaleStatefulSet", remedy=Remedy.SCALE_UP)


async def test_a_paused_deployment_rolls_nothing_out():
    assert await hindered(*api(paused=True))
    assert await hindered(*api(paused=True), action=BACK)
    assert not await hindered(*api(paused=True), action="ScaleReplicas", remedy=Remedy.SCALE_UP)
    assert not await hindered(*api(), action=BACK)


async def test_pods_that_somebody_has_to_delete_first():
    made = obj("StatefulSet", "db", api_version="apps/v1", spec={"updateStrategy": {"type": "OnDelete"}})
    assert await hindered(made)
    assert not await hindered(made, action="ScaleStatefulSet", remedy=Remedy.SCALE_UP)
    made["spec"]["updateStrategy"]["type"] = "RollingUpdate"
    assert not await hindered(made)


async def test_an_object_that_is_being_deleted():
    made = api()
    made[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert await hindered(*made)
    assert not await hindered(*made, action="RemoveFinalizer", remedy=Remedy.REMOVE_FINALIZER)


@pytest.mark.parametrize(("seen", "kept"), [(2, True), (3, False), (None, False)])
async def test_a_newest_spec_that_the_controller_has_not_seen(seen, kept):
    made = api()
    made[0]["metadata"]["generation"] = 3
    made[0]["status"] = {"observedGeneration": seen} if seen else {}
    assert await hindered(*made, action=BACK) is kept


async def test_an_immutable_config_map_cannot_be_patched():
    made, patch = obj("ConfigMap", "env", data={"a": "1"}), Remedy.PATCH_CONFIGURATION
    assert not await hindered(made, action="PatchConfiguration", remedy=patch)
    made["immutable"] = True
    assert await hindered(made, action="PatchConfiguration", remedy=patch)
    also = (reference(made),)
    assert await hindered(*api(), made, action="PatchConfiguration", also=also, remedy=patch)
    assert not await hindered(*api(), made, also=also, action=BACK)


@pytest.mark.parametrize(("size", "kept"), [("100Mi", True), ("128Mi", False)])
async def test_a_limit_that_is_larger_than_any_node(size, kept):
    assert await hindered(*api(), node(allocatable={"memory": size})) is kept
    assert not await hindered(*api(), node(allocatable={"memory": size}), action=BACK)


async def test_more_pods_of_a_workload_whose_claim_is_gone():
    made, up = api(), {"action": "ScaleReplicas", "remedy": Remedy.SCALE_UP}
    uses = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    made[0]["spec"]["template"]["spec"]["volumes"] = [uses]
    assert await hindered(*made, **up)
    assert not await hindered(*made, obj("PersistentVolumeClaim", "data"), **up)


@pytest.mark.parametrize(("account", "kept"), [("robot", True), ("default", False), ("", False)])
async def test_more_pods_of_a_workload_whose_account_is_gone(account, kept):
    made = api()
    made[0]["spec"]["template"]["spec"]["serviceAccountName"] = account
    assert await hindered(*made, action="ScaleReplicas", remedy=Remedy.SCALE_UP) is kept


def released(before, **now):
    """A Deployment whose first revision had this in its pod spec, or in its container, and whose second has not."""
    made = api()
    made[0]["spec"]["template"]["spec"] |= now
    first = replica_set(made[0], "zz", 1, **before.pop("container", {}))
    first["spec"]["template"]["spec"] |= before
    made[1]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    return [*made, first]


def maps(name, **fields):
    return {"volumes": [{"name": "d", "configMap": {"name": name, **fields}}]}


BEFORE = [
    ("ServiceAccount", {"serviceAccountName": "before"}),
    ("PriorityClass", {"priorityClassName": "before"}),
    ("RuntimeClass", {"runtimeClassName": "before"}),
    ("PersistentVolumeClaim", {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "before"}}]}),
    ("ConfigMap", maps("before")),
]
VERSIONS = {"PriorityClass": "scheduling.k8s.io/v1", "RuntimeClass": "node.k8s.io/v1"}


@pytest.mark.parametrize(("kind", "needs"), BEFORE)
async def test_a_revision_whose_needs_are_gone_cannot_be_gone_back_to(kind, needs):
    back = {"action": BACK, "revision": 1}
    made = released(dict(needs))
    home = "" if kind in VERSIONS else "shop"
    there = obj(kind, "before", home, api_version=VERSIONS.get(kind, "v1"))
    assert await hindered(*made, **back)
    assert not await hindered(*made, there, **back)
    assert not await hindered(*released(dict(needs), **needs), **back)  # the newest revision needs it, too


@pytest.mark.parametrize(("has", "kept"), [({"old.yaml": ""}, False), ({"new.yaml": ""}, True)])
async def test_a_revision_whose_key_is_gone_cannot_be_gone_back_to(has, kept):
    conf = obj("ConfigMap", "conf", data=has)
    before, now = (maps("conf", items=[{"key": key, "path": "c"}]) for key in ("old.yaml", "new.yaml"))
    assert await hindered(*released(before, **now), conf, action=BACK, revision=1) is kept


@pytest.mark.parametrize(("pool", "kept"), [("big", False), ("small", True)])
async def test_pods_of_a_former_or_stopped_workload_need_a_node(pool, kept):
    place, nodes = {"nodeSelector": {"pool": "big"}}, [node(labels={"pool": pool})]
    assert await hindered(*released(place), *nodes, action=BACK, revision=1) is kept
    made = api()
    made[0]["spec"]["template"]["spec"] |= place
    assert await hindered(*made, *nodes, action="ScaleReplicas", remedy=Remedy.SCALE_UP) is kept


@pytest.mark.parametrize(("most", "kept"), [("100Mi", True), ("128Mi", False)])
async def test_a_former_limit_that_the_namespace_no_longer_admits(most, kept):
    bounds = obj("LimitRange", "bounds", spec={"limits": [{"type": "Container", "max": {"memory": most}}]})
    before = {"container": {"resources": {"limits": {"memory": "128Mi"}}}}
    assert await hindered(*released(before), bounds, action=BACK, revision=1) is kept


@pytest.mark.parametrize(("ratio", "kept"), [("1", True), ("2", False)])
async def test_a_limit_too_large_for_its_request(ratio, kept):
    entry = {"type": "Container", "maxLimitRequestRatio": {"memory": ratio}}
    assert await hindered(*api(), obj("LimitRange", "bounds", spec={"limits": [entry]})) is kept


async def test_only_nodes_that_take_the_pod_have_its_memory():
    made = api()
    made[0]["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "small"}
    small = node("a", labels={"pool": "small"}, allocatable={"memory": "100Mi"})
    assert await hindered(*made, small, node("b"))
    assert not await hindered(*made, node("a", labels={"pool": "small"}), node("b"))


@pytest.mark.parametrize(("growth", "kept"), [(1.5, False), (1.6, True), (4.0, True)])
async def test_a_larger_limit_needs_the_room_that_the_answer_asks_for(growth, kept):
    assert await hindered(*api(), node(allocatable={"memory": "100Mi"}), growth=growth) is kept


RESTART = {"action": "RestartDeployment", "remedy": Remedy.RESTART}


@pytest.mark.parametrize(("replicas", "kept"), [(1, True), (3, True), (4, False)])
async def test_a_restart_waits_for_room_unless_it_may_delete_a_pod_first(replicas, kept):
    full = quota({"pods": "4"}, {"pods": "4"})
    made = api(replicas=replicas)
    assert await hindered(*made, full, **RESTART) is kept
    assert not await hindered(*made, full, **RESTART, targets=(reference(made[2]),))
    assert not await hindered(*api(replicas=replicas, strategy={"type": "Recreate"}), full, **RESTART)


async def test_a_restart_beside_a_pod_that_holds_the_claim_alone():
    made = api()
    uses = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    made[0]["spec"]["template"]["spec"]["volumes"] = [uses]
    for mode, kept in (("ReadWriteOncePod", True), ("ReadWriteOnce", False)):
        data = obj("PersistentVolumeClaim", "data", spec={"accessModes": [mode]})
        assert await hindered(*made, data, **RESTART) is kept
        assert not await hindered(*made, data, **RESTART, targets=(reference(made[2]),))


async def test_pods_that_are_deleted_are_made_again_whatever_holds_a_rollout_back():
    made = obj("StatefulSet", "db", api_version="apps/v1", spec={"updateStrategy": {"type": "OnDelete"}})
    member = obj("Pod", "db-0", owner=made)
    assert await hindered(made, member, **RESTART)
    assert not await hindered(made, member, **RESTART, targets=(reference(member),))


@pytest.mark.parametrize(("state", "kept"), [("Lost", True), ("Bound", False)])
async def test_a_member_whose_claim_is_lost_does_not_start(state, kept):
    templates = [{"metadata": {"name": "data"}}]
    made = obj(
        "StatefulSet", "db", api_version="apps/v1", spec={"replicas": 0, "volumeClaimTemplates": templates}
    )
    data = obj("PersistentVolumeClaim", "data-db-0", status={"phase": state})
    up = {"action": "ScaleStatefulSet", "remedy": Remedy.SCALE_UP}
    assert await hindered(made, data, **up) is kept
    assert not await hindered(made, **up)  # its controller makes the claim


async def test_a_cron_job_is_not_resumed_without_what_its_pods_need():
    spec = {"jobTemplate": {"spec": {"template": {"spec": {"containers": [], **maps("conf")}}}}}
    made, resume = obj("CronJob", "c", api_version="batch/v1", spec=spec), {"action": "ResumeCronJob"}
    assert await hindered(made, **resume, remedy=Remedy.RESUME)
    assert not await hindered(made, obj("ConfigMap", "conf"), **resume, remedy=Remedy.RESUME)


@pytest.mark.parametrize(("by", "kept"), [("kubectl-set", True), ("argocd-controller", False)])
async def test_a_change_by_hand_is_not_reverted_at_its_source(by, kept):
    wrote = {"f:spec": {"f:template": {"f:spec": {"f:containers": {}}}}}
    managers = [("argocd-controller", "2026-05-01T00:00:00Z"), (by, "2026-06-01T00:00:00Z")]
    made = api()
    made[0]["metadata"]["managedFields"] = [
        {"manager": name, "time": time, "fieldsV1": wrote} for name, time in managers
    ]
    assert await hindered(*made, action="GitRevertCommit") is kept


async def test_an_autoscaler_puts_back_a_smaller_number_of_replicas():
    made = api()
    target = {"kind": "Deployment", "name": made[0]["metadata"]["name"]}
    scaler = obj(
        "HorizontalPodAutoscaler", "h", api_version="autoscaling/v2", spec={"scaleTargetRef": target}
    )
    down = {"action": "ScaleReplicas", "remedy": Remedy.SCALE_DOWN}
    assert await hindered(*made, scaler, replicas=1, **down)
    assert not await hindered(*made, replicas=1, **down)
    assert not await hindered(*made, scaler, replicas=0, **down)  # it does not scale from zero


ODD = (None, 5, True, [], {}, [[]], [{}], "x", "1e400")
"""Values of the wrong type, and a quantity that is larger than any number."""


@pytest.mark.parametrize("value", ODD)
async def test_odd_values_in_a_template_are_no_hindrance(value):
    made = api()
    made[0]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": value}}
    assert not await hindered(*made)
    claim_of_pods = obj("PersistentVolumeClaim", "data", spec={"accessModes": value})
    made[0]["spec"]["replicas"] = 1
    made[0]["spec"]["template"]["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    ]
    restart = {"action": "RestartDeployment", "remedy": Remedy.RESTART}
    assert not await hindered(*made, claim_of_pods, **restart)
