"""Examines one object by the rules, and names the objects that its state may depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from worker.domain.cluster.conditions import condition, holds
from worker.domain.cluster.fields import dig, mapping, mappings, meta, name_of, reference, text
from worker.domain.cluster.kinds import belongs_by_name
from worker.domain.cluster.pods import pod_failing, pod_restarts
from worker.domain.diagnosis import controllers, creation, nodes, policies, scheduling, services, structure
from worker.domain.diagnosis.causes import Cause, Diagnosis, Edge, Relation, Strength, named, stated
from worker.domain.diagnosis.changes import change_findings, outdated, stale_findings
from worker.domain.diagnosis.facts import ClusterFacts, Presence
from worker.domain.diagnosis.programs import program_findings
from worker.domain.diagnosis.running import FailingPod, running_findings
from worker.domain.diagnosis.starting import starting_findings
from worker.domain.diagnosis.storage import SIGNALS, claim_findings, provisioners
from worker.domain.values.objects import Manifest, ObjectRef

WORKS = ("Accepted", "ResolvedRefs", "Programmed")
"""Conditions that are True for a gateway or route that works; of others, such as PartiallyInvalid, False is good."""
FROM_ANNOTATION = "use-annotation"  # the port of a backend that is no Service (AWS Load Balancer Controller)
MAX_PODS = 3
RESOURCE_METRICS = (
    structure.ref_to("APIService", "v1beta1.metrics.k8s.io"), structure.ref_to("Deployment", "metrics-server", "kube-system"),
)  # fmt: skip
CUSTOM_METRICS = (structure.ref_to("APIService", "v1beta1.custom.metrics.k8s.io"),)
METRICS = {
    "FailedGetExternalMetric": (structure.ref_to("APIService", "v1beta1.external.metrics.k8s.io"),),
    "FailedGetPodsMetric": CUSTOM_METRICS,
    "FailedGetObjectMetric": CUSTOM_METRICS,
}
"""The API that serves the metrics of an autoscaler, by the reason why it gets none."""
CLUSTER_DNS = (
    structure.ref_to("Service", "kube-dns", "kube-system"),
    structure.ref_to("Deployment", "coredns", "kube-system"),
)


@dataclass(frozen=True, slots=True)
class Examined:
    """Findings about one object, and where to look further."""

    findings: tuple[Diagnosis, ...] = ()
    edges: tuple[Edge, ...] = ()


def examine(facts: ClusterFacts, ref: ObjectRef, *, signal: bool = False) -> Examined:
    """Examine one object. `signal`: it is the signal's, so its dependencies matter even if it is healthy."""
    if ref.kind == "Pod":
        return _pod(facts, ref, signal=signal)
    if ref.kind == "Service" and ref.api_version in {"", "v1"}:
        return _service(facts, ref)
    special = SPECIAL.get(ref.kind)
    if special is not None:
        manifest = facts.get(ref)
        known = manifest is not None or ref.kind == "PersistentVolumeClaim"  # which may be absent
        return special(facts, ref, manifest or {}) if known else Examined()
    return workload(facts, ref, signal=signal)


def _pod(facts: ClusterFacts, ref: ObjectRef, *, signal: bool) -> Examined:
    listed = facts.list("Pod", ref.namespace)
    pod = next((p for p in listed.items if name_of(p) == ref.name), None)
    if pod is not None:
        root = structure.root_of(facts, pod)
        examined = workload(facts, root, signal=signal, first=pod)
        above = (Edge(Relation.OWNER, root),) if root.kind in SPECIAL else ()
        return replace(examined, edges=(*examined.edges, *above))
    if not listed.complete:
        return Examined()
    kinds = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
    found_there = [reference(m) for kind in kinds for m in facts.list(kind, ref.namespace).items]
    owners = [owner for owner in found_there if belongs_by_name(owner, ref)]
    gone = [e for e in facts.events(ref.namespace, ref) if e.reason == "Evicted"]
    found = tuple(nodes.eviction_of_gone(facts, gone[-1].message)) if gone else ()
    return Examined(found, tuple(Edge(Relation.OWNER, owner) for owner in owners))


