"""Objects whose own controllers report what is wrong: autoscalers, budgets, jobs, certificates and others."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from worker.domain.cluster.changes import template_of
from worker.domain.cluster.conditions import condition, holds
from worker.domain.cluster.fields import dig, mapping, mappings, meta, moment, name_of, reference, text, whole
from worker.domain.cluster.pods import containers
from worker.domain.cluster.references import selects
from worker.domain.diagnosis import structure
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, Strength, named, stated
from worker.domain.diagnosis.facts import ClusterFacts, Presence
from worker.domain.diagnosis.messages import speaks_of
from worker.domain.diagnosis.running import KILLED
from worker.domain.values.objects import Manifest, ObjectRef

NO_METRICS = ("FailedGetResourceMetric", "FailedGetContainerResourceMetric", "FailedComputeMetricsReplicas")
SELECTORS = ("AmbiguousSelector", "InvalidSelector")
ISSUERS = "cert-manager.io/v1"
ACME = "acme.cert-manager.io/v1"
STUCK = timedelta(minutes=5)
READY = (
    "cert-manager.io/", ACME, "serving.knative.dev/", "external-secrets.io/", "keda.sh/", "helm.toolkit.fluxcd.io/",
    "kustomize.toolkit.fluxcd.io/",
)  # fmt: skip
"""API groups whose controllers state by the condition Ready whether an object works."""


def scale_target(manifest: Manifest, namespace: str) -> ObjectRef | None:
    """Return what a HorizontalPodAutoscaler scales."""
    target = mapping(dig(manifest, "spec", "scaleTargetRef"))
    if not target.get("name"):
        return None
    kind, name, version = (text(target.get(key)) for key in ("kind", "name", "apiVersion"))
    return ObjectRef(kind, name, namespace, version)


def autoscalers_of(facts: ClusterFacts, workload: ObjectRef) -> list[Manifest]:
    """The autoscalers that set the number of replicas of a workload, unless it is 0."""
    listed = facts.list("HorizontalPodAutoscaler", workload.namespace).items
    targets = [(h, scale_target(h, workload.namespace)) for h in listed]
    return [h for h, target in targets if target and named(target) == named(workload)]


def scaled_by_another(facts: ClusterFacts, workload: ObjectRef) -> bool:
    """True if an autoscaler scales a workload and may keep it at zero: made by a controller (KEDA), or by its spec."""
    found = autoscalers_of(facts, workload)
    return any(structure.owner_of(h) or dig(h, "spec", "minReplicas") == 0 for h in found)


def autoscaler_findings(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Iterator[Diagnosis]:
    """An autoscaler at its maximum, or one that cannot compute or reach its target."""
    target = scale_target(manifest, ref.namespace)
    also = (target,) if target else ()
    maximum = whole(dig(manifest, "spec", "maxReplicas"))
    current = whole(dig(manifest, "status", "currentReplicas"))
    limited, active = condition(manifest, "ScalingLimited"), condition(manifest, "ScalingActive")
    measured = text(active.get("status")) != "False"  # else the other conditions are old
    if measured and _states(limited, "True", {"TooManyReplicas"}) and current >= maximum > 0:
        told = f"{ref} is at its maximum of {maximum} replicas and wants more"
        sick = target is not None and bool(structure.sick_pods(facts, target))  # more of them do not help
        remedies, signals = () if sick else (Remedy.RAISE_AUTOSCALER,), ("HPAMaxedOut",)
        strength = Strength.SYMPTOM if sick else Strength.DIRECT
        yield stated(Cause.AUTOSCALER, ref, told, remedies, signals, also, strength)
    if target and facts.presence(target) is Presence.ABSENT:
        yield stated(Cause.AUTOSCALER, ref, f"{target}, which {ref} scales, does not exist", also=also)
    elif target and _states(active, "False", NO_METRICS) and _undeclared(facts.get(target) or {}):
        told = f"{ref} cannot compute utilization: {target} declares no requests"
        found = stated(Cause.AUTOSCALER, target, told, also=(ref,))
        rollout = structure.rollout_of(facts, target)
        new = rollout and not _undeclared({"spec": {"template": template_of(rollout.previous)}})
        yield rollout.undoing(found) if rollout and new else found
    elif _states(active, "False", SELECTORS):
        said, listed = text(active.get("message")), facts.list("HorizontalPodAutoscaler", ref.namespace).items
        others = tuple(h for h in map(reference, listed) if h.name != ref.name and speaks_of(said, h.name))
        told = f"{ref} does not scale: {text(active.get('reason'))}"
        yield stated(Cause.AUTOSCALER, ref, told, also=others)


def _undeclared(workload: Manifest) -> bool:
    listed = mappings(structure.pod_spec_of(workload).get("containers"))
    return any(not mapping(dig(c, "resources", "requests")) for c in listed)


def _states(entry: dict[str, Any], status: str, reasons: Container[str]) -> bool:
    return text(entry.get("status")) == status and text(entry.get("reason")) in reasons


def budget_findings(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Iterator[Diagnosis]:
    """Yield a disruption budget that blocks evictions although all of its pods are healthy.

    It allows no disruption, or it is one of several for the same pods, of which the API server evicts none.
    """
    status = mapping(manifest.get("status"))
    counts = (whole(status.get(key)) for key in ("currentHealthy", "desiredHealthy", "expectedPods"))
    healthy, wanted, expected = counts
    cordoned = {name_of(n) for n in facts.list("Node").items if dig(n, "spec", "unschedulable") is True}
    pods = structure.selected(facts, ref.namespace, dig(manifest, "spec", "selector"))
    blocked = [p for p in pods if text(dig(p, "spec", "nodeName")) in cordoned]
    both = [b for b in map(reference, budgets_of(facts, blocked)) if b.name != ref.name]
    if both:
        told = f"{ref} and {both[0]} select the same pods, and a cordoned node still runs some of them"
        yield stated(Cause.DISRUPTION_BUDGET, ref, told, (), ("PodDisruptionBudgetAtLimit",), tuple(both))
        return
    if whole(status.get("disruptionsAllowed")) or not expected or healthy < max(wanted, expected):
        return
    remedies = {Remedy.RELAX_DISRUPTION_BUDGET} if blocked else set()
    told = f"{ref} allows no disruption with {healthy} of {wanted} required pods healthy{_least(manifest)}"
    yield stated(Cause.DISRUPTION_BUDGET, ref, told + (", and a cordoned node still runs its pods" if blocked else ""), remedies,
                   ("PodDisruptionBudgetAtLimit",), (*map(reference, blocked[:1]), *(structure.root_of(facts, p) for p in blocked)))  # fmt: skip


def budgets_of(facts: ClusterFacts, listed: Sequence[Manifest]) -> list[Manifest]:
    """The budgets that count one of the pods: no eviction while they allow no disruption."""
    pods = [(reference(p).namespace, structure.labels_of(p)) for p in listed]
    listed = facts.list("PodDisruptionBudget").items
    budgets = [(b, reference(b).namespace, dig(b, "spec", "selector")) for b in listed]
    return [b for b, home, rule in budgets if any(home == of and selects(rule, has) for of, has in pods)]


def _least(budget: Manifest) -> str:
    spec = mapping(budget.get("spec"))
    told = [f"{k} {text(spec[k])}" for k in ("minAvailable", "maxUnavailable") if k in spec]
    return f" ({', '.join(told)})" if told else ""


def job_findings(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Iterator[Diagnosis]:
    """A Job that failed or does not end."""
    failed = condition(manifest, "Failed") if holds(manifest, "Failed") else {}
    reason = text(failed.get("reason"))
    owner, pods = structure.owner_of(manifest), structure.pods_of(facts, ref)
    also = (*((owner,) if owner else ()), *map(reference, pods[-1:]))
    parts = [c for p in pods for c in containers(p)]
    ended = [last for c in parts if (last := c.terminated or c.last)]
    ends = {whole(last.get("exitCode")) for last in ended}
    crashed = ends - {0, *KILLED}  # a pod is killed at the deadline, too
    if reason == "DeadlineExceeded" and not crashed and all(e.get("reason") != "OOMKilled" for e in ended):
        worked = ends or any(c.running for c in parts)
        remedies = {Remedy.EXTEND_DEADLINE} if worked else set()
        yield stated(Cause.JOB, ref, f"{ref} exceeded its deadline", remedies, (reason,), also)
    elif failed:
        told = f"{ref} failed: {reason}{f' (exit code {max(crashed)})' if crashed else ''}"
        found = stated(Cause.JOB, ref, told, (), (reason,), also, Strength.TIMED)
        yield replace(found, reads=(ref, *also))
    elif whole(dig(manifest, "status", "active")):
        for pod in pods:
            done = [c for c in containers(pod) if c.kind == "app" and c.done]
            on = [c for c in containers(pod) if c.kind == "app" and c.running]
            if done and on:
                told = f"{ref} does not complete: {on[0].name} keeps running after container {done[0].name} has finished"
                yield stated(Cause.JOB, ref, told, also=(reference(pod),))


def superseded(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Diagnosis | None:
    """A failed Job of a CronJob whose later Job has succeeded: it and its pods are a record of the past."""
    owner, made = structure.owner_of(manifest), structure.created(manifest)
    failure = condition(manifest, "Failed")
    failed = moment(failure.get("lastTransitionTime"))
    if owner is None or owner.kind != "CronJob" or not holds(manifest, "Failed"):
        return None  # Jobs of another owner do different work
    worked = moment(dig(facts.get(owner), "status", "lastSuccessfulTime"))
    jobs = facts.list("Job", owner.namespace).items
    siblings = [j for j in jobs if structure.owner_of(j) == owner and holds(j, "Complete")]
    later = any(made and (structure.created(j) or made) > made for j in siblings)
    if not later and (failed is None or worked is None or worked <= failed):
        return None
    reason = text(failure.get("reason"))
    told = f"{ref} failed: {reason}, and a later one of {owner} succeeded"
    return stated(Cause.JOB, ref, told, (), (reason,), (owner,), Strength.SYMPTOM)


def cron_job_findings(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Iterator[Diagnosis]:
    """A CronJob that starts no Jobs."""
    if dig(manifest, "spec", "suspend") is True:
        yield stated(Cause.SUSPENDED, ref, f"{ref} is suspended", {Remedy.RESUME}, ("CronJobSuspended",))
        return
    listed = mappings(dig(manifest, "status", "active"))
    active = [structure.ref_to("Job", text(job.get("name")), ref.namespace) for job in listed]
    if active and dig(manifest, "spec", "concurrencyPolicy") == "Forbid":
        told = f"{active[0]} still runs, and {ref} forbids a second one"
        yield stated(Cause.JOB, active[0], told, also=(ref,))
    reasons = {e.reason for e in facts.events(ref.namespace, ref)}
    if {"TooManyMissedTimes", "MissSchedule", "FailedNeedsStart"} & reasons:
        yield stated(Cause.JOB, ref, f"{ref} has missed its start times")
    elif invalid := {"UnknownTimeZone", "UnparseableSchedule", "InvalidSchedule"} & reasons:
        yield stated(Cause.JOB, ref, f"{ref} starts no Job: {min(invalid)}")


def deletion_findings(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Iterator[Diagnosis]:
    """Yield an object whose deletion does not finish."""
    since = moment(meta(manifest).get("deletionTimestamp"))
    if since is None or (facts.now is not None and facts.now - since < STUCK):
        return
    finalizers = meta(manifest).get("finalizers") or dig(manifest, "spec", "finalizers") or []
    found = mappings(dig(manifest, "status", "conditions")) if ref.kind == "Namespace" else []
    stuck = [text(c.get("type")) for c in found if text(c.get("status")) == "True"]
    if not finalizers and not stuck and ref.kind != "Pod":
        return
    kept = "its finalizers" if finalizers else "nothing reports that its containers have stopped"
    why = ", ".join(stuck) or kept
    remedies = {Remedy.REMOVE_FINALIZER} if "NamespaceFinalizersRemaining" in stuck else set()
    node = structure.ref_to("Node", text(dig(manifest, "spec", "nodeName")))
    strength = Strength.TIMED if ref.kind == "Pod" or "Discovery" in why else Strength.DIRECT
    told, also = f"{ref} is being deleted, but is still there ({why})", (node,) if node.name else ()
    yield stated(Cause.STUCK_DELETION, ref, told, remedies, (), also, strength)


def stated_findings(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Iterator[Diagnosis]:
    """Yield findings about kinds whose conditions a well-known controller writes."""
    kind = "Available" if ref.kind == "APIService" else "Ready"
    if kind == "Ready" and not text(manifest.get("apiVersion")).startswith(READY):
        return
    expires = moment(dig(manifest, "status", "notAfter"))
    expired = facts.now is not None and expires is not None and expires < facts.now
    if holds(manifest, kind, "False") or expired:
        secret = text(dig(manifest, "spec", "secretName"))
        also = (structure.ref_to("Secret", secret, ref.namespace),) if secret else ()
        certificate = ref.kind == "Certificate"
        asked = facts.list("Challenge", ref.namespace, api_version=ACME).items if certificate else ()
        reason = text(condition(manifest, kind).get("reason"))
        told = f"{ref} has expired" if expired else f"{ref} is not {kind}: {reason}"
        issuer, renews = issuer_of(manifest), certificate and renewable(facts, manifest)
        remedies = {Remedy.RENEW_CERTIFICATE} if renews and not asked else set()
        if issuer and facts.presence(issuer) is Presence.ABSENT:
            told, also = f"{told}, and {issuer} does not exist", (*also, issuer)
        signals = ("CertificateExpired",) if expired else ()
        reads = (ref, *((issuer,) if issuer else ()), *map(reference, asked))
        refused = issuer is not None and holds(facts.get(issuer), "Ready", "False")
        strength = Strength.TIMED if refused else Strength.DIRECT  # the issuer says why
        yield replace(stated(Cause.CONTROLLER, ref, told, remedies, signals, also, strength), reads=reads)


def issuer_of(manifest: Manifest) -> ObjectRef | None:
    """The issuer of a Certificate."""
    issuer = mapping(dig(manifest, "spec", "issuerRef"))
    kind, name = text(issuer.get("kind")) or "Issuer", text(issuer.get("name"))
    home = "" if kind == "ClusterIssuer" else reference(manifest).namespace
    return structure.ref_to(kind, name, home, ISSUERS) if name else None


def renewable(facts: ClusterFacts, certificate: Manifest) -> bool:
    """True if the issuer of a Certificate is known to work; what names none is left to whoever makes it.

    It does not work if a request has failed since it became ready. A controller that still calls an expired
    Certificate ready does not run.
    """
    issuer, failed = issuer_of(certificate), moment(dig(certificate, "status", "lastFailureTime"))
    if issuer is None or holds(certificate, "Ready"):
        return issuer is None
    since = moment(condition(facts.get(issuer), "Ready").get("lastTransitionTime"))
    return holds(facts.get(issuer), "Ready") and (failed is None or (since is not None and since > failed))


def condition_findings(pod: Manifest, workload: ObjectRef) -> Iterator[Diagnosis]:
    """Readiness gates that are not met, and a resize in place that does not fit the node."""
    wanted = [text(g.get("conditionType")) for g in mappings(dig(pod, "spec", "readinessGates"))]
    unmet = [gate for gate in wanted if gate and not holds(pod, gate)]
    if unmet and all(c.ready for c in containers(pod) if c.kind == "app"):
        told = f"{reference(pod)} waits for its readiness gate {unmet[0]}"
        yield stated(Cause.NOT_READY, workload, told, also=(reference(pod),))
    if holds(pod, "PodResizePending"):
        reason = text(condition(pod, "PodResizePending").get("reason"))
        told = f"the resize of {reference(pod)} is {reason} on its node"
        yield stated(Cause.NOT_SCHEDULABLE, reference(pod), told, also=(workload,))


def ended_findings(pod: Manifest, workload: ObjectRef) -> Iterator[Diagnosis]:
    """Yield a finished pod of a workload whose pods do not fail: a record of the past."""
    ref, phase = reference(pod), text(dig(pod, "status", "phase"))
    if phase in {"Failed", "Succeeded"} and ref != workload:
        reason = text(dig(pod, "status", "reason"))
        told = f"{ref} has ended ({reason or phase}), and no pod of {workload} fails now"
        found = stated(Cause.NOT_READY, workload, told, (), (), (ref,), Strength.SYMPTOM)
        yield replace(found, reads=(ref, workload))


def held_findings(ref: ObjectRef, manifest: Manifest) -> Iterator[Diagnosis]:
    """Yield a paused Deployment, a suspended Job, or a StatefulSet whose partition holds back its update."""
    updated = whole(dig(manifest, "status", "updatedReplicas")) >= whole(dig(manifest, "spec", "replicas"))
    paused = ref.kind == "Deployment" and dig(manifest, "spec", "paused") is True and not updated
    if paused or (ref.kind == "Job" and dig(manifest, "spec", "suspend") is True):
        told = f"{ref} is {'paused: its newest template is not rolled out' if paused else 'suspended'}"
        yield stated(Cause.SUSPENDED, ref, told)  # which somebody decided: no remedy
    partition = whole(dig(manifest, "spec", "updateStrategy", "rollingUpdate", "partition"))
    current, update = (text(dig(manifest, "status", key)) for key in ("currentRevision", "updateRevision"))
    if ref.kind == "StatefulSet" and partition and current != update:
        told = f"{ref} updates no pod below its partition of {partition}"
        yield stated(Cause.BAD_ROLLOUT, ref, told)


def certificates_of(facts: ClusterFacts, secrets: Collection[str], namespace: str) -> list[ObjectRef]:
    """The Certificates in the Secrets of these names."""
    found = facts.list("Certificate", namespace).items if any(secrets) else ()
    return [reference(c) for c in found if text(dig(c, "spec", "secretName")) in {*secrets} - {""}]
