"""How people and models write kinds: short names of kubectl, plurals, `apps/v1/Deployment`, `deployments.apps`."""

from __future__ import annotations

import re

from worker.domain.values.objects import ObjectRef

SHORT_NAMES = {
    "cj": "CronJob",
    "cm": "ConfigMap",
    "crd": "CustomResourceDefinition",
    "deploy": "Deployment",
    "ds": "DaemonSet",
    "ep": "Endpoints",
    "ev": "Event",
    "hpa": "HorizontalPodAutoscaler",
    "ing": "Ingress",
    "limits": "LimitRange",
    "netpol": "NetworkPolicy",
    "no": "Node",
    "ns": "Namespace",
    "pdb": "PodDisruptionBudget",
    "po": "Pod",
    "pv": "PersistentVolume",
    "pvc": "PersistentVolumeClaim",
    "quota": "ResourceQuota",
    "rc": "ReplicationController",
    "rs": "ReplicaSet",
    "sa": "ServiceAccount",
    "sc": "StorageClass",
    "sts": "StatefulSet",
    "svc": "Service",
}
KINDS = (
    *SHORT_NAMES.values(),
    "ControllerRevision",
    "EndpointSlice",
    "IngressClass",
    "Job",
    "Lease",
    "PriorityClass",
    "Role",
    "RoleBinding",
    "Secret",
    "VolumeAttachment",
)
WORKLOADS = frozenset(
    ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob")
)
GROUPED = re.compile(r"^(?P<api>(?:[a-z0-9.-]+/)?v\d+[a-z0-9]*)/(?P<kind>[A-Za-z]+)$")
QUALIFIED = re.compile(r"^(?P<kind>[A-Za-z]+)\.(?P<group>[a-z0-9.-]+)$")
HASH, SUFFIX = r"(?=[a-z]*\d)[a-z0-9]{5,10}", r"[a-z0-9]{5}"


def _spellings() -> dict[str, str]:
    known = dict(SHORT_NAMES)
    for kind in KINDS:
        low = kind.lower()
        plurals = (f"{low}s", f"{low}es", f"{low[:-1]}ies" if low.endswith("y") else low)
        known |= dict.fromkeys((low, *plurals), kind)
    return known


SPELLINGS = _spellings()


def canonical_kind(kind: str) -> str:
    """A built-in kind in any spelling as the API spells it; other kinds are left as they are."""
    return SPELLINGS.get(kind.lower(), kind)


def split_kind(kind: str) -> tuple[str, str]:
    """(api version, kind) of `apps/v1/Deployment`; the API version is empty when the text does not hold one."""
    if found := GROUPED.match(kind):
        return found["api"], found["kind"]
    if found := QUALIFIED.match(kind):
        return "", found["kind"]
    return "", kind


def is_secret(kind: str) -> bool:
    """Whether the kind is the core kind Secret in any spelling."""
    return canonical_kind(split_kind(kind.strip())[1]) == "Secret"


def belongs_by_name(owner: ObjectRef, other: ObjectRef) -> bool:
    """Whether the other object has the name that controllers give to what they make for `owner`."""
    if owner.namespace != other.namespace or not other.name.startswith(f"{owner.name}-"):
        return False
    made = MADE_NAMES.get(owner.kind, {}).get(other.kind)
    return bool(made and re.fullmatch(made, other.name[len(owner.name) + 1 :]))


MADE_NAMES: dict[str, dict[str, str]] = {
    "Deployment": {"ReplicaSet": HASH, "Pod": f"{HASH}-{SUFFIX}"},
    "ReplicaSet": {"Pod": SUFFIX},
    "ReplicationController": {"Pod": SUFFIX},
    "DaemonSet": {"Pod": SUFFIX},
    "StatefulSet": {"Pod": r"\d+"},
    "Job": {"Pod": rf"(?:\d+-)?{SUFFIX}"},
    "CronJob": {"Job": r"\d+", "Pod": rf"\d+-{SUFFIX}"},
}
"""What controllers append to their own name (kube-controller-manager), by kind of owner and of what is made."""
