"""What keeps an action that fits the confirmed cause from taking effect, or leaves its pods without a place."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from worker.domain.cluster.fields import dig, mapping, mappings, meta, name_of, reference, text, whole
from worker.domain.cluster.kinds import WORKLOADS
from worker.domain.cluster.quantities import quantity
from worker.domain.cluster.references import references_of
from worker.domain.diagnosis import structure
from worker.domain.diagnosis.actions import ProposedAction, remedies_of
from worker.domain.diagnosis.causes import Diagnosis, Remedy
from worker.domain.diagnosis.controllers import autoscalers_of
from worker.domain.diagnosis.creation import amounts_of, applies, exhausted
from worker.domain.diagnosis.facts import ClusterFacts, Presence
from worker.domain.diagnosis.scheduling import matches_node, modes_of
from worker.domain.diagnosis.starting import missing_keys
from worker.domain.values.objects import Manifest
from worker.domain.verdict.leaving import ON_NODES, crowded, node_hindrance, placed

MORE = frozenset({Remedy.SCALE_UP, Remedy.RAISE_AUTOSCALER})
"""Remedies that make more pods of the present template."""
MADE = MORE | {Remedy.INCREASE_MEMORY, Remedy.ROLL_BACK, Remedy.RESTART, Remedy.RESUME}
"""Remedies that take effect by pods which have to find what they need, and room."""
ROLLED_OUT = frozenset(
    {Remedy.ROLL_BACK, Remedy.FIX_IMAGE, Remedy.INCREASE_MEMORY, Remedy.INCREASE_CPU, Remedy.FIX_PROBE, Remedy.RESTART}
)  # fmt: skip
"""Remedies that reach the pods of a workload by a rollout."""
BOUNDS = frozenset(
    {"Node", "Pod", "PersistentVolume", "ResourceQuota", "LimitRange", "PodDisruptionBudget", "HorizontalPodAutoscaler"}
)  # fmt: skip
"""Kinds of which each object may keep an action from taking effect: nothing follows from a list that was not read."""
GROWTH = 2.0
"""How much room a larger limit needs, unless the answer says how much it grows."""


def hindrance(facts: ClusterFacts, action: ProposedAction, finding: Diagnosis, growth: float = GROWTH) -> str:
    """Return what would keep the action from taking effect, else "". `growth`: how many times a limit grows."""
    offered = remedies_of(action.workflow.action_type)
    meant, reverted = offered & finding.remedies, Remedy.REVERT_SOURCE in offered
    by_pod = bool(action.targets) and all(ref.kind == "Pod" for ref in action.targets)
    changed = [s for s in finding.subjects if s.kind in WORKLOADS or s.kind == "ConfigMap"]
    for ref in dict.fromkeys((*action.targets, *changed)):
        manifest = (facts.get(ref) if ref.kind != "Secret" else None) or {}
        spec, seen = mapping(manifest.get("spec")), dig(manifest, "status", "observedGeneration")
        deleted, newest = meta(manifest).get("deletionTimestamp"), whole(meta(manifest).get("generation"))
        replicas = whole(spec.get("replicas", 1))
        partition = whole(dig(spec, "updateStrategy", "rollingUpdate", "partition"))
        # the controller of a deleted pod makes another one, also while it rolls nothing out
        rolled, fewer = not by_pod and meant & ROLLED_OUT, Remedy.SCALE_DOWN in meant and action.replicas
        kept = {
            "is being deleted": deleted and Remedy.REMOVE_FINALIZER not in meant,
            "has a newer spec than its controller has seen": isinstance(seen, int) and seen < newest,
            "is immutable": Remedy.PATCH_CONFIGURATION in meant and manifest.get("immutable") is True,
            "is cordoned already": meant == {Remedy.CORDON} and spec.get("unschedulable") is True,
            "is paused": rolled and spec.get("paused") is True,
            "waits for deletions": rolled and dig(spec, "updateStrategy", "type") == "OnDelete",
            "rolls out to none of its pods": rolled and 0 < replicas <= partition,
            "is scaled by its autoscaler": fewer and autoscalers_of(facts, ref),
            "was last changed by hand": reverted and structure.changed_by_hand(manifest),
        }
        why = next((state for state, is_so in kept.items() if is_so), "")
        if ref.kind == "Node" and meant & ON_NODES and not why:
            why = node_hindrance(facts, manifest, meant, finding)
        if why:
            return f"{ref} {why}"
    evicted = [p for s in finding.subjects if s.kind == "Pod" and (p := facts.get(s))]
    if Remedy.RELAX_DISRUPTION_BUDGET in meant and not all(placed(facts, evicted, facts.list("Node").items)):
        return f"{reference(evicted[0])} fits no other node"
    homes = [m for ref in finding.subjects if ref.kind in WORKLOADS and (m := facts.get(ref))]
    if not homes or not meant & MADE:
        return ""
    spec, own = _spec_made(facts, homes[0], meant, finding, growth), structure.pod_spec_of(homes[0])
    surges = not by_pod and Remedy.ROLL_BACK not in meant and _surges(homes[0])
    known = own if Remedy.ROLL_BACK in meant else {}
    lack = _lack(facts, homes[0], spec, known, alone=surges and Remedy.RESTART in meant)
    excess = _excess(facts, homes[0], spec, more=surges or bool(meant & MORE))
    full = ("no node has room",) if meant & MORE and crowded(facts, homes[0], spec) else ()
    return next(chain(lack if meant != {Remedy.INCREASE_MEMORY} else (), excess, full), "")


def _spec_made(
    facts: ClusterFacts, workload: Manifest, meant: frozenset[Remedy], finding: Diagnosis, growth: float
) -> dict[str, Any]:
    """The spec of the pods that an action makes of a workload: a former one, or the present one, maybe with more memory."""
    if Remedy.ROLL_BACK in meant:
        return structure.former_spec(facts, reference(workload), finding.revision)
    spec = copy.deepcopy(structure.pod_spec_of(workload))
    failing = (c for c in structure.container_specs(spec) if c.get("name") == finding.container)
    for container in failing if Remedy.INCREASE_MEMORY in meant else ():
        amounts = mapping(container.get("resources"))
        limits = {**mapping(amounts.get("limits")), "memory": str(int(_memory(container) * growth))}
        container["resources"] = {**amounts, "limits": limits}
    return spec


def _lack(
    facts: ClusterFacts, workload: Manifest, spec: dict[str, Any], known: dict[str, Any], *, alone: bool
) -> Iterator[str]:
    """Yield what pods of a spec need and lack, but for what pods of a known spec have. `alone`: beside an old pod."""
    ref = reference(workload)
    needed = structure.needed(spec) - structure.needed(known)
    next_one = f"{ref.name}-{whole(dig(workload, 'spec', 'replicas'))}"
    claims = [name_of(claim) for claim in mappings(dig(workload, "spec", "volumeClaimTemplates"))]
    for kind, name in sorted(needed | {("PersistentVolumeClaim", f"{c}-{next_one}") for c in claims}):
        used = structure.ref_to(kind, name, ref.namespace)
        found = facts.get(used) or {}
        absent = (kind, name) in needed and facts.presence(used) is Presence.ABSENT
        if absent or dig(found, "status", "phase") == "Lost" or meta(found).get("deletionTimestamp"):
            yield f"its pods need {used}, which is gone or being deleted"
        if alone and "ReadWriteOncePod" in modes_of(found):
            yield f"{used} is for one pod only, and the present one goes last"
    maps = [structure.ref_to("ConfigMap", name, ref.namespace) for name in references_of(spec).config_maps]
    lacking = [m for m in maps if missing_keys({"spec": spec}, m.name, facts.get(m))]
    yield from (f"its pods need a key that {used} does not have" for used in lacking)
    place, present = ([s.get("nodeSelector"), dig(s, "affinity", "nodeAffinity")] for s in (spec, known))
    nodes = facts.list("Node").items if any(place) and place != present else ()
    if nodes and not any(matches_node(spec, node) for node in nodes):
        yield "its pods fit no node"


def _excess(facts: ClusterFacts, workload: Manifest, spec: dict[str, Any], *, more: bool) -> Iterator[str]:
    """Yield what leaves no room for pods of a spec: for one more, or in place of one of the workload."""
    home, own = reference(workload).namespace, structure.pod_spec_of(workload)
    now, then = {} if more else amounts_of(own), amounts_of(spec)
    asked = {n: added for n, amount in then.items() if (added := amount - now.get(n, 0.0)) > 0}
    former = {text(c.get("name")): _memory(c) for c in structure.container_specs(own)}
    listed = structure.container_specs(spec)
    grown = [c for c in listed if _memory(c) > former.get(text(c.get("name")), math.inf)]
    quotas = facts.list("ResourceQuota", home).items if asked else ()
    ranges = facts.list("LimitRange", home).items if grown else ()
    tight = [quota for quota in quotas if applies(quota, spec) and exhausted(quota, asked)]
    tight += [r for r in ranges for e in mappings(dig(r, "spec", "limits")) if _exceed(e, grown, then)]
    yield from (f"{reference(bound)} leaves no room for it" for bound in tight)
    nodes = facts.list("Node").items if grown else ()
    sizes = [quantity(dig(n, "status", "allocatable", "memory")) or 0 for n in nodes if matches_node(spec, n)]
    if sizes and max(sizes) < max(map(_memory, grown)):
        yield "no node has as much memory"


def _memory(container: Manifest, bound: str = "limits") -> float:
    return quantity(dig(container, "resources", bound, "memory")) or 0.0


def _exceed(bounds: Manifest, containers: Sequence[Manifest], pod: Mapping[str, float]) -> bool:
    """True if an entry of a LimitRange does not admit the limits of containers, or the amounts of their pod."""
    most, ratio = (quantity(dig(bounds, k, "memory")) or math.inf for k in ("max", "maxLimitRequestRatio"))
    limits = [(_memory(c), ratio * (_memory(c, "requests") or math.inf)) for c in containers]
    if bounds.get("type") == "Pod":
        return pod.get("limits.memory", 0.0) > most
    return bounds.get("type") == "Container" and any(limit > min(most, top) for limit, top in limits)


def _surges(workload: Manifest) -> bool:
    """True if a rollout creates a pod before it deletes one: by default only that of a Deployment does.

    One that may delete a pod anyway, by default if it has four, does not wait for the new one.
    """
    kind, spec = workload.get("kind"), mapping(workload.get("spec"))
    how = mapping(spec.get("strategy") if kind == "Deployment" else spec.get("updateStrategy"))
    rolling = mapping(how.get("rollingUpdate"))
    surge = text(rolling.get("maxSurge", "25%" if kind == "Deployment" else 0))
    fewer = text(rolling.get("maxUnavailable", "25%"))
    share = whole(spec.get("replicas", 1)) / 100 if fewer.endswith("%") else 1.0
    spared = (quantity(fewer.rstrip("%")) or 0.0) * share < 1.0
    return how.get("type") != "Recreate" and surge not in {"0", "0%"} and spared
