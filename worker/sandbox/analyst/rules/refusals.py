"""Servers that answer and refuse: out of their own memory or space, sealed, read-only."""

from __future__ import annotations

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding
from worker.sandbox.analyst.refs import dig
from worker.sandbox.analyst.rules import hosts
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import seen_from
from worker.sandbox.analyst.shapes import ContainerState, containers_of, pod_spec


def refusal_finding(
    case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str
) -> Finding | None:
    """The server behind a refusal: the one the message names, else the one the settings of the client name."""
    asked = case.asked
    servers = _servers(case, pod, target, line)
    for server in servers:
        finding = case.follow(server)
        if finding is not None:
            told = f"{target} is refused by {server}: {short(line)}"
            return seen_from(finding, "CrashLoopBackOff" if state.exit_code else "", target, told)
    if case.waits(asked):
        return None
    chosen = servers[0] if servers else target
    told = f"{chosen} refuses requests of {target}: {short(line)}" if servers else f"{target}: {short(line)}"
    return Finding(
        family="refusal",
        summary=f"{sentence(told)}. It runs, and what it says of itself is the cause.",
        target=chosen,
        certainty=0.62,
        symptoms=("CrashLoopBackOff",) if state.exit_code else (),
        factors=(told,),
        workload=chosen,
        traits=frozenset({"dependency_down"}),
        denied=frozenset({"oom", "config_content", "template_changed", "crash_on_start"}),
    )


def _servers(case: Case, pod: Manifest, client: ObjectRef, line: str) -> list[ObjectRef]:
    """Workloads behind the hosts of the message and of the settings; first those whose product the message names."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    found: dict[str, ObjectRef] = {}
    for host in [*hosts.hosts_in(line), *hosts.configured_hosts(pod)]:
        service = hosts.service_for(case.facts, host, namespace)
        for workload in hosts.workloads_behind(case.facts, service) if service else ():
            if workload != client:
                found[str(workload)] = workload
    text = line.lower()

    def unnamed(workload: ObjectRef) -> bool:
        spec = pod_spec(case.facts.of(workload) or {})
        words = [workload.name, *(str(c.get("image") or "") for c in containers_of(spec, init=False))]
        parts = {p for w in words for p in w.lower().replace("/", "-").replace(":", "-").split("-")}
        return not any(len(p) > 3 and p in text for p in parts)

    return sorted(found.values(), key=unnamed)
