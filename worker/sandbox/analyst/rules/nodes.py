"""Nodes: not ready, under pressure, cordoned."""

from __future__ import annotations

import re

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_list, dig, make_ref
from worker.sandbox.analyst.rules import evictions
from worker.sandbox.analyst.rules.case import Case, short
from worker.sandbox.analyst.shapes import condition

SILENT = re.compile(r"stopped posting|unknown|never posted|unreachable", re.IGNORECASE)
CAUSES = (
    (re.compile(r"PLEG", re.IGNORECASE), "the kubelet's pod lifecycle generator (PLEG) hangs, mostly because the container runtime does not answer"),
    (re.compile(r"container runtime|containerd|docker|cri-?o|runtime (?:is )?(?:down|network)", re.IGNORECASE), "the container runtime is down or does not answer"),
    (re.compile(r"cni|network plugin|NetworkPluginNotReady|network is not ready", re.IGNORECASE), "its network plugin (CNI) is not ready"),
    (re.compile(r"certificate|x509", re.IGNORECASE), "the kubelet's certificate is not accepted"),
    (re.compile(r"disk|image filesystem|ephemeral", re.IGNORECASE), "its disk is in trouble"),
    (SILENT, "its kubelet is silent: the machine is down, cut off, or the kubelet has died"),
)  # fmt: skip
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
PROBLEMS = re.compile(
    r"KernelDeadlock|ReadonlyFilesystem|FrequentKubeletRestart|FrequentContainerdRestart|FrequentDockerRestart|CorruptDockerOverlay2|Problem"
)


def known_unready(facts: Facts, name: str) -> bool:
    """Whether the node is known to be not ready, without asking."""
    manifest = facts.get("Node", name, ask=False)
    if manifest is not None:
        return str(condition(manifest, "Ready").get("status")) in {"False", "Unknown"}
    return any(
        r.get("NAME") == name and r.get("STATUS", "").startswith("NotReady")
        for r in facts.rows("Node", ask=False)
    )


def diagnose_node(case: Case, ref: ObjectRef) -> Finding | None:
    """What is wrong with a node."""
    manifest = case.facts.of(ref)
    if manifest is None:
        return None
    finding = unready_finding(case, ref.name, seen="")
    if finding is not None:
        return finding
    finding = pressure_finding(case, ref)
    if finding is not None:
        return finding
    return _reported_problem(ref, manifest) or _cordoned(ref, manifest)


def unready_finding(case: Case, name: str, *, seen: str) -> Finding | None:
    """A node whose Ready condition is not True; None when it is ready or not known."""
    manifest = case.facts.get("Node", name)
    ready = condition(manifest, "Ready") if manifest else {}
    if str(ready.get("status")) not in {"False", "Unknown"}:
        return None
    ref = make_ref("Node", name)
    message = f"{ready.get('reason') or ''} {ready.get('message') or ''}".strip()
    why = next((told for pattern, told in CAUSES if pattern.search(message)), "see its conditions")
    events = case.facts.events_of(ref)
    drops = sum(e.count for e in events if e.reason == "NodeNotReady" and e.kind == "Node")
    flapping = f"; it went NotReady {drops} times" if drops > 1 else ""
    since = f" since {ready.get('lastTransitionTime')}" if ready.get("lastTransitionTime") else ""
    others = "; ".join(
        f"{e.reason} x{e.count}: {short(e.message, 100)}" for e in events if e.type == "Warning"
    )[:300]
    told = f"{ref} is NotReady{since}: {short(message)}"
    pressure = [p for p in PRESSURES if manifest and condition(manifest, p).get("status") == "True"]
    return Finding(
        family="node",
        summary=f"{f'{seen} ' if seen else ''}{told}: {why}{flapping}.{f' Further: {others}.' if others else ''}",
        target=ref,
        certainty=0.9,
        symptoms=("NodeNotReady",),
        remedies=(RemedyKind.DRAIN, RemedyKind.RESTART_NODE_AGENT, RemedyKind.CORDON),
        factors=(told, why, *pressure),
        workload=None,
        traits=frozenset({"node_failure", "node_not_ready", "persistent"}),
        denied=frozenset(
            {"oom", "config_content", "template_changed", "short_interruption", "investigation_only"}
        ),
        hints={"node": name},
    )


def pressure_finding(case: Case, ref: ObjectRef) -> Finding | None:
    """A node under pressure: the pod that uses most, or the node's own disk."""
    manifest = case.facts.of(ref)
    kinds = [p for p in PRESSURES if manifest and condition(manifest, p).get("status") == "True"]
    if manifest is None or not kinds:
        return None
    found = condition(manifest, kinds[0])
    told = f"{ref} has {kinds[0]} since {found.get('lastTransitionTime')}: {short(str(found.get('message') or ''))}"
    culprit = evictions.culprit_finding(case, ref.name, told)
    if culprit is not None:
        return culprit
    disk = kinds[0] == "DiskPressure"
    remedies = (
        (RemedyKind.CLEAN_NODE, RemedyKind.CORDON, RemedyKind.DRAIN)
        if disk
        else (RemedyKind.CORDON, RemedyKind.DRAIN)
    )
    return Finding(
        family="node-pressure",
        summary=f"{told}. No single pod stands out{': images, logs and temporary files use the disk' if disk else ''}.",
        target=ref,
        certainty=0.8 if disk else 0.7,
        symptoms=(kinds[0], "Evicted", "NodeNotReady") if disk else ("Evicted", kinds[0], "NodeNotReady"),
        remedies=remedies,
        factors=(told,),
        traits=frozenset(
            {"disk_pressure" if disk else "node_memory" if kinds[0] == "MemoryPressure" else "pid_pressure"}
        ),
        denied=frozenset({"oom", "config_content", "template_changed", "disk_by_pod"}),
        hints={"node": ref.name},
    )


def _reported_problem(ref: ObjectRef, manifest: Manifest) -> Finding | None:
    """What a problem detector has written into the node's conditions."""
    for entry in as_list(dig(manifest, "status", "conditions")):
        if (
            isinstance(entry, dict)
            and entry.get("status") == "True"
            and PROBLEMS.search(str(entry.get("type")))
        ):
            told = f"{ref} reports {entry.get('type')}: {short(str(entry.get('message') or ''))}"
            return Finding("node-problem", f"{told}.", ref, 0.78, (str(entry.get("type")), "NodeNotReady"), (RemedyKind.DRAIN, RemedyKind.CORDON),
                           (told,), None, frozenset({"node_failure"}), frozenset({"oom", "config_content"}), {"node": ref.name})  # fmt: skip
    return None


def _cordoned(ref: ObjectRef, manifest: Manifest) -> Finding | None:
    if dig(manifest, "spec", "unschedulable") is not True:
        return None
    told = f"{ref} is cordoned: it takes no new pods"
    return Finding("cordoned", f"{told}.", ref, 0.62, ("NodeUnschedulable", "FailedScheduling"), (RemedyKind.UNCORDON,), (told,), None,
                   frozenset({"cordoned"}), frozenset({"oom"}), {"node": ref.name})  # fmt: skip
