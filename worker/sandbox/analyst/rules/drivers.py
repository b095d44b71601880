"""Storage drivers: the pods that attach, mount and provision volumes for everybody else."""

from __future__ import annotations

import re

from worker.sandbox.analyst.finding import Finding
from worker.sandbox.analyst.refs import make_ref
from worker.sandbox.analyst.rules.case import Case

COMMON = frozenset(
    {"csi", "com", "io", "org", "net", "k8s", "kubernetes", "storage", "driver", "plugin", "dev"}
)
MAX_FOLLOWED = 2


def agent_finding(case: Case, driver: str, kinds: tuple[str, ...]) -> Finding | None:
    """What is wrong with the workload that runs a driver; None when it is well or cannot be told by its name."""
    tokens = {t for t in re.split(r"[^a-z0-9]+", driver.lower()) if len(t) > 1} - COMMON
    for kind in kinds:
        fitting = [
            (r["NAME"], r.get("NAMESPACE", ""))
            for r in case.facts.rows(kind)
            if tokens & set(r.get("NAME", "").split("-"))
        ]
        for name, namespace in fitting[:MAX_FOLLOWED]:
            finding = case.follow(make_ref(kind, name, namespace))
            if finding is not None:
                return finding
    return None
