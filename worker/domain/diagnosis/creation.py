"""Pods that are not created: quotas, limits, admission, missing accounts and classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from worker.domain.cluster.changes import template_of
from worker.domain.cluster.conditions import condition, holds
from worker.domain.cluster.fields import dig, mapping, mappings, reference, sequence, text
from worker.domain.cluster.pods import pod_failing
from worker.domain.cluster.quantities import ROUNDING, quantity
from worker.domain.cluster.references import selects
from worker.domain.diagnosis import structure
from worker.domain.diagnosis.causes import Cause, Diagnosis, Edge, Relation, Strength, stated
from worker.domain.diagnosis.facts import CLUSTER_SCOPED, ClusterFacts, Presence
from worker.domain.diagnosis.messages import Refusal, refusal, speaks_of
from worker.domain.diagnosis.mounts import mounts_of
from worker.domain.diagnosis.scheduling import requests_of
from worker.domain.values.objects import Manifest, ObjectRef

CHANGED = {
    **dict.fromkeys((Refusal.QUOTA, Refusal.QUOTA_NEEDS_VALUES, Refusal.LIMIT_RANGE), ("resources",)),
    Refusal.POD_SECURITY: ("ecurityContext", "volumes", "spec.host", "hostPort"),
}
"""What of a pod's spec a refusal is about. Others name the value that they refuse."""
NAMED = {Refusal.SERVICE_ACCOUNT: "ServiceAccount", Refusal.PRIORITY_CLASS: "PriorityClass"}
"""The kind of the object that a pod's spec names and that is refused because it is absent."""
LEAST_NAME = 3  # shorter values may stand in any message
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def refused(facts: ClusterFacts, workload: ObjectRef) -> tuple[list[ObjectRef], list[str]]:
    """The objects which say that a workload's pods, or Jobs, cannot be created, and their words."""
    makers = [workload, *structure.replica_sets_of(facts, workload)]
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
    return reads, said


def creation_findings(facts: ClusterFacts, workload: ObjectRef) -> Iterator[Diagnosis]:
    """Yield why the pods of a workload are not created."""
    reads, said = refused(facts, workload)
    if not said:
        return
    why, manifest = refusal(*said), facts.get(workload) or {}
    claims = {"volumeClaimTemplates": dig(manifest, "spec", "volumeClaimTemplates")}
    spec = {**structure.pod_spec_of(manifest), **claims}
    unserved = _unserved_webhooks(facts, said) if why is Refusal.WEBHOOK_DOWN else ()
    blamed = [*unserved, *_objects(facts, why, workload, spec)]
    target = blamed[0] if blamed else workload
    by = f" ({target})" if blamed else ""
    what = "Jobs" if workload.kind == "CronJob" else "pods"
    told = f"the API server refuses to create the {what} of {workload}: {why}{by}"
    strength = Strength.TIMED if why is Refusal.WEBHOOK_DOWN and not blamed else Strength.DIRECT
    also = (*blamed[1:], workload, *(r for r in reads if r != workload))
    signals = ("FailedCreate", *structure.observed(facts, workload, {}))
    found = stated(Cause.CREATION_REFUSED, target, told, (), signals, also, strength)
    found = replace(found, reads=tuple(reads))
    rollout = _refused_rollout(facts, workload, said)
    others = tuple(ref for ref in found.subjects if ref != workload)
    yield replace(rollout.undoing(found), object=workload, also=others) if rollout else found


def _refused_rollout(facts: ClusterFacts, workload: ObjectRef, said: list[str]) -> structure.Rollout | None:
    """The rollout to undo: it changed what is refused, and pods of the revision before run.

    A refusal of an unknown class, or of an absent object, is about a changed value if it names the value.
    """
    why = refusal(*said)
    rollout = structure.rollout_of(facts, workload) if why in {*CHANGED, *NAMED, Refusal.UNKNOWN} else None
    well = [pod for pod in structure.pods_of(facts, workload) if not pod_failing(pod)] if rollout else []
    if rollout is None or not any(structure.made_by(facts, pod, rollout.previous) for pod in well):
        return None
    before = mapping(template_of(rollout.previous).get("spec"))
    quotas = facts.list("ResourceQuota", workload.namespace).items if why is Refusal.QUOTA else ()
    fits = not any(exhausted(q, amounts_of(before)) for q in quotas)
    values = [line.rpartition(" -> ")[2] for line in rollout.lines]
    named = any(len(v) >= LEAST_NAME and speaks_of(message, v) for v in values for message in said)
    touched = rollout.touches(*CHANGED[why]) if why in CHANGED else named
    return rollout if fits and touched else None


