"""A dependency that cannot be reached: from the host in the message to the object that is really broken."""

from __future__ import annotations

import difflib
import re

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import dig, make_ref
from worker.sandbox.analyst.rules import dns, hosts, netpol, services
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import seen_from, with_change
from worker.sandbox.analyst.rules.hosts import Host
from worker.sandbox.analyst.rules.rollouts import last_change
from worker.sandbox.analyst.shapes import ContainerState, env_values, pod_spec, references

CLOSE = 0.78
UNANSWERED = re.compile(
    r"temporary failure in name resolution|EAI_AGAIN|(?:lookup|resol\w+|dns|:53)\b.*time(?:d )?-?out|"
    r"time(?:d )?-?out.*(?:lookup|resol|dns|:53\b)|no servers could be reached",
    re.IGNORECASE,
)
"""A question to the DNS that got no answer, which is not the answer that there is no such name."""


def dependency_finding(
    case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str
) -> Finding | None:
    """The cause of a message that says that something cannot be reached or resolved."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    told = f"{target} cannot reach a dependency: {short(line)}"
    asked = case.asked
    for kind in ("Service", "Pod", "ReplicaSet"):
        case.facts.rows(kind, namespace)
    if UNANSWERED.search(line):
        shut = netpol.dns_policy(case, pod)
        if shut is not None:
            return seen_from(shut, _symptom(state), target, told)
    written = hosts.hosts_in(line)
    settings = hosts.configured_hosts(pod)
    for host in _with_ports(written, settings) + [
        h for h in settings if h.name not in {w.name for w in written}
    ]:
        service = hosts.service_for(case.facts, host, namespace)
        if service is not None:
            finding = _behind(case, pod, target, host, service)
            if finding is not None:
                return seen_from(finding, _symptom(state), target, told)
    if case.waits(asked):
        return None
    for host in [*_with_ports(written, settings), *settings]:
        finding = _no_service(case, pod, target, host, told)
        if finding is not None:
            return finding
    return None


def _symptom(state: ContainerState) -> str:
    return "CrashLoopBackOff" if state.exit_code is not None or state.waiting == "CrashLoopBackOff" else ""


def _with_ports(written: list[Host], settings: list[Host]) -> list[Host]:
    ports = {h.name: h.port for h in settings}
    return [Host(h.name, h.port or ports.get(h.name, 0)) for h in written]


def _behind(case: Case, pod: Manifest, consumer: ObjectRef, host: Host, service: ObjectRef) -> Finding | None:
    """What is wrong with a Service that exists: its port, what it selects, the pods behind it, or the way there."""
    wrong_port = _port_mismatch(case.facts, pod, consumer, host, service)
    if wrong_port is not None:
        return wrong_port
    selection = services.selection_finding(case, service)
    if selection is not None:
        return selection
    asked = case.asked
    for workload in hosts.workloads_behind(case.facts, service):
        if (workload.kind, workload.name) == (consumer.kind, consumer.name):
            continue
        finding = case.follow(workload)
        if finding is not None:
            return finding
    if case.waits(asked):
        return None
    blocked = netpol.blocking_policy(case, pod, service)
    return blocked or dns.resolver_finding(case, service)


def _port_mismatch(
    facts: Facts, pod: Manifest, consumer: ObjectRef, host: Host, service: ObjectRef
) -> Finding | None:
    ports = [p.get("port") for p in hosts.ports_of(facts, service)]
    if (
        not host.port
        or not ports
        or host.port in ports
        or dig(facts.of(service, ask=False) or {}, "spec", "clusterIP") == "None"
    ):
        return None
    told = f"{consumer} uses port {host.port} of {service}, which offers {', '.join(str(p) for p in ports)}"
    return _misconfigured(facts, pod, consumer, host, told)


def _misconfigured(facts: Facts, pod: Manifest, consumer: ObjectRef, host: Host, told: str) -> Finding:
    """The consumer asks for something that is not there: its settings are wrong."""
    case_source = _source_of_setting(facts, pod, host)
    target = case_source or consumer
    finding = Finding(
        family="wrong-address",
        summary=f"{sentence(told)}: the setting in {target} is wrong.",
        target=target,
        certainty=0.78,
        remedies=(RemedyKind.FIX_CONFIG,) if case_source else (),
        factors=(told,),
        workload=consumer,
        traits=frozenset(
            {"config_content", "config_invalid", "template_unchanged", "wrong_address"}
            if case_source
            else {"wrong_address"}
        ),
        denied=frozenset({"oom", "bad_image"} | (set() if case_source else {"config_content"})),
        hints={"configmap": case_source.name if case_source else "", "host": host.name},
    )
    return finding if case_source else with_change(finding, last_change(facts, consumer))


def _source_of_setting(facts: Facts, pod: Manifest, host: Host) -> ObjectRef | None:
    """The ConfigMap the host name comes from; None when it stands in the pod template."""
    if any(host.name in value.lower() for value in env_values(pod_spec(pod)).values()):
        return None
    namespace = str(dig(pod, "metadata", "namespace") or "")
    for name in dict.fromkeys(r.name for r in references(pod_spec(pod)) if r.kind == "ConfigMap"):
        data = (facts.get("ConfigMap", name, namespace) or {}).get("data")
        if isinstance(data, dict) and any(host.name in str(v).lower() for v in data.values()):
            return make_ref("ConfigMap", name, namespace)
    return None


def _no_service(case: Case, pod: Manifest, consumer: ObjectRef, host: Host, told: str) -> Finding | None:
    """A host that no Service of the namespace has: another namespace, a slip of the pen, a missing Service, or outside."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    place = hosts.place_of(host, namespace)
    if host.is_ip or place is None:
        return _external(case, consumer, host, told) if not host.is_ip else None
    name, where = place
    rows = case.facts.rows("Service", where)
    if any(r.get("NAME") == name for r in rows):
        return None
    elsewhere = [
        r for r in case.facts.rows("Service") if r.get("NAME") == name and r.get("NAMESPACE") != where
    ]
    if elsewhere:
        other = make_ref("Service", name, elsewhere[0].get("NAMESPACE", ""))
        return _in_other_namespace(case, pod, consumer, host, other, told)
    close = difflib.get_close_matches(name, [r.get("NAME", "") for r in rows], 1, CLOSE)
    if close:
        why = f"{told}. There is no Service {where}/{name}, but one called {close[0]}"
        return _symptomatic(_misconfigured(case.facts, pod, consumer, host, why))
    workloads = [
        r
        for kind in ("Deployment", "StatefulSet")
        for r in case.facts.rows(kind, where)
        if r.get("NAME") == name
    ]
    if workloads:
        return _symptomatic(services.missing_service(make_ref("Service", name, where), consumer, told))
    return _external(case, consumer, host, told) if host.dotted and place[1] != namespace else None


