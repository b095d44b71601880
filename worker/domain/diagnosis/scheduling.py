"""Pods that fit no node, computed from nodes, requests, taints and selectors, not read from messages."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from worker.domain.cluster.conditions import condition, holds
from worker.domain.cluster.fields import dig, mapping, mappings, meta, reference, sequence, strings, text
from worker.domain.cluster.pods import ENDED, pod_failing
from worker.domain.cluster.quantities import ROUNDING, quantity
from worker.domain.cluster.references import references_of, selects
from worker.domain.diagnosis import structure
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, Strength, stated
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.nodes import failing_agents
from worker.domain.values.objects import Manifest, ObjectRef

SIGNALS = ("FailedScheduling", "PodPending", "Unschedulable")
CONTROL_PLANE = frozenset({"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"})
LIFECYCLE = "node.kubernetes.io/"
OF_COMPONENTS = re.compile(r"(?<!node-role)(?:^|\.)kubernetes\.io/")
"""Taints that components set and take away: by the state of the node, or until somebody has prepared it."""
FULL = {"Too many pods": "run as many pods", "exceed max volume count": "have as many volumes"}
"""What the nodes have as many of as they may, by the words of the scheduler."""
PLACEMENT = ("nodeSelector", "ffinity", "tolerations", "requests", "limits", "topologySpread", "hostPort")
"""What of a pod's spec decides which nodes take it."""
STATIC = "kubernetes.io/no-provisioner"
BLOCKING = frozenset({"NoSchedule", "NoExecute"})


class Obstacle(enum.StrEnum):
    """Obstacles between a pod and a node."""

    CONTROL_PLANE = "control plane"
    NOT_READY = "not ready"
    CORDON = "cordon"
    TAINT = "taint"
    MISMATCH = "mismatch"
    SHORTAGE = "shortage"


@dataclass(frozen=True, slots=True)
class NodeObstacles:
    """The obstacles between a pod and one node; `kinds` is empty if, by the specs, nothing does.

    `taints` are those that somebody has set, `short_of` the resources that are missing.
    """

    node: ObjectRef
    kinds: frozenset[Obstacle]
    taints: tuple[str, ...]
    short_of: tuple[str, ...]


def unscheduled(pod: Manifest) -> bool:
    """True if the scheduler states that it finds no node for the pod."""
    found = condition(pod, "PodScheduled")
    return text(found.get("status")) == "False" and text(found.get("reason")) != "SchedulingGated"


def scheduling_findings(facts: ClusterFacts, pod: Manifest, workload: ObjectRef) -> Iterator[Diagnosis]:
    """Yield why no node takes the pod: the newest revision if it changed what the pod asks of a node."""
    rollout = structure.rollout_of(facts, workload)
    new = rollout and structure.made_by(facts, pod, rollout.newest) and rollout.touches(*PLACEMENT)
    if rollout is None or not new:
        yield from _obstructed(facts, pod, workload)
        return
    for found in _obstructed(facts, pod, workload):
        signals = (*found.signals, *structure.observed(facts, workload, pod))
        own = _finding(workload, pod, "", set())
        yield rollout.undoing(replace(own, sentence=found.sentence, signals=signals))


