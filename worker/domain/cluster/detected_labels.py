"""Detected labels: characteristics of the target and of its owners, read from the cluster (DD-WORKFLOW-001).

Detections are independent. One that fails is named in `failed_detections`: unknown is not false. Marks of
GitOps tools and Helm sit on the top object, so the whole owner chain is looked at (Argo CD resource tracking,
Flux ownership labels, Helm's own release annotations).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from schemas.enrichment import DETECTED_LABELS, DetectedLabels, camel_case
from worker.domain.cluster.fields import dig, mapping, mappings, meta, name_of, pod_template, strings, text
from worker.domain.cluster.owners import OwnerChain
from worker.domain.cluster.references import references_of, selects
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import ClusterError, ClusterReason, or_none
from worker.domain.values.objects import ListQuery, Manifest, ObjectRef
from worker.domain.values.ports import Cluster

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
UNKNOWN_LABELS = DetectedLabels(failed_detections=tuple(camel_case(name) for name in DETECTED_LABELS))
"""Used if the cluster gave no answer: every label is unknown, none is false."""


@dataclass(frozen=True, slots=True)
class DetectionTarget:
    """The owner chain, and one pod of it, or the pod template if there is no pod."""

    cluster: Cluster
    chain: OwnerChain
    pod_meta: Mapping[str, Any]
    pod_spec: Mapping[str, Any]

    @property
    def namespace(self) -> str:
        """The namespace of the target, empty for cluster scope."""
        return self.chain.start.namespace

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the pod."""
        return strings(self.pod_meta.get("labels"))

    @property
    def read(self) -> list[Manifest]:
        """The members of the chain that could be read."""
        return [m for m in self.chain.manifests if m is not None]


async def detect_labels(cluster: Cluster, chain: OwnerChain, pod: Manifest | None = None) -> DetectedLabels:
    """Every label of the target at the start of the chain. `pod` is one of its pods, if one is known.

    Never raises ClusterError. When the target itself could not be read, every detection has failed.
    """
    if chain.manifests[0] is None:
        return UNKNOWN_LABELS
    subject = _subject(cluster, chain, pod)
    outcomes = await concurrently([_attempt(name, subject) for name in DETECTIONS])
    found: dict[str, Any] = {
        name: outcome for name, outcome in zip(DETECTIONS, outcomes, strict=True) if outcome is not None
    }
    failed = [name for name in DETECTIONS if name not in found]
    if not chain.complete:
        failed += [name for name in FROM_THE_CHAIN if not found.get(name)]
    return DetectedLabels(
        **found, failed_detections=tuple(dict.fromkeys(camel_case(name) for name in failed))
    )


async def _attempt(name: str, subject: DetectionTarget) -> str | bool | None:
    if any(ref.kind == BY_KIND.get(name) for ref in subject.chain.chain):
        return True
    return await or_none(DETECTIONS[name](subject))


def _subject(cluster: Cluster, chain: OwnerChain, pod: Manifest | None) -> DetectionTarget:
    if pod is None and chain.start.kind == "Pod":
        pod = chain.manifests[0]
    if pod is not None:
        return DetectionTarget(cluster, chain, meta(pod), mapping(pod.get("spec")))
    templates = [pod_template(m) for m in chain.manifests if m is not None]
    template = next((t for t in templates if t), {})
    return DetectionTarget(cluster, chain, mapping(template.get("metadata")), mapping(template.get("spec")))


def _marked(subject: DetectionTarget, field: str, key: str) -> bool:
    holders = [meta(m) for m in subject.read] + [mapping(subject.pod_meta)]
    return any(key in strings(holder.get(field)) for holder in holders)


async def _gitops_tool(subject: DetectionTarget) -> str:
    if _marked(subject, "annotations", ARGO_ANNOTATION) or _marked(subject, "labels", ARGO_LABEL):
        return "argocd"
    return "flux" if any(_marked(subject, "labels", key) for key in FLUX_LABELS) else ""


async def _gitops_managed(subject: DetectionTarget) -> bool:
    return bool(await _gitops_tool(subject))


async def _helm_managed(subject: DetectionTarget) -> bool:
    by_helm = any(strings(meta(m).get("labels")).get(HELM_LABEL) == "Helm" for m in subject.read)
    marked = _marked(subject, "annotations", HELM_ANNOTATION) or _marked(subject, "labels", HELM_CHART)
    return by_helm or marked


async def _selected(subject: DetectionTarget, *, kind: str, field: str) -> bool:
    """True if an object of the kind selects the pods by this field of its spec."""
    policies = await _policies(kind, subject)
    return bool(subject.pod_spec) and any(selects(dig(p, "spec", field), subject.labels) for p in policies)


async def _hpa_enabled(subject: DetectionTarget) -> bool:
    scalers = await _policies("HorizontalPodAutoscaler", subject)
    targets = [mapping(dig(s, "spec", "scaleTargetRef")) for s in scalers]
    return any(_is_target(target, ref) for target in targets for ref in subject.chain.chain)


