"""Finds since when an object has shown the opposite of an alert: the only reason to consider a problem over.

Only alerts whose whole name is known here count: they report a condition that an object of the cluster has in
its status. Names that merely contain such a word (a node's file system or clock) do not. Events, such as an
OOM kill, have no opposite: health afterwards does not undo their cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from worker.domain.cluster.conditions import condition
from worker.domain.cluster.fields import dig, meta, moment
from worker.domain.cluster.pods import containers, pod_failing
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.structure import pods_of
from worker.domain.values.objects import Manifest, ObjectRef

PODS_NOT_READY = (
    "CrashLoopBackOff", "CreateContainerConfigError", "ErrImagePull", "FailedMount", "FailedScheduling", "ImagePullBackOff",
    "KubeContainerWaiting", "KubeDeploymentReplicasMismatch", "KubePodCrashLooping", "KubePodNotReady",
    "KubeStatefulSetReplicasMismatch", "PodPending",
)  # fmt: skip
"""Reasons of kubelet and scheduler, and alerts of the kubernetes mixin. Their opposite is a ready pod."""
NODE_NOT_READY = ("KubeNodeNotReady", "KubeNodeUnreachable", "NodeNotReady", "NodeUnreachable")
NODE_PRESSURE = ("DiskPressure", "KubeNodePressure", "MemoryPressure", "NodePressure", "PIDPressure")
PRESSURES = ("DiskPressure", "MemoryPressure", "PIDPressure")
OF_NODES = (
    (NODE_NOT_READY, {"Ready": "True"}),
    (NODE_PRESSURE, {"Ready": "True", **dict.fromkeys(PRESSURES, "False")}),
)
"""Alerts about nodes, and the conditions that are their opposite."""
REPLICATED = frozenset({"Deployment", "ReplicaSet", "StatefulSet"})


def settled_since(facts: ClusterFacts, signal: ObjectRef, spoken_of: str) -> datetime | None:
    """Since when the signal's object has shown the opposite of `spoken_of`; None if it has not."""
    spoken = spoken_of.strip().lower()
    if spoken in map(str.lower, PODS_NOT_READY):
        return _pods_ready(facts, signal)
    stated = next((opposite for alerts, opposite in OF_NODES if spoken in map(str.lower, alerts)), None)
    return _holding_since(facts, signal, stated) if stated else None


def _pods_ready(facts: ClusterFacts, ref: ObjectRef) -> datetime | None:
    """Return since when all wanted pods are ready and none of their containers was restarted."""
    if ref.kind not in REPLICATED | {"Pod"} or not facts.list("Pod", ref.namespace).complete:
        return None
    pods = pods_of(facts, ref)
    wanted = 1 if ref.kind == "Pod" else _wanted(facts.get(ref))
    unwell = any(pod_failing(p) or meta(p).get("deletionTimestamp") for p in pods)
    if wanted < 1 or len(pods) != wanted or unwell:
        return None
    return _latest(time for pod in pods for time in _ready_since(pod))


def _wanted(workload: Manifest | None) -> int:
    """How many pods the workload wants; 0 while its newest spec is not seen or rolled out."""
    spec, status = dig(workload, "spec"), dig(workload, "status")
    replicas = dig(spec, "replicas")
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        return 0
    observed, generation = dig(status, "observedGeneration"), meta(workload).get("generation")
    outdated = generation is not None and observed != generation
    done = all(dig(status, field) == replicas for field in ("replicas", "readyReplicas"))
    return replicas if done and not outdated and dig(status, "updatedReplicas") in (None, replicas) else 0


def _ready_since(pod: Manifest) -> Iterable[datetime | None]:
    ready = condition(pod, "Ready")
    yield moment(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None
    for container in containers(pod):
        if container.running and container.kind in {"app", "sidecar"}:
            yield moment(dig(container.status, "state", "running", "startedAt"))


def _holding_since(facts: ClusterFacts, ref: ObjectRef, expected: Mapping[str, str]) -> datetime | None:
    """Return since when all conditions of a node have these statuses."""
    node = facts.get(ref) if ref.kind == "Node" else None
    found = [(condition(node, kind), status) for kind, status in expected.items()]
    held = (c.get("lastTransitionTime") if c.get("status") == status else None for c, status in found)
    return _latest(map(moment, held))


def _latest(times: Iterable[datetime | None]) -> datetime | None:
    """The latest of the times; None if one of them is not known, or there are none."""
    found = list(times)
    known = [time for time in found if time is not None]
    return max(known) if known and len(known) == len(found) else None
