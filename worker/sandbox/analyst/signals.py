"""The signal type of an answer: what is seen at the alerted object, in a name that is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from worker.sandbox.analyst.finding import Finding

CORE = ("OOMKilled", "CrashLoopBackOff", "ImagePullBackOff", "Evicted", "NodeNotReady", "PodPending", "FailedScheduling",
        "BackoffLimitExceeded", "DeadlineExceeded", "FailedMount")  # fmt: skip
NOISE = frozenset(
    {"kube", "kubernetes", "container", "containers", "pod", "pods", "too", "high", "low", "alert", "persistent",
     "critical", "warning", "is", "the", "a", "of", "in", "on", "back", "off"}
)  # fmt: skip
SYNONYMS = {
    "exhausted": "exhaust", "exhaustion": "exhaust", "filling": "exhaust", "full": "exhaust", "space": "exhaust",
    "persistentvolume": "pvc", "persistent": "pvc", "volume": "pvc", "claim": "pvc", "persistentvolumeclaim": "pvc",
    "maxed": "max", "maxedout": "max", "out": "max", "horizontalpodautoscaler": "hpa",
    "looping": "crashloop", "crashlooping": "crashloop", "crash": "crashloop", "loop": "crashloop",
    "killing": "kill", "killed": "kill", "oomkilled": "oom", "oomkilling": "oom",
    "pdb": "budget", "disruption": "budget", "disruptionbudget": "budget", "poddisruptionbudget": "budget",
    "failure": "fail", "failed": "fail", "failing": "fail", "error": "fail", "errors": "fail",
    "expired": "expire", "expiring": "expire", "expiry": "expire", "expiration": "expire",
    "quota": "quota", "resourcequota": "quota", "exceeded": "exceed", "notready": "notready",
    "connections": "connection", "database": "connection", "pool": "connection",
    "etcd": "etcd", "fragmented": "fragmentation", "authentication": "auth", "credentials": "auth", "unauthorized": "auth",
}  # fmt: skip
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-\s]+")
SUBJECTS = frozenset(
    {"node", "pvc", "hpa", "budget", "etcd", "operator", "csv", "quota", "auth", "cron", "job", "namespace"}
)
CLOSE = 0.6
SURE = 0.75
CONSISTENT: dict[str, frozenset[str]] = {
    "oom": frozenset({"OOMKilled"}),
    "image": frozenset({"ImagePullBackOff"}),
    "pull-secret": frozenset({"ImagePullBackOff"}),
    "node": frozenset({"NodeNotReady"}),
}


def choose_signal(finding: Finding | None, alert: str, known: Sequence[str]) -> str:
    """The name to answer with; empty when nothing fits.

    `known` are the names the prompt and the catalog allow. The alert's own name counts when it is one of them and does
    not speak against what was found, or when nothing of what was found is allowed.
    """
    allowed = list(dict.fromkeys([*known, *CORE]))
    symptoms = finding.symptoms if finding else ()
    exact = next((a for a in allowed if a.lower() == alert.lower()), "")
    if exact and (finding is None or not symptoms or _consistent(finding, exact)):
        return exact
    seen = [a for a in allowed if a.lower() in {s.lower() for s in symptoms}]
    alerted = closest(alert, seen, SURE)
    if alerted:
        return alerted
    for symptom in symptoms:
        match = next((a for a in allowed if a.lower() == symptom.lower()), "") or closest(
            symptom, allowed, SURE
        )
        if match:
            return match
    return closest(alert, allowed, CLOSE)


def _consistent(finding: Finding, name: str) -> bool:
    strict = CONSISTENT.get(finding.family)
    return name in finding.symptoms or strict is None or name in strict


def closest(name: str, allowed: Iterable[str], least: float) -> str:
    """The allowed name that shares most words with a name; empty when none shares enough."""
    wanted = _tokens(name)
    best, score = "", 0.0
    for candidate in allowed:
        tokens = _tokens(candidate)
        if (tokens - wanted) & SUBJECTS:
            continue
        shared = len(wanted & tokens)
        if not (wanted & tokens) - SUBJECTS:
            continue  # of the same kind of object only: it may say the opposite
        value = shared / len(tokens) * 0.7 + shared / len(wanted) * 0.3
        if value > score:
            best, score = candidate, value
    return best if score >= least else ""


def _tokens(name: str) -> set[str]:
    words = [w.lower() for w in CAMEL.split(name) if w]
    return {SYNONYMS.get(w, w) for w in words if w not in NOISE or w == "persistent"}