def _obstructed(facts: ClusterFacts, pod: Manifest, workload: ObjectRef) -> Iterator[Diagnosis]:
    """Yield what keeps the pod from the nodes. The rules for volumes report unbound claims."""
    nodes, claims = facts.list("Node"), [facts.get(ref) for ref in claims_of(pod, workload.namespace)]
    unbound = [claim for claim in claims if dig(claim, "status", "phase") != "Bound"]
    if not nodes.complete or any(claim is None or not waits_for_pod(facts, claim) for claim in unbound):
        return
    used, said = used_by_node(facts), text(condition(pod, "PodScheduled").get("message"))
    reserved, places = _reserved(facts), [places_of(facts, claim) for claim in claims]
    near = [n for n in nodes.items if all(meets_one(terms, n) for terms in places)]  # to its volumes
    found = [obstacles_of(pod, node, used, reserved) for node in near]
    workers = [o for o in found if Obstacle.CONTROL_PLANE not in o.kinds]
    kinds = [o.kinds for o in workers]
    known = all(kinds)  # else something that is not seen here keeps the pod from a node
    full = {Obstacle.SHORTAGE} in kinds  # then a node with a taint is meant for other pods
    waiting = unprepared(facts, pod)
    own = full or {Obstacle.NOT_READY} in kinds or {Obstacle.CORDON} in kinds
    for blocked in found if known else ():
        if blocked.kinds == {Obstacle.TAINT} and not own and blocked.node not in waiting:
            what = f"taint {' and '.join(blocked.taints)}"
            tainted = _of_node(workload, blocked.node, what, Remedy.REMOVE_TAINT, pod)
            yield replace(tainted, taint=blocked.taints[0]) if len(blocked.taints) == 1 else tainted
        elif blocked.kinds == {Obstacle.CORDON}:
            yield _of_node(workload, blocked.node, "cordon", Remedy.UNCORDON, pod)
    keepers = {Obstacle.CORDON, Obstacle.NOT_READY} | (set() if full else {Obstacle.TAINT})
    if known and any(len(k) == 1 and k <= keepers for k in kinds):
        return
    if workers and all(Obstacle.MISMATCH in k for k in kinds):
        why = "no node fits their selector, affinity and tolerations"
        yield _finding(workload, pod, why, {Remedy.FIX_PLACEMENT})
    elif known and any(k - {Obstacle.NOT_READY} == {Obstacle.SHORTAGE} for k in kinds):
        short = sorted({name for o in workers for name in o.short_of})
        why = f"no node has room for {', '.join(f'{name}{_asked(pod, name)}' for name in short)}"
        enough = _finding(workload, pod, why, {Remedy.ADD_CAPACITY})
        idle = withholding(facts, pod)
        also = (*enough.also, *idle)
        unserved = replace(enough, remedies=frozenset(), strength=Strength.SYMPTOM, also=also)
        yield unserved if idle else enough
    elif why := next((FULL[words] for words in FULL if words in said), ""):
        used_up = _finding(workload, pod, f"the nodes already {why} as allowed", {Remedy.ADD_CAPACITY})
        yield replace(used_up, strength=Strength.TIMED)
    elif workers and not known:
        modes = {mode for claim in claims for mode in modes_of(claim)}
        yield from _placement_rules(workload, pod, modes)


def _asked(pod: Manifest, resource: str) -> str:
    """The requests of the containers of a pod as written, such as ` 8Gi`."""
    specs = structure.container_specs(mapping(pod.get("spec")))
    values = [text(dig(c, "resources", "requests", resource)) for c in specs]
    return "".join(f" {value}" for value in values if value)


def unfit_nodes(facts: ClusterFacts, pod: Manifest) -> list[ObjectRef]:
    """Nodes that take no pods because of their state: not ready, or tainted by their own conditions."""
    starts = [(node, [text(t.get("key")) for t in taints]) for node, taints in _refusing(facts, pod)]
    return [node for node, keys in starts if any(key.startswith(LIFECYCLE) for key in keys)]


def withholding(facts: ClusterFacts, pod: Manifest) -> list[ObjectRef]:
    """Nodes that do not offer devices that a pod requests, because the plugin for them does not work."""
    wanted = [name for name in requests_of(mapping(pod.get("spec"))) if "/" in name]
    nodes = facts.list("Node").items if wanted and unscheduled(pod) else ()
    return [reference(node) for node in nodes if any(_withheld(node, name) for name in wanted)]


def _withheld(node: Manifest, device: str) -> bool:
    has, offers = (mapping(dig(node, "status", key)) for key in ("capacity", "allocatable"))
    return device in has and not quantity(offers.get(device))


def unprepared(facts: ClusterFacts, pod: Manifest) -> list[ObjectRef]:
    """Nodes with a taint that the pod does not tolerate and an agent that fails: the taint may wait for the agent."""
    closed = [node for node, taints in _refusing(facts, pod) if taints and facts.list("Pod").complete]
    return [node for node in closed if failing_agents(facts, node.name)]


def _refusing(facts: ClusterFacts, pod: Manifest) -> list[tuple[ObjectRef, list[dict[str, Any]]]]:
    """The nodes, each with its taints that a pod without a node does not tolerate."""
    nodes, spec = facts.list("Node").items if unscheduled(pod) else (), mapping(pod.get("spec"))
    taints = [(reference(node), mappings(dig(node, "spec", "taints"))) for node in nodes]
    return [(node, [t for t in listed if not tolerated(spec, t)]) for node, listed in taints]


def preparing(facts: ClusterFacts, pod: Manifest) -> list[ObjectRef]:
    """Failing workloads that tolerate the key of a taint which a component has yet to remove for the pod."""
    found = {text(taint.get("key")) for _, taints in _refusing(facts, pod) for taint in taints}
    keys = {key for key in found if OF_COMPONENTS.search(key) and LIFECYCLE not in key}
    sick = filter(pod_failing, facts.list("Pod").items if keys else ())
    tolerations = [(p, {text(t.get("key")) for t in mappings(dig(p, "spec", "tolerations"))}) for p in sick]
    return [structure.root_of(facts, pod) for pod, tolerated_keys in tolerations if keys & tolerated_keys]


