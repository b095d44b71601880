"""PersistentVolumeClaims: missing, unbound, without a class, in the wrong zone, on their way out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from worker.domain.cluster.quantities import quantity
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, dig, make_ref
from worker.sandbox.analyst.rules import drivers
from worker.sandbox.analyst.rules.case import Case, short
from worker.sandbox.analyst.rules.causes import seen_from
from worker.sandbox.analyst.shapes import annotations_of, condition, pod_spec, references

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
NO_CLASS = re.compile(r"storageclass[^\"]{0,24}\"([^\"]+)\" not found", re.IGNORECASE)
PROTECTED = "pvc-protection"
MAX_READ = 4
SYMPTOMS = ("PodPending", "FailedScheduling", "PVCPending")


def claims_of(pod: Manifest) -> list[ObjectRef]:
    """Claims a pod mounts; those of its ephemeral volumes are named after pod and volume (Kubernetes API)."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    names = [r.name for r in references(pod_spec(pod)) if r.kind == "PersistentVolumeClaim"]
    volumes = [v for v in as_list(pod_spec(pod).get("volumes")) if dig(v, "ephemeral")]
    names += [f"{dig(pod, 'metadata', 'name')}-{dig(v, 'name')}" for v in volumes]
    return [make_ref("PersistentVolumeClaim", name, namespace) for name in dict.fromkeys(names)]


def claim_finding(case: Case, claim: ObjectRef, workload: ObjectRef | None) -> Finding | None:
    """What is wrong with a claim; None when it is bound and usable, or not known yet."""
    facts = case.facts
    manifest = facts.of(claim)
    if manifest is None:
        if facts.absent(claim.kind, claim.name, claim.namespace):
            return _finding(
                claim,
                workload,
                f"{claim} does not exist (not found), so the pod that mounts it cannot start",
                0.86,
                {"claim_missing"},
            )
        return None
    if dig(manifest, "metadata", "deletionTimestamp"):
        return _leaving(facts, claim, workload, manifest)
    phase = dig(manifest, "status", "phase")
    if phase == "Lost":
        return _finding(
            claim,
            workload,
            f"{claim} is Lost: its volume {dig(manifest, 'spec', 'volumeName')} is gone",
            0.84,
            {"claim_missing", "claim_holds_data"},
        )
    return _pending(case, claim, workload, manifest) if phase == "Pending" else None


def _pending(case: Case, claim: ObjectRef, workload: ObjectRef | None, manifest: Manifest) -> Finding:
    facts = case.facts
    events = [
        e
        for e in reversed(facts.events_of(claim))
        if e.type == "Warning" or e.reason in {"FailedBinding", "WaitForFirstConsumer"}
    ]
    if not events:
        facts.ask_events(claim.namespace)
    class_name = str(dig(manifest, "spec", "storageClassName") or "")
    storage_class = facts.get("StorageClass", class_name) if class_name else None
    said = NO_CLASS.search(" ".join(e.message for e in events))
    if (class_name and facts.absent("StorageClass", class_name)) or said:
        known = ", ".join(r.get("NAME", "") for r in facts.rows("StorageClass")) or "none"
        told = f"{claim} is Pending: StorageClass {class_name or (said[1] if said else '')} does not exist (storage class not found; there are: {known})"
        return _finding(claim, workload, told, 0.9, {"claim_unbound", "storage_class_missing"})
    if not class_name and not _has_default(facts):
        return _finding(
            claim,
            workload,
            f"{claim} is Pending: it names no storage class and the cluster has no default one",
            0.84,
            {"claim_unbound", "storage_class_missing"},
        )
    reason = short(events[0].message) if events else "no event tells why"
    told = f"{claim} is Pending and unbound: {reason}"
    if storage_class is not None:
        told += f" (StorageClass {class_name}, provisioner {storage_class.get('provisioner')})"
    backend = any(e.reason == "ProvisioningFailed" for e in events)
    if storage_class is not None and any(e.reason == "ExternalProvisioning" for e in facts.events_of(claim)):
        agent = drivers.agent_finding(
            case, str(storage_class.get("provisioner") or ""), ("Deployment", "StatefulSet")
        )
        if agent is not None:
            return seen_from(agent, SYMPTOMS[0], workload, f"{told}.")
    return _finding(
        claim, workload, told, 0.72, {"claim_unbound"} | ({"storage_backend_down"} if backend else set())
    )


def resize_finding(case: Case, claim: ObjectRef) -> Finding | None:
    """A bound claim whose volume has not the size that is asked for."""
    manifest = case.facts.of(claim) or {}
    wanted = dig(manifest, "spec", "resources", "requests", "storage")
    present = dig(manifest, "status", "capacity", "storage")
    asked, got = quantity(wanted), quantity(present)
    if asked is None or got is None or asked <= got:
        return None
    warnings = [e for e in case.facts.events_of(claim) if e.type == "Warning"]
    pending = condition(manifest, "FileSystemResizePending")
    said = warnings[-1].message if warnings else str(pending.get("message") or "it is under way")
    told = f"{claim} asks for {wanted} and its volume has {present}: {short(said)}"
    finding = _finding(claim, None, told, 0.78 if warnings else 0.6, {"claim_holds_data"}, ())
    return replace(finding, symptoms=("VolumeResizeFailed",))


