"""Detected labels: characteristics of the target and of its owners, read from the cluster (DD-WORKFLOW-001).

Detections are independent. One that fails is named in `failed_detections`: unknown is not false. Marks of
GitOps tools and Helm sit on the top object, so the whole owner chain is looked at (Argo CD resource tracking,
Flux ownership labels, Helm's own release annotations).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.enrichment import DETECTED_LABELS, DetectedLabels, camel_case
from worker.domain.cluster.fields import dig, mapping, mappings, meta, name_of, pod_template, strings, text
from worker.domain.cluster.owners import OwnerChain
from worker.domain.cluster.references import references_of, selects
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import ListQuery, Manifest, ObjectRef
from worker.domain.values.ports import Cluster
from worker.domain.values.together import together

ARGO_ANNOTATION = "argocd.argoproj.io/tracking-id"
ARGO_LABEL = "argocd.argoproj.io/instance"
FLUX_LABELS = (
    "kustomize.toolkit.fluxcd.io/name",
    "helm.toolkit.fluxcd.io/name",
    "resourceset.fluxcd.controlplane.io/name",
)
HELM_LABEL, HELM_ANNOTATION, HELM_CHART = (
    "app.kubernetes.io/managed-by",
    "meta.helm.sh/release-name",
    "helm.sh/chart",
)
POD_SECURITY = "pod-security.kubernetes.io/enforce"
SECURITY_LEVELS = {"privileged", "baseline", "restricted"}
MESH_CONTAINERS = {"istio-proxy": "istio", "linkerd-proxy": "linkerd"}


@dataclass(frozen=True, slots=True)
class DetectionTarget:
    """The owner chain, and one pod of it, or the pod template if there is no pod."""

    chain: OwnerChain
    pod_meta: Mapping[str, Any]
    pod_spec: Mapping[str, Any]

    @property
    def namespace(self) -> str:
        """The namespace of the target, empty for cluster scope."""
        return self.chain.start.namespace

    @property
    def read(self) -> list[Manifest]:
        """The members of the chain that could be read."""
        return [m for m in self.chain.manifests if m is not None]


async def detect_labels(cluster: Cluster, chain: OwnerChain, pod: Manifest | None = None) -> DetectedLabels:
    """Every label of the target at the start of the chain. `pod` is one of its pods, if one is known.

    Never raises ClusterError. When the target itself could not be read, every detection has failed.
    """
    if chain.manifests[0] is None:
        return DetectedLabels(failed_detections=tuple(camel_case(name) for name in DETECTED_LABELS))
    subject = _subject(chain, pod)
    names = list(DETECTIONS)
    outcomes = await together([_attempt(DETECTIONS[name], cluster, subject) for name in names])
    found: dict[str, Any] = {}
    failed: list[str] = []
    for name, outcome in zip(names, outcomes, strict=True):
        if outcome is None:
            failed.append(name)
        else:
            found[name] = outcome
    if not chain.complete:
        failed += [name for name in FROM_THE_CHAIN if not found.get(name)]
    return DetectedLabels(
        **found, failed_detections=tuple(dict.fromkeys(camel_case(name) for name in failed))
    )


async def _attempt(
    detection: Callable[[Cluster, DetectionTarget], Awaitable[str | bool]],
    cluster: Cluster,
    subject: DetectionTarget,
) -> str | bool | None:
    try:
        return await detection(cluster, subject)
    except ClusterError:
        return None


def _subject(chain: OwnerChain, pod: Manifest | None) -> DetectionTarget:
    if pod is None and chain.start.kind == "Pod":
        pod = chain.manifests[0]
    if pod is not None:
        return DetectionTarget(chain, meta(pod), mapping(pod.get("spec")))
    templates = [pod_template(m) for m in chain.manifests if m is not None]
    template = next((t for t in templates if t), {})
    return DetectionTarget(chain, mapping(template.get("metadata")), mapping(template.get("spec")))


def _marked(subject: DetectionTarget, field: str, key: str) -> bool:
    holders = [meta(m) for m in subject.read] + [mapping(subject.pod_meta)]
    return any(key in strings(holder.get(field)) for holder in holders)


async def _gitops_tool(_cluster: Cluster, subject: DetectionTarget) -> str:
    if _marked(subject, "annotations", ARGO_ANNOTATION) or _marked(subject, "labels", ARGO_LABEL):
        return "argocd"
    return "flux" if any(_marked(subject, "labels", key) for key in FLUX_LABELS) else ""


async def _gitops_managed(cluster: Cluster, subject: DetectionTarget) -> bool:
    return bool(await _gitops_tool(cluster, subject))


async def _helm_managed(_cluster: Cluster, subject: DetectionTarget) -> bool:
    by_helm = any(strings(meta(m).get("labels")).get(HELM_LABEL) == "Helm" for m in subject.read)
    return (
        by_helm or _marked(subject, "annotations", HELM_ANNOTATION) or _marked(subject, "labels", HELM_CHART)
    )


async def _pdb_protected(cluster: Cluster, subject: DetectionTarget) -> bool:
    if any(ref.kind == "PodDisruptionBudget" for ref in subject.chain.chain):
        return True
    budgets = await _policies(cluster, "PodDisruptionBudget", subject)
    labels = strings(subject.pod_meta.get("labels"))
    return any(selects(dig(b, "spec", "selector"), labels) for b in budgets) if _has_pods(subject) else False


async def _hpa_enabled(cluster: Cluster, subject: DetectionTarget) -> bool:
    if any(ref.kind == "HorizontalPodAutoscaler" for ref in subject.chain.chain):
        return True
    scalers = await _policies(cluster, "HorizontalPodAutoscaler", subject)
    targets = [mapping(dig(s, "spec", "scaleTargetRef")) for s in scalers]
    return any(_is_target(target, ref) for target in targets for ref in subject.chain.chain)


def _is_target(target: Mapping[str, Any], ref: ObjectRef) -> bool:
    """Same group, kind and name; the version may differ (`apps/v1`, `apps/v1beta1`)."""
    group, other = (v.rpartition("/")[0] for v in (text(target.get("apiVersion")), ref.api_version))
    same_group = group == other or not target.get("apiVersion") or not ref.api_version
    return same_group and target.get("kind") == ref.kind and target.get("name") == ref.name


async def _stateful(cluster: Cluster, subject: DetectionTarget) -> bool:
    if any(ref.kind == "StatefulSet" for ref in subject.chain.chain):
        return True
    if subject.chain.start.kind in {"PersistentVolumeClaim", "PersistentVolume"}:
        return await _claim_of_stateful_set(cluster, subject)
    volumes = mappings(subject.pod_spec.get("volumes"))
    return any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in volumes)


async def _claim_of_stateful_set(cluster: Cluster, subject: DetectionTarget) -> bool:
    """A claim made from a template is named `<template>-<set>-<ordinal>` (Kubernetes API, StatefulSet)."""
    name = subject.chain.start.name
    if subject.chain.start.kind == "PersistentVolume":
        return True
    sets = await _policies(cluster, "StatefulSet", subject)
    for found in sets:
        for template in mappings(dig(found, "spec", "volumeClaimTemplates")):
            stem = f"{text(meta(template).get('name'))}-{text(meta(found).get('name'))}-"
            if name.startswith(stem) and name[len(stem) :].isdigit():
                return True
    pods = await _policies(cluster, "Pod", subject)
    return any(name in references_of(mapping(pod.get("spec")), name_of(pod)).claims for pod in pods)


async def _network_isolated(cluster: Cluster, subject: DetectionTarget) -> bool:
    if any(ref.kind == "NetworkPolicy" for ref in subject.chain.chain):
        return True
    policies = await _policies(cluster, "NetworkPolicy", subject)
    labels = strings(subject.pod_meta.get("labels"))
    return (
        any(selects(dig(p, "spec", "podSelector"), labels) for p in policies) if _has_pods(subject) else False
    )


async def _resource_quota_constrained(cluster: Cluster, subject: DetectionTarget) -> bool:
    return bool(await _policies(cluster, "ResourceQuota", subject))


async def _pod_security_level(cluster: Cluster, subject: DetectionTarget) -> str:
    level = strings(meta(await _namespace(cluster, subject)).get("labels")).get(POD_SECURITY, "")
    return level if level in SECURITY_LEVELS else ""


async def _service_mesh(cluster: Cluster, subject: DetectionTarget) -> str:
    containers = mappings(subject.pod_spec.get("containers")) + mappings(
        subject.pod_spec.get("initContainers")
    )
    for container in containers:
        if mesh := MESH_CONTAINERS.get(text(container.get("name"))):
            return mesh
    annotations, labels = (
        strings(subject.pod_meta.get("annotations")),
        strings(subject.pod_meta.get("labels")),
    )
    if (
        "sidecar.istio.io/status" in annotations
        or annotations.get("ambient.istio.io/redirection") == "enabled"
    ):
        return "istio"
    if "linkerd.io/proxy-version" in annotations or "linkerd.io/control-plane-ns" in labels:
        return "linkerd"
    return await _intended_mesh(cluster, subject, annotations, labels)


async def _intended_mesh(
    cluster: Cluster, subject: DetectionTarget, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> str:
    """The service mesh that the pods should join. A pod may opt out of the mesh of its namespace."""
    if not _has_pods(subject):
        return ""
    found = meta(await _namespace(cluster, subject))
    around, notes = strings(found.get("labels")), strings(found.get("annotations"))
    if "false" in {labels.get("sidecar.istio.io/inject"), annotations.get("sidecar.istio.io/inject")}:
        return ""
    ambient = labels.get("istio.io/dataplane-mode", around.get("istio.io/dataplane-mode")) == "ambient"
    if ambient or around.get("istio-injection") == "enabled" or "istio.io/rev" in around:
        return "istio"
    if labels.get("sidecar.istio.io/inject") == "true":
        return "istio"
    wanted = annotations.get("linkerd.io/inject", notes.get("linkerd.io/inject", ""))
    return "linkerd" if wanted in {"enabled", "ingress"} else ""


def _has_pods(subject: DetectionTarget) -> bool:
    return bool(subject.pod_spec)


async def _policies(cluster: Cluster, kind: str, subject: DetectionTarget) -> list[Manifest]:
    """All objects of a kind in the namespace of the target. A kind the cluster does not know has none.

    Raises ClusterError, also if the list is incomplete: a missing object could be the one that matters.
    """
    if not subject.namespace:
        return []
    try:
        listing = await cluster.list(ListQuery(kind, subject.namespace))
    except ClusterError as error:
        if error.reason is ClusterReason.UNKNOWN_KIND:
            return []
        raise
    if not listing.complete:
        raise ClusterError(ClusterReason.UNAVAILABLE, f"more {kind} objects than were read")
    return list(listing.items)


async def _namespace(cluster: Cluster, subject: DetectionTarget) -> Manifest:
    name = subject.chain.start.home
    return await cluster.get(ObjectRef("Namespace", name)) if name else {}


DETECTIONS: dict[str, Callable[[Cluster, DetectionTarget], Awaitable[str | bool]]] = {
    "gitops_managed": _gitops_managed,
    "gitops_tool": _gitops_tool,
    "pdb_protected": _pdb_protected,
    "hpa_enabled": _hpa_enabled,
    "stateful": _stateful,
    "helm_managed": _helm_managed,
    "network_isolated": _network_isolated,
    "pod_security_level": _pod_security_level,
    "service_mesh": _service_mesh,
    "resource_quota_constrained": _resource_quota_constrained,
}
FROM_THE_CHAIN = ("gitops_managed", "gitops_tool", "hpa_enabled", "helm_managed", "stateful")
"""Labels that a member of the chain could carry: unknown if one could not be read, unless found elsewhere."""
