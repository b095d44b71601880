"""One pod: which of its states decides, and which family of rules explains it."""

from __future__ import annotations

import re

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_list, dig, make_ref
from worker.sandbox.analyst.rules import (
    crashes,
    evictions,
    images,
    mounts,
    nodes,
    readiness,
    sandboxes,
    scheduling,
)
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import last_change
from worker.sandbox.analyst.shapes import ContainerState, condition, container_states

PULLING = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
                     "RegistryUnavailable", "ErrImagePullBackOff"})  # fmt: skip
CONFIGURING = frozenset({"CreateContainerConfigError", "CreateContainerError"})
CRASHING = frozenset(
    {"CrashLoopBackOff", "RunContainerError", "StartError", "ContainerCannotRun", "PostStartHookError"}
)
CREATING = frozenset({"ContainerCreating", "PodInitializing"})
NODE_GONE = re.compile(r"node (?:is )?(?:not ready|lost|unreachable)|NodeLost|NodeNotReady", re.IGNORECASE)


def diagnose_pod(case: Case, pod: Manifest, workload: ObjectRef | None) -> Finding | None:
    """The cause of a pod's state; None when it is well or when no rule decides."""
    status = pod.get("status") if isinstance(pod.get("status"), dict) else {}
    if (status or {}).get("reason") == "Evicted":
        return evictions.eviction_finding(case, pod, workload)
    finding = _node_first(case, pod)
    if finding is not None:
        return finding
    if dig(pod, "metadata", "deletionTimestamp"):
        return stuck_finding(pod, workload)
    if (status or {}).get("phase") == "Failed" and not container_states(pod):
        return _refused_finding(case, pod, workload)
    if (status or {}).get("phase") == "Pending" and condition(pod, "PodScheduled").get("status") == "False":
        return scheduling.pending_finding(case, pod, workload)
    return _by_container(case, pod, workload)


def _refused_finding(case: Case, pod: Manifest, workload: ObjectRef | None) -> Finding | None:
    """A pod that the kubelet did not admit: it was placed and has failed before any container started."""
    reason = str(dig(pod, "status", "reason") or "")
    if not reason:
        return None
    me, node = make_ref("Pod", _name(pod), _namespace(pod)), str(dig(pod, "spec", "nodeName") or "")
    target = workload or me
    message = short(str(dig(pod, "status", "message") or ""))
    told = f"node {node} refuses the pods of {target} before a container starts: {reason}: {message}"
    finding = Finding(
        family="refused",
        summary=f"{sentence(told)}.",
        target=target,
        certainty=0.8,
        factors=(told,),
        workload=target,
        traits=frozenset({"refused_by_node"}),
        denied=frozenset({"oom", "config_content", "dependency_down"}),
        hints={"node": node},
    )
    return with_change(finding, last_change(case.facts, target))


def _node_first(case: Case, pod: Manifest) -> Finding | None:
    """A node that is not ready outranks everything its pods show."""
    node = str(dig(pod, "spec", "nodeName") or "")
    if not node:
        return None
    hints = [str(dig(pod, "status", "reason") or ""), str(condition(pod, "Ready").get("reason") or "")]
    me = make_ref("Pod", _name(pod), _namespace(pod))
    hints += [f"{e.reason} {e.message}" for e in case.facts.events_of(me)]
    suspicious = any(NODE_GONE.search(h) for h in hints) or dig(pod, "status", "phase") == "Unknown"
    suspicious = suspicious or bool(dig(pod, "metadata", "deletionTimestamp"))
    if nodes.known_unready(case.facts, node) or suspicious:
        return nodes.unready_finding(
            case, node, seen=f"Pod {_namespace(pod)}/{_name(pod)} runs on node {node}."
        )
    return None


def _by_container(case: Case, pod: Manifest, workload: ObjectRef | None) -> Finding | None:
    state = worst_container(pod)
    if state is None:
        return sandboxes.creating_finding(case, pod, workload) if _waiting_to_start(pod) else None
    if state.waiting in PULLING:
        return images.image_finding(case, pod, state, workload)
    if state.waiting in CONFIGURING:
        return mounts.config_error_finding(case, pod, state, workload)
    if state.waiting in CREATING:
        return sandboxes.creating_finding(case, pod, workload)
    if state.waiting in CRASHING or state.exit_code is not None:
        return crashes.crash_finding(case, pod, state, workload)
    return readiness.not_ready_finding(case, pod, state, workload)


def worst_container(pod: Manifest) -> ContainerState | None:
    """The container that decides: an init container that does not end, else the worst of the others."""
    states = container_states(pod)
    inits = [s for s in states if s.init and not _init_done(s)]
    if inits:
        return inits[0]
    once = dig(pod, "spec", "restartPolicy") in {"Never", "OnFailure"}
    bad = [s for s in states if not s.init and _bad(s) and not (once and s.finished_well)]
    return min(bad, key=_order, default=None)


def _init_done(state: ContainerState) -> bool:
    """Whether an init container needs no more attention: it ended well, or it is a sidecar that runs."""
    return (state.exit_code == 0 and not state.waiting) or state.ready


def _bad(state: ContainerState) -> bool:
    return bool(state.waiting) or not state.ready or bool(state.restarts and state.exit_reason == "OOMKilled")


def _order(state: ContainerState) -> int:
    for rank, states in enumerate((CRASHING, PULLING, CONFIGURING, CREATING)):
        if state.waiting in states:
            return rank
    return 5 if state.exit_code else 6


def _waiting_to_start(pod: Manifest) -> bool:
    return str(dig(pod, "status", "phase") or "") in {"Pending", ""}


def well(pod: Manifest) -> bool:
    """Whether the pod needs no attention: it has finished, or it is ready and was not killed for its memory."""
    phase = str(dig(pod, "status", "phase") or "")
    if phase == "Succeeded":
        return True
    if dig(pod, "metadata", "deletionTimestamp") or phase in {"Failed", "Pending", "Unknown"}:
        return False
    return condition(pod, "Ready").get("status") == "True" and worst_container(pod) is None


def badness(pod: Manifest) -> int:
    """For sorting: crashes before waits before the rest."""
    state = worst_container(pod)
    return _order(state) if state else 7


def stuck_finding(pod: Manifest, workload: ObjectRef | None) -> Finding | None:
    """A pod that was deleted and does not go: finalizers, or a node that does not answer."""
    me = make_ref("Pod", _name(pod), _namespace(pod))
    finalizers = [str(f) for f in as_list(dig(pod, "metadata", "finalizers"))]
    if not finalizers:
        return None
    told = f"{me} was deleted at {dig(pod, 'metadata', 'deletionTimestamp')} and waits for finalizers {finalizers}"
    return Finding(
        family="finalizer",
        summary=f"{told}: whoever should remove them does not.",
        target=me,
        certainty=0.8,
        symptoms=("PodTerminatingStuck", "StuckTerminating", "PodPending"),
        remedies=(RemedyKind.REMOVE_FINALIZER,),
        factors=(told,),
        workload=workload,
        traits=frozenset({"finalizer"}),
    )


def _name(pod: Manifest) -> str:
    return str(dig(pod, "metadata", "name") or "")


def _namespace(pod: Manifest) -> str:
    return str(dig(pod, "metadata", "namespace") or "")
