"""The state of a Pod in the words of kubectl, by the rules for its STATUS column.

States are judged only here, so that tables, enrichment and filters agree on which pods are failing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from worker.domain.cluster.conditions import condition, holds
from worker.domain.cluster.fields import dig, mapping, mappings, meta, sequence, stamp, text, whole
from worker.domain.cluster.fields import moment as read_moment
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.objects import Manifest

ENDED = {"Succeeded", "Failed"}
ON_TRUE: dict[str, frozenset[str] | None] = {
    "DisruptionTarget": None,
    "PodResizePending": None,
    "PodResizeInProgress": frozenset({"Error"}),
}
"""Conditions of a Pod that matter if they are True; with reasons, only for these."""
MAX_REASON = 240  # characters
QUIET_WAITING = {"ContainerCreating", "PodInitializing", ""}


@dataclass(frozen=True, slots=True)
class Container:
    """One container and its status.

    `kind` is `init`, `sidecar` (an init container that keeps running), `app`, or `ephemeral` (added for
    debugging: it has no influence on the state of the pod).
    """

    name: str
    kind: str
    spec: dict[str, Any]
    status: dict[str, Any]

    @property
    def waiting(self) -> dict[str, Any]:
        """The waiting state, or an empty object."""
        return mapping(dig(self.status, "state", "waiting"))

    @property
    def terminated(self) -> dict[str, Any]:
        """The terminated state, or an empty object."""
        return mapping(dig(self.status, "state", "terminated"))

    @property
    def last(self) -> dict[str, Any]:
        """How the run before this one ended, or an empty object."""
        return mapping(dig(self.status, "lastState", "terminated"))

    @property
    def running(self) -> bool:
        """True if it runs now."""
        return isinstance(dig(self.status, "state", "running"), dict)

    @property
    def ready(self) -> bool:
        """True if it passes its readiness probe."""
        return self.status.get("ready") is True

    @property
    def restarts(self) -> int:
        """How often it has been restarted."""
        return whole(self.status.get("restartCount"))

    @property
    def done(self) -> bool:
        """True if it has finished with success."""
        return bool(self.terminated) and whole(self.terminated.get("exitCode")) == 0

    @property
    def failing(self) -> bool:
        """True if it is in trouble now: an error state, a crash, or running without being ready."""
        if self.kind == "ephemeral":
            return False
        if self.terminated:
            return not self.done
        if self.waiting:
            return text(self.waiting.get("reason")) not in QUIET_WAITING
        return self.running and not self.ready and self.kind != "init"

    @property
    def ran_before(self) -> bool:
        """True if the log of a previous run may exist."""
        return bool(self.last) or self.restarts > 0


def containers(pod: Manifest) -> Iterator[Container]:
    """Init containers first, in the order of the spec; also those that only the status knows."""
    for field, kind in (("initContainer", "init"), ("container", "app"), ("ephemeralContainer", "ephemeral")):
        statuses = {text(s.get("name")): s for s in mappings(dig(pod, "status", f"{field}Statuses"))}
        for spec in mappings(dig(pod, "spec", f"{field}s")):
            name = text(spec.get("name"))
            sidecar = kind == "init" and spec.get("restartPolicy") == "Always"
            yield Container(name, "sidecar" if sidecar else kind, spec, statuses.pop(name, {}))
        for name, status in statuses.items():
            yield Container(name, kind, {}, status)


def pod_status(pod: Manifest) -> str:
    """The STATUS column of `kubectl get pods`, but `Evicted` for an evicted pod."""
    status = mapping(dig(pod, "status"))
    reason = text(status.get("reason")) or text(status.get("phase")) or "Unknown"
    if condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    parts = list(containers(pod))
    initializing = _init_reason([c for c in parts if c.kind in {"init", "sidecar"}])
    reason = initializing or reason
    initialized = not initializing or holds(pod, "Initialized")
    if initialized and status.get("reason") != "Evicted":  # the end of its containers says less
        reason = _app_reason([c for c in parts if c.kind == "app"], reason, pod)
    if meta(pod).get("deletionTimestamp") and text(status.get("phase")) not in ENDED:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def _init_reason(inits: list[Container]) -> str:
    for index, container in enumerate(inits):
        if container.done or (container.kind == "sidecar" and container.status.get("started") is True):
            continue
        if container.terminated:
            return f"Init:{_ended(container.terminated)}"
        waiting = text(container.waiting.get("reason"))
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(inits)}" if container.status else ""
    return ""


def _app_reason(apps: list[Container], reason: str, pod: Manifest) -> str:
    any_running = False
    for container in reversed(apps):
        if waiting := text(container.waiting.get("reason")):
            reason = waiting
        elif container.terminated:
            reason = _ended(container.terminated)
        elif container.ready and container.running:
            any_running = True
    if reason == "Completed" and any_running:
        return "Running" if holds(pod, "Ready") else "NotReady"
    return reason


def _ended(terminated: dict[str, Any]) -> str:
    if reason := text(terminated.get("reason")):
        return reason
    if signal := whole(terminated.get("signal")):
        return f"Signal:{signal}"
    return f"ExitCode:{whole(terminated.get('exitCode'))}"


def pod_ready(pod: Manifest) -> tuple[int, int]:
    """Ready containers and all containers, sidecars included."""
    counted = [c for c in containers(pod) if c.kind in {"app", "sidecar"} and (c.spec or c.ready)]
    return sum(c.ready for c in counted), len(counted)


def pod_restarts(pod: Manifest) -> int:
    """Restarts of all containers together."""
    return sum(c.restarts for c in containers(pod))


def pod_failing(pod: Manifest) -> bool:
    """True if the pod is in trouble now. Finished pods of Jobs and healthy pods are not failing."""
    status = mapping(dig(pod, "status"))
    phase = text(status.get("phase"))
    if phase == "Succeeded":
        return False
    if phase in {"Failed", "Unknown", "Pending"} or meta(pod).get("deletionTimestamp"):
        return True
    return not holds(pod, "Ready") or any(c.failing for c in containers(pod))


def pod_reason(pod: Manifest) -> str:
    """The reasons of a failure, in one line: ends and waits of containers, and conditions.

    Empty if the pod is healthy.
    """
    status = mapping(dig(pod, "status"))
    counted = (c for c in containers(pod) if c.kind != "ephemeral")
    parts = [part for c in counted if (part := container_reason(c))]
    if message := text(status.get("message")):
        parts.append(message)
    told = (*parts, *_told_by_conditions(pod), deletion(pod))
    return one_line("; ".join(part for part in told if part), MAX_REASON)


def _told_by_conditions(pod: Manifest) -> Iterator[str]:
    """Scheduling, readiness gates, resizing in place, and disruption: by preemption, eviction, taints."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        yield f"{text(scheduled.get('reason'))}: {text(scheduled.get('message'))}"
    for gate in mappings(dig(pod, "spec", "readinessGates")):
        name = text(gate.get("conditionType"))
        found = condition(pod, name)
        if found.get("status") != "True":
            yield f"readiness gate {name} {_explained(found) if found else 'is not set'}"
    for name, trouble in ON_TRUE.items():
        found = condition(pod, name)
        if found.get("status") == "True" and (trouble is None or text(found.get("reason")) in trouble):
            yield f"{name} {_explained(found)}"
    if resize := text(dig(pod, "status", "resize")):
        yield f"resize {resize}"