def _symptomatic(finding: Finding) -> Finding:
    return seen_from(finding, "CrashLoopBackOff", finding.workload, "")


def _in_other_namespace(
    case: Case, pod: Manifest, consumer: ObjectRef, host: Host, other: ObjectRef, told: str
) -> Finding:
    """A short name that only another namespace knows; what is behind it is told too."""
    case.facts.of(other)
    ports = ", ".join(str(p.get("port")) for p in hosts.ports_of(case.facts, other))
    detail = f"{told}. The short name {host.name} does not resolve in this namespace: the database or service is {other}"
    if ports:
        detail += (
            f" (port {ports}{f', not {host.port}' if host.port and str(host.port) not in ports else ''})"
        )
    extra = []
    for workload in hosts.workloads_behind(case.facts, other):
        state = services.replicas_told(case.facts, workload)
        if state:
            extra.append(state)
    detail = ". ".join([detail, *extra])
    return _misconfigured(case.facts, pod, consumer, host, detail)


def _external(case: Case, consumer: ObjectRef, host: Host, told: str) -> Finding | None:
    """A host outside of the cluster: nothing in the catalog of a cluster can repair it."""
    parts = host.name.split(".")
    if len(parts) < 3 and not (
        len(parts) == 2 and len(parts[1]) <= 4 and not any(case.facts.objects("Namespace", parts[1]))
    ):
        return None
    return Finding(
        family="external",
        summary=f"{sentence(told)}. {host.name} is outside of this cluster.",
        target=consumer,
        certainty=0.6,
        symptoms=("CrashLoopBackOff",),
        factors=(told, f"{host.name} is an external host"),
        workload=consumer,
        traits=frozenset({"dependency_down", "external_dependency"}),
        denied=frozenset({"oom", "config_content", "template_changed"}),
    )
