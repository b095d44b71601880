"""Placement, claims and nodes, computed again from specs and conditions."""

import pytest

from tests.fakes.manifests import crashing, event, obj, pod, running
from tests.fakes.memory_cluster import MemoryCluster
from tests.unit.domain.diagnosis.small_clusters import (
    blames,
    claim,
    findings,
    judged,
    node,
    unscheduled,
    workload,
)
from worker.domain.cluster.fields import reference
from worker.domain.diagnosis.causes import Cause, Remedy
from worker.domain.diagnosis.claims import Doubt
from worker.domain.diagnosis.driver import Investigator
from worker.domain.diagnosis.facts import ClusterFacts, Question
from worker.domain.diagnosis.scheduling import meets_one, requests_of, tolerated
from worker.domain.diagnosis.storage import provisioners
from worker.domain.values.objects import Listing


def pending(**spec):
    """A Deployment whose pod no node takes."""
    api = workload(status=unscheduled())
    api[2]["spec"] = {"containers": [{"name": "app", "resources": spec.pop("resources", {})}], **spec}
    return api


async def first(*manifests, about):
    return (await findings(*manifests, about=about))[0]


async def test_a_taint_that_alone_keeps_the_pod_away():
    api, tainted = pending(), node(taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    found = await first(*api, tainted, about=api[0])
    assert (found.object, found.remedies) == (reference(tainted), {Remedy.REMOVE_TAINT})
    assert blames(found, reference(api[0]))
    wrong = await judged(*api, tainted, about=api[0], claim=claim(api[0], "ProvisionNode"))
    assert wrong.doubt is Doubt.ACTION_DOES_NOT_FIT


@pytest.mark.parametrize(
    ("keys", "taint"), [(("team",), "team"), (("team", "team"), "team"), (("team", "pool"), "")]
)
async def test_the_taint_to_remove_is_known_if_it_is_the_only_one(keys, taint):
    effects = ("NoSchedule", "NoExecute")
    tainted = node(taints=[{"key": k, "effect": e} for k, e in zip(keys, effects, strict=False)])
    api = pending()
    assert (await first(*api, tainted, about=api[0])).taint == taint


async def test_a_node_for_others_is_not_to_blame_where_the_pod_may_run_and_there_is_no_room():
    api = pending(resources={"requests": {"cpu": "12"}})
    gpu = node("gpu", taints=[{"key": "gpu", "effect": "NoSchedule"}], allocatable={"cpu": "64", "memory": "9Gi", "pods": "9"})  # fmt: skip
    found = await findings(*api, gpu, node(), about=api[0])
    assert [(f.object, f.remedies) for f in found] == [(reference(api[0]), {Remedy.ADD_CAPACITY})]
    api = pending()  # nothing known keeps it from the other node, so something unknown does
    assert await findings(*api, gpu, node(), about=api[0]) == ()


async def test_a_cordon_that_alone_keeps_the_pod_away():
    api, cordoned = pending(), node(unschedulable=True)
    assert (await first(*api, cordoned, about=api[0])).remedies == {Remedy.UNCORDON}


async def test_a_taint_of_the_control_plane_is_no_obstacle_to_remove():
    master = node("m", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}])
    api = pending(resources={"requests": {"cpu": "12"}})
    assert (await first(*api, master, node(), about=api[0])).remedies == {Remedy.ADD_CAPACITY}


async def test_requests_that_no_node_has_room_for():
    api = pending(resources={"requests": {"memory": "6Gi"}})
    taken = pod(
        "other",
        spec={
            "nodeName": "node-1",
            "containers": [{"name": "x", "resources": {"requests": {"memory": "4Gi"}}}],
        },
    )
    assert (await first(*api, node(), taken, about=api[0])).cause is Cause.NOT_SCHEDULABLE
    assert await findings(*api, node(), about=api[0]) == ()


