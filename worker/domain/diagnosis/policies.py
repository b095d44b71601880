"""NetworkPolicies that block the traffic between a workload and its dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from worker.domain.cluster.fields import dig, mapping, mappings, port_number, reference, sequence, text
from worker.domain.cluster.references import selects
from worker.domain.diagnosis import structure
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, stated
from worker.domain.diagnosis.changes import failed_after
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.services import port_of
from worker.domain.values.objects import Manifest, ObjectRef

ANYBODY: dict[str, Any] = {}  # a rule that lists no peers admits all


def blocking_findings(
    facts: ClusterFacts, workload: ObjectRef, client: Manifest, service: Manifest, servers: Sequence[Manifest]
) -> Iterator[Diagnosis]:
    """Yield policies that block the way from a pod to the pods behind a Service it depends on."""
    if not servers:
        return
    server, ports = servers[0], _target_ports(service, servers)
    told = f"{reference(client)} to reach {reference(server)}"
    ways = ((server, "Ingress", "from", client), (client, "Egress", "to", server))
    for pod, direction, peers, peer in ways:
        home = reference(pod).namespace
        selecting = _selecting(facts, home, pod, direction)
        # policies add up: what one of them admits is admitted
        rules = [r for policy in selecting for r in mappings(dig(policy, "spec", direction.lower()))]
        admitted = [mappings(rule.get(peers)) or [ANYBODY] for rule in rules if _ports_admit(rule, ports)]
        if not any(_peer_matches(facts, entry, peer, home) for listed in admitted for entry in listed):
            yield from _findings(facts, selecting, workload, client, told)


def dns_findings(facts: ClusterFacts, workload: ObjectRef, client: Manifest) -> Iterator[Diagnosis]:
    """Yield egress policies that leave a pod without DNS."""
    selecting = _selecting(facts, reference(client).namespace, client, "Egress")
    rules = [rule for policy in selecting for rule in mappings(dig(policy, "spec", "egress"))]
    if not any(_ports_admit(rule, {("UDP", "53"), ("TCP", "53")}) for rule in rules):
        told = f"{reference(client)} to query any DNS server"
        yield from _findings(facts, selecting, workload, client, told)


def _findings(
    facts: ClusterFacts, policies: Sequence[Manifest], workload: ObjectRef, client: Manifest, what: str
) -> Iterator[Diagnosis]:
    """The policies that changed before the failure, while the workload did not: it worked without them."""
    since = structure.template_since(facts, workload, client)
    made = [(policy, structure.created(policy)) for policy in policies]
    older = [policy for policy, at in made if since is not None and at is not None and at <= since]
    for policy in older or policies:  # beside an older one, a new policy closes nothing
        ref, when = reference(policy), structure.changed(policy)
        younger = when is None or since is None or when > since
        if younger and (when is None or failed_after(facts, workload, client, when)):
            told, signals = f"{ref} does not allow {what}", ("NetworkPolicyBlocked", "CrashLoopBackOff")
            found = stated(Cause.NETWORK_POLICY, ref, told, {Remedy.FIX_NETWORK_POLICY}, signals)
            yield replace(found, reads=(ref, reference(client)))


def _selecting(facts: ClusterFacts, namespace: str, pod: Manifest, direction: str) -> list[Manifest]:
    found = []
    for policy in facts.list("NetworkPolicy", namespace).items:
        spec = mapping(policy.get("spec"))
        types = sequence(spec.get("policyTypes")) or ["Ingress", *(["Egress"] if "egress" in spec else [])]
        if direction in types and selects(mapping(spec.get("podSelector")), structure.labels_of(pod)):
            found.append(policy)
    return found


def _peer_matches(facts: ClusterFacts, entry: dict[str, Any], peer: Manifest, home: str) -> bool:
    """True if a peer of a rule covers a pod. Address ranges count as covering it."""
    if entry is ANYBODY or "ipBlock" in entry:
        return True
    place = reference(peer).namespace
    if "namespaceSelector" in entry:
        namespace = facts.get(structure.ref_to("Namespace", place))
        labels = structure.labels_of(namespace) if namespace else {"kubernetes.io/metadata.name": place}
        if not selects(mapping(entry.get("namespaceSelector")), labels):
            return False
    elif place != home:
        return False
    return "podSelector" not in entry or selects(mapping(entry.get("podSelector")), structure.labels_of(peer))


def _ports_admit(rule: dict[str, Any], ports: set[tuple[str, str]]) -> bool:
    listed = mappings(rule.get("ports"))
    admitted = (_port_admits(entry, *wanted) for entry in listed for wanted in ports)
    return not listed or not ports or any(admitted)


def _port_admits(entry: dict[str, Any], protocol: str, wanted: str) -> bool:
    first, last = port_number(entry.get("port")), port_number(entry.get("endPort"))
    fits = text(entry.get("port")) in {"", wanted} or 0 < first <= port_number(wanted) <= last
    return (text(entry.get("protocol")) or "TCP") == protocol and fits


def _target_ports(service: Manifest, servers: Sequence[Manifest]) -> set[tuple[str, str]]:
    """Ports of the pods that the Service leads to, by number and by name."""
    found = set(port_of(service))
    specs = [c for pod in servers[:1] for c in structure.container_specs(mapping(pod.get("spec")))]
    for port in (port for spec in specs for port in mappings(spec.get("ports"))):
        both = {text(port.get("name")), text(port.get("containerPort"))}
        found |= {(protocol, known) for protocol, target in found if target in both for known in both}
    return {pair for pair in found if pair[1]}
