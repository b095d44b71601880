"""A server that has no connections left: who holds them, and how many there are."""

from __future__ import annotations

import re

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.loglines import Trouble, classify
from worker.sandbox.analyst.refs import as_dict, dig, make_ref
from worker.sandbox.analyst.rules import hosts
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.hosts import owner_in_row
from worker.sandbox.analyst.shapes import ContainerState, pod_spec, references

MAX_CLIENTS = 6
HOLDING = re.compile(
    r"(?:open|opened|opening|hold|holding|held|acquir\w+|establish\w+|created?|creating|keep\w*|persist\w+|idle|pool\w*)\b.{0,60}\bconnections?\b|"
    r"\bconnections?\b.{0,40}(?:held|open|opened|idle|leak\w*|kept|established|active|in use|acquired)",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\b(\d{1,5})\b")
LIMIT = re.compile(r"max[_.-]?(?:imum)?[_.-]?(?:client[_.-]?)?conn\w*", re.IGNORECASE)
SYMPTOMS = ("ConnectionPoolExhausted", "DatabaseConnectionsExhausted", "TooManyConnections")


def pool_finding(
    case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str
) -> Finding | None:
    """The client that holds most connections; the server's limit when no client stands out."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    server = _server(case, pod, target, line)
    limit, config = _limit(case.facts, server or target)
    clients = _clients(case.facts, namespace, server or target)
    told = f"{server or target} has no connections left: {short(line)}"
    if limit:
        told += f" (its limit is max_connections {limit})"
    holder = _holder(case.facts, namespace, clients)
    if holder is None:
        if clients is None:
            return None
        return _at_limit(told, server or target, config, target, limit)
    ref, count, words = holder
    held = f"{ref} holds {f'{count} ' if count else 'most '}of them and does not give them back: {short(words, 140)}"
    return Finding(
        family="pool",
        summary=f"{sentence(told)}. {sentence(held)}.",
        target=ref,
        certainty=0.84,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.SCALE_DOWN, RemedyKind.RESTART, RemedyKind.MORE_CONNECTIONS),
        factors=(told, held),
        workload=ref,
        traits=frozenset({"pool_exhausted", "leaking_client", "hurts_others"}),
        denied=frozenset({"oom", "crash_on_start", "config_content", "template_changed", "honest_load"}),
        hints={"replicas": 0, "configmap": config.name if config else "", "container": state.name},
    )


def _at_limit(
    told: str, server: ObjectRef, config: ObjectRef | None, seen_at: ObjectRef, limit: str
) -> Finding:
    return Finding(
        family="pool-limit",
        summary=f"{sentence(told)}; no single client stands out.",
        target=config or server,
        certainty=0.72,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.MORE_CONNECTIONS,),
        factors=(told, f"seen at {seen_at}"),
        workload=server,
        traits=frozenset({"pool_exhausted", "honest_load"}),
        denied=frozenset({"oom", "leaking_client"}),
        hints={
            "configmap": config.name if config else "",
            "max_connections": int(limit) * 2 if limit.isdigit() else "",
        },
    )


def _server(case: Case, pod: Manifest, target: ObjectRef, line: str) -> ObjectRef | None:
    namespace = str(dig(pod, "metadata", "namespace") or "")
    for host in [*hosts.hosts_in(line), *hosts.configured_hosts(pod)]:
        service = hosts.service_for(case.facts, host, namespace)
        if service is not None:
            behind = hosts.workloads_behind(case.facts, service)
            if behind and behind[0].name != target.name:
                return behind[0]
    return None


def _limit(facts: Facts, server: ObjectRef) -> tuple[str, ObjectRef | None]:
    """The limit of the server and the ConfigMap it stands in."""
    manifest = facts.of(server)
    for reference in references(pod_spec(manifest or {})):
        if reference.kind != "ConfigMap":
            continue
        config = facts.get("ConfigMap", reference.name, server.namespace)
        for key, value in as_dict((config or {}).get("data")).items():
            ref = make_ref("ConfigMap", reference.name, server.namespace)
            if LIMIT.search(key) and (number := NUMBER.search(str(value))):
                return number[1], ref
            for text in str(value).splitlines():
                match = LIMIT.search(text)
                if match and (number := NUMBER.search(text[match.end() :])):
                    return number[1], ref
    return "", None


def _clients(facts: Facts, namespace: str, server: ObjectRef) -> list[tuple[str, ObjectRef]] | None:
    """Running pods of the namespace that are not the server's: name and workload. None while the listing is missing."""
    rows = facts.rows("Pod", namespace)
    if not rows:
        return None
    found = []
    for row in rows:
        owner = owner_in_row(row, namespace)
        if owner is not None and owner.name != server.name and row.get("STATUS") == "Running":
            found.append((row["NAME"], owner))
    return found[:MAX_CLIENTS]


def _holder(
    facts: Facts, namespace: str, clients: list[tuple[str, ObjectRef]] | None
) -> tuple[ObjectRef, int, str] | None:
    """The client whose log tells that it holds connections, and that gets no refusals itself."""
    best: tuple[ObjectRef, int, str] | None = None
    for name, owner in clients or []:
        lines = facts.log(namespace, name, previous=False)
        if any(classify(line) is Trouble.POOL and not HOLDING.search(line) for line in lines):
            continue
        held = [line for line in lines if HOLDING.search(line)]
        if not held:
            continue
        count = max((int(n) for line in held for n in NUMBER.findall(line) if int(n) < 5000), default=0)
        if best is None or count > best[1]:
            best = (owner, count, held[-1])
    return best