def _has_default(facts: Facts) -> bool:
    if any(annotations_of(c).get(DEFAULT_CLASS) == "true" for c in facts.objects("StorageClass")):
        return True
    return any(r.get("DEFAULT", "").lower() == "true" for r in facts.rows("StorageClass"))


def _leaving(facts: Facts, claim: ObjectRef, workload: ObjectRef | None, manifest: Manifest) -> Finding:
    held = ", ".join(map(str, as_list(dig(manifest, "metadata", "finalizers"))))
    told = f"{claim} was deleted at {dig(manifest, 'metadata', 'deletionTimestamp')} and waits for its finalizers ({held})"
    if PROTECTED in held:
        users = ", ".join(_users(facts, claim)) or "a pod"
        told += f": {users} still uses it, and {PROTECTED} keeps it as long"
    return _finding(
        claim, workload, told, 0.76, {"finalizer"}, (RemedyKind.REMOVE_FINALIZER, RemedyKind.RECREATE_CLAIM)
    )


def _users(facts: Facts, claim: ObjectRef) -> list[str]:
    """Pods that mount the claim, of those that are known or are few enough to be read."""
    for row in facts.rows("Pod", claim.namespace)[:MAX_READ]:
        facts.get("Pod", row.get("NAME", ""), claim.namespace)
    return [
        f"Pod {dig(p, 'metadata', 'name')}"
        for p in facts.objects("Pod", claim.namespace)
        if any(c.name == claim.name for c in claims_of(p))
    ]


def _finding(
    claim: ObjectRef, workload: ObjectRef | None, told: str, certainty: float, traits: Iterable[str],
    remedies: tuple[RemedyKind, ...] = (RemedyKind.RECREATE_CLAIM,),
) -> Finding:  # fmt: skip
    known = {"claim_unbound", "claim_missing", "storage_backend_down", "claim_holds_data"}
    return Finding(
        family="claim",
        summary=f"{told}.",
        target=claim,
        certainty=certainty,
        symptoms=SYMPTOMS,
        remedies=remedies,
        factors=(told,),
        workload=workload,
        traits=frozenset({*traits, "claims"}),
        denied=frozenset(
            {"oom", "volume_full", "insufficient_resources", "taint", "template_changed"}
            | (known - set(traits) - {"claim_unbound"})
        ),
        hints={"claim": claim.name},
    )


def zone_finding(case: Case, pod: Manifest, workload: ObjectRef | None, message: str) -> Finding | None:
    """A bound claim whose volume lies where no usable node is."""
    for claim in claims_of(pod):
        manifest = case.facts.of(claim)
        volume_name = str(dig(manifest or {}, "spec", "volumeName") or "")
        if not volume_name:
            continue
        volume = case.facts.get("PersistentVolume", volume_name)
        needs = affinity_told(volume or {})
        nodes = ", ".join(f"{r.get('NAME')} ({r.get('LABELS', '')})" for r in case.facts.rows("Node")[:6])
        told = f"{claim} is bound to volume {volume_name}, which can only be used where {needs or 'its node affinity allows'}; no node there is available"
        return Finding(
            family="zone",
            summary=f"{told} (volume node affinity conflict). The scheduler says: {short(message, 160)}.",
            target=claim,
            certainty=0.86 if needs else 0.78,
            symptoms=SYMPTOMS,
            factors=(told, f"nodes: {nodes}" if nodes else ""),
            workload=workload,
            traits=frozenset({"volume_zone", "affinity", "claim_holds_data", "claims"}),
            denied=frozenset(
                {
                    "oom",
                    "insufficient_resources",
                    "taint",
                    "claim_missing",
                    "claim_unbound",
                    "volume_full",
                    "template_changed",
                }
            ),
            hints={"claim": claim.name, "zone": _zone(volume or {})},
            warnings=("deleting the claim would lose its data",),
        )
    return None


def affinity_told(volume: Manifest) -> str:
    """The node affinity of a volume in words: `topology.kubernetes.io/zone In us-east-2a`."""
    terms = as_list(dig(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms"))
    parts = [
        f"{as_dict(e).get('key')} {as_dict(e).get('operator')} {'/'.join(map(str, as_list(as_dict(e).get('values'))))}"
        for term in terms
        for e in as_list(as_dict(term).get("matchExpressions"))
    ]
    return ", ".join(parts)


def _zone(volume: Manifest) -> str:
    match = re.search(r"zone In ([\w-]+)", affinity_told(volume))
    return match[1] if match else ""
