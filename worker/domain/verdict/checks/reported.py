"""What the cluster itself reports: reasons in status fields, events and tables, where no workload writes free text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from schemas.taxonomy import SignalType
from worker.domain.untrusted.evidence import Evidence, EvidenceKind
from worker.domain.verdict.checks.grounding import from_cluster

STATUS = '"status":{'
IN_DOCUMENT = re.compile(r'(?<!\\)"(?:reason|type|phase)":\s*"([A-Za-z]+)"')
IN_EVENT = re.compile(r"^\S+Z (?:Normal|Warning) ([A-Za-z]+)", re.MULTILINE)
CELL = " | "
WORD = re.compile(r"(?<![\w-])[A-Z][A-Za-z]+(?![\w-])")
SIGNS = {
    SignalType.OOM_KILLED: ("oomkilled", "oomkilling", "systemoom"),
    SignalType.CRASH_LOOP_BACK_OFF: ("crashloopbackoff", "backoff"),
    SignalType.IMAGE_PULL_BACK_OFF: (
        "imagepullbackoff",
        "errimagepull",
        "invalidimagename",
        "errimageneverpull",
    ),
    SignalType.EVICTED: ("evicted", "evictionthresholdmet"),
    SignalType.NODE_NOT_READY: ("nodenotready", "notready", "nodestatusunknown", "kubeletnotready"),
    SignalType.POD_PENDING: (
        "podpending",
        "pending",
        "containercreating",
        "podinitializing",
        "failedscheduling",
    ),
    SignalType.FAILED_SCHEDULING: ("failedscheduling", "unschedulable"),
    SignalType.BACKOFF_LIMIT_EXCEEDED: ("backofflimitexceeded",),
    SignalType.DEADLINE_EXCEEDED: ("deadlineexceeded", "progressdeadlineexceeded"),
    SignalType.FAILED_MOUNT: ("failedmount", "failedattachvolume", "containercreating"),
}
"""The reasons by which Kubernetes reports each of the core signal types."""


def reported(items: Iterable[Evidence]) -> frozenset[str]:
    """Every reason that stands in a field of the cluster's answers, in lower case. Logs report nothing."""
    found: set[str] = set()
    for item in from_cluster(items):
        if item.kind is EvidenceKind.EVENTS:
            found.update(IN_EVENT.findall(item.body))
        elif item.kind is not EvidenceKind.LOG:
            _, _, status = item.body.rpartition(STATUS)
            found.update(IN_DOCUMENT.findall(status))
            rows = (line for line in item.body.splitlines() if CELL in line and not line.startswith("{"))
            found.update(word for row in rows for word in WORD.findall(row))
    return frozenset(word.lower() for word in found)


def is_reported(signal_type: str, reasons: frozenset[str]) -> bool:
    """Whether the cluster reports the signal type; true for one that is no reason of Kubernetes: nobody could tell."""
    signs = SIGNS.get(signal_type)  # type: ignore[call-overload] # a StrEnum equals its text
    return signs is None or not reasons.isdisjoint(signs)
