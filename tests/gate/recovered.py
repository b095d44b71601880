"""The cluster of an incident after everything has recovered by itself: an answer about what was is late."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.gate.run import Scene
from worker.domain.cluster.fields import dig, moment, stamp
from worker.domain.cluster.pods import pod_failing

DAY = timedelta(days=1)


def recover(scene: Scene) -> Scene:
    """Every pod, workload, claim and node has been well for a day; the traces of the past are left."""
    now = moment(scene.incident.get("received_time"))
    if now is None:
        raise ValueError(f"{scene.case.name} has no time")
    since = stamp(now - DAY)
    gone = {
        m["metadata"]["name"]
        for m in scene.manifests
        if m["kind"] == "Pod" and dig(m, "status", "phase") == "Failed"
    }
    scene.manifests = [m for m in scene.manifests if m["kind"] != "Pod" or m["metadata"]["name"] not in gone]
    for manifest in scene.manifests:
        if manifest["kind"] in WELL:
            WELL[manifest["kind"]](manifest, since)
        if manifest["kind"] == "Event":
            for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
                manifest[name] = stamp(now - 2 * DAY)
    return scene


def _condition(kind: str, status: str, since: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": since}


def _pod(pod: dict[str, Any], since: str) -> None:
    if not pod_failing(pod) and dig(pod, "status", "phase") == "Running":
        return
    old = {s["name"]: s for s in (pod.get("status") or {}).get("containerStatuses", ())}
    running = [
        {
            "name": c["name"], "ready": True, "started": True, "restartCount": old.get(c["name"], {}).get("restartCount", 0),
            "state": {"running": {"startedAt": since}},
            **({"lastState": last} if (last := _last(old.get(c["name"], {}), since)) else {}),
        }
        for c in pod["spec"]["containers"]
    ]  # fmt: skip
    kinds = ("Ready", "ContainersReady", "Initialized", "PodScheduled")
    pod["spec"].setdefault("nodeName", "w1")
    pod["metadata"].pop("deletionTimestamp", None)
    pod["status"] = {
        "phase": "Running", "startTime": since, "conditions": [_condition(kind, "True", since) for kind in kinds],
        "containerStatuses": running,
    }  # fmt: skip


def _last(status: dict[str, Any], since: str) -> dict[str, Any]:
    """How the run before ended: the last end that is known, a day ago."""
    ended = dig(status, "state", "terminated") or dig(status, "lastState", "terminated")
    return {"terminated": {**ended, "finishedAt": since}} if ended else {}


def _workload(workload: dict[str, Any], since: str) -> None:
    wanted = workload["spec"]["replicas"] = workload["spec"].get("replicas") or 1
    counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), wanted)
    workload["status"] = {
        **counts, "observedGeneration": workload["metadata"].get("generation", 1),
        "conditions": [_condition("Available", "True", since), _condition("Progressing", "True", since)],
    }  # fmt: skip


def _claim(claim: dict[str, Any], since: str) -> None:
    claim["status"] = {"phase": "Bound"}
    claim["spec"].setdefault("volumeName", "pv-1")


def _node(node: dict[str, Any], since: str) -> None:
    node["spec"].pop("taints", None)
    node["spec"].pop("unschedulable", None)
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    node["status"]["conditions"] = [
        _condition("Ready", "True", since), *(_condition(kind, "False", since) for kind in pressures)
    ]  # fmt: skip


def _autoscaler(autoscaler: dict[str, Any], since: str) -> None:
    autoscaler["status"] = {
        "currentReplicas": 1, "desiredReplicas": 1,
        "conditions": [_condition("ScalingActive", "True", since), _condition("ScalingLimited", "False", since)],
    }  # fmt: skip


def _certificate(certificate: dict[str, Any], since: str) -> None:
    certificate["status"] = {
        "conditions": [_condition("Ready", "True", since)],
        "notAfter": "2099-01-01T00:00:00Z",
    }


WELL = {
    "Certificate": _certificate,
    "HorizontalPodAutoscaler": _autoscaler,
    "Pod": _pod,
    "Deployment": _workload,
    "StatefulSet": _workload,
    "ReplicaSet": _workload,
    "PersistentVolumeClaim": _claim,
    "Node": _node,
}