def workload(
    facts: ClusterFacts, ref: ObjectRef, *, signal: bool = False, first: Manifest | None = None
) -> Examined:
    """Examine an object that runs pods: a built-in workload, a custom one, or a pod without an owner."""
    if ref.kind == "ReplicaSet" and not facts.list("ReplicaSet", ref.namespace).items:
        return Examined()  # its own owner is not known yet
    manifest = facts.get(ref) if ref.kind != "Pod" else None
    past = controllers.superseded(facts, ref, manifest) if manifest and ref.kind == "Job" else None
    if past is not None:
        return Examined((past,))
    sick = structure.sick_pods(facts, ref)
    alone = ref.kind in {"Pod", "Job"}
    if first is not None and pod_failing(first) and (sick or alone or nodes.evicted(first)):
        sick = [first, *(p for p in sick if name_of(p) != name_of(first))]
    found = list(_of_pods(facts, ref, sick, [first] if first else [], signal=signal))
    found += list(_of_workload(facts, ref, manifest, sick, signal=signal))
    found += controllers.held_findings(ref, manifest) if manifest and signal and not sick else []
    edges = [Edge(Relation.NODE, node) for node in nodes.nodes_of(sick[:MAX_PODS]) if _worth_node(found)]
    edges += [Edge(Relation.NODE, agent) for pod in sick[:1] for agent in _agents(facts, pod)]
    unfit = scheduling.unfit_nodes(facts, sick[0]) if sick and not found else []
    edges += [Edge(Relation.NODE, node) for node in unfit]
    if manifest is not None and _missing_pods(facts, ref, manifest):
        edges += list(creation.webhook_edges(facts, ref))
    pods = sick or structure.pods_of(facts, ref)
    if pods and (sick or signal) and not any(f.strength is Strength.DIRECT for f in found):
        extra, further = _surroundings(facts, ref, pods)
        found += extra
        edges += further
    if ref.kind in {"Job", "CronJob"}:  # one makes the other: an answer may name either
        kin = [owner for pod in sick[:MAX_PODS] for owner in structure.chain_of(facts, pod)[1:]]
        found = [
            replace(f, also=(*f.also, *kin)) if named(ref) in map(named, f.subjects) else f for f in found
        ]
    return Examined(tuple(_distinct(found)), tuple(edges))


def _of_pods(
    facts: ClusterFacts, ref: ObjectRef, sick: Sequence[Manifest], first: list[Manifest], *, signal: bool
) -> Iterator[Diagnosis]:
    """Yield what is wrong with the sick pods, or what happened lately to pods of the signal's workload."""
    for pod in sick[:MAX_PODS]:
        found = pod_findings(facts, pod, ref)
        yield from (_left_behind(f, pod) for f in found) if outdated(facts, pod, ref) else found
    for pod in structure.pods_of(facts, ref) if not sick else ():
        if pod_restarts(pod):  # healthy again
            yield from running_findings(FailingPod(facts, pod, ref))
        about = facts.events(ref.namespace, reference(pod)) if signal and nodes.evicted(pod) else ()
        if any(e.reason == "Evicted" for e in about):  # and replaced
            yield from nodes.eviction_findings(facts, pod, ref)
    for pod in (first or structure.pods_of(facts, ref)[:MAX_PODS]) if signal and not sick else ():
        yield from controllers.condition_findings(pod, ref)
    for pod in first if signal and not sick else ():
        yield from controllers.deletion_findings(facts, reference(pod), pod)
        yield from controllers.ended_findings(pod, ref)


