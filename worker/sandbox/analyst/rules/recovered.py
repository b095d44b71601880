"""Signals whose trouble has ended by itself: nothing left to repair."""

from __future__ import annotations

import re

from worker.domain.cluster.quantities import seconds_between
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import make_ref
from worker.sandbox.analyst.rules import workloads
from worker.sandbox.analyst.rules.case import Case
from worker.sandbox.analyst.rules.rollouts import replicas_ready, replicas_wanted
from worker.sandbox.analyst.shapes import condition

STATE_ALERT = re.compile(
    r"crash|oom|not ?ready|pending|image ?pull|replicas ?mismatch|rollout ?stuck|waiting|restart",
    re.IGNORECASE,
)
NODE_ALERT = re.compile(r"not ?ready|unreachable|PLEG|kubelet", re.IGNORECASE)
QUIET_SECONDS = 600
FLAPS = 2


def recovered_finding(case: Case, ref: ObjectRef) -> Finding | None:
    """A workload that is whole again although its signal says that it is not. Never for signals about errors or load."""
    if ref.kind == "Node":
        return _node(case, ref)
    if not STATE_ALERT.search(f"{case.incident.signal_type} {case.incident.message}"):
        return None
    workload = _workload(case, ref)
    manifest = case.facts.of(workload) if workload else None
    if workload is None or manifest is None:
        return None
    wanted = replicas_wanted(manifest)
    rows = [
        r for r in case.facts.rows("Pod", workload.namespace, ask=False) if workloads.belongs(r, workload)
    ]
    whole = bool(wanted) and replicas_ready(manifest) == wanted and len(rows) >= (wanted or 0)
    calm = all(workloads.row_is_well(r) and r.get("RESTARTS") in {"0", ""} for r in rows)
    if not whole or not calm or _recent_warning(case, workload):
        return None
    told = f"{workload} has all {wanted} replicas ready, none of its pods has restarted, and no recent event warns about it"
    return Finding(
        family="recovered",
        summary=f"{told}: what {case.incident.signal_type} reported has ended.",
        target=workload,
        certainty=0.75,
        factors=(told,),
        workload=workload,
        outcome="problem_resolved",
    )


def _workload(case: Case, ref: ObjectRef) -> ObjectRef | None:
    if ref.kind in {"Deployment", "StatefulSet"}:
        return ref
    if ref.kind != "Pod":
        return None
    pod = case.facts.of(ref, ask=False)
    if pod is not None:
        return workloads.root_workload(case.facts, pod)
    return make_ref("Deployment", ref.name.rsplit("-", 2)[0], ref.namespace)


def _recent_warning(case: Case, workload: ObjectRef) -> bool:
    for event in case.facts.events:
        age = seconds_between(event.time, case.incident.received)
        about = event.name == workload.name or event.name.startswith(f"{workload.name}-")
        if event.type == "Warning" and about and (age is None or age < QUIET_SECONDS):
            return True
    return False


def _node(case: Case, ref: ObjectRef) -> Finding | None:
    """A node that is ready again: a short interruption, or one that keeps coming back."""
    manifest = case.facts.of(ref)
    ready = condition(manifest, "Ready") if manifest else {}
    if ready.get("status") != "True" or not NODE_ALERT.search(
        f"{case.incident.signal_type} {case.incident.message}"
    ):
        return None
    drops = sum(e.count for e in case.facts.events_of(ref) if e.reason == "NodeNotReady")
    if drops > FLAPS:
        told = f"{ref} is ready now, but went NotReady {drops} times"
        return Finding("node-flapping", f"{told}: it comes and goes.", ref, 0.72, ("NodeNotReady",), (RemedyKind.CORDON, RemedyKind.DRAIN), (told,), None,
                       frozenset({"node_failure", "investigation_only"}), frozenset({"oom", "config_content"}), {"node": ref.name})  # fmt: skip
    told = f"{ref} is Ready again since {ready.get('lastTransitionTime')}"
    return Finding(
        "recovered",
        f"{told}: what the signal reported has ended.",
        ref,
        0.75,
        ("NodeNotReady",),
        factors=(told,),
        outcome="problem_resolved",
    )
