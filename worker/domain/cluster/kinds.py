"""The built-in kinds of Kubernetes, and the spellings of kinds by humans and models.

It has the short names of kubectl, plurals, scope, API versions, the kinds that run pods, the
names that controllers derive, and the kinds that keep revisions. On a real cluster, discovery decides about
scope and versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from worker.domain.values.objects import KindInfo, ObjectRef

API_RESOURCES: Mapping[str, tuple[str, ...]] = {
    "v1": (
        "componentstatuses* ComponentStatus cs",
        "configmaps ConfigMap cm",
        "endpoints Endpoints ep",
        "events Event ev",
        "limitranges LimitRange limits",
        "namespaces* Namespace ns",
        "nodes* Node no",
        "persistentvolumeclaims PersistentVolumeClaim pvc",
        "persistentvolumes* PersistentVolume pv",
        "pods Pod po",
        "podtemplates PodTemplate",
        "replicationcontrollers ReplicationController rc",
        "resourcequotas ResourceQuota quota",
        "secrets Secret",
        "serviceaccounts ServiceAccount sa",
        "services Service svc",
    ),
    "admissionregistration.k8s.io/v1": (
        "mutatingwebhookconfigurations* MutatingWebhookConfiguration",
        "validatingadmissionpolicies* ValidatingAdmissionPolicy",
        "validatingadmissionpolicybindings* ValidatingAdmissionPolicyBinding",
        "validatingwebhookconfigurations* ValidatingWebhookConfiguration",
    ),
    "apiextensions.k8s.io/v1": ("customresourcedefinitions* CustomResourceDefinition crd crds",),
    "apiregistration.k8s.io/v1": ("apiservices* APIService",),
    "apps/v1": (
        "controllerrevisions ControllerRevision",
        "daemonsets DaemonSet ds",
        "deployments Deployment deploy",
        "replicasets ReplicaSet rs",
        "statefulsets StatefulSet sts",
    ),
    "autoscaling/v2": ("horizontalpodautoscalers HorizontalPodAutoscaler hpa",),
    "autoscaling/v1": ("horizontalpodautoscalers HorizontalPodAutoscaler hpa",),
    "batch/v1": ("cronjobs CronJob cj", "jobs Job"),
    "certificates.k8s.io/v1": ("certificatesigningrequests* CertificateSigningRequest csr",),
    "coordination.k8s.io/v1": ("leases Lease",),
    "discovery.k8s.io/v1": ("endpointslices EndpointSlice",),
    "events.k8s.io/v1": ("events Event ev",),
    "flowcontrol.apiserver.k8s.io/v1": (
        "flowschemas* FlowSchema",
        "prioritylevelconfigurations* PriorityLevelConfiguration",
    ),
    "networking.k8s.io/v1": (
        "ingressclasses* IngressClass",
        "ingresses Ingress ing",
        "networkpolicies NetworkPolicy netpol",
    ),
    "node.k8s.io/v1": ("runtimeclasses* RuntimeClass",),
    "policy/v1": ("poddisruptionbudgets PodDisruptionBudget pdb",),
    "rbac.authorization.k8s.io/v1": (
        "clusterrolebindings* ClusterRoleBinding",
        "clusterroles* ClusterRole",
        "rolebindings RoleBinding",
        "roles Role",
    ),
    "scheduling.k8s.io/v1": ("priorityclasses* PriorityClass pc",),
    "storage.k8s.io/v1": (
        "csidrivers* CSIDriver",
        "csinodes* CSINode",
        "csistoragecapacities CSIStorageCapacity",
        "storageclasses* StorageClass sc",
        "volumeattachments* VolumeAttachment",
    ),
}
"""`plural Kind [short names]` by API version, as `kubectl api-resources` lists them; `*` marks cluster scope.

