"""Evictions: who really used the node's memory or disk."""

from __future__ import annotations

import re
from dataclasses import dataclass

from worker.domain.cluster.quantities import quantity
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import dig, make_ref
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.hosts import owner_in_row
from worker.sandbox.analyst.shapes import labels_of

USAGE = re.compile(r"Container (\S+) was using ([0-9.]+[A-Za-z]*)(?:, request is ([0-9.]+[A-Za-z]*))?")
RESOURCE = re.compile(r"low on resource: ([\w-]+)")
LOCAL = re.compile(
    r"ephemeral local storage usage exceeds|exceeds the total limit|emptyDir .* exceeds", re.IGNORECASE
)
LEAST_ABOVE = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Use:
    """What an evicted pod used above its request, in bytes."""

    namespace: str
    pod: str
    container: str
    used: str
    request: str
    above: float
    resource: str
    message: str


def eviction_finding(case: Case, pod: Manifest, workload: ObjectRef | None) -> Finding | None:
    """Why a pod was evicted: the largest user on its node, which may be another one."""
    message = str(dig(pod, "status", "message") or "") or case.incident.message
    node = str(dig(pod, "spec", "nodeName") or case.incident.labels.get("node", ""))
    name, namespace = str(dig(pod, "metadata", "name")), str(dig(pod, "metadata", "namespace") or "")
    told = f"Pod {namespace}/{name} was evicted from node {node}: {short(message)}"
    if LOCAL.search(message):
        return _own_disk(workload or make_ref("Pod", name, namespace), told)
    culprit = culprit_finding(case, node, told)
    if culprit is not None:
        return culprit
    return _node_level(case, node, told, message, workload)


def evicted_by_events(case: Case, ref: ObjectRef) -> Finding | None:
    """The same for a pod that is gone: its events and what the signal quotes are left."""
    events = [e for e in case.facts.events_of(ref) if e.reason == "Evicted"]
    message = events[-1].message if events else case.incident.message
    if not RESOURCE.search(message):
        return None
    node = case.incident.labels.get("node", "")
    told = f"{ref} was evicted{f' from node {node}' if node else ''}: {short(message)}"
    return culprit_finding(case, node, told) or _node_level(case, node, told, message, None)


def culprit_finding(case: Case, node: str, told: str) -> Finding | None:
    """The workload that used most above its request among the pods evicted from the node."""
    case.facts.ask_events("")
    uses = [u for u in _uses(case.facts) if not node or _on_node(case.facts, u, node)]
    worst = max(uses, key=lambda u: u.above, default=None)
    owner = _owner(case.facts, worst) if worst is not None and worst.above >= LEAST_ABOVE else None
    if worst is None or owner is None:
        return None
    disk = worst.resource != "memory"
    evicted = len({u.pod for u in uses})
    culprit = f"{owner} is the culprit: its container {worst.container} used {worst.used} with a request of {worst.request}"
    why = f"node {node or 'of these pods'} was low on resource: {worst.resource} ({'disk' if disk else 'memory'} pressure, {evicted} pods evicted)"
    return Finding(
        family="eviction",
        summary=f"{told}. {sentence(why)}. {culprit}.",
        target=owner,
        certainty=0.84,
        symptoms=("Evicted",),
        remedies=(RemedyKind.SCALE_DOWN, RemedyKind.CORDON),
        factors=(told, why, culprit),
        workload=owner,
        traits=frozenset({"hurts_others", "disk_by_pod" if disk else "node_memory"}),
        denied=frozenset(
            {
                "oom_own_limit",
                "config_content",
                "template_changed",
                "node_failure",
                "disk_pressure" if not disk else "oom",
            }
        ),
        hints={"replicas": 0, "container": worst.container, "node": node},
    )


def _uses(facts: Facts) -> list[Use]:
    texts: list[tuple[str, str, str]] = [
        (e.namespace, e.name, e.message) for e in facts.events if e.reason == "Evicted"
    ]
    texts += [
        (
            str(dig(p, "metadata", "namespace") or ""),
            str(dig(p, "metadata", "name")),
            str(dig(p, "status", "message") or ""),
        )
        for p in facts.objects("Pod")
        if dig(p, "status", "reason") == "Evicted"
    ]
    found: dict[tuple[str, str, str], Use] = {}
    for namespace, pod, message in texts:
        resource = RESOURCE.search(message)
        for container, used, request in USAGE.findall(message):
            above = (quantity(used.rstrip(",.")) or 0.0) - (quantity(request.rstrip(",.")) or 0.0)
            use = Use(
                namespace,
                pod,
                container,
                used.rstrip(",."),
                request.rstrip(",.") or "0",
                above,
                resource[1] if resource else "memory",
                message,
            )
            found[(namespace, pod, container)] = use
    return list(found.values())


def _on_node(facts: Facts, use: Use, node: str) -> bool:
    """Whether the pod ran on the node; pods that are gone count, since nothing speaks against it."""
    manifest = facts.get("Pod", use.pod, use.namespace, ask=False)
    if manifest is not None:
        return str(dig(manifest, "spec", "nodeName") or "") in {node, ""}
    row = next((r for r in facts.rows("Pod", use.namespace, ask=False) if r.get("NAME") == use.pod), {})
    return row.get("NODE", "") in {node, ""}


def _owner(facts: Facts, use: Use) -> ObjectRef | None:
    manifest = facts.get("Pod", use.pod, use.namespace)
    if manifest is not None:
        root = facts.root_of(manifest, ask=False)
        suffix = labels_of(manifest).get("pod-template-hash", "")
        if root is not None and root.kind == "ReplicaSet" and suffix:
            return make_ref("Deployment", root.name.removesuffix(f"-{suffix}"), root.namespace)
        return root or make_ref("Pod", use.pod, use.namespace)
    rows = facts.rows("Pod", use.namespace)
    same = [r for r in rows if r.get("NAME") == use.pod] or [
        r for r in rows if r.get("NAME", "").rpartition("-")[0] == use.pod.rpartition("-")[0]
    ]
    return owner_in_row(same[0], use.namespace) if same else None


def _own_disk(target: ObjectRef, told: str) -> Finding:
    return Finding(
        family="eviction-limit",
        summary=f"{told}: it exceeded its own limit for local storage.",
        target=target,
        certainty=0.84,
        symptoms=("Evicted",),
        factors=(told,),
        workload=target,
        traits=frozenset({"disk_by_pod"}),
        denied=frozenset({"node_memory", "oom", "config_content", "disk_pressure"}),
    )


def _node_level(case: Case, node: str, told: str, message: str, workload: ObjectRef | None) -> Finding | None:
    """No user stands out: the node itself is short."""
    resource = RESOURCE.search(message)
    if not node or resource is None:
        return None
    case.facts.get("Node", node)
    disk = resource[1] != "memory"
    return Finding(
        family="node-pressure",
        summary=f"{told}. {'Disk' if disk else 'Memory'} of the node is short and no single pod stands out.",
        target=make_ref("Node", node),
        certainty=0.72,
        symptoms=("Evicted",),
        remedies=(RemedyKind.CLEAN_NODE, RemedyKind.CORDON) if disk else (RemedyKind.CORDON,),
        factors=(told,),
        workload=workload,
        traits=frozenset({"disk_pressure" if disk else "node_memory"}),
        denied=frozenset({"oom_own_limit", "config_content", "template_changed"}),
        hints={"node": node},
    )
