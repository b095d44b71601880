"""Where pods find a place, and what keeps them on a node."""

import pytest

from tests.fakes.manifests import obj
from tests.unit.domain.diagnosis.small_clusters import node
from tests.unit.domain.verdict.test_effects import ODD, api, hindered
from worker.domain.cluster.fields import reference
from worker.domain.diagnosis.causes import Remedy

DOWN = [{"type": "Ready", "status": "Unknown"}]
DRAIN = {"action": "DrainNode", "remedy": Remedy.DRAIN}
CORDON = {"action": "CordonNode", "remedy": Remedy.CORDON}


TAINT = {"key": "pool", "value": "batch", "effect": "NoSchedule"}
NOBODY = "nobody"


def guest(name="guest", owner="ReplicaSet", place="node-1", ready=True, **spec):
    """A pod on a node, with an owner of this kind, or with none."""
    spec = {
        "containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}],
        "nodeName": place,
        **spec,
    }
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    made = obj("Pod", name, spec=spec, status={"phase": "Running", "conditions": conditions})
    made["metadata"]["labels"] = {"app": "guest"}
    if owner != NOBODY:
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner, "name": "owner", "controller": True}
        ]
    return made


async def left(*others, action=DRAIN, **fields):
    """Whether something keeps a drain, or a cordon, of the first node from helping."""
    return await hindered(node(**fields), *others, **action)


async def test_a_node_can_be_left_if_another_one_takes_pods():
    for action in (DRAIN, CORDON):
        assert not await left(node("b"), guest(), action=action)
        assert await left(node("b", conditions=DOWN), guest(), action=action)
        assert await left(node("b", unschedulable=True), guest(), action=action)
        assert await left(node("b", taints=[TAINT]), guest(), action=action)
        tolerant = guest(tolerations=[{"key": "pool", "operator": "Exists"}])
        assert not await left(node("b", taints=[TAINT]), tolerant, action=action)
    assert not await left(guest())  # no other node is known


async def test_pods_that_do_not_fit_together_keep_their_node_from_a_drain_only():
    both = (node("b", allocatable={"cpu": "3"}), guest("one"), guest("two"))
    assert await left(*both)
    assert not await left(*both[:2])
    assert not await left(*both, action=CORDON)


async def test_a_node_that_does_not_work_is_drained_if_one_pod_finds_a_place():
    room = node("b", allocatable={"cpu": "3"})
    assert not await left(room, guest("one"), guest("two"), conditions=DOWN)
    assert await left(node("b", allocatable={"cpu": "1"}), guest("one"), guest("two"), conditions=DOWN)


async def test_a_drain_moves_neither_agents_nor_static_pods():
    agents = (guest("a", "DaemonSet"), guest("s", "Node"))
    assert await left(node("b"), *agents)
    assert not await left(node("b"), *agents, guest())
    assert not await left(node("b"), *agents, action=CORDON)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_needs_no_place(phase):
    done = guest("done", NOBODY, nodeSelector={"pool": "none"})
    done["status"]["phase"] = phase
    assert not await left(node("b"), guest(), done)
    assert await left(node("b"), done)  # nothing is left to move


async def test_a_pod_that_nothing_would_make_again_keeps_a_node_that_works():
    assert await left(node("b"), guest(), guest("own", NOBODY))
    assert not await left(node("b"), guest(), guest("own", NOBODY), conditions=DOWN)


@pytest.mark.parametrize(
    ("healthy", "allowed", "works", "kept"),
    [(2, 0, True, True), (3, 1, True, False), (2, 0, False, False), (1, 0, False, True)],
)
async def test_a_budget_that_lets_no_pod_go_keeps_them_on_their_node(healthy, allowed, works, kept):
    status = {"currentHealthy": healthy, "desiredHealthy": 2, "disruptionsAllowed": allowed}
    spec = {"selector": {"matchLabels": {"app": "guest"}}}
    budget = obj("PodDisruptionBudget", "keep", api_version="policy/v1", spec=spec, status=status)
    state = {} if works else {"conditions": DOWN}
    assert await left(node("b"), guest(ready=works), budget, **state) is kept


async def test_the_agent_of_a_cordoned_empty_node_is_not_restarted():
    restart = {"action": "RestartKubelet", "remedy": Remedy.RESTART_NODE_AGENT}
    assert await left(node("b"), action=restart, unschedulable=True)
    assert not await left(node("b"), guest(), action=restart, unschedulable=True)
    assert not await left(node("b"), action=restart)