async def test_a_node_for_other_pods_is_no_way_out_when_the_usual_ones_are_full():
    api, usual = pending(resources={"requests": {"cpu": "3"}}), node(allocatable={"cpu": "2"})
    apart = node("node-2", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    found = await findings(*api, usual, apart, about=api[0])
    assert [(f.object, f.remedies) for f in found] == [(reference(api[0]), {Remedy.ADD_CAPACITY})]


@pytest.mark.parametrize(
    "state", [{"unschedulable": True}, {"conditions": [{"type": "Ready", "status": "Unknown"}]}]
)
async def test_a_node_for_other_pods_is_no_way_out_while_the_usual_one_is_away(state):
    api, usual = pending(), node(**state)
    apart = node("node-2", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    found = await findings(*api, usual, apart, about=api[0])
    assert all(Remedy.REMOVE_TAINT not in f.remedies for f in found)


async def test_a_taint_of_a_node_whose_agent_fails_may_wait_for_the_agent():
    taint = {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NoExecute"}
    api, fresh = pending(), node(taints=[taint])
    agents = obj("DaemonSet", "agent", "kube-system", api_version="apps/v1", spec={"template": {"spec": {}}})
    agent = obj("Pod", "agent-1", "kube-system", owner=agents, status=crashing("OOMKilled", 137),
                spec={"nodeName": "node-1", "hostNetwork": True, "containers": [
                    {"name": "app", "resources": {"limits": {"memory": "64Mi"}, "requests": {"memory": "1Mi"}}}]})  # fmt: skip
    found = await findings(*api, fresh, agents, agent, about=api[0])
    assert [(f.object, f.remedies) for f in found] == [(reference(agents), {Remedy.INCREASE_MEMORY})]
    agent["status"] = running()
    assert (await first(*api, fresh, agents, agent, about=api[0])).remedies == {Remedy.REMOVE_TAINT}


async def test_a_taint_that_a_component_has_to_take_away_is_not_removed_by_hand():
    key = "node.cloudprovider.kubernetes.io/uninitialized"
    api, fresh = pending(), node(taints=[{"key": key, "value": "true", "effect": "NoSchedule"}])
    assert await findings(*api, fresh, about=api[0]) == ()
    manager = workload("ccm", status=crashing())
    manager[2]["spec"]["tolerations"] = [{"key": key, "operator": "Exists"}]
    others = workload("other", status=crashing())
    found = await findings(*api, fresh, *manager, *others, about=api[0])
    assert [f.object for f in found] == [reference(manager[0])]


async def test_devices_that_are_there_and_not_offered():
    api, lame = pending(resources={"limits": {"example.com/gpu": "1"}}), node()
    lame["status"]["capacity"] = {"example.com/gpu": "2"}
    lame["status"]["allocatable"]["example.com/gpu"] = "0"
    found = await first(*api, lame, about=api[0])
    assert found.remedies == frozenset()
    assert blames(found, reference(lame))
    plugin = obj("DaemonSet", "plugin", api_version="apps/v1")
    served = pod("plugin-x", owner=plugin, status=crashing(),
                 spec={"hostNetwork": True, "nodeName": "node-1", "containers": [{"name": "app"}]})  # fmt: skip
    assert (await first(*api, lame, plugin, served, about=api[0])).object == reference(plugin)


async def test_a_resource_that_no_node_offers():
    api = pending(resources={"limits": {"nvidia.com/gpu": "1"}})
    assert "nvidia.com/gpu" in (await first(*api, node(), about=api[0])).sentence


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"disk": "ssd"}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}}}},
    ],
)  # fmt: skip
async def test_labels_that_no_node_has(spec):
    api = pending(**spec)
    found = await first(*api, node(), about=api[0])
    assert found.remedies == {Remedy.FIX_PLACEMENT}


@pytest.mark.parametrize(
    ("spec", "remedies"),
    [
        ({"affinity": {"podAntiAffinity": {}}}, {Remedy.RELAX_POD_RULES}),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, {Remedy.RELAX_POD_RULES}),
        ({"containers": [{"name": "app", "ports": [{"hostPort": 80}]}]}, set()),
    ],
)
async def test_rules_between_pods(spec, remedies):
    api = pending(**spec)
    assert (await first(*api, node(), about=api[0])).remedies == remedies


