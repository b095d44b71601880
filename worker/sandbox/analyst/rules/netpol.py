"""NetworkPolicies, evaluated: whether one keeps a client from a server (networking.k8s.io/v1)."""

from __future__ import annotations

from typing import Any

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, dig, make_ref
from worker.sandbox.analyst.rules import hosts
from worker.sandbox.analyst.rules.case import Case
from worker.sandbox.analyst.shapes import labels_of, selects

DNS_LABELS = {"k8s-app": "kube-dns"}
DNS_PORTS = {"53", "dns", "dns-tcp"}
SYMPTOMS = ("NetworkPolicyBlocked", "ConnectivityLost", "NetworkUnreachable")


def blocking_policy(case: Case, client: Manifest, service: ObjectRef) -> Finding | None:
    """The policy that keeps the client's pod from the pods of the Service; None when all are let through."""
    facts = case.facts
    labels = labels_of(client)
    home = str(dig(client, "metadata", "namespace") or "")
    server_labels = _server_labels(facts, service)
    if server_labels is None:
        return None
    ports = _server_ports(facts, service)
    server_side = policies(facts, service.namespace)
    shut = denying(
        server_side,
        server_labels,
        "Ingress",
        lambda p: _lets(p, "ingress", "from", labels, home, service.namespace, ports, facts),
    )
    if shut is not None:
        return _finding(
            shut,
            f"its ingress rules let {home}/{dig(client, 'metadata', 'name')} not reach the pods of {service}, which are healthy",
            next(iter(hosts.workloads_behind(facts, service)), None),
        )
    client_side = policies(facts, home)
    shut = denying(
        client_side,
        labels,
        "Egress",
        lambda p: _lets(p, "egress", "to", server_labels, service.namespace, home, ports, facts),
    )
    if shut is not None:
        return _finding(
            shut,
            f"its egress rules keep {home}/{dig(client, 'metadata', 'name')} from the pods of {service}, which are healthy",
            next(iter(hosts.workloads_behind(facts, service)), None),
        )
    return None


def dns_policy(case: Case, client: Manifest) -> Finding | None:
    """The policy that keeps the client's pod from the cluster's name servers."""
    home = str(dig(client, "metadata", "namespace") or "")
    shut = denying(
        policies(case.facts, home),
        labels_of(client),
        "Egress",
        lambda p: _lets(p, "egress", "to", DNS_LABELS, "kube-system", home, DNS_PORTS, case.facts),
    )
    if shut is None:
        return None
    pod = f"{home}/{dig(client, 'metadata', 'name')}"
    why = f"its egress rules keep {pod} from the cluster's DNS (port 53)"
    return _finding(shut, why, case.facts.root_of(client, ask=False))


def policies(facts: Facts, namespace: str) -> list[Manifest]:
    """All NetworkPolicies of a namespace, as objects."""
    found = []
    for row in facts.rows("NetworkPolicy", namespace)[:8]:
        manifest = facts.get("NetworkPolicy", row.get("NAME", ""), namespace)
        if manifest is not None:
            found.append(manifest)
    return found


def denying(found: list[Manifest], labels: dict[str, str], direction: str, lets: Any) -> Manifest | None:
    """The policy that isolates pods with the labels in a direction while none of the isolating ones lets through."""
    isolating = [
        p for p in found if selects(as_dict(dig(p, "spec", "podSelector")), labels) and direction in _types(p)
    ]
    if not isolating or any(lets(p) for p in isolating):
        return None
    newest = sorted(isolating, key=lambda p: str(dig(p, "metadata", "creationTimestamp") or ""))
    return newest[-1]


def _types(policy: Manifest) -> list[str]:
    declared = [str(t) for t in as_list(dig(policy, "spec", "policyTypes"))]
    if declared:
        return declared
    return ["Ingress", "Egress"] if dig(policy, "spec", "egress") else ["Ingress"]


def _lets(
    policy: Manifest,
    rules: str,
    peers: str,
    labels: dict[str, str],
    namespace: str,
    home: str,
    ports: set[str],
    facts: Facts,
) -> bool:
    for rule in as_list(dig(policy, "spec", rules)):
        if not _port_fits(as_list(as_dict(rule).get("ports")), ports):
            continue
        listed = as_list(as_dict(rule).get(peers))
        if not listed or any(_peer_fits(as_dict(p), labels, namespace, home, facts) for p in listed):
            return True
    return False


def _port_fits(allowed: list[Any], ports: set[str]) -> bool:
    if not allowed or not ports:
        return True
    return any(as_dict(a).get("port") is None or str(as_dict(a).get("port")) in ports for a in allowed)


def _peer_fits(peer: dict[str, Any], labels: dict[str, str], namespace: str, home: str, facts: Facts) -> bool:
    if "ipBlock" in peer:
        return True
    where = peer.get("namespaceSelector")
    if where is None and namespace != home:
        return False
    if where is not None and not selects(where, _namespace_labels(facts, namespace)):
        return False
    pods = peer.get("podSelector")
    return pods is None or selects(pods, labels)


def _namespace_labels(facts: Facts, namespace: str) -> dict[str, str]:
    manifest = facts.get("Namespace", namespace) or {}
    return {"kubernetes.io/metadata.name": namespace, **labels_of(manifest)}


def _server_labels(facts: Facts, service: ObjectRef) -> dict[str, str] | None:
    selector = hosts.selector_of(facts, service)
    if not selector:
        return None
    for pod in facts.objects("Pod", service.namespace):
        if selects({"matchLabels": selector}, labels_of(pod)):
            return labels_of(pod)
    for workload in hosts.workloads_behind(facts, service):
        template = as_dict(dig(facts.of(workload) or {}, "spec", "template", "metadata", "labels"))
        if template:
            return {str(k): str(v) for k, v in template.items()}
    return dict(selector)


def _server_ports(facts: Facts, service: ObjectRef) -> set[str]:
    found: set[str] = set()
    for port in hosts.ports_of(facts, service):
        found |= {str(port.get("targetPort", port.get("port"))), str(port.get("name") or port.get("port"))}
    return found


def _finding(policy: Manifest, why: str, workload: ObjectRef | None) -> Finding:
    ref = make_ref(
        "NetworkPolicy", str(dig(policy, "metadata", "name")), str(dig(policy, "metadata", "namespace") or "")
    )
    since = dig(policy, "metadata", "creationTimestamp")
    told = f"{ref} (created {since}) blocks the traffic: {why}"
    return Finding(
        family="network-policy",
        summary=f"{told}.",
        target=ref,
        certainty=0.84,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.FIX_NETWORK_POLICY,),
        factors=(told,),
        workload=workload,
        traits=frozenset({"network_policy"}),
        denied=frozenset({"oom", "config_content", "dependency_down", "template_changed"}),
        hints={"network_policy": ref.name},
    )