async def test_a_node_that_is_cordoned_already_may_still_be_drained():
    assert await left(node("b"), guest(), unschedulable=True, action=CORDON)
    assert not await left(node("b"), guest(), unschedulable=True)


@pytest.mark.parametrize(("hosts", "kept"), [(["node-1"], True), (["node-1", "b"], False)])
async def test_a_volume_that_no_other_node_can_use(hosts, kept):
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}]}]
    volume = obj(
        "PersistentVolume", "pv", "", spec={"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    )
    pod = guest(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    assert not await left(node("b"), pod, volume)  # another claim has it, or none
    volume["spec"]["claimRef"] = {"namespace": pod["metadata"]["namespace"], "name": "data"}
    assert await left(node("b"), pod, volume) is kept


async def test_a_budget_is_not_relaxed_for_a_pod_that_fits_no_other_node():
    relax = {"action": "RelaxPDB", "remedy": Remedy.RELAX_DISRUPTION_BUDGET}
    budget, pod = obj("PodDisruptionBudget", "keep"), guest()
    cordoned = node(unschedulable=True)
    assert not await hindered(budget, pod, cordoned, node("b"), also=(reference(pod),), **relax)
    small = node("b", allocatable={"cpu": "1"})
    assert await hindered(budget, pod, cordoned, small, also=(reference(pod),), **relax)


APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "guest"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


@pytest.mark.parametrize(
    ("spec", "kept"), [({"allocatable": {"cpu": "1"}}, True), ({"taints": [TAINT]}, True), ({}, False)]
)
async def test_more_pods_than_the_nodes_have_room_for(spec, kept):
    made = api()
    made[0]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    up = {"action": "ScaleReplicas", "remedy": Remedy.SCALE_UP}
    assert await hindered(*made, node("b", **spec), **up) is kept


async def test_more_pods_than_there_are_hosts_to_keep_them_apart():
    made = api()
    made[0]["spec"]["template"]["spec"]["affinity"] = APART
    up = {"action": "ScaleReplicas", "remedy": Remedy.SCALE_UP}
    assert await hindered(*made, node(), guest(), **up)
    assert not await hindered(*made, node(), node("b"), guest(), **up)


@pytest.mark.parametrize("value", ODD)
async def test_odd_values_in_pods_and_volumes_are_no_hindrance(value):
    odd, pod = guest("odd", place="b"), guest(volumes=[{"persistentVolumeClaim": {"claimName": "data"}}])
    odd["status"]["phase"] = odd["metadata"]["ownerReferences"][0]["kind"] = value
    odd["spec"]["containers"][0]["resources"] = {"requests": value}
    volume = obj("PersistentVolume", "pv", "", spec={"claimRef": {"namespace": value, "name": value}})
    assert not await left(node("b"), pod, odd, volume)
    term = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": value, "values": value}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    assert await left(node("b"), guest(affinity={"nodeAffinity": required}))


async def test_pods_that_have_finished_neither_need_a_place_nor_keep_their_node():
    done = guest("done", NOBODY)
    done["status"]["phase"] = "Succeeded"
    room = node("b", allocatable={"cpu": "3"})
    assert not await left(room, guest(), done)
    assert await left(room, done)  # there is nothing to move
    elsewhere = guest("past", place="b")
    elsewhere["status"]["phase"] = "Failed"
    assert not await left(node("b"), guest(affinity=APART), elsewhere)


async def test_a_pod_that_two_budgets_count_cannot_be_evicted():
    status = {"currentHealthy": 3, "desiredHealthy": 1, "disruptionsAllowed": 2}
    one, two = (
        obj("PodDisruptionBudget", name, api_version="policy/v1", spec={"selector": {}}, status=status)
        for name in ("one", "two")
    )
    assert not await left(node("b"), guest(), one)
    assert await left(node("b"), guest(), one, two)
    two["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    assert not await left(node("b"), guest(), one, two)


@pytest.mark.parametrize(("policy", "kept"), [("AlwaysAllow", False), ("IfHealthyBudget", True)])
async def test_a_budget_may_let_pods_of_a_broken_node_go_whatever_is_left(policy, kept):
    spec = {"selector": {}, "unhealthyPodEvictionPolicy": policy}
    status = {"currentHealthy": 1, "desiredHealthy": 2, "disruptionsAllowed": 0}
    budget = obj("PodDisruptionBudget", "keep", api_version="policy/v1", spec=spec, status=status)
    assert await left(node("b"), guest(ready=False), budget, conditions=DOWN) is kept