def _explained(found: dict[str, Any]) -> str:
    told = ": ".join(part for part in map(text, (found.get("reason"), found.get("message"))) if part)
    return f"{text(found.get('status'))}{f' ({told})' if told else ''}"


def deletion(manifest: Manifest) -> str:
    """`deletion asked for at 2026-06-04T15:30:00Z, kept by finalizers a, b`.

    Empty for an object that is not being deleted.
    """
    asked = read_moment(meta(manifest).get("deletionTimestamp"))
    names = ", ".join(map(text, sequence(meta(manifest).get("finalizers"))))
    kept = f", kept by finalizers {names}" if names else ""
    return f"deletion asked for at {stamp(asked)}{kept}" if asked else ""


def container_reason(container: Container) -> str:
    """`app: OOMKilled exit 137, ended 2026-06-04T15:30:00Z`, or an empty text if all is well."""
    told: list[str] = []
    if container.waiting and container.failing:
        message = text(container.waiting.get("message"))
        useful = message and not message.startswith("back-off ")
        told.append(f"waiting {text(container.waiting.get('reason'))}{': ' + message if useful else ''}")
    for label, ended in (("ended", container.terminated), ("last ended", container.last)):
        if ended and (label == "last ended" or not container.done):
            told.append(termination(ended, label))
    if container.running and container.failing:
        told.append("running, not ready")
    role = " (sidecar)" if container.kind == "sidecar" else ""
    return f"{container.name}{role}: {', '.join(told)}" if told else ""


def termination(ended: dict[str, Any], label: str = "ended") -> str:
    """The end of a container: reason, exit code or signal, time, termination message."""
    reason = text(ended.get("reason")) or "terminated"
    signal = whole(ended.get("signal"))
    code = f"signal {signal}" if signal else f"exit {whole(ended.get('exitCode'))}"
    finished = read_moment(ended.get("finishedAt"))
    when = f" at {stamp(finished)}" if finished else ""
    message = text(ended.get("message"))
    return f"{label} {reason} {code}{when}{' (' + message + ')' if message else ''}"
