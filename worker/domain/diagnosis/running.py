"""Containers that start and do not stay: memory, probes, exit codes, readiness."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from worker.domain.cluster.events import Happening
from worker.domain.cluster.fields import dig, moment, reference, text, whole
from worker.domain.cluster.pods import Container
from worker.domain.cluster.quantities import quantity
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, Strength
from worker.domain.diagnosis.changes import rollback_revision
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.structure import memory_limit, observed, ref_to, rollout_of, sick_containers
from worker.domain.values.objects import Manifest, ObjectRef

RECENT, JUST_NOW = timedelta(hours=24), timedelta(hours=1)
NOT_STARTED = frozenset({"ContainerCannotRun", "StartError", "RunContainerError"})
HOOKS = frozenset({"FailedPostStartHook"})
KILLED_BY_PROBE = frozenset({137, 143})


def running_findings(facts: ClusterFacts, pod: Manifest, workload: ObjectRef) -> Iterator[Diagnosis]:
    """Why containers of a pod end, or run without being ready."""
    about = facts.events(workload.namespace, reference(pod))
    for container in sick_containers(pod):
        ended = container.terminated or container.last
        if text(ended.get("reason")) == "OOMKilled" and _recent(facts, container, ended):
            yield out_of_memory(facts, pod, container, workload)
        elif container.failing and ended and not container.done:
            yield from _ended(facts, pod, container, workload, about)
        elif container.running and not container.ready:
            yield _unready(facts, pod, container, workload, about)


def _recent(facts: ClusterFacts, container: Container, ended: dict[str, object]) -> bool:
    """Whether the end still matters: lately for a container that fails, just now for one that is well again."""
    at = moment(ended.get("finishedAt"))
    if facts.now is None or at is None:
        return container.failing
    return facts.now - at <= (RECENT if container.failing else JUST_NOW)


def out_of_memory(facts: ClusterFacts, pod: Manifest, container: Container, workload: ObjectRef) -> Diagnosis:
    """The kernel killed the container at its own limit; without a limit it was the node that had no memory left."""
    limit = memory_limit(container)
    if not limit:
        node = ref_to("Node", text(dig(pod, "spec", "nodeName")))
        return Diagnosis(
            cause=Cause.NODE,
            object=node if node.name else workload,
            sentence=f"Container {container.name} of {workload} has no memory limit and was OOMKilled: the node ran out of memory.",
            also=(workload,),
            signals=("OOMKilled", "MemoryPressure"),
            reads=(reference(pod),),
            container=container.name,
        )
    remedies, lowered = {Remedy.INCREASE_MEMORY}, ""
    rollout = rollout_of(facts, workload)
    changed = rollout and rollout.touches("resources.limits.memory", container=container.name)
    if rollout and changed and _lowered(rollout.previous, container):
        remedies.add(Remedy.ROLL_BACK)
        lowered = f" Its newest revision lowered the limit: {rollout.told}."
    return Diagnosis(
        cause=Cause.OUT_OF_MEMORY,
        object=workload,
        sentence=f"Container {container.name} of {workload} was OOMKilled at its own memory limit of {limit}.{lowered}",
        also=(reference(pod),),
        remedies=frozenset(remedies),
        signals=("OOMKilled", "PredictedOOM", "BackoffLimitExceeded") if workload.kind == "Job" else ("OOMKilled", "PredictedOOM"),
        reads=(reference(pod),),
        container=container.name,
        revision=rollout.revision if rollout and Remedy.ROLL_BACK in remedies else 0,
    )  # fmt: skip


def _lowered(previous: Manifest, container: Container) -> bool:
    """Whether the revision before gave the container more memory, or no limit."""
    spec = dig(previous, "spec", "template", "spec") or dig(previous, "data", "spec", "template", "spec")
    for former in dig(spec, "containers") or []:
        if dig(former, "name") == container.name:
            before, now = (
                quantity(dig(former, "resources", "limits", "memory")),
                quantity(memory_limit(container)),
            )
            return before is None or (now is not None and before > now)
    return False


def _ended(
    facts: ClusterFacts,
    pod: Manifest,
    container: Container,
    workload: ObjectRef,
    about: tuple[Happening, ...],
) -> Iterator[Diagnosis]:
    ended = container.terminated or container.last
    code, reason = whole(ended.get("exitCode")), text(ended.get("reason"))
    if reason in NOT_STARTED or code in {126, 127, 128}:
        what = f"ends with {reason or 'Error'}, exit code {code}, without running"
        yield defective_start(facts, pod, container, workload, what)
        return
    if any(e.reason in HOOKS for e in about):
        yield defective_start(facts, pod, container, workload, "is killed because its postStart hook fails")
        return
    probe = _killing_probe(container, about) if code in KILLED_BY_PROBE else ""
    if probe:
        what = f"fails its {probe} probe and is killed (exit code {code})"
        yield probe_finding(facts, pod, container, workload, what)
        return
    yield Diagnosis(
        cause=Cause.CRASH_ON_START,
        object=workload,
        sentence=f"Container {container.name} of {workload} ends with exit code {code} ({container.restarts} restarts).",
        strength=Strength.SYMPTOM,
        also=(reference(pod),),
        signals=observed(facts, workload, pod),
        reads=(reference(pod),),
        container=container.name,
    )


def defective_start(
    facts: ClusterFacts, pod: Manifest, container: Container, workload: ObjectRef, what: str
) -> Diagnosis:
    """A container whose command cannot be run as its spec says."""
    revision = rollback_revision(facts, workload, pod, container.name)
    rollout = rollout_of(facts, workload) if revision else None
    what += f"; its newest revision changed {rollout.told}" if rollout else ""
    return Diagnosis(
        cause=Cause.DEFECTIVE_START,
        object=workload,
        sentence=f"Container {container.name} of {workload} {what}.",
        also=(reference(pod),),
        remedies=frozenset({Remedy.ROLL_BACK}) if revision else frozenset(),
        signals=observed(facts, workload, pod),
        reads=(reference(pod),),
        container=container.name,
        revision=revision,
    )


def _killing_probe(container: Container, about: tuple[Happening, ...]) -> str:
    """The probe that the kubelet restarts the container for: it has one, and the kubelet reports that it fails."""
    failed = [e for e in about if e.reason == "Unhealthy"]
    for probe in ("startup", "liveness"):
        if f"{probe}Probe" in container.spec and any(e.message.lower().startswith(probe) for e in failed):
            return probe
    killed = any(e.reason == "Killing" for e in about) and bool(failed)
    return "liveness" if killed and "livenessProbe" in container.spec else ""


def probe_finding(
    facts: ClusterFacts,
    pod: Manifest,
    container: Container,
    workload: ObjectRef,
    what: str,
    strength: Strength = Strength.TIMED,
) -> Diagnosis:
    """A probe that the container does not answer. Its spec is at fault by itself only where the two differ visibly."""
    revision = rollback_revision(facts, workload, pod, container.name)
    rollout = rollout_of(facts, workload) if revision else None
    what += f"; its newest revision changed {rollout.told}" if rollout else ""
    remedies = {Remedy.FIX_PROBE} | ({Remedy.ROLL_BACK} if revision else set())
    return Diagnosis(
        cause=Cause.PROBE,
        object=workload,
        sentence=f"Container {container.name} of {workload} {what}.",
        strength=strength,
        also=(reference(pod),),
        remedies=frozenset(remedies),
        signals=observed(facts, workload, pod),
        reads=(reference(pod),),
        container=container.name,
        revision=revision,
    )


def _unready(
    facts: ClusterFacts,
    pod: Manifest,
    container: Container,
    workload: ObjectRef,
    about: tuple[Happening, ...],
) -> Diagnosis:
    port = dig(container.spec, "readinessProbe", "httpGet", "port") or dig(
        container.spec, "readinessProbe", "tcpSocket", "port"
    )
    declared = [p for p in dig(container.spec, "ports") or [] if isinstance(p, dict)]
    offered = {text(p.get("containerPort")) for p in declared} | {text(p.get("name")) for p in declared}
    if port is not None and declared and text(port) not in offered:
        what = f"is asked for readiness at port {port}, which it does not declare"
        return probe_finding(facts, pod, container, workload, what, Strength.DIRECT)
    failing = sum(e.count for e in about if e.reason == "Unhealthy")
    return Diagnosis(
        cause=Cause.NOT_READY,
        object=workload,
        sentence=f"Container {container.name} of {workload} runs without being ready ({failing} failed probes).",
        strength=Strength.SYMPTOM,
        also=(reference(pod),),
        signals=("PodNotReady",),
        reads=(reference(pod),),
        container=container.name,
    )
