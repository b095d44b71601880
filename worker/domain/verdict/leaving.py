"""Where the pods of a node, or one more pod of a workload, find a place, and what keeps them from leaving."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from worker.domain.cluster.conditions import holds
from worker.domain.cluster.fields import controller_of, dig, mapping, mappings, meta, reference, text, whole
from worker.domain.cluster.pods import ENDED
from worker.domain.cluster.references import selects
from worker.domain.diagnosis import scheduling, structure
from worker.domain.diagnosis.causes import Diagnosis, Remedy
from worker.domain.diagnosis.controllers import budgets_of
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.values.objects import Manifest

LEAVING = frozenset({Remedy.CORDON, Remedy.DRAIN})
ON_NODES = LEAVING | {Remedy.RESTART_NODE_AGENT}
STAYING = frozenset({"DaemonSet", "Node"})
"""Owners of pods that no drain moves: agents, and static pods."""
HOSTNAME = "kubernetes.io/hostname"


def node_hindrance(facts: ClusterFacts, node: Manifest, meant: frozenset[Remedy], finding: Diagnosis) -> str:
    """Return why an action on a node would not help. The pods of one that does not work are down: any move is a gain."""
    ref, works, drains = reference(node), holds(node, "Ready"), Remedy.DRAIN in meant
    listed = facts.list("Pod", node=ref.name)
    moved = (pod for pod in listed.items if text(dig(pod, "status", "phase")) not in ENDED)
    here = [pod for pod in moved if text(controller_of(pod).get("kind")) not in STAYING]
    others = [n for n in facts.list("Node").items if reference(n) != ref]
    alike = [{"spec": {"tolerations": dig(pod, "spec", "tolerations")}} for pod in here] or [{}]
    fit = (all if drains and works else any)(placed(facts, here if drains else alike, others))
    budgets = budgets_of(facts, here) if drains and here else []
    several = len(budgets) > 1 and any(len(budgets_of(facts, [pod])) > 1 for pod in here)
    shut = several or any(_closed(budget, works=works) for budget in budgets)
    in_use = Remedy.CORDON in finding.remedies if drains else dig(node, "spec", "unschedulable") is not True
    kept = {
        "has no pods to move": listed.complete and not here and not in_use,
        "has pods that nothing would make again": drains and works and not all(map(controller_of, here)),
        "has pods that a budget keeps there": shut,
        "has pods that fit no other node": meant & LEAVING and others and (here or not drains) and not fit,
    }
    return next((state for state, is_so in kept.items() if is_so), "")


def _closed(budget: Manifest, *, works: bool) -> bool:
    """True if a budget lets nobody evict a pod.

    A pod of a node that does not work may go if enough others are well, or if the budget always lets such pods go.
    """
    status, policy = mapping(budget.get("status")), dig(budget, "spec", "unhealthyPodEvictionPolicy")
    few = whole(status.get("currentHealthy")) < whole(status.get("desiredHealthy"))
    return not whole(status.get("disruptionsAllowed")) and (works or (few and policy != "AlwaysAllow"))


def crowded(facts: ClusterFacts, workload: Manifest, spec: dict[str, Any]) -> bool:
    """True if no node has a place for one more pod of a workload with this spec."""
    labels = meta(dig(workload, "spec", "template")).get("labels")
    one_more = {"metadata": {"labels": labels, "namespace": reference(workload).namespace}, "spec": spec}
    nodes = facts.list("Node").items
    return bool(nodes) and not any(placed(facts, [one_more], nodes))


def placed(facts: ClusterFacts, pods: Iterable[Manifest], nodes: Sequence[Manifest]) -> Iterator[bool]:
    """Yield whether each of the pods, one after the other, finds a place on one of the nodes by the specs."""
    used = scheduling.used_by_node(facts)
    for pod in pods:
        places, asked = _places_of_claims(facts, pod), scheduling.requests_of(mapping(pod.get("spec")))
        near = [n for n in nodes if all(scheduling.meets_one(terms, n) for terms in places)]
        apart = _avoided(facts, pod)
        fitting = (n for n in near if not scheduling.obstacles_of(pod, n, used, ()).kinds)
        place = next((name for n in fitting if (name := reference(n).name) not in apart), "")
        yield bool(place)
        taken = used.get(place, {})
        used[place] = {**taken, **{name: taken.get(name, 0.0) + more for name, more in asked.items()}}


def _places_of_claims(facts: ClusterFacts, pod: Manifest) -> list[list[dict[str, Any]]]:
    """The node selector terms of each volume that is bound to a claim of the pod."""
    claims = {(c.namespace, c.name) for c in scheduling.claims_of(pod, reference(pod).namespace)}
    volumes = facts.list("PersistentVolume").items if claims else ()
    users = [(v, [text(dig(v, "spec", "claimRef", key)) for key in ("namespace", "name")]) for v in volumes]
    bound = [volume for volume, user in users if tuple(user) in claims]
    return [scheduling.places_of_volume(volume) for volume in bound]


def _avoided(facts: ClusterFacts, pod: Manifest) -> set[str]:
    """The nodes that run another pod on whose host the pod must not run."""
    path = ("spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = [t for t in mappings(dig(pod, *path)) if t.get("topologyKey") == HOSTNAME]
    home, pods = reference(pod).namespace, facts.list("Pod").items if terms else ()
    near = [p for p in pods if reference(p).namespace == home]
    kept = [p for p in near if any(selects(t.get("labelSelector"), structure.labels_of(p)) for t in terms)]
    return {text(dig(p, "spec", "nodeName")) for p in kept if text(dig(p, "status", "phase")) not in ENDED}
