"""Nodes, and pods that were evicted from them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from worker.domain.cluster.conditions import condition, holds
from worker.domain.cluster.fields import dig, mappings, moment, name_of, reference, text
from worker.domain.cluster.pods import pod_failing
from worker.domain.cluster.quantities import quantity
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, Strength, stated
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.messages import NETWORK_DOWN
from worker.domain.diagnosis.structure import ref_to, root_of
from worker.domain.values.objects import Manifest, ObjectRef

PRESSURES = {
    "DiskPressure": frozenset({Remedy.CLEAN_NODE}),
    "MemoryPressure": frozenset({Remedy.CORDON}),
    "PIDPressure": frozenset({Remedy.CORDON, Remedy.DRAIN}),
}
NOT_READY = frozenset({Remedy.DRAIN, Remedy.RESTART_NODE_AGENT})  # tainted already: a cordon adds nothing
SWITCHED_OFF = "node.cloudprovider.kubernetes.io/shutdown"  # set by cloud controllers: the machine is stopped
STANDARD = frozenset({"Ready", "DiskPressure", "MemoryPressure", "PIDPressure", "NetworkUnavailable"})
MACHINE_BROKEN = frozenset(
    {"KernelDeadlock", "ReadonlyFilesystem", "FrequentContainerdRestart", "FrequentDockerRestart"}
)
USE = re.compile(r"was using ([0-9.]+[A-Za-z]*)(?:, request is ([0-9.]+[A-Za-z]*))?")
OWN_LIMIT = re.compile(r"exceeds the (?:total )?limit|usage exceeds", re.IGNORECASE)
LOW_ON = re.compile(r"low on resource: ([\w-]+)")
HEALTHY_IF_TRUE = re.compile(r"(?<!Not)(?:Ready|Healthy|Available|Voter|Running|Enabled)$")
EVICTED_LATELY = timedelta(hours=6)
LEAST = 64 * 2**20  # a pod counts as the one that used up a node if it is this many bytes above its request


def node_findings(facts: ClusterFacts, ref: ObjectRef) -> Iterator[Diagnosis]:
    """Yield what is wrong with a node by its conditions."""
    manifest = facts.get(ref)
    if manifest is None:
        return
    ready = condition(manifest, "Ready")
    if text(ready.get("status")) in {"False", "Unknown"}:
        yield from _not_ready(facts, ref, ready)
    elif holds(manifest, "NetworkUnavailable"):
        yield from _without_network(facts, ref)
        yield stated(Cause.NODE, ref, f"{ref} reports NetworkUnavailable", (), ("NodeNotReady",))
    for kind, remedies in PRESSURES.items():
        if holds(manifest, kind):
            culprit = _culprit(facts, ref)
            also = (culprit.object,) if culprit else ()
            yield stated(Cause.NODE, ref, f"{ref} reports {kind}", remedies, (kind,), also)
            if culprit:
                yield culprit
    for entry in mappings(dig(manifest, "status", "conditions")):
        kind = text(entry.get("type"))
        if kind not in STANDARD and text(entry.get("status")) == "True" and _is_problem(entry):
            broken = {Remedy.CORDON, Remedy.DRAIN} if kind in MACHINE_BROKEN else set()
            yield stated(Cause.NODE, ref, f"{ref} reports {kind}", broken, ())


def _is_problem(entry: dict[str, object]) -> bool:
    """True if a condition that is True is a problem: neither `KernelReady` (EKS, k3s) nor a reason with `No` or `Is`."""
    healthy = HEALTHY_IF_TRUE.search(text(entry.get("type")))
    return not healthy and not text(entry.get("reason")).startswith(("No", "Is"))


def _not_ready(facts: ClusterFacts, ref: ObjectRef, ready: dict[str, object]) -> Iterator[Diagnosis]:
    words = f"{text(ready.get('reason'))} {text(ready.get('message'))}"
    off = any(t.get("key") == SWITCHED_OFF for t in mappings(dig(facts.get(ref), "spec", "taints")))
    remedies = NOT_READY - {Remedy.RESTART_NODE_AGENT} if off else NOT_READY
    if NETWORK_DOWN.search(words):
        remedies = frozenset()
        yield from _without_network(facts, ref)
    told = f"{ref} is not ready ({text(ready.get('reason'))})"
    yield stated(Cause.NODE, ref, told, remedies, ("NodeNotReady",))


def _without_network(facts: ClusterFacts, ref: ObjectRef) -> Iterator[Diagnosis]:
    for agent, pod in failing_agents(facts, ref.name):
        told = f"{agent} fails on {ref}, which has no pod network"
        yield stated(Cause.NODE, agent, told, (), ("NodeNotReady",), (ref, reference(pod)))


def failing_agents(facts: ClusterFacts, node: str) -> list[tuple[ObjectRef, Manifest]]:
    """DaemonSets that serve the pods of a node (in its network, or with privileges) and fail there."""
    pods = [p for p in facts.list("Pod", node=node).items if pod_failing(p)] if node else []
    found = [(root_of(facts, pod), pod) for pod in pods if _serves_node(pod)]
    return [(root, pod) for root, pod in found if root.kind == "DaemonSet"]


def _serves_node(pod: Manifest) -> bool:
    privileged = (dig(c, "securityContext", "privileged") for c in mappings(dig(pod, "spec", "containers")))
    system = reference(pod).namespace == "kube-system"
    return system or dig(pod, "spec", "hostNetwork") is True or True in privileged


def evicted(pod: Manifest) -> bool:
    """True if the kubelet evicted the pod."""
    return text(dig(pod, "status", "reason")) == "Evicted"


def eviction_findings(facts: ClusterFacts, pod: Manifest, workload: ObjectRef) -> Iterator[Diagnosis]:
    """Yield why a pod was evicted: its own limit for local storage, or its node, and who used it up."""
    message = text(dig(pod, "status", "message"))
    if OWN_LIMIT.search(message) and not LOW_ON.search(message):
        ref, signals = reference(pod), ("Evicted",)
        told = f"{ref} was evicted because it exceeded its own limit for local storage."
        yield Diagnosis(Cause.EVICTION, workload, told, also=(ref,), signals=signals, reads=(ref,))
        return
    node = ref_to("Node", text(dig(pod, "spec", "nodeName")))
    if node.name:
        found = node_eviction(facts, node, LOW_ON.search(message))
        if not _evicted_lately(facts, pod):  # a record of what was
            found = (replace(f, strength=Strength.SYMPTOM, remedies=frozenset()) for f in found)
        yield from found


def node_eviction(facts: ClusterFacts, node: ObjectRef, low: re.Match[str] | None) -> Iterator[Diagnosis]:
    """Yield a node that evicts pods, and the workload that used it up."""
    culprit = _culprit(facts, node)
    if culprit:
        yield culprit
    disk = low is not None and low[1] != "memory"
    remedies = PRESSURES["DiskPressure" if disk else "MemoryPressure"]
    also = (culprit.object,) if culprit else ()
    told = f"{node} evicts pods because it is low on {low[1] if low else 'a resource'}"
    yield stated(Cause.NODE, node, told, remedies, ("Evicted",), also)


def eviction_of_gone(facts: ClusterFacts, message: str) -> Iterator[Diagnosis]:
    """Yield why a deleted pod was evicted: nodes under pressure now, and who used them up."""
    if OWN_LIMIT.search(message) and not LOW_ON.search(message):
        return
    for node in facts.list("Node").items:
        if any(holds(node, kind) for kind in PRESSURES):
            yield from node_eviction(facts, reference(node), LOW_ON.search(message))


def _culprit(facts: ClusterFacts, node: ObjectRef) -> Diagnosis | None:
    """The workload whose evicted pod was furthest above its request, by the kubelet's own figures."""
    here = [p for p in facts.list("Pod").items if text(dig(p, "spec", "nodeName")) in {node.name, ""}]
    there = [p for p in here if _evicted_lately(facts, p)]
    worst = max(there, key=_above_request, default=None)
    if worst is None or _above_request(worst) < LEAST:
        return None
    owner = root_of(facts, worst)
    told = f"pods of {owner} exceeded their requests most on {node}, which then evicted pods: {_uses(worst)}"
    found = stated(Cause.EVICTION, owner, told, {Remedy.SCALE_DOWN}, ("Evicted",), (node,))
    return replace(found, reads=(node, reference(worst)))


