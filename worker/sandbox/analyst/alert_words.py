"""Facts that only the signal tells: growth, saturation and errors without a state, and past problems.

The last resort if the rules find no cause: only what the words of the signal say is claimed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from worker.domain.cluster.fields import dig, stamp, text
from worker.domain.diagnosis.causes import Basis, Cause, Diagnosis, Remedy, Strength
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.programs import volume_full
from worker.domain.diagnosis.services import workloads_behind
from worker.domain.diagnosis.settled import settled_since
from worker.domain.diagnosis.statements import short
from worker.domain.diagnosis.structure import container_specs, pod_spec_of, pods_of, rollout_of, root_of
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.transcript import Incident

QUIET = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Theme:
    """A family of signals by their words, and what it means for a workload."""

    words: re.Pattern[str]
    told: str
    signals: tuple[str, ...]
    remedies: frozenset[Remedy]
    resource: str = ""


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


THEMES = (
    Theme(_words(r"\b(?:de)?fragment"), "its database file is fragmented: much of it is free space (defragmentation gives it back)", ("EtcdHighFragmentation",), frozenset()),
    Theme(
        _words(r"\b(?:predict|leak|grow|approach|trend|near|high).{0,40}\b(?:memory|oom)\b|\b(?:memory|oom)\b.{0,40}\b(?:predict|leak|grow|approach|trend|near|high|usage|pressure)"),
        "its memory grows towards the limit", ("PredictedOOM", "MemoryLeak"), frozenset({Remedy.RESTART, Remedy.INCREASE_MEMORY}), "memory"),
    Theme(_words(r"\bcpu\b.{0,30}\bthrottl|\bthrottl.{0,30}\bcpu\b"), "its CPU is throttled at the limit", ("CPUThrottlingHigh", "CPUThrottling"), frozenset({Remedy.INCREASE_CPU}), "cpu"),
)  # fmt: skip
FILLING = _words(r"\b(?:fill\w*|full|exhaust\w*|space|usage|capacity|almost|running out)\b")
ERRORS = _words(r"\b(?:errors?|latency|slo|budget|5xx|availability|failures?|timeouts?|slow)\b")


def spoken_finding(facts: ClusterFacts, incident: Incident) -> Diagnosis | None:
    """The trouble that the words of the signal name; None when they name none that is known."""
    ref = incident.resource
    if ref.kind == "PersistentVolumeClaim":
        return volume_full(facts, ref) if FILLING.search(incident.words) and facts.get(ref) else None
    workload = _workload(facts, ref)
    theme = next((t for t in THEMES if t.words.search(incident.words)), None)
    if theme is not None and facts.get(workload):
        return _themed(facts, workload, theme, incident)
    return _after_rollout(facts, workload, incident) if ERRORS.search(incident.words) else None


def _workload(facts: ClusterFacts, ref: ObjectRef) -> ObjectRef:
    """The workload of the object: the owner of a pod, or the only workload behind a Service."""
    behind = workloads_behind(facts, ref) if ref.kind == "Service" else []
    pods = pods_of(facts, ref) if ref.kind == "Pod" else []
    return root_of(facts, pods[0]) if pods else behind[0] if len(behind) == 1 else ref


def _themed(facts: ClusterFacts, workload: ObjectRef, theme: Theme, incident: Incident) -> Diagnosis:
    specs = container_specs(pod_spec_of(facts.get(workload) or {}))
    found = [(text(dig(c, "resources", "limits", theme.resource)), text(c.get("name"))) for c in specs]
    limit, container = next((pair for pair in found if pair[0]), ("", ""))
    bound = f" ({theme.resource} limit {limit})" if limit else ""
    return Diagnosis(
        cause=Cause.NOT_READY,
        object=workload,
        sentence=f"{workload}: {theme.told}{bound}, as the signal says: {short(incident.message or incident.signal_type)}.",
        remedies=theme.remedies,
        signals=theme.signals,
        reads=(workload,),
        container=container,
        basis=Basis.TEXT,
    )


def _after_rollout(facts: ClusterFacts, workload: ObjectRef, incident: Incident) -> Diagnosis | None:
    """Errors of a workload that was rolled out, without another explanation."""
    rollout = rollout_of(facts, workload)
    if rollout is None:
        return None
    return Diagnosis(
        cause=Cause.BAD_ROLLOUT,
        object=workload,
        sentence=f"{short(incident.message or incident.signal_type)}: the last rollout of {workload} changed {rollout.told}; the revision before is {rollout.revision}.",
        strength=Strength.TIMED,
        remedies=frozenset({Remedy.ROLL_BACK}),
        signals=("ErrorBudgetBurn", "HighErrorRate"),
        reads=(workload,),
        revision=rollout.revision,
        basis=Basis.TEXT,
    )


def recovered(facts: ClusterFacts, incident: Incident) -> str:
    """The proof that the problem is over, by the rule by which the worker checks this; or empty."""
    since = settled_since(facts, incident.resource, incident.signal_type)
    if since is None or (facts.now is not None and facts.now - since < QUIET):
        return ""
    return f"{incident.resource} has shown the opposite of {incident.signal_type} since {stamp(since)}"
