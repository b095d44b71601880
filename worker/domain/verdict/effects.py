"""What keeps an action that fits the confirmed cause from taking effect, or leaves its pods without a place."""

from __future__ import annotations

import math
from collections.abc import Mapping

from worker.domain.cluster.conditions import holds
from worker.domain.cluster.fields import dig, mapping, mappings, meta, reference, text, whole
from worker.domain.cluster.kinds import WORKLOADS
from worker.domain.cluster.quantities import quantity
from worker.domain.diagnosis.actions import ProposedAction, remedies_of
from worker.domain.diagnosis.causes import Diagnosis, Remedy
from worker.domain.diagnosis.creation import amounts_of, exhausted
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.scheduling import meets_one, places_of_volume
from worker.domain.diagnosis.structure import absent, container_specs, needed, pod_spec_of
from worker.domain.values.objects import Manifest

GROWING = frozenset({Remedy.INCREASE_MEMORY, Remedy.SCALE_UP, Remedy.RAISE_AUTOSCALER})
"""Remedies that ask for more of what the quotas and limits of a namespace bound."""
ROLLED_OUT = frozenset(
    {Remedy.ROLL_BACK, Remedy.FIX_IMAGE, Remedy.INCREASE_MEMORY, Remedy.INCREASE_CPU, Remedy.FIX_PROBE, Remedy.RESTART}
)  # fmt: skip
"""Remedies that reach the pods of a workload by a rollout."""
LEAVING = frozenset({Remedy.CORDON, Remedy.DRAIN})
SCOPES = frozenset({"scopes", "scopeSelector"})
"""Fields of a quota that is for some pods only: whether for these, nothing says before it refuses one."""
GROWTH = 2.0
"""How much room a larger limit needs. The growth itself may be unknown here: the workflow chooses it."""


def hindrance(facts: ClusterFacts, action: ProposedAction, finding: Diagnosis) -> str:
    """Return what would keep the action from taking effect, else ""."""
    meant = remedies_of(action.workflow.action_type) & finding.remedies
    changed = [s for s in finding.subjects if s.kind in WORKLOADS or s.kind == "ConfigMap"]
    for ref in dict.fromkeys((*action.targets, *changed)):
        manifest = (facts.get(ref) if ref.kind != "Secret" else None) or {}
        spec, seen = mapping(manifest.get("spec")), dig(manifest, "status", "observedGeneration")
        deleted, newest = meta(manifest).get("deletionTimestamp"), whole(meta(manifest).get("generation"))
        replicas = whole(spec.get("replicas", 1))
        partition = whole(dig(spec, "updateStrategy", "rollingUpdate", "partition"))
        rolled, left = meant & ROLLED_OUT, meant & LEAVING and ref.kind == "Node"
        kept = {
            "is being deleted": deleted and Remedy.REMOVE_FINALIZER not in meant,
            "has a newer spec than its controller has seen": isinstance(seen, int) and seen < newest,
            "is immutable": Remedy.PATCH_CONFIGURATION in meant and manifest.get("immutable") is True,
            "is cordoned already": meant == {Remedy.CORDON} and spec.get("unschedulable") is True,
            "is paused": rolled and spec.get("paused") is True,
            "waits for deletions": rolled and dig(spec, "updateStrategy", "type") == "OnDelete",
            "rolls out to none of its pods": rolled and 0 < replicas <= partition,
            "has pods that fit no other node": left and _holds_pods(facts, manifest),
        }
        if why := next((state for state, is_so in kept.items() if is_so), ""):
            return f"{ref} {why}"
    grown = [m for ref in finding.subjects if ref.kind in WORKLOADS and (m := facts.get(ref))]
    return _growth_hindrance(facts, grown[0], finding) if grown and meant & GROWING else ""


def _holds_pods(facts: ClusterFacts, node: Manifest) -> bool:
    """True if no other node takes pods, or none of those that do can use a volume of this one."""
    nodes = facts.list("Node").items
    others = [n for n in nodes if reference(n) != reference(node) and holds(n, "Ready")]
    free = [n for n in others if dig(n, "spec", "unschedulable") is not True]
    places = [places_of_volume(volume) for volume in facts.list("PersistentVolume").items]
    here = [terms for terms in places if terms and meets_one(terms, node)]
    return len(nodes) > 1 and not all(any(meets_one(terms, n) for n in free) for terms in [[], *here])


def _growth_hindrance(facts: ClusterFacts, workload: Manifest, finding: Diagnosis) -> str:
    """Return what leaves no room for a larger container or for one more pod of the workload, or what the pod lacks."""
    home, asked, larger = reference(workload).namespace, *_asked(workload, finding)
    quotas = [q for q in facts.list("ResourceQuota", home).items if SCOPES.isdisjoint(mapping(q.get("spec")))]
    ranges = facts.list("LimitRange", home).items if larger else ()
    most = [(r, e, dig(e, "max", "memory")) for r in ranges for e in mappings(dig(r, "spec", "limits"))]
    tight = [q for q in quotas if exhausted(q, asked)]
    tight += [r for r, e, top in most if larger.get(text(e.get("type")), 0.0) > (quantity(top) or math.inf)]
    if tight:
        return f"{reference(tight[0])} leaves no room for it"
    if larger:
        sizes = [quantity(dig(n, "status", "allocatable", "memory")) or 0 for n in facts.list("Node").items]
        return "no node has as much memory" if sizes and max(sizes) < larger["Container"] else ""
    gone = absent(facts, reference(workload), needed(mapping(dig(workload, "spec", "template"))))
    return f"its pods need {gone[0]}, which does not exist" if gone else ""


def _asked(workload: Manifest, finding: Diagnosis) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return what quotas must have left for the first changed pod, and the memory limits it will have.

    The limits are those of its container and of the pod; none if its size stays. A rollout without surge deletes a
    pod first, so that quotas only need room for the growth.
    """
    spec = pod_spec_of(workload)
    one_more = amounts_of(spec)
    if Remedy.INCREASE_MEMORY not in finding.remedies:
        return one_more, {}
    failing = next((c for c in container_specs(spec) if c.get("name") == finding.container), {})
    limit = quantity(dig(failing, "resources", "limits", "memory")) or 0.0
    pod, growth = one_more.get("limits.memory", 0.0), (GROWTH - 1.0) * limit
    asked = {**one_more, "limits.memory": pod + growth} if _surges(workload) else {"limits.memory": growth}
    return asked, {"Container": limit + growth, "Pod": pod + growth}


def _surges(workload: Manifest) -> bool:
    """True if a rollout creates a pod before it deletes one: by default only that of a Deployment does."""
    kind, spec = workload.get("kind"), mapping(workload.get("spec"))
    how = mapping(spec.get("strategy") if kind == "Deployment" else spec.get("updateStrategy"))
    surge = {"maxSurge": "25%" if kind == "Deployment" else "0", **mapping(how.get("rollingUpdate"))}
    return how.get("type") != "Recreate" and str(surge["maxSurge"]) not in {"0", "0%"}