def _left_behind(finding: Diagnosis, pod: Manifest) -> Diagnosis:
    """The finding about a pod that no change of the template mends any more."""
    told = f"{finding.sentence} The pod belongs to a revision that its controller no longer keeps: it must be deleted."
    also = (*finding.also, finding.object)
    return replace(finding, object=reference(pod), also=also, sentence=told, remedies=frozenset(), revision=0)


def _agents(facts: ClusterFacts, pod: Manifest) -> list[ObjectRef]:
    """Failing agents that a pending pod waits for: they prepare nodes, offer devices, or mount volumes."""
    if dig(pod, "status", "phase") != "Pending":
        return []
    waiting = (*scheduling.withholding(facts, pod), *scheduling.unprepared(facts, pod))
    places = [node.name for node in waiting]
    home = reference(pod).namespace
    if any(e.reason == "FailedMount" for e in facts.events(home, reference(pod))):
        places.append(text(dig(pod, "spec", "nodeName")))
    makers = [maker for claim in scheduling.claims_of(pod, home) for maker in provisioners(facts, claim)]
    agents = [agent for place in places for agent, _ in nodes.failing_agents(facts, place)]
    return [*makers, *scheduling.preparing(facts, pod), *agents]


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
    else:
        pending = dig(pod, "status", "phase") == "Pending"
        for claim in scheduling.claims_of(pod, ref.namespace) if pending else ():
            yield from claim_findings(facts, claim, ref, pod)
        if scheduling.unscheduled(pod):
            yield from scheduling.scheduling_findings(facts, pod, ref)
            return
        yield from starting_findings(FailingPod(facts, pod, ref))
        yield from running_findings(FailingPod(facts, pod, ref))
        yield from controllers.condition_findings(pod, ref)


def _of_workload(
    facts: ClusterFacts, ref: ObjectRef, manifest: Manifest | None, sick: Sequence[Manifest], *, signal: bool
) -> Iterator[Diagnosis]:
    if manifest is not None:
        idle, when = services.idle_finding(manifest, ref), structure.changed(manifest)
        if idle and not controllers.scaled_by_another(facts, ref):
            untold = when == structure.created(manifest) and not dig(manifest, "metadata", "managedFields")
            past = replace(idle, strength=Strength.SYMPTOM, remedies=frozenset())  # lived without it
            yield idle if signal or untold or structure.lately(facts, when) else past
        if _missing_pods(facts, ref, manifest):
            yield from creation.creation_findings(facts, ref)
        if ref.kind == "Job":
            yield from controllers.job_findings(facts, ref, manifest)
        yield from controllers.stated_findings(facts, ref, manifest)
    yield from change_findings(facts, ref, sick)


