"""Taints, selectors and affinities that keep pods from every node."""

from __future__ import annotations

import re

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, dig, make_ref
from worker.sandbox.analyst.rules import nodes
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import seen_from, with_change
from worker.sandbox.analyst.rules.rollouts import last_change
from worker.sandbox.analyst.shapes import labels_of, pod_spec

TAINT = re.compile(
    r"untolerated taint\(?s?\)? ?\{([^}:]+)(?::\s*([^}]*))?\}|had taint \{([^}:]+)(?::\s*([^}]*))?\}"
)
CONTROL_PLANE = re.compile(r"node-role\.kubernetes\.io/(?:control-plane|master)")
LIFECYCLE = {
    "node.kubernetes.io/unschedulable": "cordoned",
    "node.kubernetes.io/not-ready": "not ready",
    "node.kubernetes.io/unreachable": "unreachable",
    "node.kubernetes.io/disk-pressure": "under disk pressure",
    "node.kubernetes.io/memory-pressure": "under memory pressure",
    "node.kubernetes.io/pid-pressure": "out of process ids",
    "node.kubernetes.io/network-unavailable": "without network",
}
SELECTOR = re.compile(
    r"didn't match Pod's node (?:affinity|selector)|node\(s\) didn't match (?:node )?selector|(?<!volume )node affinity",
    re.IGNORECASE,
)
PORTS = re.compile(r"free ports for the requested pod ports", re.IGNORECASE)
SPREAD = re.compile(r"topology spread|anti-affinity|affinity rules", re.IGNORECASE)
CORDONED = re.compile(r"were unschedulable|SchedulingDisabled", re.IGNORECASE)
SYMPTOMS = ("FailedScheduling", "PodPending", "Unschedulable")


def placement_finding(case: Case, pod: Manifest, target: ObjectRef, message: str) -> Finding | None:
    """The rule that keeps the pods of a workload from the nodes, as far as it is known."""
    if SELECTOR.search(message):
        return _selector(case, pod, target, message)
    taint = _custom_taint(message)
    if taint is not None:
        return _tainted(case, target, taint, message)
    state = next(
        (word for key, word in LIFECYCLE.items() if key in message),
        "cordoned" if CORDONED.search(message) else "",
    )
    if state:
        return _node_state(case, target, state, message)
    if PORTS.search(message):
        told = (
            f"the host port that the pods of {target} ask for is taken on every node: {short(message, 160)}"
        )
        return _finding(case, target, told, 0.8, {"host_port"})
    if SPREAD.search(message):
        return _finding(
            case,
            target,
            f"its spread or anti-affinity rules leave no node: {short(message, 160)}",
            0.74,
            {"affinity"},
        )
    return None


def _custom_taint(message: str) -> tuple[str, str] | None:
    """Key and value of a taint that somebody set on purpose; the control plane's and the node lifecycle's are not."""
    for match in TAINT.finditer(message):
        key, value = (match[1] or match[3] or "").strip(), (match[2] or match[4] or "").strip()
        if not CONTROL_PLANE.search(key) and key not in LIFECYCLE:
            return key, value
    return None


def _tainted(case: Case, target: ObjectRef, taint: tuple[str, str], message: str) -> Finding:
    key, value = taint
    holders = [
        r for r in case.facts.rows("Node") if f"{key}{'=' + value if value else ''}:" in r.get("TAINTS", "")
    ]
    shown = f"{key}{'=' + value if value else ''}"
    nodes_told = ", ".join(r.get("NAME", "") for r in holders) or "the nodes"
    told = f"the taint {shown} on {nodes_told} is not tolerated by the pods of {target}"
    node = make_ref("Node", holders[0]["NAME"]) if len(holders) == 1 else None
    finding = Finding(
        family="taint",
        summary=f"{sentence(told)}, so they cannot be scheduled: {short(message, 160)}.",
        target=node or target,
        certainty=0.84,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.UNTAINT, RemedyKind.FIX_PLACEMENT),
        factors=(told,),
        workload=target,
        traits=frozenset({"taint"}),
        denied=frozenset(
            {
                "oom",
                "node_failure",
                "insufficient_resources",
                "affinity",
                "claim_unbound",
                "claim_missing",
                "quota",
                "config_content",
            }
        ),
        hints={
            "node": node.name if node else (holders[0]["NAME"] if holders else ""),
            "taint": key,
            "taint_value": value,
        },
    )
    return with_change(finding, last_change(case.facts, target), only=("toleration",))


def _node_state(case: Case, target: ObjectRef, state: str, message: str) -> Finding | None:
    """Nodes that take no pods for what has happened to them."""
    for row in case.facts.rows("Node"):
        name = row.get("NAME", "")
        if row.get("STATUS", "").startswith("NotReady"):
            unready = nodes.unready_finding(case, name, seen=f"The pods of {target} cannot be scheduled.")
            if unready is not None:
                return unready
        if "SchedulingDisabled" in row.get("STATUS", "") and state == "cordoned":
            told = f"Node {name} is cordoned (unschedulable), and no other node takes the pods of {target}"
            return Finding("cordoned", f"{told}: {short(message, 160)}.", make_ref("Node", name), 0.8, SYMPTOMS,
                           (RemedyKind.UNCORDON,), (told,), target, frozenset({"cordoned"}),
                           frozenset({"oom", "affinity", "claim_unbound", "quota"}), {"node": name})  # fmt: skip
        if "Pressure=True" in row.get("CONDITIONS", ""):
            pressed = nodes.pressure_finding(case, make_ref("Node", name))
            told = f"the pods of {target} cannot be scheduled"
            return seen_from(pressed, SYMPTOMS[0], target, told) if pressed else None
    return _finding(case, target, f"the nodes are {state}: {short(message, 160)}", 0.66, {"node_failure"})


def _selector(case: Case, pod: Manifest, target: ObjectRef, message: str) -> Finding:
    wanted = {str(k): str(v) for k, v in as_dict(pod_spec(pod).get("nodeSelector")).items()}
    affinity = dig(
        pod_spec(pod), "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    shown = ", ".join(f"{k}={v}" for k, v in wanted.items()) or (
        short(str(affinity), 160) if affinity else "its node affinity"
    )
    near = _nearest_value(case.facts, wanted)
    told = f"no node has the labels that the pods of {target} require ({shown}){near}"
    return _finding(case, target, told, 0.86, {"affinity", "node_selector"}, message)


def _nearest_value(facts: Facts, wanted: dict[str, str]) -> str:
    """Values that nodes do have for the wanted keys."""
    found = []
    for key in wanted:
        values = sorted({v for node in facts.objects("Node") if (v := labels_of(node).get(key))})
        if values:
            found.append(f"{key} is {' or '.join(values)} on the nodes")
    if not found:
        for row in facts.rows("Node")[:3]:
            facts.get("Node", row.get("NAME", ""))
    return f"; {'; '.join(found)}" if found else ""


def _finding(
    case: Case, target: ObjectRef, told: str, certainty: float, traits: set[str], message: str = ""
) -> Finding:
    said = f" The scheduler says: {short(message, 160)}." if message else ""
    finding = Finding(
        family="placement",
        summary=f"{sentence(told)}.{said}",
        target=target,
        certainty=certainty,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.FIX_PLACEMENT,),
        factors=(told,),
        workload=target,
        traits=frozenset(traits),
        denied=frozenset(
            {"oom", "insufficient_resources", "claim_unbound", "claim_missing", "quota", "config_content"}
        ),
    )
    return with_change(
        finding, last_change(case.facts, target), only=("nodeSelector", "affinity", "topologySpread")
    )