@pytest.mark.parametrize(
    ("spec", "fitting", "futile"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, "FixNodeSelector", "RelaxPodAntiAffinity"),
        ({"affinity": {"podAntiAffinity": {}}}, "RelaxPodAntiAffinity", "FixNodeSelector"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "FixPodPlacement", "FixServiceSelector"),
    ],
)
async def test_only_what_keeps_the_pods_from_the_nodes_is_worth_changing(spec, fitting, futile):
    api = pending(**spec)
    assert (await judged(*api, node(), about=api[0], claim=claim(api[0], fitting))).confirmed
    wrong = await judged(*api, node(), about=api[0], claim=claim(api[0], futile))
    assert wrong.doubt is Doubt.ACTION_DOES_NOT_FIT


@pytest.mark.parametrize("action_type", ["FixNodeSelector", "GitRevertCommit"])
async def test_a_gitops_tool_undoes_an_edited_placement_and_has_no_change_to_revert(action_type):
    api = pending(nodeSelector={"disk": "ssd"})
    api[0]["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": "x"}
    wrong = await judged(*api, node(), about=api[0], claim=claim(api[0], action_type))
    assert wrong.doubt is Doubt.ACTION_DOES_NOT_FIT


async def test_a_pod_that_waits_for_its_gates_is_not_judged():
    api = pending()
    api[2]["status"]["conditions"][0]["reason"] = "SchedulingGated"
    assert await findings(*api, node(unschedulable=True), about=api[0]) == ()


async def test_the_pods_of_a_node_that_is_down_leave_room_for_others():
    sick = node(conditions=[{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}],
                taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}])  # fmt: skip
    api, small = pending(resources={"requests": {"cpu": "3"}}), node("node-2", allocatable={"cpu": "1"})
    there = pod(
        "x",
        spec={"nodeName": "node-1", "containers": [{"name": "x", "resources": {"requests": {"cpu": "3"}}}]},
    )
    found = await findings(*api, sick, small, there, about=api[0])
    assert [f.object for f in found] == [reference(sick)]


async def test_nodes_that_are_not_ready_are_followed():
    sick = node(conditions=[{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}],
                taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}])  # fmt: skip
    api = pending()
    assert (await first(*api, sick, about=api[0])).object == reference(sick)


@pytest.mark.parametrize(
    ("toleration", "holds"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "a", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "a", "value": "b"}, True),
        ({"key": "a", "value": "c"}, False),
        ({"key": "z", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration, holds):
    assert (
        tolerated({"tolerations": [toleration]}, {"key": "a", "value": "b", "effect": "NoSchedule"}) is holds
    )


@pytest.mark.parametrize(
    ("operator", "holds"),
    [("In", True), ("NotIn", False), ("Exists", True), ("DoesNotExist", False), ("Gt", True)],
)
def test_node_selector_terms(operator, holds):
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": ["a"]}]}
    node = {"metadata": {"name": "n", "labels": {"zone": "a"}}}
    assert meets_one([term], node) is holds
    assert meets_one([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}], node)


def test_an_init_container_that_asks_for_more_counts_alone():
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [{"resources": {"requests": {"cpu": "3"}}}],
    }
    assert requests_of(spec) == {"pods": 1.0, "cpu": 3.0}


def stateful(volume_claim, *more, **spec):
    api = pending(volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}], **spec)
    return [*api, *([volume_claim] if volume_claim else []), node(labels={"zone": "a"}), *more]


def pvc(phase="Pending", **spec):
    return obj(
        "PersistentVolumeClaim", "data", spec={"storageClassName": "fast", **spec}, status={"phase": phase}
    )


def storage_class(**fields):
    return obj(
        "StorageClass", "fast", "", api_version="storage.k8s.io/v1", **{"provisioner": "csi.x", **fields}
    )


async def test_a_claim_that_does_not_exist():
    api = stateful(None)
    found = await first(*api, about=api[0])
    assert (found.cause, found.object.name, found.remedies) == (Cause.VOLUME, "data", {Remedy.RECREATE_CLAIM})
    assert (await first(about=found.object)).object == found.object