def _missing_pods(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> bool:
    """True if a workload has fewer pods than it wants."""
    if manifest.get("kind") == "Job":
        status = mapping(manifest.get("status"))
        return not status.get("active") and not status.get("succeeded") and not status.get("failed")
    by_node = dig(manifest, "status", "desiredNumberScheduled")
    wanted = by_node if manifest.get("kind") == "DaemonSet" else dig(manifest, "spec", "replicas")
    listed, refused = facts.list("Pod", ref.namespace), holds(manifest, "ReplicaFailure")
    fewer = isinstance(wanted, int) and len(structure.pods_of(facts, ref)) < wanted
    return listed.complete and isinstance(wanted, int) and (refused or fewer)


def _surroundings(
    facts: ClusterFacts, ref: ObjectRef, pods: Sequence[Manifest]
) -> tuple[list[Diagnosis], list[Edge]]:
    """Findings from logs and policies, and the dependencies of pods that suffer for no own reason."""
    said = program_findings(facts, ref, pods[0])
    found = [f for f in said if isinstance(f, Diagnosis)]
    edges = [f for f in said if isinstance(f, Edge)]
    if found:
        return found, edges
    found += [] if pod_failing(pods[0]) else list(stale_findings(facts, ref, pods))
    edges += [Edge(Relation.NAMED_IN_SPEC, job) for job in services.jobs_awaited(facts, pods[0])]
    for service in services.dependencies_of(facts, pods, ref):
        manifest = facts.get(service)
        behind = services.workloads_behind(facts, service)
        if named(ref) in map(named, behind):
            continue
        edges.append(Edge(Relation.NAMED_IN_SPEC, service))
        if manifest is not None:
            servers = structure.pods_behind(facts, manifest)
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
    return Examined(found, edges)


def _autoscaler(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = tuple(controllers.autoscaler_findings(facts, ref, manifest))
    target = controllers.scale_target(manifest, ref.namespace)
    open_ = all(finding.strength is Strength.SYMPTOM for finding in found)
    edges = [Edge(Relation.SCALE_TARGET, target)] if target and open_ else []
    if not found and holds(manifest, "ScalingActive", "False"):
        reason = text(condition(manifest, "ScalingActive").get("reason"))
        edges += [Edge(Relation.SERVICE, server) for server in METRICS.get(reason, RESOURCE_METRICS)]
    return Examined(found, tuple(edges))


def _api_service(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    reported = controllers.stated_findings(facts, ref, manifest)
    # the server of the API may say why it does not answer
    found = tuple(replace(finding, strength=Strength.TIMED) for finding in reported)
    target = _server_of(manifest)
    return Examined(found, (Edge(Relation.SERVICE, target),) if target.name and found else ())


def _server_of(api: Manifest) -> ObjectRef:
    service = mapping(dig(api, "spec", "service"))
    return structure.ref_to("Service", text(service.get("name")), text(service.get("namespace")))


def _route(_: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    """A gateway, or a route by the conditions that each of its gateways must state."""
    status = mapping(manifest.get("status"))
    parts = [*mappings(status.get("parents")), *mappings(status.get("listeners")), status]
    stated_by = [mappings(part.get("conditions")) for part in parts]
    bad = [c for listed in stated_by for c in listed if c.get("type") in WORKS and c.get("status") == "False"]
    told = [f"{ref} is not {text(c.get('type'))}: {text(c.get('reason'))}" for c in bad]
    rules = mappings(dig(manifest, "spec", "rules"))
    backends = [backend for rule in rules for backend in mappings(rule.get("backendRefs"))]
    homes = [(text(b.get("name")), text(b.get("namespace")) or ref.namespace) for b in backends]
    edges = [Edge(Relation.SERVICE, structure.ref_to("Service", *home)) for home in homes]
    return Examined(tuple(stated(Cause.SERVICE, ref, t) for t in told[:1]), () if told else tuple(edges))


def _budget(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = tuple(controllers.budget_findings(facts, ref, manifest))
    pods = structure.selected(facts, ref.namespace, dig(manifest, "spec", "selector"))
    roots = dict.fromkeys(structure.root_of(facts, p) for p in pods if pod_failing(p))
    return Examined(found, tuple(Edge(Relation.SELECTED, r) for r in roots))


def _node(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = tuple(nodes.node_findings(facts, ref))
    drained = dig(manifest, "spec", "unschedulable") is True and not found
    budgets = controllers.budgets_of(facts, facts.list("Pod", node=ref.name).items) if drained else []
    return Examined(found, tuple(Edge(Relation.SELECTED, reference(b)) for b in budgets))


def _namespace(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = list(controllers.deletion_findings(facts, ref, manifest))
    edges: list[Edge] = []
    if holds(manifest, "NamespaceDeletionDiscoveryFailure"):  # it waits for an API that does not answer
        for api in facts.list("APIService").items:
            reported = [*controllers.stated_findings(facts, reference(api), api)]
            found += [replace(finding, also=(ref,)) for finding in reported]
            servers = services.workloads_behind(facts, _server_of(api)) if reported else ()
            found += [finding for server in servers for finding in workload(facts, server).findings]
    if not found:
        pods = facts.list("Pod", ref.name).items
        failing = [p for p in pods if pod_failing(p)]
        roots = dict.fromkeys(structure.root_of(facts, p) for p in (failing or (pods if facts.texts else ())))
        edges += [Edge(Relation.NAMESPACE, root) for root in roots]
    return Examined(tuple(found), tuple(edges))


def _cron_job(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = tuple(controllers.cron_job_findings(facts, ref, manifest))
    found = found or tuple(creation.creation_findings(facts, ref))
    listed = facts.list("Job", ref.namespace).items
    jobs = [j for j in listed if (owner := structure.owner_of(j)) and owner.name == ref.name]
    return Examined(found, () if found else tuple(Edge(Relation.OWNED, reference(j)) for j in jobs[-3:]))


def _claim(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    if ref.kind == "PersistentVolumeClaim":
        found, makers = tuple(claim_findings(facts, ref)), provisioners(facts, ref)
        return Examined(found, () if found else tuple(Edge(Relation.SERVICE, maker) for maker in makers))
    phase = text(dig(manifest, "status", "phase"))
    left = phase in {"Failed", "Released"}
    return Examined((stated(Cause.VOLUME, ref, f"{ref} is {phase}", (), SIGNALS),) if left else ())


def _stated(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    found = tuple(controllers.stated_findings(facts, ref, manifest))
    issuer = controllers.issuer_of(manifest) if found else None
    return Examined(found, (Edge(Relation.SERVICE, issuer),) if issuer else ())


def _ingress(facts: ClusterFacts, ref: ObjectRef, manifest: Manifest) -> Examined:
    name = text(dig(manifest, "spec", "ingressClassName"))
    if name and facts.presence(structure.ref_to("IngressClass", name)) is Presence.ABSENT:
        told = f"{ref} asks for IngressClass {name}, which does not exist"
        return Examined((stated(Cause.CONTROLLER, ref, told),))
    rules = mappings(dig(manifest, "spec", "rules"))
    paths = [dig(manifest, "spec", "defaultBackend")]
    paths += [dig(path, "backend") for rule in rules for path in mappings(dig(rule, "http", "paths"))]
    asked = [s for p in paths if dig(s := mapping(dig(p, "service")), "port", "name") != FROM_ANNOTATION]
    backends = [
        (structure.ref_to("Service", text(s.get("name")), ref.namespace), s) for s in asked if s.get("name")
    ]
    absent = [service for service, _ in backends if facts.presence(service) is Presence.ABSENT]
    wrong = [f"{service}, which does not exist" for service in absent]
    wrong += [f"a port that {s} does not have" for s, asks in backends if services.lacks_port(facts, s, asks)]
    strength = Strength.DIRECT if len(wrong) == len(backends) else Strength.TIMED
    sent = [f"{ref} sends requests to {backend}" for backend in wrong[:1]]
    found = [stated(Cause.SERVICE, ref, what, also=tuple(absent), strength=strength) for what in sent]
    edges = [Edge(Relation.SERVICE, service) for service, _ in backends]
    secrets = {text(entry.get("secretName")) for entry in mappings(dig(manifest, "spec", "tls"))}
    edges += [Edge(Relation.MOUNT, c) for c in controllers.certificates_of(facts, secrets, ref.namespace)]
    return Examined(tuple(found), tuple(edges))


SPECIAL: dict[str, Callable[[ClusterFacts, ObjectRef, Manifest], Examined]] = {
    "HorizontalPodAutoscaler": _autoscaler,
    "APIService": _api_service,
    "PodDisruptionBudget": _budget,
    "Node": _node,
    "Namespace": _namespace,
    "CronJob": _cron_job,
    "Ingress": _ingress,
    **dict.fromkeys(("PersistentVolumeClaim", "PersistentVolume"), _claim),
    **dict.fromkeys(("Certificate", "Issuer", "ClusterIssuer", "ExternalSecret"), _stated),
    **dict.fromkeys(("Gateway", "HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute"), _route),
}
