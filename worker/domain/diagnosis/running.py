"""Containers that start and then fail: memory, probes, exit codes, readiness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from worker.domain.cluster.changes import template_of
from worker.domain.cluster.events import Happening
from worker.domain.cluster.fields import dig, mapping, mappings, moment, reference, text, whole
from worker.domain.cluster.pods import Container
from worker.domain.cluster.quantities import quantity
from worker.domain.diagnosis import structure
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, Strength, stated
from worker.domain.diagnosis.changes import both_run, failed_rollout
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.values.objects import Manifest, ObjectRef

RECENT, JUST_NOW = timedelta(hours=24), timedelta(hours=1)
NOT_STARTED = frozenset({"ContainerCannotRun", "StartError", "RunContainerError"})
KILLED = frozenset({137, 143})


@dataclass(frozen=True, slots=True)
class FailingPod:
    """A failing pod, and the workload that it belongs to (the pod itself if nothing owns it)."""

    facts: ClusterFacts
    pod: Manifest
    workload: ObjectRef

    @property
    def ref(self) -> ObjectRef:
        """The pod."""
        return reference(self.pod)

    @property
    def about(self) -> tuple[Happening, ...]:
        """The events about the pod, oldest first."""
        return self.facts.events(self.workload.namespace, self.ref)

    @property
    def signals(self) -> tuple[str, ...]:
        """Signal types that the pod and its workload show now."""
        return structure.observed(self.facts, self.workload, self.pod)

    def finding(
        self,
        container: Container,
        cause: Cause,
        what: str,
        *remedies: Remedy,
        strength: Strength = Strength.DIRECT,
    ) -> Diagnosis:
        """A finding about a container; `what` continues `Container app of Deployment shop/api ...`."""
        told = f"Container {container.name} of {self.workload} {what}"
        found = stated(cause, self.workload, told, remedies, self.signals, (self.ref,), strength)
        return replace(found, reads=(self.ref,), container=container.name)

    def defective_start(self, container: Container, what: str) -> Diagnosis:
        """A finding that the container's command cannot be run as its spec says."""
        return self.with_rollback(self.finding(container, Cause.DEFECTIVE_START, what))

    def with_rollback(self, found: Diagnosis, *fields: str) -> Diagnosis:
        """The finding, with a rollback among its remedies if the newest revision changed what fails."""
        rollout = failed_rollout(self.facts, self.workload, self.pod, found.container)
        return rollout.undoing(found) if rollout and rollout.touches(*fields) else found


def running_findings(failing: FailingPod) -> Iterator[Diagnosis]:
    """Yield why containers of a pod end, or run without being ready."""
    for container in structure.sick_containers(failing.pod):
        ended = container.terminated or container.last
        recent = _recent(failing.facts, container, ended)
        if text(ended.get("reason")) == "OOMKilled" and recent:
            yield _out_of_memory(failing, container)
        elif container.failing and ended and not container.done and (recent or not container.running):
            yield _ended(failing, container)
        elif container.running and not container.ready:
            yield _unready(failing, container)


def _recent(facts: ClusterFacts, container: Container, ended: dict[str, object]) -> bool:
    """True if the end still matters: lately if the container is down, just now if it runs again."""
    at = moment(ended.get("finishedAt"))
    if facts.now is None or at is None:
        return container.failing
    return facts.now - at <= (JUST_NOW if container.running else RECENT)


def _out_of_memory(failing: FailingPod, container: Container) -> Diagnosis:
    """A container that the kernel killed at its own limit; without a limit, the node ran out of memory."""
    workload, limit = failing.workload, structure.memory_limit(container)
    shared = text(dig(failing.pod, "spec", "resources", "limits", "memory"))
    if not limit and shared:
        what = f"was OOMKilled at the memory limit of its pod, {shared}"
        return failing.finding(container, Cause.OUT_OF_MEMORY, what)
    if not limit:
        node = structure.ref_to("Node", text(dig(failing.pod, "spec", "nodeName")))
        what = "has no memory limit and was OOMKilled: the node ran out of memory"
        found = failing.finding(container, Cause.NODE, what)
        signals = ("OOMKilled", "MemoryPressure")
        return replace(found, object=node if node.name else workload, also=(workload,), signals=signals)
    what = f"was OOMKilled at its own memory limit of {limit}"
    found = failing.finding(container, Cause.OUT_OF_MEMORY, what, Remedy.INCREASE_MEMORY)
    job = ("BackoffLimitExceeded",) if workload.kind == "Job" else ()
    found = replace(found, signals=("OOMKilled", "PredictedOOM", *job))
    facts, kept = failing.facts, structure.revisions(failing.facts, workload)
    if kept and not structure.made_by(facts, failing.pod, kept[-1]):
        return replace(found, remedies=frozenset())  # the pods of the newest revision tell what it needs
    if _set_elsewhere(failing, container):
        told = f"{found.sentence[:-1]}, which its template does not set."
        found = replace(found, sentence=told, remedies=frozenset())
    rollout = structure.rollout_of(facts, workload)
    lowered = rollout and rollout.touches("limits.memory") and _gives_more(rollout.previous, container)
    return rollout.undoing(found) if rollout and (lowered or both_run(facts, workload, rollout)) else found


