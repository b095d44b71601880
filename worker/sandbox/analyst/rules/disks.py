"""Volumes that are full, and data that is damaged."""

from __future__ import annotations

from dataclasses import dataclass

from worker.domain.cluster.quantities import doubled
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_list, dig, make_ref
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.configs import PATH, mounted_at
from worker.sandbox.analyst.shapes import (
    ContainerState,
    Reference,
    command_text,
    env_values,
    pod_spec,
    references,
)


def disk_finding(case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str) -> Finding:
    """A full disk: the claim behind the path, else the node's disk."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    told = f"container {state.name} of {target} has no disk space left: {short(line)}"
    claim = claim_behind(pod, line)
    if claim is None:
        return _scratch(pod, state, target, told)
    reference = make_ref("PersistentVolumeClaim", claim.name, namespace)
    volume = claimed(case, reference)
    size = f" ({volume.size})" if volume.size else ""
    where = f"the volume of claim {reference}{size} mounted at {claim.mount} is full{volume.told}"
    return Finding(
        family="disk",
        summary=f"{sentence(told)}. {sentence(where)}.",
        target=reference,
        certainty=0.88,
        symptoms=("CrashLoopBackOff", "PVCExhaustion"),
        remedies=(RemedyKind.EXPAND_CLAIM, RemedyKind.CLEAN_CLAIM),
        factors=(told, where),
        workload=target,
        traits=frozenset({"volume_full"}) | volume.traits,
        denied=frozenset({"oom", "claim_missing", "dependency_down"}) | volume.denied,
        hints={"claim": claim.name, "new_size": doubled(volume.size), "size": volume.size},
    )


@dataclass(frozen=True, slots=True)
class Claimed:
    """Size of a claim, and whether its class lets it grow, in words and as concepts."""

    size: str
    told: str
    traits: frozenset[str]
    denied: frozenset[str]


def claimed(case: Case, claim: ObjectRef) -> Claimed:
    """What the claim and its StorageClass say; asks for both."""
    manifest = case.facts.of(claim) or {}
    wanted = dig(manifest, "spec", "resources", "requests", "storage")
    size = str(dig(manifest, "status", "capacity", "storage") or wanted or "")
    name = str(dig(manifest, "spec", "storageClassName") or "")
    storage_class = case.facts.get("StorageClass", name) if name else None
    if storage_class is None:
        return Claimed(size, "", frozenset(), frozenset())
    if storage_class.get("allowVolumeExpansion"):
        told = f"; StorageClass {name} allows expansion"
        return Claimed(size, told, frozenset({"expandable"}), frozenset({"no_expansion"}))
    told = f"; StorageClass {name} does not allow expansion"
    return Claimed(size, told, frozenset({"no_expansion"}), frozenset({"expandable"}))


def claim_behind(pod: Manifest, line: str) -> Reference | None:
    """The claim whose mount covers a path in the message or in the settings of the pod; else the only one."""
    claims = [r for r in references(pod_spec(pod)) if r.kind == "PersistentVolumeClaim"]
    spec = pod_spec(pod)
    for text in (line, "\n".join(env_values(spec).values()), command_text(spec)):
        found = mounted_at(claims, PATH.findall(text))
        if found is not None:
            return found
    worded = [
        c
        for c in claims
        if any(w in line.lower() for w in (c.name, c.mount.rstrip("/").rpartition("/")[2]) if w)
    ]
    return worded[0] if worded else (claims[0] if claims else None)


def _scratch(pod: Manifest, state: ContainerState, target: ObjectRef, told: str) -> Finding:
    node = str(dig(pod, "spec", "nodeName") or "")
    limit = next(
        (
            str(dig(v, "emptyDir", "sizeLimit") or "")
            for v in as_list(pod_spec(pod).get("volumes"))
            if dig(v, "emptyDir")
        ),
        "",
    )
    where = f"it writes to the disk of node {node}, no claim is mounted" + (
        f" (emptyDir sizeLimit {limit})" if limit else ""
    )
    return Finding(
        family="node-disk",
        summary=f"{sentence(told)}: {where}.",
        target=target,
        certainty=0.66,
        symptoms=("CrashLoopBackOff", "DiskPressure"),
        remedies=(),
        factors=(told, where),
        workload=target,
        traits=frozenset({"disk_full"}),
        denied=frozenset({"oom", "volume_full"}),
        hints={"node": node, "container": state.name},
    )


def corrupt_finding(
    case: Case,  # noqa: ARG001 - every explanation is called alike
    pod: Manifest,
    state: ContainerState,
    target: ObjectRef,
    line: str,
) -> Finding:
    """Damaged data: nobody but a person may decide what to do with it."""
    claim = claim_behind(pod, line)
    told = f"container {state.name} of {target} finds its data damaged: {short(line)}"
    holder = make_ref("PersistentVolumeClaim", claim.name, target.namespace) if claim else target
    return Finding(
        family="corrupt",
        summary=f"{sentence(told)}. The data lies in {holder}.",
        target=holder,
        certainty=0.68,
        symptoms=("CrashLoopBackOff",),
        factors=(told,),
        workload=target,
        traits=frozenset({"data_corrupt", "claim_holds_data"}),
        denied=frozenset({"oom", "volume_full"}),
        warnings=("data may be lost if this is repaired without care",),
    )
