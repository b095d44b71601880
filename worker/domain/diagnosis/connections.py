"""Finds the client that holds the connections of a server without free ones, from the logs of its clients."""

from __future__ import annotations

import re
from dataclasses import dataclass

from worker.domain.cluster.fields import name_of, reference
from worker.domain.cluster.pods import containers, pod_failing
from worker.domain.diagnosis.causes import named
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.loglines import Trouble, classify
from worker.domain.diagnosis.structure import root_of
from worker.domain.values.objects import ObjectRef

MAX_CLIENTS = 6
MAX_COUNT = 5000
HOLDING = re.compile(
    r"(?:open|opened|opening|hold|holding|held|acquir\w+|establish\w+|created?|creating|keep\w*|persist\w+|idle|pool\w*)\b"
    r".{0,60}\bconnections?\b|\bconnections?\b.{0,40}(?:held|open|opened|idle|leak\w*|kept|established|active|in use|acquired)",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\b(\d{1,5})\b")


@dataclass(frozen=True, slots=True)
class Holder:
    """A client that holds connections. `count` is 0 if its log does not say how many."""

    workload: ObjectRef
    count: int
    line: str


def holder(facts: ClusterFacts, namespace: str, server: ObjectRef) -> Holder | None:
    """The running client that holds most connections by its log, and is not refused any itself."""
    best: Holder | None = None
    pods = [(p, root_of(facts, p)) for p in facts.list("Pod", namespace).items if not pod_failing(p)]
    clients = [(pod, root) for pod, root in pods if named(root) != named(server)]
    for pod, root in clients[:MAX_CLIENTS]:
        name = next((c.name for c in containers(pod) if c.kind == "app"), name_of(pod))
        lines = facts.log(reference(pod), name, previous=False)
        held = [line for line in lines if HOLDING.search(line)]
        refused = any(classify(line) is Trouble.POOL and not HOLDING.search(line) for line in lines)
        if refused or not held:
            continue
        count = max((int(n) for line in held for n in NUMBER.findall(line) if int(n) < MAX_COUNT), default=0)
        if best is None or count > best.count:
            best = Holder(root, count, held[-1])
    return best
