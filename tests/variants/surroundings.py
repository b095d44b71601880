"""What stands beside the incident: order of documents, healthy workloads, foreign events, harmless other faults."""

from __future__ import annotations

import copy
from datetime import timedelta
from random import Random
from typing import Any

from tests.variants.content import CaseContent, name_of, namespace_of
from worker.domain.cluster.fields import moment, stamp
from worker.domain.values.objects import Manifest

UNIQUE = "pod-template-hash"


def shuffle(content: CaseContent, random: Random) -> CaseContent:
    """Documents, conditions, statuses of containers and events in another order."""
    found = content.copy()
    random.shuffle(found.objects)
    for number, manifest in enumerate(found.objects):
        status = manifest.get("status")
        for value in status.values() if isinstance(status, dict) else ():
            if isinstance(value, list):
                random.shuffle(value)
        if manifest["kind"] == "Event":  # the API lists events by name
            manifest["metadata"]["name"] = f"{random.randrange(16**6):06x}.{number}"
    return found


def add_noise(content: CaseContent, random: Random) -> CaseContent:
    """Healthy workloads in the namespace of the incident and in others, with events of their own."""
    found = content.copy()
    home = content.incident.get("resource_namespace") or "default"
    node = _node(content)
    for place in (home, "aaa-bulk", "zzz-tools"):
        for name in random.sample(("ledger-sync", "beacon", "thumbs-api", "quill", "sorter"), 2):
            found.objects.extend(_healthy(name, place, node, content))
    if not content.of("Namespace"):
        return found
    for place in ("aaa-bulk", "zzz-tools"):
        found.objects.append(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": place},
                "status": {"phase": "Active"},
            }
        )
    return found


def add_faults(content: CaseContent, random: Random) -> CaseContent | None:
    """Other things that are not quite well and have nothing to do with it: a finished Job, a pod that crashed last week,
    and one of another app that waits for a node."""
    if content.signal[0] in {"Namespace", "Node", "PodDisruptionBudget"}:
        return None  # whatever is wrong there is a cause
    found = content.copy()
    home = content.incident.get("resource_namespace") or "default"
    node = _node(content)
    week = stamp(_now(content) - timedelta(days=7))
    name = random.choice(("nightly-sum", "tidy-up", "export-all"))
    job = _object("batch/v1", "Job", name, home, week) | {
        "spec": {"template": {"spec": {"containers": [_container(name)]}}},
        "status": {
            "succeeded": 1,
            "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": week}],
        },
    }
    done = _pod(f"{name}-k2x9p", home, node, week, job)
    done["status"] = {
        "phase": "Succeeded",
        "containerStatuses": [
            {"name": name, "ready": False, "restartCount": 0,
             "state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": week}}}
        ],
    }  # fmt: skip
    done["spec"]["containers"][0]["name"] = name
    *others, restarted = _healthy("oldtimer", home, node, content)
    restarted["status"]["containerStatuses"][0] |= {
        "restartCount": 4,
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": week}},
    }
    *more, waiting = _healthy("wanderer", home, node, content)
    waiting["spec"] |= {"nodeSelector": {"example.com/rack": "z9"}}
    waiting["spec"].pop("nodeName")
    reason = {
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
    }
    waiting["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", **reason}],
    }
    more[0]["status"] |= {"readyReplicas": 0, "availableReplicas": 0}
    found.objects.extend([job, done, *others, restarted, *more, waiting])
    return found


def unready_client(name: str, namespace: str, service: str, content: CaseContent) -> list[Manifest]:
    """A Deployment whose pod runs without being ready since a while, and whose settings name a Service; the pod comes last."""
    made = _healthy(name, namespace, _node(content), content)
    since = stamp(_now(content) - timedelta(minutes=12))
    pod, setting = made[-1], {"name": "UPSTREAM_URL", "value": f"http://{service}:80/"}
    for manifest in made:
        spec = manifest.get("spec") or {}
        for holder in (spec, spec.get("template", {}).get("spec", {})):
            for container in holder.get("containers", ()):
                container["env"] = [setting]
                container["readinessProbe"] = {"httpGet": {"path": "/ready", "port": 8080}}
    for condition in pod["status"]["conditions"]:
        if "Ready" in condition["type"]:
            condition |= {"status": "False", "reason": "ContainersNotReady", "lastTransitionTime": since}
    pod["status"]["containerStatuses"][0]["ready"] = False
    made[0]["status"] |= {"readyReplicas": 0, "availableReplicas": 0, "unavailableReplicas": 1}
    return made


def _now(content: CaseContent) -> Any:
    given = content.incident
    return (
        moment(given.get("received_time"))
        or moment(given.get("firing_time"))
        or moment("2026-11-01T00:00:00Z")
    )


def _node(content: CaseContent) -> str:
    """The node of a pod that runs: it takes some more without requests."""
    used = (
        p["spec"].get("nodeName") for p in content.of("Pod") if p.get("status", {}).get("phase") == "Running"
    )
    return next(filter(None, used), "worker-x")


def _object(api_version: str, kind: str, name: str, namespace: str, made: str) -> Manifest:
    head = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{kind}-{name}",
        "creationTimestamp": made,
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": head}


def _container(name: str) -> dict[str, Any]:
    return {"name": "main", "image": f"registry.example.com/{name}:4.2.0", "ports": [{"containerPort": 8080}]}


def _pod(name: str, namespace: str, node: str, made: str, owner: Manifest) -> Manifest:
    by = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": owner["metadata"]["uid"],
    }
    pod = _object("v1", "Pod", name, namespace, made) | {
        "spec": {"nodeName": node, "containers": [_container(name)]}
    }
    pod["metadata"]["ownerReferences"] = [{**by, "controller": True}]
    return pod


def _healthy(name: str, namespace: str, node: str, content: CaseContent) -> list[Manifest]:
    """A Deployment with everything that belongs to it, well for a month; the pod is the last one."""
    made = stamp(_now(content) - timedelta(days=30))
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [_container(name)]}}
    counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), 1)
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    deployment = _object("apps/v1", "Deployment", name, namespace, made) | {
        "spec": spec,
        "status": dict(counts),
    }
    replica_set = _object("apps/v1", "ReplicaSet", f"{name}-5f6c9", namespace, made)
    replica_set |= {"spec": copy.deepcopy(spec), "status": dict(counts)}
    replica_set["metadata"] |= {
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": deployment["metadata"]["uid"], "controller": True}],
        "annotations": {"deployment.kubernetes.io/revision": "1"},
    }  # fmt: skip
    service = _object("v1", "Service", name, namespace, made)
    service["spec"] = {"selector": labels, "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]}
    pod = _pod(f"{name}-5f6c9-w7t4c", namespace, node, made, replica_set)
    pod["metadata"]["labels"] = {**labels, UNIQUE: "5f6c9"}
    conditions = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    pod["status"] = {
        "phase": "Running",
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": made} for kind in conditions],
        "containerStatuses": [
            {"name": "main", "ready": True, "started": True, "restartCount": 0, "state": {"running": {"startedAt": made}}}
        ],
    }  # fmt: skip
    recent = stamp(_now(content) - timedelta(minutes=20))
    event = {
        "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "Unhealthy", "count": 1, "firstTimestamp": recent,
        "lastTimestamp": recent, "message": 'Readiness probe failed: Get "http://10.1.2.3:8080/": context deadline exceeded',
        "metadata": {"name": f"{name_of(pod)}.1", "namespace": namespace_of(pod)},
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "name": name_of(pod), "namespace": namespace_of(pod)},
    }  # fmt: skip
    return [deployment, replica_set, service, event, pod]