def _evicted_lately(facts: ClusterFacts, pod: Manifest) -> bool:
    """True if the pod was evicted, not long ago by its conditions: such pods are kept for days."""
    times = [moment(c.get("lastTransitionTime")) for c in mappings(dig(pod, "status", "conditions"))]
    last = max((at for at in times if at), default=None)
    return evicted(pod) and (facts.now is None or last is None or facts.now - last <= EVICTED_LATELY)


def _uses(pod: Manifest) -> str:
    """`41Gi of ephemeral-storage, request 0`, by the kubelet's figures."""
    message = text(dig(pod, "status", "message"))
    low, used = LOW_ON.search(message), USE.findall(message)
    return f"{low[1] if low else 'local storage'} used {', '.join(u for u, _ in used)}, requested {', '.join(r or '0' for _, r in used)}"


def _above_request(pod: Manifest) -> float:
    found = USE.findall(text(dig(pod, "status", "message")))
    amounts = [[quantity(amount.rstrip(",.")) or 0.0 for amount in pair] for pair in found]
    return max((used - requested for used, requested in amounts), default=0.0)


def nodes_of(pods: Sequence[Manifest]) -> list[ObjectRef]:
    """The nodes that pods run on."""
    found = dict.fromkeys(text(dig(pod, "spec", "nodeName")) for pod in pods if name_of(pod))
    return [ref_to("Node", name) for name in found if name]
