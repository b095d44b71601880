"""What only the signal tells: growth, saturation and filling that no object's state shows yet.

The last resort of the rules. The words of the signal name the trouble; the object it is about is looked up, and
nothing more is claimed than the signal says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from worker.domain.cluster.quantities import doubled
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import dig
from worker.sandbox.analyst.rules import disks, workloads
from worker.sandbox.analyst.rules.case import Case, short
from worker.sandbox.analyst.shapes import containers_of, pod_spec, references

CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Theme:
    """A family of signals by their words, and what it means for a workload."""

    words: re.Pattern[str]
    family: str
    told: str
    symptoms: tuple[str, ...]
    remedies: tuple[RemedyKind, ...]
    traits: frozenset[str]
    certainty: float = 0.7


THEMES = (
    Theme(
        re.compile(r"fragment", re.IGNORECASE),
        "fragmentation",
        "more than half of its database file is free space",
        ("EtcdHighFragmentation",),
        (RemedyKind.DEFRAGMENT,),
        frozenset({"fragmentation"}),
        0.78,
    ),
    Theme(
        re.compile(r"(?:predict|leak|grow|approach|trend|will (?:exceed|reach)|near|high).{0,40}(?:memory|oom)|(?:memory|oom).{0,40}(?:predict|leak|grow|approach|trend|near|high|usage|pressure)", re.IGNORECASE),
        "memory-growth",
        "its memory grows steadily towards the limit",
        ("PredictedOOM", "MemoryLeak", "HighMemoryUsage", "OOMKilled"),
        (RemedyKind.RESTART, RemedyKind.MORE_MEMORY),
        frozenset({"leak"}),
    ),
    Theme(
        re.compile(r"cpu.{0,30}throttl|throttl.{0,30}cpu", re.IGNORECASE),
        "cpu",
        "its CPU is throttled at the limit",
        ("CPUThrottling", "CPUThrottlingHigh"),
        (RemedyKind.MORE_CPU, RemedyKind.SCALE_UP),
        frozenset({"cpu_throttled"}),
    ),
)  # fmt: skip
FILLING = re.compile(r"fill|full|exhaust|space|usage|capacity|almost|running out", re.IGNORECASE)
UNUSED = re.compile(r"orphan|unused|not (?:used|mounted)|no pod", re.IGNORECASE)


def themed_finding(case: Case, ref: ObjectRef) -> Finding | None:
    """The trouble that the words of the signal name, for a workload or for a claim."""
    text = spoken(case)
    if ref.kind == "PersistentVolumeClaim":
        return _claim(case, ref, text)
    theme = next((t for t in THEMES if t.words.search(text)), None)
    if theme is None:
        return None
    target = _workload(case, ref)
    manifest = case.facts.of(target)
    limit, container = _limit(case, target, manifest, "memory")
    cpu, _ = _limit(case, target, manifest, "cpu")
    told = f"{target}: {theme.told}"
    if limit and "memory" in theme.told:
        told += f" (memory limit {limit})"
    elif cpu and "CPU" in theme.told:
        told += f" (cpu limit {cpu})"
    return Finding(
        family=theme.family,
        summary=f"{told}, as the signal says: {short(case.incident.message or case.incident.signal_type)}.",
        target=target,
        certainty=theme.certainty,
        symptoms=theme.symptoms,
        remedies=theme.remedies,
        factors=(told,),
        workload=target,
        traits=theme.traits,
        denied=frozenset(
            {
                "oom_own_limit",
                "node_memory",
                "config_content",
                "template_changed",
                "crash_on_start",
                "member_down",
            }
        ),
        hints={"container": container, "memory_limit": limit, "new_memory": doubled(limit)},
    )


def spoken(case: Case) -> str:
    """The words of the signal: its name taken apart, and its message."""
    return f"{CAMEL.sub(' ', case.incident.signal_type)} {case.incident.message}"


def _workload(case: Case, ref: ObjectRef) -> ObjectRef:
    if ref.kind != "Pod":
        return ref
    pod = case.facts.of(ref, ask=False)
    return (workloads.root_workload(case.facts, pod) if pod else None) or ref


def _limit(case: Case, target: ObjectRef, manifest: Manifest | None, resource: str) -> tuple[str, str]:
    """Limit and name of the container that has most; empty when nothing is known."""
    specs = [pod_spec(manifest or {})]
    specs += [
        pod_spec(p)
        for p in case.facts.objects("Pod", target.namespace)
        if workloads.owned_by(case.facts, p, target, manifest)
    ]
    for spec in specs:
        for container in containers_of(spec, init=False):
            limit = dig(container, "resources", "limits", resource)
            if limit:
                return str(limit), str(container.get("name") or "")
    return "", ""


def _claim(case: Case, ref: ObjectRef, text: str) -> Finding | None:
    """A claim that fills up, or one that nothing uses."""
    manifest = case.facts.of(ref)
    if manifest is None:
        return None
    users = [
        p
        for p in case.facts.objects("Pod", ref.namespace)
        if any(r.name == ref.name for r in references(pod_spec(p)))
    ]
    volume = disks.claimed(case, ref)
    if UNUSED.search(text) and not users:
        told = f"{ref} ({volume.size}) is not mounted by any pod"
        return Finding("unused-claim", f"{told}: nothing is broken, it only takes up storage.", ref, 0.75, ("OrphanedPVC", "UnusedPVC"),
                       factors=(told,), outcome="not_actionable")  # fmt: skip
    if not FILLING.search(text):
        return None
    told = f"{ref} ({volume.size}) is full or about to be full{volume.told}"
    return Finding(
        family="disk",
        summary=f"{told}: {short(case.incident.message)}.",
        target=ref,
        certainty=0.8,
        symptoms=("PVCExhaustion", "VolumeFull"),
        remedies=(RemedyKind.EXPAND_CLAIM, RemedyKind.CLEAN_CLAIM),
        factors=(told,),
        workload=next((workloads.root_workload(case.facts, p) for p in users), None),
        traits=frozenset({"volume_full"}) | volume.traits,
        denied=frozenset({"oom", "claim_missing"}) | volume.denied,
        hints={"claim": ref.name, "new_size": doubled(volume.size), "size": volume.size},
    )