def _is_target(target: Mapping[str, Any], ref: ObjectRef) -> bool:
    """Same group, kind and name; the version may differ (`apps/v1`, `apps/v1beta1`)."""
    group, other = (v.rpartition("/")[0] for v in (text(target.get("apiVersion")), ref.api_version))
    same_group = group == other or not target.get("apiVersion") or not ref.api_version
    return same_group and target.get("kind") == ref.kind and target.get("name") == ref.name


async def _stateful(subject: DetectionTarget) -> bool:
    if subject.chain.start.kind in {"PersistentVolumeClaim", "PersistentVolume"}:
        return await _claim_of_stateful_set(subject)
    volumes = mappings(subject.pod_spec.get("volumes"))
    return any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in volumes)


async def _claim_of_stateful_set(subject: DetectionTarget) -> bool:
    """A claim made from a template is named `<template>-<set>-<ordinal>` (Kubernetes API, StatefulSet)."""
    name = subject.chain.start.name
    if subject.chain.start.kind == "PersistentVolume":
        return True
    sets = await _policies("StatefulSet", subject)
    for found in sets:
        for template in mappings(dig(found, "spec", "volumeClaimTemplates")):
            stem = f"{text(meta(template).get('name'))}-{text(meta(found).get('name'))}-"
            if name.startswith(stem) and name[len(stem) :].isdigit():
                return True
    pods = await _policies("Pod", subject)
    return any(name in references_of(mapping(pod.get("spec")), name_of(pod)).claims for pod in pods)


async def _resource_quota_constrained(subject: DetectionTarget) -> bool:
    return bool(await _policies("ResourceQuota", subject))


async def _pod_security_level(subject: DetectionTarget) -> str:
    level = strings(meta(await _namespace(subject)).get("labels")).get(POD_SECURITY, "")
    return level if level in SECURITY_LEVELS else ""


async def _service_mesh(subject: DetectionTarget) -> str:
    containers = mappings(subject.pod_spec.get("containers")) + mappings(
        subject.pod_spec.get("initContainers")
    )
    for container in containers:
        if mesh := MESH_CONTAINERS.get(text(container.get("name"))):
            return mesh
    annotations, labels = strings(subject.pod_meta.get("annotations")), subject.labels
    if (
        "sidecar.istio.io/status" in annotations
        or annotations.get("ambient.istio.io/redirection") == "enabled"
    ):
        return "istio"
    if "linkerd.io/proxy-version" in annotations or "linkerd.io/control-plane-ns" in labels:
        return "linkerd"
    return await _intended_mesh(subject, annotations)


async def _intended_mesh(subject: DetectionTarget, annotations: Mapping[str, str]) -> str:
    """The service mesh that the pods should join. A pod may opt out of the mesh of its namespace."""
    if not subject.pod_spec:
        return ""
    labels, found = subject.labels, meta(await _namespace(subject))
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


async def _policies(kind: str, subject: DetectionTarget) -> list[Manifest]:
    """All objects of a kind in the namespace of the target. A kind the cluster does not know has none.

    Raises ClusterError, also if the list is incomplete: a missing object could be the one that matters.
    """
    if not subject.namespace:
        return []
    try:
        listing = await subject.cluster.list(ListQuery(kind, subject.namespace))
    except ClusterError as error:
        if error.reason is ClusterReason.UNKNOWN_KIND:
            return []
        raise
    if not listing.complete:
        raise ClusterError(ClusterReason.UNAVAILABLE, f"more {kind} objects than were read")
    return list(listing.items)


async def _namespace(subject: DetectionTarget) -> Manifest:
    name = subject.chain.start.home
    return await subject.cluster.get(ObjectRef("Namespace", name)) if name else {}


DETECTIONS: dict[str, Callable[[DetectionTarget], Awaitable[str | bool]]] = {
    "gitops_managed": _gitops_managed,
    "gitops_tool": _gitops_tool,
    "pdb_protected": partial(_selected, kind="PodDisruptionBudget", field="selector"),
    "hpa_enabled": _hpa_enabled,
    "stateful": _stateful,
    "helm_managed": _helm_managed,
    "network_isolated": partial(_selected, kind="NetworkPolicy", field="podSelector"),
    "pod_security_level": _pod_security_level,
    "service_mesh": _service_mesh,
    "resource_quota_constrained": _resource_quota_constrained,
}
BY_KIND = {
    "pdb_protected": "PodDisruptionBudget",
    "hpa_enabled": "HorizontalPodAutoscaler",
    "stateful": "StatefulSet",
    "network_isolated": "NetworkPolicy",
}
"""Labels that are true if the target or an owner is of this kind."""
FROM_THE_CHAIN = ("gitops_managed", "gitops_tool", "hpa_enabled", "helm_managed", "stateful")
"""Labels that a member of the chain could carry: unknown if one could not be read, unless found elsewhere."""