def _placement_rules(workload: ObjectRef, pod: Manifest, modes: Collection[str]) -> Iterator[Diagnosis]:
    """Yield rules between pods that together leave no node, although each alone would. `modes` are of its claims."""
    spec = mapping(pod.get("spec"))
    affinity = mapping(spec.get("affinity"))
    if spec.get("topologySpreadConstraints") or "podAntiAffinity" in affinity or "podAffinity" in affinity:
        why = "their spread or affinity rules between pods leave no node"
        yield _finding(workload, pod, why, {Remedy.RELAX_POD_RULES})
    elif any(p.get("hostPort") for c in structure.container_specs(spec) for p in mappings(c.get("ports"))):
        yield _finding(workload, pod, "the host port that they ask for is taken on every node", set())
    elif "ReadWriteOncePod" in modes:
        yield _finding(workload, pod, "their claim is for one pod only, and another pod uses it", set())


def _finding(workload: ObjectRef, pod: Manifest, why: str, remedies: set[Remedy]) -> Diagnosis:
    ref, told = reference(pod), f"the pods of {workload} cannot be scheduled: {why}"
    return replace(stated(Cause.NOT_SCHEDULABLE, workload, told, remedies, SIGNALS, (ref,)), reads=(ref,))


def _of_node(workload: ObjectRef, node: ObjectRef, what: str, remedy: Remedy, pod: Manifest) -> Diagnosis:
    found = _finding(workload, pod, "", {remedy})
    told = f"Only the {what} of {node} keeps the pods of {workload} off it."
    return replace(found, object=node, sentence=told, also=(workload,), reads=(reference(pod), node))


def claims_of(pod: Manifest, namespace: str) -> list[ObjectRef]:
    """The claims that a pod uses."""
    names = references_of(mapping(pod.get("spec")), text(dig(pod, "metadata", "name"))).claims
    return [structure.ref_to("PersistentVolumeClaim", name, namespace) for name in names]


def modes_of(claim: Manifest | None) -> list[str]:
    """The access modes of a claim."""
    return list(map(text, sequence(dig(claim, "spec", "accessModes"))))


def places_of(facts: ClusterFacts, claim: Manifest | None) -> list[dict[str, Any]]:
    """The node selector terms of the volume of a claim: it can be used on nodes that meet one; empty for any."""
    name = text(dig(claim, "spec", "volumeName"))
    return places_of_volume(facts.get(structure.ref_to("PersistentVolume", name)) if name else None)