async def test_a_claim_that_waits_for_its_pod_is_rightly_pending():
    big = {"requests": {"cpu": "12"}}
    db = pending(resources=big, volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])
    waits = storage_class(provisioner="ebs.csi.aws.com", volumeBindingMode="WaitForFirstConsumer")
    left = obj("PersistentVolume", "old", "", spec={"storageClassName": "fast"}, status={"phase": "Released"})
    data = obj(
        "PersistentVolumeClaim", "data", spec={"storageClassName": "fast"}, status={"phase": "Pending"}
    )
    found = await findings(*db, waits, left, data, node(), about=db[0])
    assert [(f.object, f.remedies) for f in found] == [(reference(db[0]), {Remedy.ADD_CAPACITY})]


async def test_a_storage_class_that_does_not_exist():
    api = stateful(pvc())
    assert "StorageClass fast" in (await first(*api, about=api[0])).sentence


async def test_a_claim_that_cannot_be_provisioned():
    failed = event(pvc(), "ProvisioningFailed", "x")
    api = stateful(pvc(), storage_class(), failed)
    assert (await first(*api, about=api[0])).object.name == "data"
    manual = stateful(pvc(), storage_class(provisioner="kubernetes.io/no-provisioner"))
    assert (await first(*manual, about=manual[0])).object.name == "data"
    waits = storage_class(volumeBindingMode="WaitForFirstConsumer")
    assert await findings(pvc(), waits, about=reference(pvc())) == ()


@pytest.mark.parametrize("complete", [True, False])
async def test_a_failing_provisioner_is_blamed_only_if_there_is_no_other(complete):
    waits, maker = event(pvc(), "ExternalProvisioning", "waiting"), pod("csi-0", status=crashing())
    maker["spec"]["containers"][0]["name"] = "csi-provisioner"
    maker["status"]["containerStatuses"][0]["name"] = "csi-provisioner"
    facts = ClusterFacts(answers={Question("Pod", api_version="v1"): Listing((maker,), complete=complete)})
    found = await Investigator(MemoryCluster([pvc(), waits])).conclude(
        facts, lambda known: provisioners(known, reference(pvc()))
    )
    assert found == ([reference(maker)] if complete else [])


@pytest.mark.parametrize(("phase", "remedies"), [("Lost", {Remedy.RECREATE_CLAIM})])
async def test_a_claim_whose_volume_is_gone(phase, remedies):
    api = stateful(pvc(phase))
    assert (await first(*api, about=api[0])).remedies == remedies


async def test_a_claim_that_is_being_deleted_and_used():
    doomed = pvc("Bound")
    doomed["metadata"]["deletionTimestamp"] = "2026-06-04T10:00:00Z"
    user = pod("u", spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]})
    found = await first(doomed, user, about=doomed)
    assert found.cause is Cause.STUCK_DELETION
    assert "Pod shop/u" in found.sentence


async def test_a_resize_that_does_not_finish():
    growing = pvc("Bound")
    growing["status"]["conditions"] = [{"type": "Resizing", "status": "True"}]
    assert "resize" in (await first(growing, about=growing)).sentence


@pytest.mark.parametrize(
    ("key", "remedies"),
    [("zone", {Remedy.ADD_CAPACITY}), ("kubernetes.io/hostname", {Remedy.RECREATE_CLAIM})],
)
async def test_a_volume_that_no_node_reaches(key, remedies):
    affinity = {
        "required": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": ["gone"]}]}]
        }
    }
    volume = obj("PersistentVolume", "pv-1", "", spec={"nodeAffinity": affinity}, status={"phase": "Bound"})
    api = stateful(pvc("Bound", volumeName="pv-1"), volume)
    found = await first(*api, about=api[0])
    assert (found.object.name, found.remedies) == ("data", remedies)
    assert blames(found, reference(volume))


async def test_a_released_volume():
    volume = obj("PersistentVolume", "pv-1", "", status={"phase": "Released"})
    assert (await first(volume, about=volume)).object == reference(volume)


