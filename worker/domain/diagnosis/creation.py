"""Pods that are not created: quotas, limits, admission, missing accounts and classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from worker.domain.cluster.changes import template_of
from worker.domain.cluster.fields import dig, mapping, mappings, reference, text
from worker.domain.cluster.pods import pod_failing
from worker.domain.cluster.quantities import quantity
from worker.domain.diagnosis.causes import Cause, Diagnosis, Edge, Relation, Strength
from worker.domain.diagnosis.facts import ClusterFacts, Presence
from worker.domain.diagnosis.messages import Refusal, refusal
from worker.domain.diagnosis.mounts import mounts_of
from worker.domain.diagnosis.scheduling import requests_of
from worker.domain.diagnosis.structure import (
    Rollout,
    condition,
    holds,
    made_by,
    observed,
    pod_spec_of,
    pods_behind,
    pods_of,
    ref_to,
    replica_sets_of,
    rollout_of,
    root_of,
)
from worker.domain.values.objects import Manifest, ObjectRef

CHANGED = {
    **dict.fromkeys((Refusal.QUOTA, Refusal.QUOTA_NEEDS_VALUES, Refusal.LIMIT_RANGE), ("resources",)),
    Refusal.POD_SECURITY: ("ecurityContext", "volumes", "spec.host", "hostPort"),
    Refusal.SERVICE_ACCOUNT: ("serviceAccount",),
    Refusal.PRIORITY_CLASS: ("priorityClass",),
}
"""What of a pod's spec a refusal is about."""
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def refused(facts: ClusterFacts, workload: ObjectRef) -> tuple[Refusal, tuple[ObjectRef, ...]] | None:
    """The reason why controllers cannot create pods of a workload, and the objects that say so; or None."""
    makers = [workload, *replica_sets_of(facts, workload)]
    said: list[str] = []
    reads: list[ObjectRef] = []
    for maker in makers:
        manifest = facts.get(maker)
        found = condition(manifest, "ReplicaFailure") if holds(manifest, "ReplicaFailure") else {}
        if found:
            said.append(text(found.get("message")))
            reads.append(maker)
    events = [e for e in facts.events(workload.namespace, *makers) if e.reason == "FailedCreate"]
    said += [e.message for e in reversed(events)]
    reads += [e.about for e in events[-1:]]
    return (refusal(*said), tuple(reads)) if said else None


def creation_findings(facts: ClusterFacts, workload: ObjectRef) -> Iterator[Diagnosis]:
    """Yield why the pods of a workload are not created."""
    answer = refused(facts, workload)
    if answer is None:
        return
    why, reads = answer
    manifest = facts.get(workload) or {}
    claims = {"volumeClaimTemplates": dig(manifest, "spec", "volumeClaimTemplates")}
    spec = {**pod_spec_of(manifest), **claims}
    blamed = list(_objects(facts, why, workload, spec))
    target = blamed[0] if blamed else workload
    by = f", by {target}" if blamed else ""
    told = f"The API server refuses to create the pods of {workload}: {why}{by}."
    strength = Strength.TIMED if why is Refusal.WEBHOOK_DOWN else Strength.DIRECT
    also = (*blamed[1:], workload, *(r for r in reads if r != workload))
    signals = ("FailedCreate", *observed(facts, workload, {}))
    found = Diagnosis(Cause.CREATION_REFUSED, target, told, strength, also, signals=signals, reads=reads)
    rollout = _refused_rollout(facts, why, workload)
    others = tuple(ref for ref in found.subjects if ref != workload)
    yield replace(rollout.undoing(found), object=workload, also=others) if rollout else found


def _refused_rollout(facts: ClusterFacts, why: Refusal, workload: ObjectRef) -> Rollout | None:
    """The rollout to undo: it changed what is refused, and pods of the revision before run."""
    rollout = rollout_of(facts, workload) if why in CHANGED else None
    well = [pod for pod in pods_of(facts, workload) if not pod_failing(pod)] if rollout else []
    if rollout is None or not any(made_by(facts, pod, rollout.previous) for pod in well):
        return None
    before = mapping(template_of(rollout.previous).get("spec"))
    quotas = facts.list("ResourceQuota", workload.namespace).items if why is Refusal.QUOTA else ()
    fits = not any(exhausted(q, before) for q in quotas)
    return rollout if fits and rollout.touches(*CHANGED[why]) else None


