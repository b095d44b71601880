"""Pods that no node takes: computed from nodes and requests, with the scheduler's message as a guide."""

from __future__ import annotations

import re
from dataclasses import dataclass

from worker.domain.cluster.quantities import quantity
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, dig, make_ref
from worker.sandbox.analyst.rules import claims, placement
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import last_change
from worker.sandbox.analyst.shapes import condition, containers_of, pod_spec

CLAIM = re.compile(r"persistentvolumeclaim|unbound|bind\w* volume", re.IGNORECASE)
ZONE = re.compile(r"volume node affinity|no available volume zone|volume zone", re.IGNORECASE)
LACK = re.compile(r"(?:(\d+) )?Insufficient ([\w./-]+)")
TOO_MANY = re.compile(r"Too many pods", re.IGNORECASE)
SYMPTOMS = ("FailedScheduling", "PodPending", "Unschedulable")


@dataclass(frozen=True, slots=True)
class ResourceShortage:
    """A resource that the nodes do not have: what the pod asks for, and the largest node's share of it."""

    resource: str
    request: str
    largest: str
    too_big: bool


def pending_finding(case: Case, pod: Manifest, workload: ObjectRef | None) -> Finding | None:
    """Why a pod is not placed."""
    target = workload or make_ref(
        "Pod", str(dig(pod, "metadata", "name")), str(dig(pod, "metadata", "namespace") or "")
    )
    message = scheduler_message(case, pod)
    asked = case.asked
    storage = _storage(case, pod, target, message)
    if storage is not None or case.waits(asked):
        return storage
    if condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        gates = [as_dict(g).get("name") for g in as_list(dig(pod, "spec", "schedulingGates"))]
        return Finding(
            "gated",
            f"{target} waits for its scheduling gates {gates}.",
            target,
            0.66,
            SYMPTOMS,
            workload=workload,
        )
    lacks = lacking(case.facts, pod, message)
    if lacks:
        return _no_room(case, target, lacks, message)
    placed = placement.placement_finding(case, pod, target, message)
    if placed is not None:
        return placed
    if not message:
        case.facts.ask_events(target.namespace)
        return None
    return Finding("scheduling", f"The pods of {target} cannot be scheduled: {short(message)}.", target, 0.6, SYMPTOMS,
                   factors=(short(message),), workload=target, denied=frozenset({"oom"}))  # fmt: skip


def scheduler_message(case: Case, pod: Manifest) -> str:
    """What the schedulers said about the pod, the condition first, then events, newest first."""
    me = make_ref("Pod", str(dig(pod, "metadata", "name")), str(dig(pod, "metadata", "namespace") or ""))
    said = [str(condition(pod, "PodScheduled").get("message") or "")]
    said += [
        e.message
        for e in reversed(case.facts.events_of(me))
        if e.reason in {"FailedScheduling", "NotTriggerScaleUp"}
    ]
    return " ".join(dict.fromkeys(s for s in said if s))


def _storage(case: Case, pod: Manifest, target: ObjectRef, message: str) -> Finding | None:
    if ZONE.search(message):
        return claims.zone_finding(case, pod, target, message)
    if not CLAIM.search(message):
        return None
    for claim in claims.claims_of(pod):
        finding = claims.claim_finding(case, claim, target)
        if finding is not None:
            return finding
    return None


def requests_of(pod: Manifest) -> dict[str, float]:
    """What a pod asks for: the sum over what runs together, sidecars too, or an init container that asks for more."""
    spec = pod_spec(pod)
    total: dict[str, float] = {}
    first = [as_dict(c) for c in as_list(spec.get("initContainers"))]
    sidecars = [c for c in first if c.get("restartPolicy") == "Always"]
    for container in [*containers_of(spec, init=False), *sidecars]:
        for name, value in as_dict(dig(container, "resources", "requests")).items():
            total[name] = total.get(name, 0.0) + (quantity(value) or 0.0)
    for container in first:
        for name, value in as_dict(dig(container, "resources", "requests")).items():
            total[name] = max(total.get(name, 0.0), quantity(value) or 0.0)
    return total


def lacking(facts: Facts, pod: Manifest, message: str) -> list[ResourceShortage]:
    """Resources that are short, as the scheduler says and as the nodes show."""
    wanted = requests_of(pod)
    found = []
    for _, resource in dict.fromkeys(LACK.findall(message)):
        name = resource.strip(".,;")
        largest = _largest(facts, name)
        request = wanted.get(name, 0.0)
        too_big = largest is not None and request > largest
        found.append(
            ResourceShortage(name, _shown(pod, name), "" if largest is None else f"{largest:g}", too_big)
        )
    if TOO_MANY.search(message):
        found.append(ResourceShortage("pods", "1", "", too_big=False))
    return list({lack.resource: lack for lack in found}.values())


def _largest(facts: Facts, resource: str) -> float | None:
    """The most of a resource that one node can give; None when the nodes are not known."""
    column = {"cpu": "CPU", "memory": "MEMORY"}.get(resource)
    values: list[float] = []
    for row in facts.rows("Node"):
        if column:
            values.append(quantity(row.get(column, "")) or 0.0)
        else:
            match = re.search(rf"{re.escape(resource)}=(\d+)", row.get("GPU", ""))
            values.append(float(match[1]) if match else 0.0)
    values += [quantity(dig(n, "status", "allocatable", resource)) or 0.0 for n in facts.objects("Node")]
    return max(values, default=None)


def _shown(pod: Manifest, resource: str) -> str:
    for container in containers_of(pod_spec(pod)):
        value = dig(container, "resources", "requests", resource)
        if value is not None:
            return str(value)
    return ""


def _no_room(case: Case, target: ObjectRef, lacks: list[ResourceShortage], message: str) -> Finding:
    parts = []
    for lack in lacks:
        part = f"insufficient {lack.resource}"
        if lack.request:
            part += f" (a pod requests {lack.request}"
            part += f", no node has more than {lack.largest})" if lack.largest else ")"
        parts.append(part)
    told = f"no node can take the pods of {target}: {'; '.join(parts)}"
    extended = any("/" in lack.resource for lack in lacks)
    too_big = any(lack.too_big for lack in lacks)
    finding = Finding(
        family="capacity",
        summary=f"{sentence(told)}. The scheduler says: {short(message, 200)}.",
        target=target,
        certainty=0.86,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.ADD_NODE, RemedyKind.FIX_PLACEMENT),
        factors=(told,),
        workload=target,
        traits=frozenset(
            {"insufficient_resources"}
            | ({"extended_resource"} if extended else set())
            | ({"request_too_big"} if too_big and not extended else set())
        ),
        denied=frozenset(
            {"oom", "taint", "affinity", "claim_unbound", "claim_missing", "quota", "config_content"}
        ),
        hints={"zone": "", "resource": lacks[0].resource},
    )
    return with_change(finding, last_change(case.facts, target), only=("resources", "requests"))
