"""What the catalog's texts say about when to use a workflow, held against what is known of the incident.

Only clauses about things that the finding, the request or the target's labels decide count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from worker.domain.cluster.conditions import condition
from worker.domain.cluster.fields import text
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.values.workflows import Workflow
from worker.sandbox.analyst.alert_words import ERRORS
from worker.sandbox.analyst.transcript import Incident

CONTENT = frozenset({Cause.INVALID_CONFIGURATION, Cause.BAD_CONFIGURATION_CHANGE})
TERMS: tuple[tuple[str, str], ...] = (
    (r"OOMKilled|out of memory", "oom"),
    (r"ConfigMap content|content of (?:a|the) (?:\w+ )?ConfigMap", "content"),
    (r"stands in a ConfigMap", "content"),
    (r"pod template (?:was )?(?:changed|edited)|new revision|recent rollout", "rollout"),
    (r"template now names", "rollout"),
    (r"progress ?deadline\w* (?:has |was )?(?:passed|exceeded)|passed its progress deadline", "late"),
    (r"inside the deadline", "early"),
    (r"not gitops", "no_gitops"),
    (r"(?<!not )gitops", "gitops"),
    (r"\bhelm\b", "helm"),
    (r"imperatively managed", "imperative"),
    (r"risk[_ ]tolerance ?(?:=|is|:) ?low", "risk_low"),
    (r"risk[_ ]tolerance ?(?:=|is|:) ?medium", "risk_medium"),
    (r"risk[_ ]tolerance ?(?:=|is|:) ?high", "risk_high"),
    (r"\bSLO\b|error budget", "errors"),
    (r"bad image|wrong tag|missing tag|image reference", "image"),
    (r"\bproduction\b", "production"),
    (r"\bstaging\b", "staging"),
    (r"crash\w* on start", "crashing"),
    (r"stale", "stale"),
    (r"gr(?:ow|ew|own)\w* (?:steadily )?towards", "growing"),
    (r"leaking client", "leaking_client"),
    (r"without expansion", "no_expansion"),
)
SURROUNDINGS = frozenset({"risk_low", "risk_medium", "risk_high", "imperative", "production", "staging"})
"""What says less about a fit than the finding itself."""
CLAUSE = re.compile(r"[;.]\s+|[;.]$|,\s*(?:or|and)?\s+|\s+or\s+")


def facts_about(
    finding: Diagnosis, incident: Incident, labels: Mapping[str, object], facts: ClusterFacts
) -> dict[str, bool]:
    """Return what is known to hold or not to hold, by the names in TERMS. What is not known is not there."""
    known = {
        "oom": finding.cause is Cause.OUT_OF_MEMORY,
        "content": finding.cause in CONTENT or finding.object.kind == "ConfigMap",
        "rollout": bool(finding.revision),
        "image": finding.cause is Cause.IMAGE and Remedy.REFRESH_PULL_SECRET not in finding.remedies,
        "errors": bool(ERRORS.search(incident.words)),
        "stale": finding.cause in {Cause.STALE_CONFIGURATION, Cause.STALE_CREDENTIALS},
        "growing": Remedy.RESTART in finding.remedies and "grows" in finding.sentence,
        "leaking_client": finding.cause is Cause.CONNECTIONS and Remedy.SCALE_DOWN in finding.remedies,
        "no_expansion": "does not allow expansion" in finding.sentence,
        "crashing": "CrashLoopBackOff" in finding.signals and finding.cause is not Cause.STALE_CREDENTIALS,
    }
    managed = {"gitops": labels.get("gitOpsManaged"), "helm": labels.get("helmManaged")}
    known |= {name: value for name, value in managed.items() if isinstance(value, bool)}
    if "gitops" in known:
        managed_so = known["gitops"] or known.get("helm", False)
        known |= {"no_gitops": not known["gitops"], "imperative": not managed_so}
    if incident.environment:
        known |= {name: incident.environment.startswith(name[:4]) for name in ("production", "staging")}
    if incident.risk_tolerance:
        known |= {f"risk_{level}": incident.risk_tolerance == level for level in ("low", "medium", "high")}
    workload = next((ref for ref in finding.subjects if ref.kind == "Deployment"), None)
    manifest = facts.get(workload) if workload else None
    if manifest is not None:
        late = text(condition(manifest, "Progressing").get("reason")) == "ProgressDeadlineExceeded"
        known |= {"late": late, "early": not late}
    return known


def score(workflow: Workflow, known: Mapping[str, bool]) -> float | None:
    """Return how far the texts speak for the workflow; None when they speak against it."""
    if any(all(verdicts.values()) for verdicts in _verdicts(workflow.when_not_to_use, known)):
        return None
    wanted = list(_verdicts(f"{workflow.when_to_use}. {workflow.preconditions}", known))
    if wanted and not any(v for verdicts in wanted for v in verdicts.values()):
        return None
    weights = [(0.25 if name in SURROUNDINGS else 0.5, v) for vs in wanted for name, v in vs.items()]
    return sum(weight if v else -weight for weight, v in weights)


def _verdicts(said: str, known: Mapping[str, bool]) -> Iterator[dict[str, bool]]:
    """For each clause that speaks of something known, what of it holds."""
    for clause in CLAUSE.split(said):
        names = [name for pattern, name in TERMS if re.search(pattern, clause, re.IGNORECASE)]
        found = {name: known[name] for name in names if name in known}
        if found:
            yield found