@pytest.mark.parametrize(
    ("condition", "remedies"),
    [
        ({"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "PLEG is not healthy"}, {Remedy.DRAIN, Remedy.RESTART_NODE_AGENT}),
        ({"type": "Ready", "status": "False", "message": "NetworkPluginNotReady message: cni plugin not initialized"}, set()),
        ({"type": "DiskPressure", "status": "True"}, {Remedy.CLEAN_NODE}),
        ({"type": "MemoryPressure", "status": "True"}, {Remedy.CORDON}),
        ({"type": "KernelDeadlock", "status": "True", "reason": "DockerHung"}, {Remedy.CORDON, Remedy.DRAIN}),
        ({"type": "DisksNotReady", "status": "True", "reason": "Broken"}, set()),
        ({"type": "NTPProblem", "status": "True", "reason": "NTPIsDown"}, set()),
    ],
)  # fmt: skip
async def test_conditions_of_nodes(condition, remedies):
    sick = node(conditions=[condition])
    found = await first(sick, about=sick)
    assert (found.cause, found.remedies) == (Cause.NODE, remedies)


async def test_a_healthy_node_says_nothing():
    well = node(
        conditions=[
            {"type": "Ready", "status": "True"},
            {"type": "Quiet", "status": "True", "reason": "NoProblem"},
            {"type": "KernelReady", "status": "True", "reason": "KernelIsReady"},
            {"type": "EtcdIsVoter", "status": "True", "reason": "MemberNotLearner"},
        ]
    )
    assert await findings(well, about=well) == ()


async def test_a_daemon_without_which_the_node_has_no_network():
    sick = node(conditions=[{"type": "Ready", "status": "False", "message": "cni config uninitialized"}])
    owner = obj("DaemonSet", "net", "kube-system", api_version="apps/v1")
    broken = pod("net-1", namespace="kube-system", owner=owner, status={"phase": "Pending"})
    found = await first(sick, owner, broken, about=sick)
    assert found.object == reference(owner)
    assert blames(found, reference(sick))


def evicted(name, message, namespace="shop", owner=None):
    status = {"phase": "Failed", "reason": "Evicted", "message": message}
    return pod(name, namespace=namespace, status=status, owner=owner)


async def test_the_pod_that_used_a_node_up_is_the_culprit():
    told = "The node was low on resource: memory. Container {} was using {}, request is {}, has larger consumption of memory."
    greedy = workload("greedy", status=running())
    hog = evicted("greedy-aa-p9", told.format("app", "9Gi", "0"), owner=greedy[1])
    victim = evicted("v", told.format("app", "300Mi", "256Mi"))
    found = await findings(*greedy, hog, victim, node(), about=victim)
    assert (found[0].cause, found[0].object, found[0].remedies) == (
        Cause.EVICTION,
        reference(greedy[0]),
        {Remedy.SCALE_DOWN},
    )
    assert found[1].object.name == "node-1"
    down = claim(greedy[0], "ScaleReplicas", replicas=0)
    assert (await judged(*greedy, hog, victim, node(), about=victim, claim=down)).confirmed
    up = claim(greedy[0], "ScaleReplicas", replicas=9)
    verdict = await judged(*greedy, hog, victim, node(), about=victim, claim=up)
    assert verdict.doubt is Doubt.ACTION_DOES_NOT_FIT


async def test_who_was_evicted_long_ago_did_not_use_the_node_up_now():
    told = "The node was low on resource: memory. Container app was using 9Gi, request is 0."
    greedy = workload("greedy", status=running())
    hog = evicted("greedy-aa-p9", told, owner=greedy[1])
    full = node(conditions=[{"type": "MemoryPressure", "status": "True"}])
    for when, blamed in (
        ("2026-06-04T15:00:00Z", {"greedy", "node-1"}),
        ("2026-05-20T10:00:00Z", {"node-1"}),
    ):
        hog["status"]["conditions"] = [{"type": "DisruptionTarget", "lastTransitionTime": when}]
        assert {f.object.name for f in await findings(*greedy, hog, full, about=full)} == blamed


async def test_an_eviction_of_long_ago_supports_no_action_on_the_node():
    victim = evicted("v", "The node was low on resource: memory.")
    cordon = claim(node(), "CordonNode")
    assert (await judged(victim, node(), about=victim, claim=cordon)).confirmed
    victim["status"]["conditions"] = [{"type": "Ready", "lastTransitionTime": "2026-06-01T10:00:00Z"}]
    assert not (await judged(victim, node(), about=victim, claim=cordon)).confirmed


async def test_a_pod_that_exceeded_its_own_disk_limit():
    full = evicted("v", 'Usage of EmptyDir volume "cache" exceeds the limit "1Gi".')
    found = await first(full, node(), about=full)
    assert (found.object, found.remedies) == (reference(full), frozenset())


@pytest.mark.parametrize(
    ("fields", "blamed"),
    [
        ({"hostNetwork": True}, "DaemonSet"),
        ({"containers": [{"name": "app", "securityContext": {"privileged": True}}]}, "DaemonSet"),
        ({}, "Node"),
    ],
)
async def test_the_network_agent_of_a_node_in_any_namespace(fields, blamed):
    sick = node(conditions=[{"type": "Ready", "status": "False", "message": "cni plugin not initialized"}])
    owner = obj("DaemonSet", "agent", "net", api_version="apps/v1")
    spec = {"nodeName": "node-1", "containers": [{"name": "app"}], **fields}
    agent = pod("agent-1", namespace="net", owner=owner, status=crashing(), spec=spec)
    assert (await first(sick, owner, agent, about=sick)).object.kind == blamed


async def test_a_dns_cache_that_fails_on_the_node_of_a_crashing_pod():
    api = workload()
    owner = obj("DaemonSet", "node-local-dns", "kube-system", api_version="apps/v1")
    spec = {"nodeName": "node-1", "containers": [{"name": "app"}]}
    cache = pod("node-local-dns-1", namespace="kube-system", owner=owner, status=crashing(), spec=spec)
    assert (await first(*api, owner, cache, about=api[0])).object == reference(owner)
    cache["spec"]["nodeName"] = "node-2"
    assert (await first(*api, owner, cache, about=api[0])).object == reference(api[0])


async def test_a_pod_that_was_evicted_a_short_while_ago_and_has_been_replaced():
    told = "The node was low on resource: memory. Container app was using 300Mi, request is 256Mi."
    api = workload("api", status=running())
    victim = evicted("api-aa-p0", told, owner=api[1])
    assert await findings(*api, victim, node(), about=api[0]) == ()
    found = await first(*api, victim, event(victim, "Evicted", told), node(), about=api[0])
    assert found.object.name == "node-1"


async def test_a_driver_that_fails_on_the_node_of_a_pod_that_waits_for_its_volume():
    api = workload(status={"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]})
    owner = obj("DaemonSet", "csi", "kube-system", api_version="apps/v1")
    broken = pod("csi-1", namespace="kube-system", owner=owner, status={"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "True"}], "containerStatuses": [
        {"name": "app", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]})  # fmt: skip
    found = await first(
        *api, owner, broken, event(api[2], "FailedMount", "driver not found"), node(), about=api[0]
    )
    assert (found.cause, found.object) == (Cause.IMAGE, reference(owner))


async def test_a_node_under_pressure_names_who_used_it_up():
    told = "The node was low on resource: memory. Container app was using 9Gi, request is 0, has larger consumption of memory."
    greedy = workload("greedy", status=running())
    pressed = node(conditions=[{"type": "MemoryPressure", "status": "True"}])
    found = await findings(*greedy, evicted("g", told, owner=greedy[1]), pressed, about=pressed)
    assert {f.object.kind for f in found} == {"Node", "Deployment"}


def test_a_template_requests_its_limits_where_it_states_no_request():
    asked = {"limits": {"memory": "8Gi", "cpu": "2"}, "requests": {"cpu": "1"}}
    spec = {"containers": [{"resources": asked}], "overhead": {"cpu": "500m"}}
    assert requests_of(spec) == {"pods": 1.0, "cpu": 1.5, "memory": 8 * 2.0**30}
    assert requests_of({"initContainers": [{"resources": asked}]})["memory"] == 8 * 2.0**30


async def test_a_node_may_be_filled_to_the_last_thousandth_of_a_core():
    busy = pod("busy", status=running(), spec={"nodeName": "node-1", "containers": [{"resources": {"requests": {"cpu": "900m"}}}]})  # fmt: skip
    api = pending(resources={"requests": {"cpu": "100m"}})
    full = node(allocatable={"cpu": "1", "memory": "9Gi", "pods": "9"})
    found = await findings(*api, busy, full, about=api[0])
    assert not [f for f in found if Remedy.ADD_CAPACITY in f.remedies]
