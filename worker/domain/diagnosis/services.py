"""Services: the pods they select, the ports they reach, and the workloads that depend on them.

A workload depends on a Service when its pod spec, or a ConfigMap that its pods use, names it as a host. Such
a name connects the two, but says nothing about the state of either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from worker.domain.cluster.conditions import holds
from worker.domain.cluster.fields import dig, mapping, mappings, name_of, reference, strings, text, whole
from worker.domain.cluster.pods import pod_failing
from worker.domain.cluster.references import references_of, selects
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, named, stated
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.hosts import Host, service_of
from worker.domain.diagnosis.structure import (
    changed,
    container_specs,
    created,
    labels_of,
    lately,
    pod_spec_of,
    pods_behind,
    ref_to,
    root_of,
    template_since,
    written_in,
)
from worker.domain.values.objects import Manifest, ObjectRef

HOST = re.compile(
    r"(?<![\w.-])([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?){0,5})\.?(?::(\d{1,5}))?(?![\w-])"
)
MAX_TEXT = 64 * 1024
ROLLOUTS = "argoproj.io/v1alpha1"


def service_findings(facts: ClusterFacts, service: ObjectRef) -> Iterator[Diagnosis]:
    """Yield a Service that selects no pods although similar ones exist, or a port that none offers."""
    manifest = facts.get(service)
    selector = strings(dig(manifest, "spec", "selector"))
    if manifest is None or not selector:
        return
    balanced = dig(manifest, "spec", "type") == "LoadBalancer"
    if balanced and not dig(manifest, "status", "loadBalancer", "ingress"):
        reasons = {e.reason for e in facts.events(service.namespace, service)}
        if "SyncLoadBalancerFailed" in reasons:
            yield stated(Cause.SERVICE, service, f"{service} gets no load balancer")
    pods = facts.list("Pod", service.namespace)
    behind = pods_behind(facts, manifest)
    if behind:
        port, declared = _wrong_port(facts, manifest, behind), ", ".join(sorted(_ports(behind[0])))
        if port:
            what = f"the targetPort {port} of {service} is not one that its pods declare ({declared})"
            yield stated(Cause.SERVICE, service, what, {Remedy.FIX_PORT})
        return
    near = next((p for p in pods.items if _overlap(selector, labels_of(p)) and not pod_failing(p)), None)
    meant = [changed(w) for w in templates_of(facts, service.namespace, selector)] if pods.complete else []
    edited = changed(manifest) if near and changed(manifest) != created(manifest) else None
    turned = edited and all(at and at < edited for at in meant)  # to pods that had gone before
    if not pods.complete or (meant and not turned):
        return
    if near is not None or workloads_named(facts, service):
        rollouts = facts.list("Rollout", service.namespace, api_version=ROLLOUTS).items
        roles = [mapping(way) for r in rollouts for way in mapping(dig(r, "spec", "strategy")).values()]
        kept = any(service.name in role.values() for role in roles)  # by the controller of a Rollout
        told, remedies = f"the selector of {service} matches no pod", () if kept else (Remedy.FIX_SELECTOR,)
        yield stated(Cause.SERVICE, service, told, remedies, ("ServiceNoEndpoints",))


def _wrong_port(facts: ClusterFacts, service: Manifest, pods: Sequence[Manifest]) -> str:
    """A target port that no pod behind the Service declares, although all of them declare ports.

    A number need not be declared: it is wrong only if the Service or the pods' template changed lately.
    """
    declared = [_ports(pod) for pod in pods]
    young = [changed(service), *(template_since(facts, root_of(facts, pod), pod) for pod in pods[:1])]
    recent = any(lately(facts, when) for when in young)
    if not all(declared):
        return ""
    for port in mappings(dig(service, "spec", "ports")):
        target = text(port.get("targetPort")) or text(port.get("port"))
        judged = recent or not target.isdecimal()
        if target and judged and all(target not in offered for offered in declared):
            return target
    return ""


def _ports(pod: Manifest) -> set[str]:
    ports = [p for c in container_specs(mapping(pod.get("spec"))) for p in mappings(c.get("ports"))]
    return {text(port.get(key)) for port in ports for key in ("containerPort", "name")} - {""}


def _overlap(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """True if some terms of a selector hold, or all its keys are there with other values."""
    return any(labels.get(k) == v for k, v in selector.items()) or all(k in labels for k in selector)


def workloads_named(facts: ClusterFacts, service: ObjectRef) -> list[ObjectRef]:
    """Workloads of the namespace with the name of the Service."""
    listed = [facts.list(kind, service.namespace).items for kind in ("Deployment", "StatefulSet")]
    return [reference(m) for items in listed for m in items if name_of(m) == service.name]


def templates_of(facts: ClusterFacts, namespace: str, selector: dict[str, str]) -> list[Manifest]:
    """Workloads whose pods the selector would match, if there were any."""
    found: list[Manifest] = []
    for kind, version in (("Deployment", ""), ("StatefulSet", ""), ("Rollout", ROLLOUTS)):
        for workload in facts.list(kind, namespace, api_version=version).items if not found else ():
            labels = strings(dig(workload, "spec", "template", "metadata", "labels"))
            if selects({"matchLabels": selector}, labels):
                found.append(workload)
    return found


def workloads_behind(facts: ClusterFacts, service: ObjectRef) -> list[ObjectRef]:
    """The workloads behind a Service, by the pods it selects or by templates of such pods."""
    manifest = facts.get(service)
    selector = strings(dig(manifest, "spec", "selector"))
    if not selector:
        return []
    roots = {named(root): root for root in (root_of(facts, pod) for pod in pods_behind(facts, manifest))}
    if roots or not facts.list("Pod", service.namespace).complete:
        return list(roots.values())
    return [reference(w) for w in templates_of(facts, service.namespace, selector)]


def idle_finding(manifest: Manifest, ref: ObjectRef) -> Diagnosis | None:
    """A workload that is scaled to zero."""
    if ref.kind == "ReplicaSet" or dig(manifest, "spec", "replicas") != 0:
        return None
    told = f"{ref} is scaled to 0 replicas, so nothing runs"
    return stated(Cause.SCALED_TO_ZERO, ref, told, {Remedy.SCALE_UP})


def dependencies_of(facts: ClusterFacts, pods: Sequence[Manifest], workload: ObjectRef) -> list[ObjectRef]:
    """Services that the workload's pod spec, or a ConfigMap that its pods use, names as a host."""
    words = _hosts(_texts(facts, pod_spec_of(pods[0]), workload.namespace)) if pods else set()
    # if it cannot be read, the dependencies of the workload are unknown
    facts.list("Service", workload.namespace)
    found = [service_of(facts, Host(word), workload.namespace) for word in sorted(words)]
    return list({named(reference(s)): reference(s) for s in found if s is not None}.values())


