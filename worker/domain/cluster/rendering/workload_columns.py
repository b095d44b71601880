"""Table columns of Pods and workloads, and when one of them is unhealthy (Kubernetes API, apps/v1, batch/v1)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from worker.domain.cluster.fields import age, dig, mapping, mappings, meta, owner_of, sequence, text, whole
from worker.domain.cluster.pods import pod_ready, pod_reason, pod_restarts, pod_status
from worker.domain.cluster.rendering.columns import bad_conditions, conditions
from worker.domain.values.objects import Manifest

REVISION = "deployment.kubernetes.io/revision"


def pod(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a Pod."""
    ready, total = pod_ready(item)
    return {
        "READY": f"{ready}/{total}",
        "STATUS": pod_status(item),
        "RESTARTS": str(pod_restarts(item)),
        "REASON": pod_reason(item),
        "NODE": text(dig(item, "spec", "nodeName")),
        "OWNER": owner(item),
    }


def owner(item: Manifest) -> str:
    """The controller as `ReplicaSet/api-7d9`; without a controller, the first other owner."""
    found = owner_of(item)
    return f"{text(found.get('kind'))}/{text(found.get('name'))}" if found else ""


def images(item: Manifest) -> str:
    """Images of the containers in a template."""
    found = mappings(dig(item, "spec", "template", "spec", "containers"))
    return ", ".join(text(c.get("image")) for c in found)


def _troubled(item: Manifest) -> str:
    return ", ".join(conditions(bad_conditions(item)))


def _count(item: Manifest, *path: str) -> int:
    return whole(dig(item, *path))


def _desired(item: Manifest) -> int:
    """Replicas wanted; one when the field is absent, as the API defaults it."""
    value = dig(item, "spec", "replicas")
    return 1 if value is None else whole(value)


def deployment(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a Deployment."""
    return {
        "READY/DESIRED": f"{_count(item, 'status', 'readyReplicas')}/{_desired(item)}",
        "UPDATED": str(_count(item, "status", "updatedReplicas")),
        "IMAGES": images(item),
        "REVISION": text(mapping(meta(item).get("annotations")).get(REVISION)),
        "CONDITIONS": _troubled(item),
    }


def replica_set(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a ReplicaSet or ReplicationController."""
    return {
        "READY/DESIRED": f"{_count(item, 'status', 'readyReplicas')}/{_desired(item)}",
        "IMAGES": images(item),
        "REVISION": text(mapping(meta(item).get("annotations")).get(REVISION)),
        "OWNER": owner(item),
        "CONDITIONS": _troubled(item),
    }


def stateful_set(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a StatefulSet."""
    claims = [text(meta(c).get("name")) for c in mappings(dig(item, "spec", "volumeClaimTemplates"))]
    return {
        "READY/DESIRED": f"{_count(item, 'status', 'readyReplicas')}/{_desired(item)}",
        "IMAGES": images(item),
        "REVISION": text(dig(item, "status", "updateRevision")),
        "CLAIMS": ", ".join(claims),
    }


def daemon_set(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a DaemonSet."""
    return {
        "READY/DESIRED": f"{_count(item, 'status', 'numberReady')}/{_count(item, 'status', 'desiredNumberScheduled')}",
        "UPDATED": str(_count(item, "status", "updatedNumberScheduled")),
        "IMAGES": images(item),
        "REVISION": str(_count(item, "metadata", "generation")),
    }


def job(item: Manifest, _now: datetime) -> dict[str, str]:
    """Columns of a Job."""
    ended = [
        c for c in mappings(dig(item, "status", "conditions"))
        if text(c.get("type")) in {"Failed", "Complete", "FailureTarget", "Suspended"} and c.get("status") == "True"
    ]  # fmt: skip
    wanted = dig(item, "spec", "completions")
    return {
        "STATUS": text(ended[0].get("type")) if ended else "Running",
        "COMPLETIONS": f"{_count(item, 'status', 'succeeded')}/{whole(wanted) if wanted is not None else 1}",
        "FAILED": f"{_count(item, 'status', 'failed')} (backoffLimit {text(dig(item, 'spec', 'backoffLimit')) or 6})",
        "REASON": ": ".join(p for p in (_part(ended, "reason"), _part(ended, "message")) if p),
        "IMAGES": images(item),
        "OWNER": owner(item),
    }


def _part(found: list[dict[str, Any]], field: str) -> str:
    return text(found[0].get(field)) if found else ""


def cron_job(item: Manifest, now: datetime) -> dict[str, str]:
    """Columns of a CronJob."""
    return {
        "SCHEDULE": text(dig(item, "spec", "schedule")),
        "SUSPEND": text(dig(item, "spec", "suspend")) or "false",
        "ACTIVE": str(len(sequence(dig(item, "status", "active")))),
        "LAST SCHEDULE": age(dig(item, "status", "lastScheduleTime"), now),
        "LAST SUCCESS": age(dig(item, "status", "lastSuccessfulTime"), now),
    }


def _short_of_replicas(item: Manifest) -> bool:
    ready, wanted = _count(item, "status", "readyReplicas"), _desired(item)
    return ready < wanted or bool(bad_conditions(item))


def _short_of_daemons(item: Manifest) -> bool:
    return _count(item, "status", "numberReady") < _count(item, "status", "desiredNumberScheduled")


def _failed_job(item: Manifest) -> bool:
    if bad_conditions(item):
        return True
    return _count(item, "status", "failed") > 0 and not _count(item, "status", "succeeded")


COLUMNS: dict[str, Callable[[Manifest, datetime], dict[str, str]]] = {
    "Pod": pod,
    "Deployment": deployment,
    "ReplicaSet": replica_set,
    "ReplicationController": replica_set,
    "StatefulSet": stateful_set,
    "DaemonSet": daemon_set,
    "Job": job,
    "CronJob": cron_job,
}
UNHEALTHY: dict[str, Callable[[Manifest], bool]] = {
    "Deployment": _short_of_replicas,
    "ReplicaSet": _short_of_replicas,
    "ReplicationController": _short_of_replicas,
    "StatefulSet": _short_of_replicas,
    "DaemonSet": _short_of_daemons,
    "Job": _failed_job,
}