def places_of_volume(volume: Manifest | None) -> list[dict[str, Any]]:
    """The node selector terms of a volume."""
    return mappings(dig(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms"))


def waits_for_pod(facts: ClusterFacts, claim: Manifest) -> bool:
    """True if the volume of a claim is made only once its pod has a node: until then, Pending is right."""
    found = facts.get(structure.ref_to("StorageClass", text(dig(claim, "spec", "storageClassName"))))
    mode, maker = text(dig(found, "volumeBindingMode")), text(dig(found, "provisioner"))
    return mode == "WaitForFirstConsumer" and maker != STATIC


def _reserved(facts: ClusterFacts) -> set[str]:
    """Keys of taints that pods tolerate by name, but for agents: such nodes are set apart on purpose."""
    owners = [(p, structure.owner_of(p)) for p in facts.list("Pod").items]
    own = [p for p, owner in owners if owner is None or owner.kind != "DaemonSet"]
    return {text(t.get("key")) for p in own for t in mappings(dig(p, "spec", "tolerations"))} - {""}


def obstacles_of(
    pod: Manifest, node: Manifest, used: Mapping[str, Mapping[str, float]], reserved: Collection[str]
) -> NodeObstacles:
    """What keeps a pod from a node by the specs. A taint that is `reserved` counts as a mismatch."""
    spec, ref = mapping(pod.get("spec")), reference(node)
    blocking = [t for t in mappings(dig(node, "spec", "taints")) if text(t.get("effect")) in BLOCKING]
    keys = [text(t.get("key")) for t in blocking if not tolerated(spec, t)]
    set_ = [k for k in dict.fromkeys(keys) if not OF_COMPONENTS.search(k) and k not in CONTROL_PLANE]
    taints = tuple(k for k in set_ if k not in reserved)
    unfit = [k for k in keys if OF_COMPONENTS.search(k) and k != f"{LIFECYCLE}unschedulable"]
    # pods of a node that fails are about to go
    short_of = _shortage(spec, node, {} if unfit else used.get(ref.name, {}))
    unschedulable = dig(node, "spec", "unschedulable") is True or f"{LIFECYCLE}unschedulable" in keys
    holding = {
        Obstacle.CONTROL_PLANE: CONTROL_PLANE & set(keys),
        Obstacle.NOT_READY: unfit or not holds(node, "Ready"),
        Obstacle.CORDON: unschedulable,
        Obstacle.TAINT: taints,
        Obstacle.MISMATCH: not matches_node(spec, node) or len(taints) < len(set_),
        Obstacle.SHORTAGE: short_of,
    }
    return NodeObstacles(ref, frozenset(kind for kind, held in holding.items() if held), taints, short_of)


def tolerated(spec: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """True if a pod tolerates a taint (Kubernetes API, Toleration)."""
    for toleration in mappings(spec.get("tolerations")):
        key, effect = text(toleration.get("key")), text(toleration.get("effect"))
        if effect and effect != taint.get("effect"):
            continue
        if toleration.get("operator") == "Exists":
            if key in {"", text(taint.get("key"))}:
                return True
        elif key == text(taint.get("key")) and text(toleration.get("value")) == text(taint.get("value")):
            return True
    return False


def matches_node(spec: Mapping[str, Any], node: Manifest) -> bool:
    """True if a node has the labels that the selector and the required node affinity of a pod ask for."""
    labels = structure.labels_of(node)
    if any(labels.get(key) != value for key, value in strings(spec.get("nodeSelector")).items()):
        return False
    required = dig(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return meets_one(mappings(dig(required, "nodeSelectorTerms")), node)


def meets_one(terms: Collection[Mapping[str, Any]], node: Manifest) -> bool:
    """True if a node meets one of the node selector terms, or there are none."""
    name = text(meta(node).get("name"))
    return not terms or any(_term_matches(term, structure.labels_of(node), name) for term in terms)


def _term_matches(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """True if a node meets one node selector term; operators that compare numbers count as met."""
    parts = (("matchExpressions", labels), ("matchFields", {"metadata.name": name}))
    asked = [(e, has) for field, has in parts for e in mappings(term.get(field))]
    exact = [(e, has) for e, has in asked if text(e.get("operator")) not in {"Gt", "Lt"}]
    return all(selects({"matchExpressions": [e]}, has) for e, has in exact)


def requests_of(spec: Mapping[str, Any]) -> dict[str, float]:
    """The requests of a pod: of its containers and sidecars, or of an init container that asks for more."""
    total: dict[str, float] = {"pods": 1.0}
    for asked in (mapping(spec.get("overhead")), *map(_requested, mappings(spec.get("containers")))):
        for name, value in asked.items():
            total[name] = total.get(name, 0.0) + (quantity(value) or 0.0)
    sidecars: dict[str, float] = {}
    largest: dict[str, float] = {}
    for container in mappings(spec.get("initContainers")):
        for name, value in _requested(container).items():
            amount = (quantity(value) or 0.0) + sidecars.get(name, 0.0)
            largest[name] = max(largest.get(name, 0.0), amount)
            if container.get("restartPolicy") == "Always":
                sidecars[name] = amount
    names = {*total, *largest, *sidecars}
    return {n: max(total.get(n, 0.0) + sidecars.get(n, 0.0), largest.get(n, 0.0)) for n in names}


def _requested(container: Mapping[str, Any]) -> dict[str, Any]:
    """The requests of a container: where it states none, its limits, as the API server writes them into pods."""
    amounts = mapping(container.get("resources"))
    return {**mapping(amounts.get("limits")), **mapping(amounts.get("requests"))}


def _shortage(spec: Mapping[str, Any], node: Manifest, used: Mapping[str, float]) -> tuple[str, ...]:
    allocatable = mapping(dig(node, "status", "allocatable"))
    short = []
    for name, wanted in requests_of(spec).items():
        there = quantity(allocatable.get(name))
        if there is None and name in {"cpu", "memory", "pods", "ephemeral-storage"}:
            continue
        if wanted and wanted + used.get(name, 0.0) > (there or 0.0) + ROUNDING:
            short.append(name)
    return tuple(short)


def used_by_node(facts: ClusterFacts) -> dict[str, dict[str, float]]:
    """The requests of running pods by node; of a list of pods that was cut, the least that the nodes have to hold."""
    used: dict[str, dict[str, float]] = {}
    for pod in facts.list("Pod").items:
        node = text(dig(pod, "spec", "nodeName"))
        if not node or text(dig(pod, "status", "phase")) in ENDED:
            continue
        for name, value in requests_of(mapping(pod.get("spec"))).items():
            used.setdefault(node, {})[name] = used.get(node, {}).get(name, 0.0) + value
    return used
