"""Table columns of kinds that run no pods: network, storage, nodes, policies, configuration."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from worker.domain.cluster.fields import dig, mapping, mappings, meta, sequence, strings, text, whole
from worker.domain.cluster.references import selector_text
from worker.domain.cluster.rendering.prune import last_change
from worker.domain.values.objects import Manifest

BAD_WHEN_TRUE = (
    "pressure", "unavailable", "fail", "degraded", "stalled", "error", "limited", "outofdisk", "corrupt", "frozen",
    "deadlock", "restart", "conflict", "problem",
)  # fmt: skip
BAD_WHEN_FALSE = {
    "ready", "available", "healthy", "progressing", "initialized", "containersready", "podscheduled", "scalingactive",
    "abletoscale", "synced", "reconciled", "accepted", "programmed", "established", "disruptionallowed", "succeeded",
    "complete", "bound", "active", "namesaccepted", "valid", "installed", "released", "deployed", "continuousarchiving",
}  # fmt: skip
EXPECTED = {"PodCompleted", "TooFewReplicas"}
"""Reasons of harmless conditions: a pod that has finished, an autoscaler that rests at its minimum."""
GPU = ("nvidia.com/", "amd.com/", "gpu.intel.com/")
NODE_LABELS = {
    "topology.kubernetes.io/zone": "zone",
    "failure-domain.beta.kubernetes.io/zone": "zone",
    "kubernetes.io/arch": "arch",
    "kubernetes.io/os": "os",
    "node.kubernetes.io/instance-type": "type",
}
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def bad_condition(condition: dict[str, Any]) -> bool:
    """True if a condition reports trouble: a good condition that is not True, or a bad one that is not False."""
    name, status = text(condition.get("type")).lower(), text(condition.get("status"))
    if text(condition.get("reason")) in EXPECTED:
        return False
    if name in BAD_WHEN_FALSE:
        return status in {"False", "Unknown"}
    return status in {"True", "Unknown"} and any(word in name for word in BAD_WHEN_TRUE)


def bad_conditions(item: Manifest) -> list[dict[str, Any]]:
    """Conditions in the status of an object that report trouble."""
    return [c for c in mappings(dig(item, "status", "conditions")) if bad_condition(c)]


def conditions(value: Any) -> list[str]:
    """Conditions as `Ready=False (KubeletNotReady: PLEG is not healthy)`.

    Only conditions that report trouble have a reason.
    """
    told = []
    for found in mappings(value):
        reason = ": ".join(p for p in (text(found.get("reason")), text(found.get("message"))[:160]) if p)
        bad = bad_condition(found) and reason
        told.append(f"{text(found.get('type'))}={text(found.get('status'))}{f' ({reason})' if bad else ''}")
    return told


def service(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a Service."""
    spec = mapping(item.get("spec"))
    ports = [
        f"{text(p.get('port'))}->{text(p.get('targetPort')) or text(p.get('port'))}/{text(p.get('protocol')) or 'TCP'}"
        for p in mappings(spec.get("ports"))
    ]
    return {
        "TYPE": text(spec.get("type")) or "ClusterIP",
        "CLUSTER-IP": text(spec.get("clusterIP")),
        "SELECTOR": selector_text(spec.get("selector")) or text(spec.get("externalName")),
        "PORTS": ", ".join(ports),
    }