def _objects(
    facts: ClusterFacts, why: Refusal, workload: ObjectRef, spec: dict[str, object]
) -> Iterator[ObjectRef]:
    """Yield the objects that the class of a refusal points to, if their own state agrees."""
    if why is Refusal.QUOTA:
        quotas = [q for q in facts.list("ResourceQuota", workload.namespace).items if applies(q, spec)]
        one_job = {"count/jobs.batch": 1.0} if workload.kind == "CronJob" else {}
        yield from (reference(q) for q in quotas if exhausted(q, {**amounts_of(spec), **one_job}))
    elif why is Refusal.QUOTA_NEEDS_VALUES:
        yield workload
        yield from (reference(q) for q in facts.list("ResourceQuota", workload.namespace).items)
    elif why is Refusal.WEBHOOK_CERTIFICATE:
        yield from _webhook_certificates(facts)
    elif why is Refusal.LIMIT_RANGE:
        yield from (reference(r) for r in facts.list("LimitRange", workload.namespace).items)
    elif why is Refusal.POD_SECURITY:
        yield workload
        yield structure.ref_to("Namespace", workload.namespace)
    elif why in NAMED:
        kind, field, home = NAMED[why], NAMED[why][0].lower() + NAMED[why][1:] + "Name", workload.namespace
        name = text({"serviceAccountName": "default", **spec}.get(field))
        ref = structure.ref_to(kind, name, "" if kind in CLUSTER_SCOPED else home)
        if name and facts.presence(ref) is Presence.ABSENT:
            yield ref


def exhausted(quota: Manifest, asked: Mapping[str, float]) -> bool:
    """True if a quota has no room for these amounts, by its own status."""
    hard, used = mapping(dig(quota, "status", "hard")), mapping(dig(quota, "status", "used"))
    then = {n: (quantity(used.get(n)) or 0.0) + asked.get(n, 0.0) for n in hard}
    return any(amount > (quantity(hard[n]) or 0.0) + ROUNDING for n, amount in then.items())


def applies(quota: Manifest, spec: Mapping[str, Any]) -> bool:
    """True if a quota counts pods of this spec, by its scopes."""
    of_size = "NotBestEffort" if len(requests_of(spec)) > 1 else "BestEffort"
    of_time = "Terminating" if "activeDeadlineSeconds" in spec else "NotTerminating"
    name, rules = text(spec.get("priorityClassName")), mapping(dig(quota, "spec", "scopeSelector"))
    has = {of_size: "", of_time: ""} | ({"PriorityClass": name} if name else {})
    terms = [{"key": scope, "operator": "Exists"} for scope in sequence(dig(quota, "spec", "scopes"))]
    terms += [{**rule, "key": rule.get("scopeName")} for rule in mappings(rules.get("matchExpressions"))]
    return selects({"matchExpressions": terms}, has)


def amounts_of(spec: Mapping[str, object]) -> dict[str, float]:
    """The amounts that one more pod of this spec counts against quotas, by the names that quotas use."""
    wanted = requests_of(spec)
    bounds = [{"requests": dig(c, "resources", "limits")} for c in mappings(spec.get("containers"))]
    bounded = requests_of({"containers": [{"resources": bound} for bound in bounds]})
    limits = {f"limits.{name}": value for name, value in bounded.items()}
    templates = mappings(spec.get("volumeClaimTemplates"))
    storage = [dig(claim, "spec", "resources", "requests", "storage") for claim in templates]
    limits["requests.storage"] = sum(quantity(value) or 0.0 for value in storage)
    limits |= {"persistentvolumeclaims": float(len(storage)), "count/pods": 1.0}
    return {**{f"requests.{k}": v for k, v in wanted.items()}, **wanted, **limits}


def webhook_edges(facts: ClusterFacts, workload: ObjectRef) -> Iterator[Edge]:
    """Yield Services of admission webhooks, if the API server says that it cannot call one."""
    if refusal(*refused(facts, workload)[1]) is Refusal.WEBHOOK_DOWN:
        yield from (Edge(Relation.WEBHOOK, service) for service, _, _ in _webhooks(facts))


def _webhooks(facts: ClusterFacts) -> Iterator[tuple[ObjectRef, str, ObjectRef]]:
    """Yield the Service of each webhook, its name, and its configuration."""
    for kind in WEBHOOKS:
        for configuration in facts.list(kind).items:
            for hook in mappings(configuration.get("webhooks")):
                service = mapping(dig(hook, "clientConfig", "service"))
                server = structure.ref_to(
                    "Service", text(service.get("name")), text(service.get("namespace"))
                )
                if service:
                    yield server, text(hook.get("name")), reference(configuration)


def _unserved_webhooks(facts: ClusterFacts, said: list[str]) -> Iterator[ObjectRef]:
    """Yield the configuration of a webhook that the API server names, and its Service, if that does not exist."""
    for service, name, configuration in _webhooks(facts):
        called = name and any(speaks_of(message, name) for message in said)
        if called and facts.presence(service) is Presence.ABSENT:
            yield from (configuration, service)


def _webhook_certificates(facts: ClusterFacts) -> Iterator[ObjectRef]:
    """Secrets that the servers of webhooks mount: the certificates that they show to the API server."""
    for service, _, _ in _webhooks(facts):
        for pod in structure.pods_behind(facts, facts.get(service))[:1]:
            yield from (mount.source for mount in mounts_of(pod, "Secret") if mount.path)
            yield structure.root_of(facts, pod)
