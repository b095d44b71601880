"""The signal type of an answer: what was observed, in a name that is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from schemas.taxonomy import SignalType
from worker.domain.diagnosis.causes import Cause, Diagnosis

NOISE = frozenset(
    ["kube", "kubernetes", "container", "containers", "pod", "pods", "too", "not", "high", "low", "alert",
     "critical", "warning", "is", "the", "a", "of", "in", "on", "back", "off"]
)  # fmt: skip
SHOWN_BY_STATE = frozenset(map(str, SignalType))
"""Names of states. If a cause is known, an alert that sounds like one of them is not taken for it."""
SYNONYMS = {
    "exhausted": "exhaust", "exhaustion": "exhaust", "filling": "exhaust", "full": "exhaust", "space": "exhaust",
    "persistentvolume": "pvc", "persistent": "pvc", "volume": "pvc", "claim": "pvc", "persistentvolumeclaim": "pvc",
    "maxed": "max", "maxedout": "max", "out": "max", "horizontalpodautoscaler": "hpa",
    "looping": "crashloop", "crashlooping": "crashloop", "crash": "crashloop", "loop": "crashloop",
    "killing": "kill", "killed": "kill", "oomkilled": "oom", "oomkilling": "oom",
    "pdb": "budget", "disruption": "budget", "disruptionbudget": "budget", "poddisruptionbudget": "budget",
    "failure": "fail", "failed": "fail", "failing": "fail", "error": "fail", "errors": "fail",
    "expired": "expire", "expiring": "expire", "expiry": "expire", "expiration": "expire",
    "resourcequota": "quota", "exceeded": "exceed", "connections": "connection", "database": "connection", "pool": "connection",
    "scheduled": "schedule", "scheduling": "schedule", "unschedulable": "schedule", "fragmented": "fragmentation", "authentication": "auth", "credentials": "auth", "unauthorized": "auth",
}  # fmt: skip
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-\s]+")
SUBJECTS = frozenset(
    ["node", "pvc", "hpa", "budget", "etcd", "operator", "csv", "quota", "auth", "cron", "job", "namespace"]
)
CLOSE, SURE = 0.6, 0.75
CONSISTENT = {
    Cause.OUT_OF_MEMORY: frozenset({"OOMKilled", "BackoffLimitExceeded"}),
    Cause.IMAGE: frozenset({"ImagePullBackOff"}),
    Cause.NODE: frozenset({"NodeNotReady"}),
}
"""Causes that an alert of another name must not rename."""


def choose_signal(finding: Diagnosis | None, there: Sequence[str], alert: str, known: Sequence[str]) -> str:
    """The name to answer with; empty when nothing fits.

    `there` are the signal types that the object of the signal shows. `known` are the names that prompt and
    catalog allow. The alert's own name counts when it is one of them and does not speak against what was
    found, or when nothing of what was found is allowed.
    """
    allowed = list(dict.fromkeys([*known, *map(str, SignalType)]))
    observed = finding.signals if finding else ()
    exact = next((a for a in allowed if a.lower() == alert.lower()), "")
    if exact and (
        finding is None or not observed or exact in CONSISTENT.get(finding.cause, {exact, *observed})
    ):
        return exact
    lower = {s.lower() for s in observed}
    alerted = closest(alert, [a for a in allowed if a.lower() in lower], SURE)
    if alerted:
        return alerted
    for name in (*observed, *there):
        match = next((a for a in allowed if a.lower() == name.lower()), "") or closest(name, allowed, SURE)
        if match:
            return match
    return closest(alert, [a for a in allowed if finding is None or a not in SHOWN_BY_STATE], CLOSE)


def closest(name: str, allowed: Iterable[str], least: float) -> str:
    """The allowed name that shares most words with a name; empty when none shares enough."""
    wanted = _tokens(name)
    best, score = "", 0.0
    for candidate in allowed:
        tokens = _tokens(candidate)
        if (tokens - wanted) & SUBJECTS or not (wanted & tokens) - SUBJECTS - {"fail"}:
            continue  # about another kind of object, or only of the same kind: it may say the opposite
        shared = len(wanted & tokens)
        value = shared / len(tokens) * 0.7 + shared / len(wanted) * 0.3
        if value > score:
            best, score = candidate, value
    return best if score >= least else ""


def _tokens(name: str) -> set[str]:
    words = [w.lower() for w in CAMEL.split(name) if w]
    return {SYNONYMS.get(w, w) for w in words if w not in NOISE}