def _set_elsewhere(failing: FailingPod, container: Container) -> bool:
    """True if the template lacks the container or gives it another limit: an edit of it would not change this one."""
    owner = failing.facts.get(failing.workload) if failing.workload.kind != "Pod" else None
    specs = structure.container_specs(structure.pod_spec_of(owner)) if owner else []
    own = [dig(s, "resources", "limits", "memory") for s in specs if s.get("name") == container.name]
    now = quantity(structure.memory_limit(container))
    return bool(specs) and not any(quantity(limit) in {None, now} for limit in own)


def _gives_more(revision: Manifest, container: Container) -> bool:
    """True if a revision gives the container more memory, or no limit."""
    for other in structure.container_specs(mapping(template_of(revision).get("spec"))):
        if other.get("name") == container.name:
            there = quantity(dig(other, "resources", "limits", "memory"))
            now = quantity(structure.memory_limit(container))
            return there is None or (now is not None and there > now)
    return False


def _ended(failing: FailingPod, container: Container) -> Diagnosis:
    ended, about = container.terminated or container.last, failing.about
    code, reason = whole(ended.get("exitCode")), text(ended.get("reason"))
    if reason in NOT_STARTED or code in {126, 127, 128}:
        what = f"ends with {reason or 'Error'}, exit code {code}, without running"
        return failing.defective_start(container, what)
    if any(e.reason == "FailedPostStartHook" for e in about):
        return failing.defective_start(container, "is killed because its postStart hook fails")
    probe = _killing_probe(container, about) if code in KILLED else ""
    if probe:
        what = f"fails its {probe} probe and is killed (exit code {code})"
        return _probe(failing, container, what, Strength.TIMED)
    what = f"ends with exit code {code} ({container.restarts} restarts)"
    return failing.finding(container, Cause.CRASH_ON_START, what, strength=Strength.SYMPTOM)


def _killing_probe(container: Container, about: tuple[Happening, ...]) -> str:
    """The probe for which the kubelet restarts the container: it has one, which is reported to fail."""
    failed = [e for e in about if e.reason == "Unhealthy"]
    for probe in ("startup", "liveness"):
        if f"{probe}Probe" in container.spec and any(e.message.lower().startswith(probe) for e in failed):
            return probe
    killed = any(e.reason == "Killing" for e in about) and bool(failed)
    return "liveness" if killed and "livenessProbe" in container.spec else ""


def _probe(failing: FailingPod, container: Container, what: str, strength: Strength) -> Diagnosis:
    """A probe that the container does not answer. Its spec counts as wrong only if both visibly differ.

    A workload that has been available with a template of long ago did answer it.
    """
    facts, workload = failing.facts, failing.workload
    since = structure.template_since(facts, workload, failing.pod)
    answered = structure.was_available(facts, workload) and not structure.lately(facts, since)
    remedies, strength = ((), Strength.SYMPTOM) if answered else ((Remedy.FIX_PROBE,), strength)
    found = failing.finding(container, Cause.PROBE, what, *remedies, strength=strength)
    return failing.with_rollback(found)


def _unready(failing: FailingPod, container: Container) -> Diagnosis:
    probe = mapping(container.spec.get("readinessProbe"))
    port = dig(probe, "httpGet", "port") or dig(probe, "tcpSocket", "port")
    declared = mappings(container.spec.get("ports"))
    offered = {text(p.get(key)) for p in declared for key in ("containerPort", "name")}
    if port is not None and declared and text(port) not in offered:
        what = f"is probed for readiness on port {port}, which it does not declare"
        return _probe(failing, container, what, Strength.DIRECT)
    failed = sum(e.count for e in failing.about if e.reason == "Unhealthy")
    what = f"runs without being ready ({failed} failed probes)"
    found = failing.finding(container, Cause.NOT_READY, what, strength=Strength.SYMPTOM)
    return replace(found, signals=("PodNotReady",))
