"""Claims and volumes."""

from __future__ import annotations

from collections.abc import Iterator

from worker.domain.cluster.conditions import holds
from worker.domain.cluster.fields import dig, mapping, mappings, meta, reference, sequence, text
from worker.domain.cluster.pods import containers
from worker.domain.diagnosis import scheduling
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, named, stated
from worker.domain.diagnosis.facts import ClusterFacts, Presence
from worker.domain.diagnosis.structure import ref_to, root_of
from worker.domain.values.objects import Manifest, ObjectRef

RESIZING = ("Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError")
MAKER = "csi-provisioner"  # the container that kubernetes-csi publishes for this
SIGNALS = ("PodPending", "FailedScheduling")


def size_of(claim: Manifest | None) -> str:
    """The size of a claim's volume, or what the claim asks for while it has none."""
    asked = text(dig(claim, "spec", "resources", "requests", "storage"))
    return text(dig(claim, "status", "capacity", "storage")) or asked


def claim_findings(
    facts: ClusterFacts, claim: ObjectRef, workload: ObjectRef | None = None, pod: Manifest | None = None
) -> Iterator[Diagnosis]:
    """Yield what is wrong with a claim."""
    also = (workload,) if workload else ()
    if facts.presence(claim) is Presence.ABSENT:
        yield _finding(claim, also, f"{claim} is not found", {Remedy.RECREATE_CLAIM})
        return
    manifest = facts.get(claim)
    if manifest is None:
        return
    phase = text(dig(manifest, "status", "phase"))
    if meta(manifest).get("deletionTimestamp"):
        pods = facts.list("Pod", claim.namespace).items
        users = [p for p in pods if named(claim) in map(named, scheduling.claims_of(p, claim.namespace))]
        who = f", still used by {reference(users[0])}" if users else ""
        told = f"{claim} is being deleted and kept by its finalizers{who}"
        yield stated(Cause.STUCK_DELETION, claim, told, (), SIGNALS, also)
    elif phase == "Lost":
        yield _finding(claim, also, f"{claim} is Lost: its volume is gone", {Remedy.RECREATE_CLAIM})
    elif phase == "Pending":
        yield from _pending(facts, claim, manifest, also)
    elif any(holds(manifest, kind) for kind in RESIZING):
        yield _finding(claim, also, f"the resize of {claim} does not finish", set())
    elif phase == "Bound":
        yield from _bound(facts, claim, also, pod)


def _pending(
    facts: ClusterFacts, claim: ObjectRef, manifest: Manifest, also: tuple[ObjectRef, ...]
) -> Iterator[Diagnosis]:
    name = text(dig(manifest, "spec", "storageClassName"))
    storage_class = ref_to("StorageClass", name)
    presence = facts.presence(storage_class) if name else Presence.UNKNOWN
    if not name and any(e.reason == "FailedBinding" for e in facts.events(claim.namespace, claim)):
        given = dig(manifest, "spec", "storageClassName") is not None
        why = "asks for none" if given else "names none, the cluster has no default"
        told = f"{claim} stays Pending without a StorageClass: it {why}, and no volume fits it"
        yield _finding(claim, also, told, set())  # the same claim would stay Pending again
    if name and presence is Presence.ABSENT:
        told = f"{claim} asks for StorageClass {name}, which does not exist"
        yield _finding(claim, (*also, storage_class), told, {Remedy.RECREATE_CLAIM})
        return
    if name and presence is Presence.PRESENT:
        provisioner = text(dig(facts.get(storage_class), "provisioner"))
        waits = scheduling.waits_for_pod(facts, manifest)
        if waits and not also:
            return
        listed = facts.list("PersistentVolume").items
        volumes = [v for v in listed if dig(v, "spec", "storageClassName") == name]
        left = (v for v in volumes if text(dig(v, "status", "phase")) in {"Released", "Failed"})
        extra = tuple(map(reference, left))
        failed = [e for e in facts.events(claim.namespace, claim) if e.reason == "ProvisioningFailed"]
        if provisioner == scheduling.STATIC or failed or (extra and not waits):
            told = f"{claim} stays Pending: no volume of class {name} is free or can be provisioned"
            yield _finding(claim, (*also, *extra), told, set())  # nor would another claim get one


def provisioners(facts: ClusterFacts, claim: ObjectRef) -> list[ObjectRef]:
    """The workload that should make the volume of a claim, if the only one of the cluster that does so fails."""
    waiting = dig(facts.get(claim), "status", "phase") == "Pending"
    told = waiting and any(e.reason == "ExternalProvisioning" for e in facts.events(claim.namespace, claim))
    listed = facts.list("Pod") if told else None
    if listed is None or not listed.complete:
        return []
    pods = [(p, c) for p in listed.items for c in containers(p) if c.name == MAKER]
    makers = {named(root): root for root in (root_of(facts, pod) for pod, _ in pods)}
    return list(makers.values()) if len(makers) == 1 and all(c.failing for _, c in pods) else []


def _bound(
    facts: ClusterFacts, claim: ObjectRef, also: tuple[ObjectRef, ...], pod: Manifest | None
) -> Iterator[Diagnosis]:
    """Yield a bound claim whose volume can only be used on nodes where the pod cannot run."""
    if pod is None or dig(pod, "spec", "nodeName"):
        return
    manifest, nodes = facts.get(claim), facts.list("Node")
    terms = scheduling.places_of(facts, manifest)
    if not terms or not nodes.complete:
        return
    volume = ref_to("PersistentVolume", text(dig(manifest, "spec", "volumeName")))
    usable, spec = [n for n in nodes.items if scheduling.meets_one(terms, n)], mapping(pod.get("spec"))
    if not any(scheduling.matches_node(spec, n) and holds(n, "Ready") for n in usable):
        asked = [e for term in terms for e in mappings(term.get("matchExpressions"))]
        values = ", ".join(text(value) for e in asked for value in sequence(e.get("values")))
        where = f"no node that takes its pod (its node affinity asks for {values})"
        local = "kubernetes.io/hostname" in str(terms)
        remedies = {Remedy.RECREATE_CLAIM} if local and not usable else {Remedy.ADD_CAPACITY}
        told = f"the volume of {claim} can be used on {where}"
        yield _finding(claim, (*also, volume), told, remedies)


def _finding(claim: ObjectRef, also: tuple[ObjectRef, ...], what: str, remedies: set[Remedy]) -> Diagnosis:
    return stated(Cause.VOLUME, claim, what, remedies, SIGNALS, also)
