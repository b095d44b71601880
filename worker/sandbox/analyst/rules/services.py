"""Services: what they select, and whether anything is behind them."""

from __future__ import annotations

from collections.abc import Iterator

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, dig, make_ref
from worker.sandbox.analyst.rules import hosts, idle
from worker.sandbox.analyst.rules.case import Case, short
from worker.sandbox.analyst.rules.rollouts import replicas_ready, replicas_wanted
from worker.sandbox.analyst.shapes import containers_of, pod_spec, selects

SYMPTOMS = ("ServiceNoEndpoints", "ServiceUnavailable", "NoEndpoints", "EndpointsDown")
CANDIDATES = ("Deployment", "StatefulSet", "DaemonSet")


def diagnose_service(case: Case, ref: ObjectRef) -> Finding | None:
    """Why a Service has nothing behind it, or nothing that works."""
    manifest = case.facts.of(ref)
    if manifest is None:
        return (
            missing_service(ref, None, f"{ref} does not exist")
            if case.facts.absent(ref.kind, ref.name, ref.namespace)
            else None
        )
    finding = selection_finding(case, ref)
    if finding is not None:
        return finding
    for workload in hosts.workloads_behind(case.facts, ref):
        behind = case.follow(workload)
        if behind is not None:
            return behind
    return _wrong_target_port(case.facts, ref, manifest) or _without_address(case, ref, manifest)


def _without_address(case: Case, ref: ObjectRef, manifest: Manifest) -> Finding | None:
    """A Service of type LoadBalancer that no load balancer has answered for."""
    if dig(manifest, "spec", "type") != "LoadBalancer" or dig(manifest, "status", "loadBalancer", "ingress"):
        return None
    warnings = [e for e in case.facts.events_of(ref) if e.type == "Warning"]
    if not warnings:
        case.facts.ask_events(ref.namespace)
    said = f"{warnings[-1].reason}: {short(warnings[-1].message)}" if warnings else "no event tells why"
    told = f"{ref} of type LoadBalancer has no external address: {said}"
    return Finding(
        family="load-balancer",
        summary=f"{told}.",
        target=ref,
        certainty=0.78 if warnings else 0.6,
        symptoms=("ServiceUnavailable",),
        factors=(told,),
        traits=frozenset({"load_balancer_pending"}),
        denied=frozenset({"oom", "config_content", "selector_mismatch", "template_changed"}),
    )


def selection_finding(case: Case, service: ObjectRef) -> Finding | None:
    """A selector that takes no pods: scaled to zero behind it, or labels that differ."""
    manifest = case.facts.of(service)
    if manifest is None or not dig(manifest, "spec", "selector"):
        return None
    behind = hosts.workloads_behind(case.facts, service)
    for workload in behind:
        scaled = idle.scaled_down_finding(case, workload, case.facts.of(workload))
        if scaled is not None:
            return scaled
    if behind:
        return _wrong_target_port(case.facts, service, manifest)
    selector = hosts.selector_of(case.facts, service)
    near = _nearest(case.facts, service, selector)
    if near is None:
        return None
    workload, labels = near
    differing = ", ".join(
        f"{k}={v} (the pods have {k}={labels.get(k, 'nothing')})"
        for k, v in selector.items()
        if labels.get(k) != v
    )
    told = f"{service} selects {differing}, so it has no endpoints although {workload} runs"
    return Finding(
        family="selector",
        summary=f"{told}: its selector does not match the labels of the pods.",
        target=service,
        certainty=0.86,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.FIX_SERVICE,),
        factors=(told,),
        workload=workload,
        traits=frozenset({"selector_mismatch"}),
        denied=frozenset({"oom", "config_content", "dependency_down", "template_changed"}),
        hints={"selector": selector},
    )


def _nearest(
    facts: Facts, service: ObjectRef, selector: dict[str, str]
) -> tuple[ObjectRef, dict[str, str]] | None:
    """The workload whose pods were most likely meant: its name, or most of its labels."""
    best: tuple[int, ObjectRef, dict[str, str]] | None = None
    for workload, labels in _templates(facts, service):
        score = sum(1 for k in selector if k in labels) + sum(
            2 for k, v in selector.items() if labels.get(k) == v
        )
        if workload.name == service.name or service.name in workload.name or workload.name in service.name:
            score += 3
        if selects({"matchLabels": selector}, labels):
            return None
        if score >= 3 and (best is None or score > best[0]):
            best = (score, workload, labels)
    return (best[1], best[2]) if best else None


def _templates(facts: Facts, service: ObjectRef) -> Iterator[tuple[ObjectRef, dict[str, str]]]:
    for kind in CANDIDATES:
        for row in facts.rows(kind, service.namespace, ask=kind != "DaemonSet"):
            name = row.get("NAME", "")
            if service.name in name or name in service.name:
                facts.get(kind, name, service.namespace)
        for manifest in facts.objects(kind, service.namespace):
            labels = {
                str(k): str(v)
                for k, v in as_dict(dig(manifest, "spec", "template", "metadata", "labels")).items()
            }
            yield make_ref(kind, str(dig(manifest, "metadata", "name")), service.namespace), labels


def _wrong_target_port(facts: Facts, service: ObjectRef, manifest: Manifest) -> Finding | None:
    """A target port that no container behind the Service declares."""
    for workload in hosts.workloads_behind(facts, service):
        spec = pod_spec(facts.of(workload, ask=False) or {})
        declared = {
            str(p)
            for c in containers_of(spec, init=False)
            for d in as_list(c.get("ports"))
            for p in (as_dict(d).get("containerPort"), as_dict(d).get("name"))
            if p is not None
        }
        for port in as_list(dig(manifest, "spec", "ports")):
            wanted = as_dict(port).get("targetPort", as_dict(port).get("port"))
            if declared and wanted is not None and str(wanted) not in declared:
                shown = ", ".join(sorted(declared))
                told = f"{service} sends to targetPort {wanted}, the pods of {workload} listen on {shown}"
                return Finding(
                    family="target-port",
                    summary=f"{told}: connections are refused although the pods are healthy.",
                    target=service,
                    certainty=0.82,
                    symptoms=SYMPTOMS,
                    remedies=(RemedyKind.FIX_SERVICE,),
                    factors=(told,),
                    workload=workload,
                    traits=frozenset({"port_mismatch"}),
                    denied=frozenset({"oom", "config_content", "template_changed"}),
                )
    return None


def missing_service(service: ObjectRef, workload: ObjectRef | None, told: str) -> Finding:
    """A Service that others look for and that is not there."""
    return Finding(
        family="service-missing",
        summary=f"{told}. {service} does not exist, so its name cannot be resolved.",
        target=service,
        certainty=0.76,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.FIX_SERVICE,),
        factors=(told,),
        workload=workload,
        traits=frozenset({"service_missing"}),
        denied=frozenset({"oom", "config_content"}),
    )


def replicas_told(facts: Facts, workload: ObjectRef) -> str:
    """`StatefulSet data/db is scaled to 0` or its ready replicas; empty when not known."""
    manifest = facts.of(workload)
    wanted = replicas_wanted(manifest) if manifest else None
    if manifest is None or wanted is None:
        return ""
    ready = replicas_ready(manifest)
    return (
        f"{workload} is scaled to 0" if wanted == 0 else f"{workload} has {ready} of {wanted} replicas ready"
    )
