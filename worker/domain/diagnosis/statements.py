"""Messages of components and programs about the objects of a finding: for humans, never a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from worker.domain.cluster.fields import dig, mapping, mappings, name_of, reference, text, whole
from worker.domain.cluster.pods import Container, containers, pod_failing
from worker.domain.cluster.rendering.columns import bad_condition
from worker.domain.diagnosis.causes import Cause, Diagnosis, named
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.loglines import Trouble, telling_lines
from worker.domain.diagnosis.structure import pod_spec_of
from worker.domain.values.objects import Manifest, ObjectRef

MAX_STATEMENTS = 6
MAX_CHARS = 240
MAX_LINES, LAST_LINES = 80, 2
HEAP = re.compile(r"-Xm[xs]\w+|-XX:MaxRAMPercentage=[\d.]+|--max-old-space-size=\d+")
BUSY = re.compile(r"replay|load|cache|index|heap|alloc|buffer|import|compact|memory|batch", re.IGNORECASE)
"""Words of a program that takes up memory."""


def statements(facts: ClusterFacts, finding: Diagnosis) -> tuple[str, ...]:
    """Messages about the basis of a finding, the nearest to the cause first. They are untrusted text."""
    told: dict[str, None] = {}
    on_the_way = [edge.to for edge in reversed(finding.path)]
    objects = {named(ref): ref for ref in (*finding.reads, *finding.subjects, *on_the_way)}
    for ref in objects.values():
        manifest = _manifest(facts, ref)
        if manifest is not None:
            told |= dict.fromkeys(_of_object(facts, finding, manifest))
    told |= dict.fromkeys(_events(facts, [*objects.values(), *_made(facts, list(objects.values()))]))
    return tuple(told)[:MAX_STATEMENTS]


def _made(facts: ClusterFacts, refs: Sequence[ObjectRef]) -> list[ObjectRef]:
    """Pods that a Job has made, by its events. They may be gone."""
    jobs = [ref for ref in refs if ref.kind == "Job"]
    made = [e for job in jobs for e in facts.events(job.namespace, job) if e.reason == "SuccessfulCreate"]
    return [ObjectRef("Pod", e.message.rpartition(" ")[2], e.about.namespace, "v1") for e in made[-1:]]


def _manifest(facts: ClusterFacts, ref: ObjectRef) -> Manifest | None:
    if ref.kind == "Pod":
        listed = facts.list("Pod", ref.namespace).items
        return next((p for p in listed if name_of(p) == ref.name), None)
    return None if ref.kind == "Secret" else facts.get(ref)


def _of_object(facts: ClusterFacts, finding: Diagnosis, manifest: Manifest) -> Iterator[str]:
    ref = reference(manifest)
    if ref.kind == "Pod":
        if pod_failing(manifest):
            yield from _of_pod(facts, finding, manifest)
        return
    if dig(manifest, "status", "state") and dig(manifest, "status", "reason"):  # of an ACME challenge
        state, reason = (text(dig(manifest, "status", key)) for key in ("state", "reason"))
        yield short(f"{ref} {state}: {reason}")
    for entry in mappings(dig(manifest, "status", "conditions")):
        told = bad_condition(entry) or (ref.kind == "Namespace" and text(entry.get("status")) == "True")
        if told and entry.get("message"):
            yield short(f"{ref} {text(entry.get('type'))}: {text(entry.get('message'))}")


def _of_pod(facts: ClusterFacts, finding: Diagnosis, pod: Manifest) -> Iterator[str]:
    ref = reference(pod)
    for entry in mappings(dig(pod, "status", "conditions")):
        if text(entry.get("type")) == "PodScheduled" and text(entry.get("status")) == "False":
            yield short(f"{ref} is not scheduled: {text(entry.get('message'))}")
    if dig(pod, "status", "message"):
        yield short(f"{ref} {text(dig(pod, 'status', 'reason'))}: {text(dig(pod, 'status', 'message'))}")
    for container in containers(pod):
        if container.failing or container.last:
            yield from _of_container(facts, finding, ref, container)
    memory = [v for v in mappings(dig(pod, "spec", "volumes")) if dig(v, "emptyDir", "medium") == "Memory"]
    if memory and finding.cause is Cause.OUT_OF_MEMORY:
        yield f"volume {text(memory[0].get('name'))} is an emptyDir in memory (tmpfs), which counts towards the limit"
    if finding.cause is Cause.NOT_SCHEDULABLE:
        selector = dig(pod_spec_of(pod), "nodeSelector")
        if selector:
            yield f"{ref} asks for nodes with {', '.join(f'{k}={v}' for k, v in selector.items())}"


def _of_container(
    facts: ClusterFacts, finding: Diagnosis, pod: ObjectRef, container: Container
) -> Iterator[str]:
    waiting, ended = container.waiting, container.terminated or container.last
    message = text(waiting.get("message"))
    if message and not message.startswith("back-off "):
        yield short(f"container {container.name} waits with {text(waiting.get('reason'))}: {message}")
    if ended.get("message"):
        yield short(f"container {container.name} ended: {text(ended.get('message'))}")
    yield from _of_spec(finding, container)
    lines = log_of(facts, pod, container)
    telling = telling_lines(lines)
    if telling:
        yield short(f"the log of container {container.name} says: {telling[0].line}")
        heap = HEAP.search(str(container.spec))
        if heap and telling[0].trouble is Trouble.APP_MEMORY:
            yield f"its heap is limited by {heap[0]}, not by the memory limit of the container"
    elif lines and whole(ended.get("exitCode")):
        memory = finding.cause is Cause.OUT_OF_MEMORY
        busy = [line for line in lines[-MAX_LINES:] if memory and BUSY.search(line)]
        last = busy[-1:] or lines[-LAST_LINES:]
        yield short(f"the log of container {container.name} ends with: {' / '.join(last)}")


def _of_spec(finding: Diagnosis, container: Container) -> Iterator[str]:
    """Yield the parts of the spec that explain the finding."""
    if finding.cause is Cause.IMAGE:
        yield f"its image is {text(container.spec.get('image'))}"
    if finding.cause in {Cause.PROBE, Cause.NOT_READY}:
        ports = [whole(p.get("containerPort")) for p in mappings(container.spec.get("ports"))]
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            asks = (mapping(dig(container.spec, name, how)) for how in ("httpGet", "tcpSocket"))
            probe = next(filter(None, asks), {})
            if probe:
                yield f"its {name} asks {text(probe.get('path'))} at port {text(probe.get('port'))}; it declares ports {ports}"


def log_of(facts: ClusterFacts, pod: ObjectRef, container: Container) -> tuple[str, ...]:
    """The log of the run that ended last; of the present run if there was none or its log is gone."""
    ended = bool(container.last) or container.restarts > 0
    lines = facts.log(pod, container.name, previous=True) if ended else ()
    started = container.running or bool(container.terminated)
    return lines if lines or not started else facts.log(pod, container.name, previous=False)


def _events(facts: ClusterFacts, refs: Sequence[ObjectRef]) -> Iterator[str]:
    """Yield the newest message for each reason of warnings about the objects."""
    for namespace in dict.fromkeys(ref.namespace for ref in refs):
        newest = {}
        for event in facts.events(namespace, *(r for r in refs if r.namespace == namespace)):
            if event.warning:
                newest[event.reason, event.about] = event
        for event in list(newest.values())[::-1]:
            yield short(f"{event.reason} of {event.about}: {event.message}")


def short(said: str, limit: int = MAX_CHARS) -> str:
    """One bounded line with head and tail: a chain of errors ends with its first cause."""
    flat = " ".join(said.split())
    if len(flat) <= limit:
        return flat
    tail = limit * 2 // 5
    return f"{flat[: limit - tail - 1]}…{flat[-tail:]}"
