"""Service mesh policies that refuse requests: the sidecar answers 403 before the server sees anything."""

from __future__ import annotations

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import dig, make_ref
from worker.sandbox.analyst.rules import hosts
from worker.sandbox.analyst.rules.case import Case, short
from worker.sandbox.analyst.shapes import ContainerState, selects

KIND = "AuthorizationPolicy"
API_VERSION = "security.istio.io/v1"
MAX_POLICIES = 6


def denied_finding(
    case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str
) -> Finding | None:
    """The AuthorizationPolicy (Istio) that refuses calls to the server the message names, or to the pod itself."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    for host in [*hosts.hosts_in(line), *hosts.configured_hosts(pod)]:
        service = hosts.service_for(case.facts, host, namespace)
        if service is not None:
            finding = _policy(case, service, target, state, line)
            if finding is not None:
                return finding
    return None


def _policy(
    case: Case, service: ObjectRef, target: ObjectRef, state: ContainerState, line: str
) -> Finding | None:
    selector = hosts.selector_of(case.facts, service)
    for row in case.facts.rows(KIND, service.namespace)[:MAX_POLICIES]:
        manifest = case.facts.get(KIND, row.get("NAME", ""), service.namespace)
        if manifest is None:
            continue
        chosen = dig(manifest, "spec", "selector")
        action = str(dig(manifest, "spec", "action") or "ALLOW")
        if chosen is not None and not selects(chosen, selector):
            continue
        ref = make_ref(KIND, row["NAME"], service.namespace, str(manifest.get("apiVersion") or API_VERSION))
        told = f"{ref} (action {action}) refuses the calls of {target} to {service}: {short(line)}"
        return Finding(
            family="mesh",
            summary=f"{told}. The pods behind it are not asked at all.",
            target=ref,
            certainty=0.82,
            symptoms=("MeshPolicyDenied", "AuthorizationDenied", "NetworkPolicyBlocked"),
            remedies=(RemedyKind.FIX_NETWORK_POLICY,),
            factors=(told,),
            workload=next(iter(hosts.workloads_behind(case.facts, service)), None),
            traits=frozenset({"mesh_policy"}),
            denied=frozenset(
                {"oom", "config_content", "template_changed", "dependency_down", "network_policy"}
            ),
            hints={"container": state.name},
        )
    return None
