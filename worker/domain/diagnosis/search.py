"""Follows the structure from the signal's resource to possible causes, and keeps the best findings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from worker.domain.diagnosis.causes import Diagnosis, Edge, Relation, Strength, named
from worker.domain.diagnosis.examine import examine
from worker.domain.diagnosis.facts import API_VERSIONS, ClusterFacts
from worker.domain.values.objects import ObjectRef

MAX_STEPS, MAX_OBJECTS = 6, 24
R = Relation
STANDS_FOR = frozenset({R.SAME, R.OWNER, R.SELECTED, R.SCALE_TARGET, R.NAMESPACE})
"""Steps to what represents the signal's own object: a Service's workload, a pod's owner."""


@dataclass(frozen=True, slots=True)
class Searched:
    """Findings by distance from the signal's resource. `circle`: names of mutually dependent objects."""

    findings: tuple[Diagnosis, ...] = ()
    circle: frozenset[tuple[str, str, str]] = frozenset()


def search(facts: ClusterFacts, signal: ObjectRef) -> Searched:
    """Examine the signal's resource and the objects that its state may depend on, the nearest first."""
    start = replace(signal, api_version=signal.api_version or API_VERSIONS.get(signal.kind, ""))
    queue: list[tuple[Edge, ...]] = [(Edge(Relation.SAME, start),)]
    later: list[tuple[Edge, ...]] = []
    seen: set[tuple[str, str, str]] = set()
    findings: list[Diagnosis] = []
    circle: set[tuple[str, str, str]] = set()
    while (queue or (later and not facts.open and not _explained(findings))) and len(seen) < MAX_OBJECTS:
        path = queue.pop(0) if queue else later.pop(0)
        ref = path[-1].to
        if named(ref) in seen or len(path) > MAX_STEPS:
            continue
        seen.add(named(ref))
        found = examine(facts, ref, signal=all(edge.relation in STANDS_FOR for edge in path))
        findings += [replace(f, path=path) for f in found.findings]
        names = [named(step.to) for step in path]
        for back in {named(edge.to) for edge in found.edges} & set(names[:-1]):
            circle |= set(names[names.index(back) :])
        queue += [(*path, edge) for edge in found.edges if edge.relation is not Relation.DNS]
        later += [(*path, edge) for edge in found.edges if edge.relation is Relation.DNS]
    return Searched(tuple(findings), frozenset(circle))


def _explained(findings: Sequence[Diagnosis]) -> bool:
    """True if more than symptoms are known, so that common dependencies of all pods need not be examined."""
    return any(f.strength is not Strength.SYMPTOM for f in findings)


def standing(
    findings: Sequence[Diagnosis], circle: Collection[tuple[str, str, str]] = ()
) -> tuple[Diagnosis, ...]:
    """The findings that explain the others, the best first.

    These are findings whose state names the cause, the nearest first; without any, those that the order of
    changes suggests, the furthest dependency first; else the furthest symptom, or the nearest of a circle.
    """
    direct = [f for f in findings if f.strength is Strength.DIRECT]
    if direct:
        nearest = min(len(f.path) for f in direct)
        return tuple(f for f in direct if len(f.path) == nearest)
    timed = [f for f in findings if f.strength is Strength.TIMED]
    if timed:
        furthest = max(len(f.path) for f in timed)
        return tuple(f for f in timed if len(f.path) == furthest)
    inside = [f for f in findings if named(f.path[-1].to) in circle]
    furthest = (min if inside else max)((len(f.path) for f in inside or findings), default=0)
    return tuple(f for f in findings if len(f.path) == furthest)


def ambiguous(finding: Diagnosis, findings: Sequence[Diagnosis]) -> bool:
    """True if an object further along is unhealthy, too: the order of changes here proves nothing."""
    return finding.strength is Strength.TIMED and any(len(f.path) > len(finding.path) for f in findings)