def endpoints(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of an Endpoints object."""
    subsets = mappings(item.get("subsets"))
    ports = {text(p.get("port")) for s in subsets for p in mappings(s.get("ports"))}
    return {
        "READY": ", ".join(_targets(subsets, "addresses")) or "none",
        "NOT READY": ", ".join(_targets(subsets, "notReadyAddresses")),
        "PORTS": ", ".join(sorted(ports)),
    }


def _targets(subsets: list[dict[str, Any]], field: str) -> list[str]:
    found = [address for subset in subsets for address in mappings(subset.get(field))]
    return [text(dig(a, "targetRef", "name")) or text(a.get("ip")) for a in found]


def endpoint_slice(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of an EndpointSlice."""
    found = mappings(item.get("endpoints"))
    names = {True: list[str](), False: list[str]()}
    for endpoint in found:
        shown = text(dig(endpoint, "targetRef", "name")) or ", ".join(
            map(text, sequence(endpoint.get("addresses")))
        )
        names[dig(endpoint, "conditions", "ready") is not False].append(shown)
    return {
        "SERVICE": text(mapping(meta(item).get("labels")).get("kubernetes.io/service-name")),
        "READY": ", ".join(names[True]) or "none",
        "NOT READY": ", ".join(names[False]),
    }


def config_map(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a ConfigMap: names of keys, never values."""
    keys = [str(k) for field in ("data", "binaryData") for k in mapping(item.get(field))]
    change = last_change(item)
    return {
        "KEYS": ", ".join(keys[:30]),
        "LAST CHANGE": f"{change.get('at', '')} by {change.get('by', '')}" if change else "",
    }


def claim(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a PersistentVolumeClaim."""
    wanted = text(dig(item, "spec", "resources", "requests", "storage"))
    capacity = text(dig(item, "status", "capacity", "storage"))
    return {
        "STATUS": text(dig(item, "status", "phase")),
        "VOLUME": text(dig(item, "spec", "volumeName")),
        "CLASS": text(dig(item, "spec", "storageClassName")),
        "SIZE": capacity if capacity == wanted or not wanted else f"{capacity or '-'} (requested {wanted})",
        "MODES": ", ".join(map(text, sequence(dig(item, "spec", "accessModes")))),
        "CONDITIONS": ", ".join(conditions(dig(item, "status", "conditions"))),
    }


def volume(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a PersistentVolume."""
    terms = [
        f"{text(e.get('key'))} {text(e.get('operator'))} {'/'.join(map(text, sequence(e.get('values'))))}"
        for term in mappings(dig(item, "spec", "nodeAffinity", "required", "nodeSelectorTerms"))
        for e in mappings(term.get("matchExpressions"))
    ]
    claimed = mapping(dig(item, "spec", "claimRef"))
    return {
        "STATUS": text(dig(item, "status", "phase")),
        "CLAIM": f"{text(claimed.get('namespace'))}/{text(claimed.get('name'))}" if claimed else "",
        "CLASS": text(dig(item, "spec", "storageClassName")),
        "SIZE": text(dig(item, "spec", "capacity", "storage")),
        "NODE AFFINITY": "; ".join(terms),
    }


def storage_class(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a StorageClass."""
    return {
        "PROVISIONER": text(item.get("provisioner")),
        "RECLAIM": text(item.get("reclaimPolicy")),
        "BINDING": text(item.get("volumeBindingMode")),
        "EXPANSION": text(item.get("allowVolumeExpansion")) or "false",
        "DEFAULT": text(mapping(meta(item).get("annotations")).get(DEFAULT_CLASS)) or "false",
    }


def node(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a Node. CPU and memory are the allocatable ones."""
    found = mappings(dig(item, "status", "conditions"))
    ready = next((c for c in found if c.get("type") == "Ready"), {})
    allocatable = mapping(dig(item, "status", "allocatable"))
    taints = [_taint(t) for t in mappings(dig(item, "spec", "taints"))]
    labels = strings(meta(item).get("labels"))
    named = {short: labels[long] for long, short in NODE_LABELS.items() if long in labels}
    cordoned = ",SchedulingDisabled" if dig(item, "spec", "unschedulable") is True else ""
    return {
        "STATUS": ("Ready" if ready.get("status") == "True" else "NotReady") + cordoned,
        "CONDITIONS": ", ".join(conditions(bad_conditions(item))),
        "TAINTS": ", ".join(taints),
        "CPU": text(allocatable.get("cpu")),
        "MEMORY": text(allocatable.get("memory")),
        "GPU": ", ".join(f"{k}={text(v)}" for k, v in allocatable.items() if str(k).startswith(GPU)),
        "LABELS": " ".join(f"{k}={v}" for k, v in named.items()),
    }


def _taint(taint: dict[str, Any]) -> str:
    value = text(taint.get("value"))
    return f"{text(taint.get('key'))}{'=' + value if value else ''}:{text(taint.get('effect'))}"


def disruption_budget(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a PodDisruptionBudget."""
    status = mapping(item.get("status"))
    return {
        "MIN AVAILABLE": text(dig(item, "spec", "minAvailable")),
        "MAX UNAVAILABLE": text(dig(item, "spec", "maxUnavailable")),
        "ALLOWED DISRUPTIONS": text(status.get("disruptionsAllowed")),
        "HEALTHY/DESIRED": f"{text(status.get('currentHealthy'))}/{text(status.get('desiredHealthy'))}",
        "SELECTOR": selector_text(dig(item, "spec", "selector")),
    }


def autoscaler(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a HorizontalPodAutoscaler."""
    target = mapping(dig(item, "spec", "scaleTargetRef"))
    metrics = [
        f"{text(dig(m, 'resource', 'name'))} {text(dig(m, 'resource', 'current', 'averageUtilization'))}%"
        for m in mappings(dig(item, "status", "currentMetrics"))
        if dig(m, "resource", "current", "averageUtilization") is not None
    ]
    return {
        "REFERENCE": f"{text(target.get('kind'))}/{text(target.get('name'))}",
        "METRICS": ", ".join(metrics),
        "MIN": text(dig(item, "spec", "minReplicas")) or "1",
        "MAX": text(dig(item, "spec", "maxReplicas")),
        "CURRENT": text(dig(item, "status", "currentReplicas")),
        "DESIRED": text(dig(item, "status", "desiredReplicas")),
        "CONDITIONS": ", ".join(conditions(dig(item, "status", "conditions"))),
    }


def quota(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a ResourceQuota."""
    hard = mapping(dig(item, "status", "hard")) or mapping(dig(item, "spec", "hard"))
    used = mapping(dig(item, "status", "used"))
    return {"USED/HARD": ", ".join(f"{k} {text(used.get(k)) or '?'}/{text(v)}" for k, v in hard.items())}


def network_policy(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a NetworkPolicy."""
    spec = mapping(item.get("spec"))
    return {
        "POD SELECTOR": selector_text(spec.get("podSelector")) or "(all)",
        "TYPES": ", ".join(map(text, sequence(spec.get("policyTypes")))) or "Ingress",
        "INGRESS RULES": str(len(sequence(spec.get("ingress")))),
        "EGRESS RULES": str(len(sequence(spec.get("egress")))),
    }


def namespace(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a Namespace."""
    labels = strings(meta(item).get("labels"))
    return {
        "STATUS": text(dig(item, "status", "phase")),
        "LABELS": ", ".join(f"{k}={v}" for k, v in labels.items() if k != "kubernetes.io/metadata.name"),
    }


def _not_bound(item: Manifest) -> bool:
    return text(dig(item, "status", "phase")) in {"Pending", "Lost", "Failed"}


def _no_addresses(item: Manifest) -> bool:
    return not _targets(mappings(item.get("subsets")), "addresses")


def _node_in_trouble(item: Manifest) -> bool:
    return dig(item, "spec", "unschedulable") is True or bool(bad_conditions(item))


def _no_disruptions(item: Manifest) -> bool:
    status = mapping(item.get("status"))
    return whole(status.get("disruptionsAllowed")) == 0 and whole(status.get("expectedPods")) > 0


COLUMNS: dict[str, Callable[[Manifest, datetime], dict[str, str]]] = {
    "Service": service,
    "Endpoints": endpoints,
    "EndpointSlice": endpoint_slice,
    "ConfigMap": config_map,
    "PersistentVolumeClaim": claim,
    "PersistentVolume": volume,
    "StorageClass": storage_class,
    "Node": node,
    "PodDisruptionBudget": disruption_budget,
    "HorizontalPodAutoscaler": autoscaler,
    "ResourceQuota": quota,
    "NetworkPolicy": network_policy,
    "Namespace": namespace,
}
UNHEALTHY: dict[str, Callable[[Manifest], bool]] = {
    "PersistentVolumeClaim": _not_bound,
    "PersistentVolume": _not_bound,
    "Endpoints": _no_addresses,
    "Node": _node_in_trouble,
    "PodDisruptionBudget": _no_disruptions,
}
