"""Volumes that cannot be attached or mounted."""

from __future__ import annotations

import re

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, controller_of, dig, make_ref
from worker.sandbox.analyst.rules import claims, drivers, nodes
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import seen_from
from worker.sandbox.analyst.shapes import pod_spec, references

ELSEWHERE = re.compile(
    r"multi-attach|already (?:exclusively )?(?:attached|used)|is in use|used by (?:another|pod)",
    re.IGNORECASE,
)
DRIVER = re.compile(
    r"driver name ([\w.-]+) not found|csi driver|not found in the list of registered CSI", re.IGNORECASE
)
VOLUME_NAME = re.compile(r"volume \\?\"([^\"\\]+)\\?\"")


def attach_finding(case: Case, pod: Manifest, target: ObjectRef, message: str) -> Finding:
    """A volume that is held by another node, a driver that is missing, a claim that is not usable."""
    claim = _claim(pod, message)
    told = f"a volume of {target} cannot be mounted: {short(message)}"
    if claim is not None:
        unusable = claims.claim_finding(case, claim, target)
        if unusable is not None:
            return unusable
    if ELSEWHERE.search(message):
        return _held_elsewhere(case, pod, target, claim, told)
    driver = DRIVER.search(message)
    agent = drivers.agent_finding(case, driver[1], ("DaemonSet",)) if driver and driver[1] else None
    if agent is not None:
        return seen_from(agent, "FailedMount", target, f"{sentence(told)}: its storage driver does not run.")
    holder = claim or target
    why = "the CSI driver does not run on this node" if driver else "the mount itself fails"
    return Finding(
        family="mount",
        summary=f"{sentence(told)}: {why}.",
        target=holder,
        certainty=0.66,
        symptoms=("FailedMount", "FailedAttachVolume", "PodPending"),
        factors=(told,),
        workload=target,
        traits=frozenset({"storage_backend_down" if driver else "mount_failed"}),
        denied=frozenset({"oom", "config_content", "volume_full", "claim_missing"}),
        hints={"claim": claim.name if claim else "", "node": str(dig(pod, "spec", "nodeName") or "")},
    )


def _claim(pod: Manifest, message: str) -> ObjectRef | None:
    namespace = str(dig(pod, "metadata", "namespace") or "")
    found = [r for r in references(pod_spec(pod)) if r.kind == "PersistentVolumeClaim"]
    names = VOLUME_NAME.findall(message)
    fitting = [r for r in found if r.name in message] or [
        r
        for r in found
        for v in as_list(pod_spec(pod).get("volumes"))
        if as_dict(v).get("name") in names and dig(v, "persistentVolumeClaim", "claimName") == r.name
    ]
    chosen = (fitting or found)[:1]
    return make_ref("PersistentVolumeClaim", chosen[0].name, namespace) if chosen else None


def _held_elsewhere(
    case: Case, pod: Manifest, target: ObjectRef, claim: ObjectRef | None, told: str
) -> Finding:
    """The other pod that uses the volume, and whether its node still answers."""
    other = _other_user(case.facts, pod, claim)
    node = str(dig(other or {}, "spec", "nodeName") or "")
    if node:
        unready = nodes.unready_finding(
            case, node, seen=f"{told}; the volume is still attached to node {node}."
        )
        if unready is not None:
            return unready
    by = (
        f"Pod {dig(other, 'metadata', 'namespace')}/{dig(other, 'metadata', 'name')} on node {node}"
        if other
        else "another node"
    )
    if other and _made_by(other, target):
        return _overlapping(target, f"{told}. It is still used by {by}, which belongs to {target} as well")
    holder = claim or target
    return Finding(
        family="multi-attach",
        summary=f"{sentence(told)}. The volume of {holder} is still held by {by}; it can be attached to one node at a time.",
        target=holder,
        certainty=0.74,
        symptoms=("FailedMount", "FailedAttachVolume", "MultiAttachError", "PodPending"),
        remedies=(RemedyKind.DETACH_VOLUME, RemedyKind.RESTART_POD),
        factors=(told, f"held by {by}"),
        workload=target,
        traits=frozenset({"volume_attached_elsewhere", "claim_holds_data"}),
        denied=frozenset({"oom", "config_content", "volume_full", "claim_missing"}),
        hints={"claim": holder.name, "node": node},
    )


def _made_by(pod: Manifest, deployment: ObjectRef) -> bool:
    owner = controller_of(pod)
    made = (
        owner is not None and owner.kind == "ReplicaSet" and owner.name.rpartition("-")[0] == deployment.name
    )
    return deployment.kind == "Deployment" and made


def _overlapping(target: ObjectRef, told: str) -> Finding:
    """A rolling update of a Deployment whose volume only one node may use (Kubernetes API, DeploymentStrategy)."""
    return Finding(
        family="multi-attach",
        summary=f"{sentence(told)}: an update of type RollingUpdate starts new pods before old ones end. With a volume that one node at a time may use the strategy must be Recreate.",
        target=target,
        certainty=0.8,
        symptoms=("FailedMount", "FailedAttachVolume", "MultiAttachError", "PodPending"),
        factors=(told,),
        workload=target,
        traits=frozenset({"volume_attached_elsewhere", "claim_holds_data"}),
        denied=frozenset({"oom", "config_content", "volume_full", "claim_missing"}),
    )


def _other_user(facts: Facts, pod: Manifest, claim: ObjectRef | None) -> Manifest | None:
    mine = str(dig(pod, "metadata", "name") or "")
    namespace = str(dig(pod, "metadata", "namespace") or "")
    stem = mine.rpartition("-")[0].rpartition("-")[0] or mine
    for row in facts.rows("Pod", namespace):
        if row.get("NAME") != mine and row.get("NAME", "").startswith(stem):
            facts.get("Pod", row["NAME"], namespace)
    for other in facts.objects("Pod", namespace):
        if (
            str(dig(other, "metadata", "name")) != mine
            and claim is not None
            and any(
                r.kind == "PersistentVolumeClaim" and r.name == claim.name
                for r in references(pod_spec(other))
            )
        ):
            return other
    return None
