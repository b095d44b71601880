"""Containers killed for their memory."""

from __future__ import annotations

from worker.domain.cluster.quantities import doubled, quantity
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, dig
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import Change, last_change, revisions
from worker.sandbox.analyst.shapes import ContainerState, container_named, pod_spec


def memory_finding(case: Case, pod: Manifest, state: ContainerState, target: ObjectRef) -> Finding:
    """OOMKilled at the container's own limit, or for lack of memory on the node when it has no limit."""
    spec = pod_spec(pod)
    container = container_named(spec, state.name)
    limit = str(dig(container, "resources", "limits", "memory") or "")
    change = last_change(case.facts, target)
    told = f"container {state.name} of {target} was OOMKilled (exit code {state.exit_code}, {state.restarts} restarts)"
    if not limit:
        return _without_limit(told, state, target)
    details = (
        _volatile(spec, container),
        _history(case.facts, target, state.name),
        _last_words(case, pod, state),
    )
    extras = [extra for extra, _ in details if extra]
    traits = {"oom", "oom_own_limit", *(trait for _, trait in details if trait)}
    main = f"{sentence(told)}: its processes exceed the memory limit of {limit}."
    lowered = _lowered(change, limit)
    finding = Finding(
        family="oom",
        summary=" ".join([main, *(f"{sentence(e)}." for e in extras)]),
        target=target,
        certainty=0.92,
        symptoms=("OOMKilled",),
        remedies=(RemedyKind.MORE_MEMORY, RemedyKind.ROLLBACK, RemedyKind.RESTART)
        if lowered
        else (RemedyKind.MORE_MEMORY, RemedyKind.RESTART),
        factors=(told, f"memory limit {limit}", *extras),
        workload=target,
        traits=frozenset(traits),
        denied=frozenset(
            {"node_memory", "quota"}
            | ({"leak"} if lowered else set())
            | ({"restart_safe"} if "volatile_state" in traits else set())
        ),
        hints={"container": state.name, "memory_limit": limit, "new_memory": doubled(limit)},
    )
    return with_change(finding, change, only=("memory",)) if lowered else finding


def _without_limit(told: str, state: ContainerState, target: ObjectRef) -> Finding:
    return Finding(
        family="oom-node",
        summary=f"{sentence(told)}; it has no memory limit of its own, so its node ran out of memory.",
        target=target,
        certainty=0.75,
        symptoms=("OOMKilled",),
        remedies=(RemedyKind.MORE_MEMORY,),
        factors=(told, "no memory limit"),
        workload=target,
        traits=frozenset({"oom", "node_memory"}),
        hints={"container": state.name},
    )


def _lowered(change: Change | None, limit: str) -> bool:
    """Whether the last rollout lowered the memory limit to the present one."""
    if change is None:
        return False
    new = quantity(limit) or 0.0
    for path, old, value in change.parts:
        if "memory" in path and quantity(value) == new and (quantity(old) or 0.0) > new:
            return True
    return False


def _volatile(spec: Manifest, container: Manifest) -> tuple[str, str]:
    """Memory-backed volumes count towards the limit; state in an emptyDir outlives the container, not the pod."""
    mounts = {
        str(as_dict(m).get("name")): str(as_dict(m).get("mountPath"))
        for m in as_list(container.get("volumeMounts"))
    }
    for volume in as_list(spec.get("volumes")):
        name = str(as_dict(volume).get("name"))
        empty = as_dict(volume).get("emptyDir")
        if name not in mounts or not isinstance(empty, dict):
            continue
        if empty.get("medium") == "Memory":
            size = empty.get("sizeLimit") or "without a sizeLimit"
            told = f"the emptyDir at {mounts[name]} is a tmpfs (medium Memory, {size}): files there count as memory of the container"
            return told, "memory_volume"
        return (
            f"its state at {mounts[name]} lies in an emptyDir, so it is read again after every restart",
            "volatile_state",
        )
    return "", ""


def _history(facts: Facts, target: ObjectRef, container: str) -> tuple[str, str]:
    """Earlier raises of the limit that did not help."""
    limits = []
    for replica_set in revisions(facts, target):
        found = container_named(pod_spec(replica_set), container)
        limits.append(str(dig(found, "resources", "limits", "memory") or ""))
    limits = [x for x in dict.fromkeys(limits) if x]
    values = [quantity(x) or 0.0 for x in limits]
    if len(limits) < 2 or values != sorted(values, reverse=True):
        return "", ""
    return (
        f"earlier revisions had limits {', '.join(reversed(limits))}: raising it before did not end the growth",
        "leak",
    )


def _last_words(case: Case, pod: Manifest, state: ContainerState) -> tuple[str, str]:
    """What the process was doing when it was killed."""
    namespace, name = str(dig(pod, "metadata", "namespace") or ""), str(dig(pod, "metadata", "name") or "")
    lines = case.facts.log(namespace, name, state.name, previous=True)
    words = (
        "replay",
        "loading",
        "load",
        "cache",
        "index",
        "heap",
        "alloc",
        "buffer",
        "import",
        "compact",
        "memory",
        "batch",
    )
    for line in reversed(lines[-80:]):
        if any(w in line.lower() for w in words) and "error" not in line.lower():
            return f"shortly before the kill it logged: {short(line, 160)}", ""
    return "", ""
