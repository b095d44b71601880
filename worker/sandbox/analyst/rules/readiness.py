"""Containers that run and are not ready: what they wait for, or a probe that is wrong."""

from __future__ import annotations

from dataclasses import replace

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding
from worker.sandbox.analyst.loglines import Trouble, telling_lines
from worker.sandbox.analyst.refs import as_dict, as_list, dig, make_ref
from worker.sandbox.analyst.rules import messages, probes
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import last_change
from worker.sandbox.analyst.shapes import ContainerState, condition


def not_ready_finding(
    case: Case, pod: Manifest, state: ContainerState, workload: ObjectRef | None
) -> Finding | None:
    """Why a running container is not ready, or why an init container does not end."""
    namespace, name = str(dig(pod, "metadata", "namespace") or ""), str(dig(pod, "metadata", "name") or "")
    target = workload or make_ref("Pod", name, namespace)
    case.facts.ask_events(namespace)
    lines = case.facts.log(namespace, name, state.name, previous=False)
    failure = probes.probe_failure(case, pod)
    telling = telling_lines(lines)
    decided = messages.from_lines(
        case, pod, state, target, [t for t in telling if t.trouble is not Trouble.CRASH]
    )
    if decided is not None:
        return _late(case, decided, target)
    if failure is not None:
        return probes.probe_finding(case, pod, state, target, failure)
    gate = _readiness_gate(pod)
    if gate:
        return Finding(
            "gate", f"{target} is not ready: readiness gate {gate} is not met.", target, 0.5, workload=target
        )
    if not telling:
        return None
    told = f"container {state.name} of {target} runs but is not ready; its last telling line: {short(telling[0].line)}"
    finding = Finding(
        "not-ready",
        f"{sentence(told)}.",
        target,
        0.5,
        ("CrashLoopBackOff",),
        factors=(told,),
        workload=target,
    )
    return with_change(finding, last_change(case.facts, target))


def _late(case: Case, finding: Finding, workload: ObjectRef) -> Finding:
    """The finding as what keeps a rollout from its progress deadline, when the workload itself is to blame."""
    progressing = condition(case.facts.of(workload, ask=False) or {}, "Progressing")
    if finding.target != workload or progressing.get("reason") != "ProgressDeadlineExceeded":
        return finding
    return replace(finding, symptoms=("ProgressDeadlineExceeded", *finding.symptoms))


def _readiness_gate(pod: Manifest) -> str:
    for gate in as_list(dig(pod, "spec", "readinessGates")):
        kind = str(as_dict(gate).get("conditionType") or "")
        if condition(pod, kind).get("status") != "True":
            return kind
    return ""
