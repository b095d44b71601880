"""Building findings: what most rules have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.rules.rollouts import Change


def with_change(finding: Finding, change: Change | None, *, only: Iterable[str] = ()) -> Finding:
    """The finding with what the last rollout adds: its text, its traits, and a rollback as a remedy.

    `only` limits it to changes whose path holds one of the words.
    """
    words = tuple(only)
    relevant = change is not None and bool(change.parts) and (not words or change.touches(*words))
    if change is None or not relevant:
        return replace(finding, denied=finding.denied | {"template_changed", "recent_revision"})
    traits = {"template_changed", "recent_revision"}
    denied = set(finding.denied) - traits
    if change.healthy_before:
        traits.add("healthy_before")
    if change.touches("configMap", "secretName", "configMapRef", "secretRef"):
        traits.add("reference_changed")
    remedies = tuple(dict.fromkeys([*finding.remedies, RemedyKind.ROLLBACK, RemedyKind.REVERT_COMMIT]))
    return replace(
        finding,
        summary=f"{finding.summary} The last rollout explains it: {change.told()}.",
        factors=(*finding.factors, change.told()),
        remedies=remedies,
        traits=finding.traits | traits,
        denied=frozenset(denied),
        hints={**finding.hints, "revision": change.before},
    )


def seen_from(finding: Finding, symptom: str, workload: ObjectRef | None, told: str) -> Finding:
    """A finding about another object, as the cause of what is seen here."""
    symptoms = (symptom, *finding.symptoms) if symptom else finding.symptoms
    if told and told[-1] not in ".!?":
        told = f"{told}."
    return replace(
        finding,
        summary=f"{finding.summary} That is why {told}" if told else finding.summary,
        symptoms=tuple(dict.fromkeys(symptoms)),
        factors=(*finding.factors, *((told,) if told else ())),
        workload=finding.workload or workload,
        hints={**finding.hints, "via": str(workload) if workload else ""},
    )
