"""Examines one object by the rules, and names the objects that its state may depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from worker.domain.cluster.fields import dig, mapping, mappings, meta, name_of, reference, text
from worker.domain.cluster.kinds import belongs_by_name
from worker.domain.cluster.pods import pod_failing, pod_restarts
from worker.domain.diagnosis import controllers, creation, nodes, policies, services
from worker.domain.diagnosis.causes import Cause, Diagnosis, Edge, Relation, Strength, named
from worker.domain.diagnosis.changes import change_findings, stale_findings
from worker.domain.diagnosis.facts import ClusterFacts, Presence
from worker.domain.diagnosis.programs import program_findings
from worker.domain.diagnosis.running import FailingPod, running_findings
from worker.domain.diagnosis.scheduling import scheduling_findings, unfit_nodes, unscheduled
from worker.domain.diagnosis.starting import starting_findings
from worker.domain.diagnosis.storage import pod_claim_findings, volume_findings
from worker.domain.diagnosis.structure import (
    changed,
    condition,
    created,
    holds,
    lately,
    owner_of,
    pods_behind,
    pods_of,
    ref_to,
    root_of,
    sick_pods,
)
from worker.domain.values.objects import Manifest, ObjectRef

MAX_PODS = 3
RESOURCE_METRICS = (
    ref_to("APIService", "v1beta1.metrics.k8s.io"),
    ref_to("Deployment", "metrics-server", "kube-system"),
)
CUSTOM_METRICS = (ref_to("APIService", "v1beta1.custom.metrics.k8s.io"),)
METRICS = {
    "FailedGetExternalMetric": (ref_to("APIService", "v1beta1.external.metrics.k8s.io"),),
    "FailedGetPodsMetric": CUSTOM_METRICS,
    "FailedGetObjectMetric": CUSTOM_METRICS,
}
"""The API that serves the metrics of an autoscaler, by the reason why it gets none."""
CLUSTER_DNS = (ref_to("Service", "kube-dns", "kube-system"), ref_to("Deployment", "coredns", "kube-system"))


@dataclass(frozen=True, slots=True)
class Examined:
    """Findings about one object and where to look further. `sick`: the object is unhealthy, whatever the
    cause.
    """

    findings: tuple[Diagnosis, ...] = ()
    edges: tuple[Edge, ...] = ()
    sick: bool = False


def examine(facts: ClusterFacts, ref: ObjectRef, *, signal: bool = False) -> Examined:
    """Examine one object. `signal`: it is the object of the signal, so its dependencies matter even if it
    is healthy.
    """
    if ref.kind == "Pod":
        return _pod(facts, ref, signal=signal)
    if ref.kind == "Service" and ref.api_version in {"", "v1"}:
        return _service(facts, ref)
    special = SPECIAL.get(ref.kind)
    if special is not None:
        manifest = facts.get(ref)
        return special(facts, ref, manifest) if manifest is not None else _absent(facts, ref)
    return workload(facts, ref, signal=signal)


def _absent(facts: ClusterFacts, ref: ObjectRef) -> Examined:
    if ref.kind == "PersistentVolumeClaim" and facts.presence(ref) is Presence.ABSENT:
        return Examined(tuple(volume_findings(facts, ref, {})), sick=True)
    return Examined()


def _pod(facts: ClusterFacts, ref: ObjectRef, *, signal: bool) -> Examined:
    listed = facts.list("Pod", ref.namespace)
    pod = next((p for p in listed.items if name_of(p) == ref.name), None)
    if pod is not None:
        root = root_of(facts, pod)
        examined = workload(facts, root, signal=signal, first=pod)
        above = (Edge(Relation.OWNER, root),) if root.kind in SPECIAL else ()
        return replace(examined, edges=(*examined.edges, *above))
    if not listed.complete:
        return Examined()
    owners = [
        reference(m)
        for kind in ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
        for m in facts.list(kind, ref.namespace).items
        if belongs_by_name(reference(m), ref)
    ]
    gone = [e for e in facts.events(ref.namespace, ref) if e.reason == "Evicted"]
    found = tuple(nodes.eviction_of_gone(facts, gone[-1].message)) if gone else ()
    return Examined(found, tuple(Edge(Relation.OWNER, owner) for owner in owners), sick=bool(gone))


def workload(
    facts: ClusterFacts, ref: ObjectRef, *, signal: bool = False, first: Manifest | None = None
) -> Examined:
    """Examine an object that runs pods: a built-in workload, a custom one, or a pod without an owner."""
    if ref.kind == "ReplicaSet" and not facts.list("ReplicaSet", ref.namespace).items:
        return Examined()  # its own owner is not known yet
    sick = sick_pods(facts, ref)
    if (
        first is not None
        and pod_failing(first)
        and (sick or ref.kind in {"Pod", "Job"} or nodes.evicted(first))
    ):
        sick = [first, *(p for p in sick if name_of(p) != name_of(first))]
    manifest = facts.get(ref) if ref.kind != "Pod" else None
    found = list(_of_pods(facts, ref, sick, [first] if first else [], signal=signal))
    found += list(_of_workload(facts, ref, manifest, sick, signal=signal))
    edges = [Edge(Relation.NODE, node) for node in nodes.nodes_of(sick[:MAX_PODS]) if _worth_node(found)]
    edges += [Edge(Relation.NODE, daemon) for pod in sick[:1] for daemon in _node_agents(facts, pod)]
    if not found:
        edges += [Edge(Relation.NODE, node) for pod in sick[:1] for node in unfit_nodes(facts, pod)]
    if manifest is not None and _missing_pods(facts, ref, manifest):
        edges += list(creation.webhook_edges(facts, ref))
    pods = sick or pods_of(facts, ref)
    if pods and (sick or signal) and not any(f.strength is Strength.DIRECT for f in found):
        extra, further = _surroundings(facts, ref, pods)
        found += extra
        edges += further
    return Examined(tuple(_distinct(found)), tuple(edges), sick=bool(sick or found))


def _of_pods(
    facts: ClusterFacts, ref: ObjectRef, sick: Sequence[Manifest], first: list[Manifest], *, signal: bool
) -> Iterator[Diagnosis]:
    """Yield what is wrong with the sick pods; without any, what happened lately to pods of the signal's
    workload.
    """
    for pod in sick[:MAX_PODS]:
        yield from pod_findings(facts, pod, ref)
    for pod in pods_of(facts, ref) if not sick else ():
        if pod_restarts(pod):  # healthy again
            yield from running_findings(FailingPod(facts, pod, ref))
        about = facts.events(ref.namespace, reference(pod)) if signal and nodes.evicted(pod) else ()
        if any(e.reason == "Evicted" for e in about):  # and replaced
            yield from nodes.eviction_findings(facts, pod, ref)
    for pod in (first or pods_of(facts, ref)[:MAX_PODS]) if signal and not sick else ():
        yield from controllers.condition_findings(pod, ref)
    for pod in first if signal and not sick else ():
        yield from controllers.deletion_findings(facts, reference(pod), pod)
        yield from controllers.ended_findings(pod, ref)


def _node_agents(facts: ClusterFacts, pod: Manifest) -> list[ObjectRef]:
    """Agents (such as storage drivers) that fail on the node of a pod whose volumes are not mounted."""
    mounting = any(e.reason == "FailedMount" for e in facts.events(reference(pod).namespace, reference(pod)))
    if not mounting or dig(pod, "status", "phase") != "Pending":
        return []
    return [agent for agent, _ in nodes.failing_agents(facts, text(dig(pod, "spec", "nodeName")))]


def _worth_node(found: Sequence[Diagnosis]) -> bool:
    return not any(f.strength is Strength.DIRECT and f.cause is not Cause.VOLUME for f in found)


def _distinct(found: Sequence[Diagnosis]) -> list[Diagnosis]:
    kept: dict[tuple[object, ...], Diagnosis] = {}
    for finding in found:
        kept.setdefault((finding.cause, named(finding.object), finding.remedies), finding)
    return list(kept.values())


def pod_findings(facts: ClusterFacts, pod: Manifest, ref: ObjectRef) -> Iterator[Diagnosis]:
    """Yield what is wrong with one sick pod."""
    if nodes.evicted(pod):
        yield from nodes.eviction_findings(facts, pod, ref)
    elif meta(pod).get("deletionTimestamp"):
        yield from controllers.deletion_findings(facts, reference(pod), pod)
    elif unscheduled(pod):
        yield from pod_claim_findings(facts, pod, ref)
        yield from scheduling_findings(facts, pod, ref)
    else:
        if dig(pod, "status", "phase") == "Pending":
            yield from pod_claim_findings(facts, pod, ref)
        yield from starting_findings(FailingPod(facts, pod, ref))
        yield from running_findings(FailingPod(facts, pod, ref))
        yield from controllers.condition_findings(pod, ref)


def _of_workload(
    facts: ClusterFacts, ref: ObjectRef, manifest: Manifest | None, sick: Sequence[Manifest], *, signal: bool
) -> Iterator[Diagnosis]:
    if manifest is not None:
        idle, when = services.idle_finding(manifest, ref), changed(manifest)
        if idle and (signal or when == created(manifest) or lately(facts, when)):
            yield idle
        elif idle:  # its dependents have lived without it
            yield replace(idle, strength=Strength.SYMPTOM, remedies=frozenset())
        if _missing_pods(facts, ref, manifest):
            yield from creation.creation_findings(facts, ref)
        if ref.kind == "Job":
            yield from controllers.job_findings(facts, ref, manifest)
        yield from controllers.stated_findings(facts, ref, manifest)
        yield from controllers.partition_findings(ref, manifest)
    yield from change_findings(facts, ref, sick)


def _missing_pods(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> bool:
    """True if a workload has fewer pods than it wants."""
    if manifest.get("kind") == "Job":
        status = mapping(manifest.get("status"))
        return not status.get("active") and not status.get("succeeded") and not status.get("failed")
    by_node = dig(manifest, "status", "desiredNumberScheduled")
    wanted = by_node if manifest.get("kind") == "DaemonSet" else dig(manifest, "spec", "replicas")
    listed = facts.list("Pod", ref.namespace)
    return isinstance(wanted, int) and listed.complete and len(pods_of(facts, ref)) < wanted


def _surroundings(
    facts: ClusterFacts, ref: ObjectRef, pods: Sequence[Manifest]
) -> tuple[list[Diagnosis], list[Edge]]:
    """Findings from logs, the dependencies of pods that suffer without a reason of their own, and the
    policies in between.
    """
    said = program_findings(facts, ref, pods[0])
    found = [f for f in said if isinstance(f, Diagnosis)]
    edges = [f for f in said if isinstance(f, Edge)]
    if found:
        return found, edges
    found += [] if pod_failing(pods[0]) else list(stale_findings(facts, ref, pods))
    for service in services.dependencies_of(facts, pods, ref):
        manifest = facts.get(service)
        behind = services.workloads_behind(facts, service)
        if named(ref) in map(named, behind):
            continue
        edges.append(Edge(Relation.NAMED_IN_SPEC, service))
        if manifest is not None:
            servers = pods_behind(facts, manifest)
            found += list(policies.blocking_findings(facts, ref, pods[0], manifest, servers))
    if pod_failing(pods[0]):
        found += list(policies.dns_findings(facts, ref, pods[0]))
        mounted = {text(dig(v, "secret", "secretName")) for v in mappings(dig(pods[0], "spec", "volumes"))}
        edges += [Edge(Relation.MOUNT, c) for c in controllers.certificates_of(facts, mounted, ref.namespace)]
        agents = nodes.failing_agents(facts, text(dig(pods[0], "spec", "nodeName")))
        edges += [Edge(Relation.DNS, ref) for ref in (*CLUSTER_DNS, *(agent for agent, _ in agents))]
    return found, edges


def _service(facts: ClusterFacts, ref: ObjectRef) -> Examined:
    found = tuple(services.service_findings(facts, ref))
    edges = () if found else tuple(Edge(Relation.SELECTED, w) for w in services.workloads_behind(facts, ref))
    return Examined(found, edges, sick=bool(found))


def _autoscaler(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = tuple(controllers.autoscaler_findings(facts, ref, manifest))
    target = controllers.scale_target(manifest, ref.namespace)
    edges = [Edge(Relation.SCALE_TARGET, target)] if target and not found else []
    if not found and holds(manifest, "ScalingActive", "False"):
        reason = text(condition(manifest, "ScalingActive").get("reason"))
        servers = METRICS.get(reason, ())
        edges += [Edge(Relation.SERVICE, server) for server in servers or RESOURCE_METRICS]
    return Examined(found, tuple(edges), sick=bool(found))


def _api_service(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    stated = controllers.stated_findings(facts, ref, manifest)
    # the server of the API may say why it does not answer
    found = tuple(replace(finding, strength=Strength.TIMED) for finding in stated)
    service = mapping(dig(manifest, "spec", "service"))
    target = ref_to("Service", text(service.get("name")), text(service.get("namespace")))
    return Examined(
        found, (Edge(Relation.SERVICE, target),) if target.name and found else (), sick=bool(found)
    )


def _budget(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = tuple(controllers.budget_findings(facts, ref, manifest))
    sick = [p for p in controllers.counted_pods(facts, manifest) if pod_failing(p)]
    roots = dict.fromkeys(root_of(facts, p) for p in sick)
    return Examined(found, tuple(Edge(Relation.SELECTED, r) for r in roots), sick=bool(found))


def _node(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = tuple(nodes.node_findings(facts, ref))
    cordoned = dig(manifest, "spec", "unschedulable") is True
    budgets = controllers.budgets_on(facts, ref) if cordoned and not found else []
    return Examined(found, tuple(Edge(Relation.SELECTED, b) for b in budgets), sick=bool(found) or cordoned)


def _namespace(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = list(controllers.deletion_findings(facts, ref, manifest))
    edges: list[Edge] = []
    if holds(manifest, "NamespaceDeletionDiscoveryFailure"):
        edges += [
            Edge(Relation.SERVICE, reference(s))
            for s in facts.list("APIService").items
            if holds(s, "Available", "False")
        ]
    if not found:
        pods = facts.list("Pod", ref.name).items
        failing = [p for p in pods if pod_failing(p)]
        roots = dict.fromkeys(root_of(facts, p) for p in (failing or (pods if facts.texts else ())))
        edges += [Edge(Relation.NAMESPACE, root) for root in roots]
    return Examined(tuple(found), tuple(edges), sick=bool(found))


def _cron_job(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = tuple(controllers.cron_job_findings(facts, ref, manifest))
    jobs = [
        j for j in facts.list("Job", ref.namespace).items if (owner := owner_of(j)) and owner.name == ref.name
    ]
    return Examined(
        found,
        tuple(Edge(Relation.OWNED, reference(j)) for j in jobs[-3:]) if not found else (),
        sick=bool(found),
    )


def _claim(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = tuple(volume_findings(facts, ref, manifest))
    return Examined(found, sick=bool(found))


def _stated(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = tuple(controllers.stated_findings(facts, ref, manifest))
    issuer = controllers.issuer_of(manifest) if found else None
    return Examined(found, (Edge(Relation.SERVICE, issuer),) if issuer else (), sick=bool(found))


def _ingress(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    name = text(dig(manifest, "spec", "ingressClassName"))
    if name and facts.presence(ref_to("IngressClass", name)) is Presence.ABSENT:
        told = f"{ref} asks for IngressClass {name}, which does not exist."
        return Examined((Diagnosis(Cause.CONTROLLER, ref, told, reads=(ref,)),), sick=True)
    paths = [
        p for rule in mappings(dig(manifest, "spec", "rules")) for p in mappings(dig(rule, "http", "paths"))
    ]
    named = dict.fromkeys(text(dig(p, "backend", "service", "name")) for p in paths)
    edges = [Edge(Relation.SERVICE, ref_to("Service", n, ref.namespace)) for n in named if n]
    secrets = {text(entry.get("secretName")) for entry in mappings(dig(manifest, "spec", "tls"))}
    edges += [Edge(Relation.MOUNT, c) for c in controllers.certificates_of(facts, secrets, ref.namespace)]
    return Examined((), tuple(edges))


SPECIAL: dict[str, Callable[[ClusterFacts, ObjectRef, Manifest], Examined]] = {
    "HorizontalPodAutoscaler": _autoscaler,
    "APIService": _api_service,
    "PodDisruptionBudget": _budget,
    "Node": _node,
    "Namespace": _namespace,
    "CronJob": _cron_job,
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _claim,
    "Certificate": _stated,
    "Issuer": _stated,
    "ClusterIssuer": _stated,
    "ExternalSecret": _stated,
    "Ingress": _ingress,
}