def jobs_awaited(facts: ClusterFacts, pod: Manifest) -> list[ObjectRef]:
    """Jobs that have not succeeded and that a pod names whose init containers have not finished."""
    if not holds(pod, "Initialized", "False"):
        return []
    home = reference(pod).namespace
    jobs = [j for j in facts.list("Job", home).items if not holds(j, "Complete")]
    words = _hosts(_texts(facts, pod_spec_of(pod), home)) if jobs else set()
    return [reference(job) for job in jobs if name_of(job) in words]


def _texts(facts: ClusterFacts, spec: dict[str, Any], namespace: str) -> Iterator[str]:
    yield from written_in(spec)
    for name in references_of(spec).config_maps:
        data = mapping(dig(facts.get(ref_to("ConfigMap", name, namespace)), "data"))
        yield from (text(value) for value in data.values())


def _hosts(texts: Iterable[str]) -> set[str]:
    return {match[1] for value in texts for match in HOST.finditer(value[:MAX_TEXT].lower())}


def lacks_port(facts: ClusterFacts, service: ObjectRef, backend: dict[str, Any]) -> bool:
    """True if the Service of an Ingress backend is there, and has no port of the number or name."""
    ports = mappings(dig(facts.get(service), "spec", "ports"))
    has = {text(port.get(key)) for port in ports for key in ("port", "name")} - {""}
    wanted = {text(value) for value in mapping(backend.get("port")).values()}
    return bool(ports and wanted) and not wanted & has


def port_of(service: Manifest) -> list[tuple[str, str]]:
    """Protocol and target port of each port of a Service."""
    return [
        (text(port.get("protocol")) or "TCP", text(port.get("targetPort")) or str(whole(port.get("port"))))
        for port in mappings(dig(service, "spec", "ports"))
    ]