The API versions are stable in every supported release. Where two API versions serve a kind, the preferred one
is first.
"""
REVISIONS_KEPT_AS: Mapping[str, str] = {
    "Deployment": "ReplicaSet",
    "Rollout": "ReplicaSet",
    "StatefulSet": "ControllerRevision",
    "DaemonSet": "ControllerRevision",
}
"""The kind of the revisions of a workload, by its kind. A Rollout is Argo's Deployment."""
HASH, SUFFIX = r"(?=[a-z]*\d)[a-z0-9]{5,10}", r"[a-z0-9]{5}"
MADE_NAMES: Mapping[str, Mapping[str, str]] = {
    "Deployment": {"ReplicaSet": HASH, "Pod": f"{HASH}-{SUFFIX}"},
    "ReplicaSet": {"Pod": SUFFIX},
    "ReplicationController": {"Pod": SUFFIX},
    "DaemonSet": {"Pod": SUFFIX},
    "StatefulSet": {"Pod": r"\d+"},
    "Job": {"Pod": rf"(?:\d+-)?{SUFFIX}"},
    "CronJob": {"Job": r"\d+", "Pod": rf"\d+-{SUFFIX}"},
}
"""The suffixes that controllers append to names (kube-controller-manager), by the kinds of owner and made
object.
"""
WORKLOADS = frozenset(MADE_NAMES)
"""Kinds that run pods."""
GROUPED = re.compile(r"^(?P<api>(?:[a-z0-9.-]+/)?v\d+[a-z0-9]*)/(?P<kind>[A-Za-z]+)$")
QUALIFIED = re.compile(r"^(?P<kind>[A-Za-z]+)\.(?P<group>[a-z0-9.-]+)$")


def kinds_of(api_resources: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[KindInfo, tuple[str, ...]]]:
    """Each kind of a table like API_RESOURCES, with its short names."""
    for api_version, resources in api_resources.items():
        for line in resources:
            plural, kind, *short_names = line.split()
            info = KindInfo(kind, api_version, plural.rstrip("*"), namespaced=not plural.endswith("*"))
            yield info, tuple(short_names)


BUILT_IN: tuple[tuple[KindInfo, tuple[str, ...]], ...] = tuple(kinds_of(API_RESOURCES))
"""Each built-in kind of each API version, with its short names."""


def _by_name() -> dict[str, KindInfo]:
    known: dict[str, KindInfo] = {}
    for info, short_names in BUILT_IN:
        low = info.kind.lower()
        for name in (low, info.plural, *short_names, f"{low}s", f"{low}es"):
            known.setdefault(name, info)
            known.setdefault(f"{info.api_version}/{name}", info)
    return known


_BY_NAME = _by_name()
SPELLINGS: Mapping[str, str] = {name: info.kind for name, info in _BY_NAME.items() if "/" not in name}
"""Kinds as the API spells them, by every usual spelling in lower case."""
KINDS = frozenset(SPELLINGS.values())
API_VERSIONS: Mapping[str, str] = {info.kind: info.api_version for info, _ in reversed(BUILT_IN)}
"""The preferred API version of each built-in kind."""
CLUSTER_SCOPED = frozenset(info.kind for info, _ in BUILT_IN if not info.namespaced)


def built_in(name: str, api_version: str = "") -> KindInfo | None:
    """The built-in kind of a kind, plural or short name in lower case; None if the API version has none."""
    return _BY_NAME.get(f"{api_version}/{name}" if api_version else name)


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


def kind_named(text: str) -> str:
    """The kind that a text names, in any spelling, alone or with its API version or group."""
    return canonical_kind(split_kind(text.strip())[1])


def is_secret(kind: str) -> bool:
    """True if the kind is the core kind Secret in any spelling."""
    return kind_named(kind) == "Secret"


def belongs_by_name(owner: ObjectRef, other: ObjectRef) -> bool:
    """True if the other object has a name that controllers give to objects they make for `owner`."""
    if owner.namespace != other.namespace or not other.name.startswith(f"{owner.name}-"):
        return False
    made = MADE_NAMES.get(owner.kind, {}).get(other.kind)
    return bool(made and re.fullmatch(made, other.name[len(owner.name) + 1 :]))
