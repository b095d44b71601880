"""Workloads that run nothing because somebody or something told them so."""

from __future__ import annotations

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import dig
from worker.sandbox.analyst.rules.case import Case, sentence
from worker.sandbox.analyst.rules.rollouts import replicas_wanted


def scaled_down_finding(case: Case, ref: ObjectRef, manifest: Manifest | None) -> Finding | None:
    """Scaled to zero, or a rollout that is paused."""
    if manifest is None:
        return None
    if replicas_wanted(manifest) == 0:
        events = [
            e
            for e in case.facts.events_of(ref)
            if "scaled down" in e.message.lower() or e.reason == "SuccessfulDelete"
        ]
        when = f" (last event: {events[-1].time} {events[-1].message})" if events else ""
        return _finding(
            ref,
            f"{ref} is scaled to 0 replicas{when}, so nothing runs",
            RemedyKind.SCALE_UP,
            "scaled_to_zero",
        )
    if dig(manifest, "spec", "paused") is True:
        return _finding(ref, f"the rollout of {ref} is paused", RemedyKind.RESUME, "paused")
    return None


def _finding(ref: ObjectRef, told: str, remedy: RemedyKind, trait: str) -> Finding:
    return Finding(
        family="idle",
        summary=f"{sentence(told)}.",
        target=ref,
        certainty=0.82,
        symptoms=("ReplicasMismatch", "ServiceUnavailable", "ScaledToZero"),
        remedies=(remedy,),
        factors=(told,),
        workload=ref,
        traits=frozenset({trait}),
        denied=frozenset({"oom", "config_content", "template_changed", "hurts_others"}),
        hints={"replicas": 1},
    )
