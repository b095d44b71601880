"""Small Kubernetes objects for tests, written as the API returns them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from worker.domain.values.objects import Manifest

NOW = datetime(2026, 6, 4, 15, 30, tzinfo=UTC)
BORN = "2026-06-04T14:30:00Z"


def obj(kind: str, name: str, namespace: str = "shop", api_version: str = "v1", **fields: Any) -> Manifest:
    """An object of any kind. `owner`, `labels` and `annotations` go into its metadata."""
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{kind}-{name}", "creationTimestamp": BORN}
    if namespace:
        metadata["namespace"] = namespace
    if owner := fields.pop("owner", None):
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
    for key in ("labels", "annotations", "managedFields", "uid", "creationTimestamp"):
        if key in fields:
            metadata[key] = fields.pop(key)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def pod(name: str, *, status: dict[str, Any] | None = None, **fields: Any) -> Manifest:
    """A pod with one container `app`; a status makes it whatever it should be."""
    spec = {"containers": [{"name": "app", "image": "shop/app:1"}], "nodeName": "node-1"}
    return obj("Pod", name, spec=fields.pop("spec", spec), status=status or running(), **fields)


def running(restarts: int = 0) -> dict[str, Any]:
    """The status of a pod in good health."""
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "app",
                "ready": True,
                "restartCount": restarts,
                "state": {"running": {"startedAt": BORN}},
            }
        ],
    }


def crashing(reason: str = "Error", code: int = 1, restarts: int = 5) -> dict[str, Any]:
    """The status of a pod whose container crashes again and again."""
    ended = {"reason": reason, "exitCode": code, "finishedAt": "2026-06-04T15:29:00Z"}
    return {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "unready: [app]"}
        ],
        "containerStatuses": [
            {
                "name": "app",
                "ready": False,
                "restartCount": restarts,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}},
                "lastState": {"terminated": ended},
            }
        ],
    }


def deployment(name: str, image: str = "shop/app:1", **fields: Any) -> Manifest:
    """A Deployment with the label app=<name>."""
    return obj(
        "Deployment",
        name,
        api_version="apps/v1",
        spec={"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template(name, image)},
        status=fields.pop("status", {"readyReplicas": 1, "replicas": 1}),
        **fields,
    )


def template(name: str, image: str = "shop/app:1", **container: Any) -> dict[str, Any]:
    """A pod template with the label app=<name>."""
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "app", "image": image, **container}]},
    }


def replica_set(owner: Manifest, suffix: str, revision: int, **container: Any) -> Manifest:
    """A revision of a Deployment."""
    name = owner["metadata"]["name"]
    return obj(
        "ReplicaSet",
        f"{name}-{suffix}",
        api_version="apps/v1",
        owner=owner,
        annotations={"deployment.kubernetes.io/revision": str(revision)},
        creationTimestamp=f"2026-06-0{revision}T10:00:00Z",
        spec={"replicas": 1, "template": template(name, **container)},
        status={"readyReplicas": 0},
    )


def event(about: Manifest, reason: str, message: str, **fields: Any) -> Manifest:
    """A core event about an object."""
    meta = about["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{meta['name']}.{reason}.{fields.pop('key', '1')}",
            "namespace": meta.get("namespace", "default"),
            "uid": fields.pop("uid", f"uid-event-{meta['name']}-{reason}-{message[:12]}"),
        },
        "type": fields.pop("type", "Warning"),
        "reason": reason,
        "message": message,
        "involvedObject": {
            "kind": about["kind"],
            "name": meta["name"],
            "namespace": meta.get("namespace", ""),
        },
        "firstTimestamp": fields.pop("first", "2026-06-04T15:00:00Z"),
        "lastTimestamp": fields.pop("last", "2026-06-04T15:20:00Z"),
        "count": fields.pop("count", 1),
        **fields,
    }
