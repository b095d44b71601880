"""Names of objects, as the analyst passes them around."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from worker.domain.values.objects import ObjectRef

CLUSTER_SCOPED = frozenset(
    {"node", "persistentvolume", "storageclass", "namespace", "clusterrole", "clusterrolebinding", "priorityclass",
     "validatingwebhookconfiguration", "mutatingwebhookconfiguration", "customresourcedefinition", "csidriver",
     "csinode", "ingressclass", "runtimeclass", "volumeattachment", "apiservice", "clusterissuer"}
)  # fmt: skip
API_VERSIONS = {
    "Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1",
    "Job": "batch/v1", "CronJob": "batch/v1", "PodDisruptionBudget": "policy/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2", "NetworkPolicy": "networking.k8s.io/v1",
    "Ingress": "networking.k8s.io/v1", "StorageClass": "storage.k8s.io/v1",
    "Pod": "v1", "Node": "v1", "Service": "v1", "ConfigMap": "v1", "Secret": "v1", "Namespace": "v1",
    "PersistentVolumeClaim": "v1", "PersistentVolume": "v1", "ResourceQuota": "v1", "LimitRange": "v1",
    "ServiceAccount": "v1", "Endpoints": "v1",
}  # fmt: skip
WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Rollout"})

Key = tuple[str, str, str]


def key_of(kind: str, name: str, namespace: str = "") -> Key:
    """How objects are found again: kind without case, and no namespace for kinds of the cluster."""
    lower = kind.lower()
    return lower, "" if lower in CLUSTER_SCOPED else namespace, name


def make_ref(kind: str, name: str, namespace: str = "", api_version: str = "") -> ObjectRef:
    """A reference with the api version filled in where the kind is a known one."""
    scoped = "" if kind.lower() in CLUSTER_SCOPED else namespace
    return ObjectRef(kind, name, scoped, api_version or API_VERSIONS.get(kind, ""))


def owners_of(manifest: dict[str, Any]) -> list[ObjectRef]:
    """Owners of an object, the controlling one first."""
    meta = as_dict(manifest.get("metadata"))
    found = [o for o in as_list(meta.get("ownerReferences")) if isinstance(o, dict)]
    found.sort(key=lambda o: not o.get("controller"))
    namespace = str(meta.get("namespace") or "")
    return [
        make_ref(
            str(o.get("kind") or ""), str(o.get("name") or ""), namespace, str(o.get("apiVersion") or "")
        )
        for o in found
    ]


def controller_of(manifest: dict[str, Any]) -> ObjectRef | None:
    """The owner that controls the object, if any."""
    owners = as_list(as_dict(manifest.get("metadata")).get("ownerReferences"))
    if any(isinstance(o, dict) and o.get("controller") for o in owners):
        return owners_of(manifest)[0]
    return None


def as_dict(value: object) -> dict[str, Any]:
    """The value when it is an object, else an empty one: manifests come from outside and may hold anything."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The value when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def dig(value: object, *path: str) -> Any:
    """A nested member, None where the path ends early."""
    for step in path:
        value = as_dict(value).get(step)
    return value


def unique(items: Iterable[str]) -> tuple[str, ...]:
    """Without repeats and empty ones, in order."""
    return tuple(dict.fromkeys(i for i in items if i))