def _objects(
    facts: ClusterFacts, why: Refusal, workload: ObjectRef, spec: dict[str, object]
) -> Iterator[ObjectRef]:
    """Yield the objects that the class of a refusal points to, if their own state agrees."""
    if why is Refusal.QUOTA:
        quotas = facts.list("ResourceQuota", workload.namespace).items
        yield from (reference(q) for q in quotas if exhausted(q, spec))
    elif why is Refusal.QUOTA_NEEDS_VALUES:
        yield workload
        yield from (reference(q) for q in facts.list("ResourceQuota", workload.namespace).items)
    elif why is Refusal.WEBHOOK_CERTIFICATE:
        yield from _webhook_certificates(facts)
    elif why is Refusal.LIMIT_RANGE:
        yield from (reference(r) for r in facts.list("LimitRange", workload.namespace).items)
    elif why is Refusal.POD_SECURITY:
        yield workload
        yield ref_to("Namespace", workload.namespace)
    elif why is Refusal.SERVICE_ACCOUNT:
        name = text(spec.get("serviceAccountName")) or "default"
        account = ref_to("ServiceAccount", name, workload.namespace)
        if account.name and facts.presence(account) is Presence.ABSENT:
            yield account
    elif why is Refusal.PRIORITY_CLASS:
        priority = ref_to("PriorityClass", text(spec.get("priorityClassName")))
        if priority.name and facts.presence(priority) is Presence.ABSENT:
            yield workload
            yield priority


def exhausted(quota: Manifest, spec: dict[str, object]) -> bool:
    """True if a quota has no room for one more pod of this spec, by its own status."""
    hard, used = mapping(dig(quota, "status", "hard")), mapping(dig(quota, "status", "used"))
    wanted = requests_of(spec)
    limits: dict[str, float] = {}
    for container in mappings(spec.get("containers")):
        for name, value in mapping(dig(container, "resources", "limits")).items():
            limits[f"limits.{name}"] = limits.get(f"limits.{name}", 0.0) + (quantity(value) or 0.0)
    templates = mappings(spec.get("volumeClaimTemplates"))
    storage = [dig(claim, "spec", "resources", "requests", "storage") for claim in templates]
    limits["requests.storage"] = sum(quantity(value) or 0.0 for value in storage)
    asked = {**{f"requests.{k}": v for k, v in wanted.items()}, **wanted, **limits}
    amounts = [(quantity(hard[n]) or 0.0, quantity(used.get(n)) or 0.0, asked.get(n, 0.0)) for n in hard]
    return any(taken + more > most for most, taken, more in amounts)


def webhook_edges(facts: ClusterFacts, workload: ObjectRef) -> Iterator[Edge]:
    """Yield Services of admission webhooks, if the API server says that it cannot call one."""
    found = refused(facts, workload)
    if found is None or found[0] is not Refusal.WEBHOOK_DOWN:
        return
    yield from (Edge(Relation.WEBHOOK, service) for service in _webhook_services(facts))


def _webhook_services(facts: ClusterFacts) -> Iterator[ObjectRef]:
    for kind in WEBHOOKS:
        for configuration in facts.list(kind).items:
            for hook in mappings(configuration.get("webhooks")):
                service = mapping(dig(hook, "clientConfig", "service"))
                if service:
                    yield ref_to("Service", text(service.get("name")), text(service.get("namespace")))


def _webhook_certificates(facts: ClusterFacts) -> Iterator[ObjectRef]:
    """Secrets that the servers of webhooks mount: the certificates that they show to the API server."""
    for service in _webhook_services(facts):
        for pod in pods_behind(facts, facts.get(service))[:1]:
            yield from (mount.source for mount in mounts_of(pod, "Secret") if mount.path)
            yield root_of(facts, pod)
