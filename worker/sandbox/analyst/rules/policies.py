"""Disruption budgets, autoscalers and quotas: their present status, not their old events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from worker.domain.cluster.quantities import quantity
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, dig, make_ref
from worker.sandbox.analyst.rules import workloads
from worker.sandbox.analyst.rules.case import Case, short
from worker.sandbox.analyst.shapes import condition, containers_of, labels_of, pod_spec, selects

STRONG = 0.7
NO_REQUEST = "missing request for"


def diagnose_budget(case: Case, ref: ObjectRef) -> Finding | None:
    """A PodDisruptionBudget that allows no disruption: too strict, or right because pods are sick."""
    manifest = case.facts.of(ref)
    if manifest is None:
        return None
    status, spec = as_dict(manifest.get("status")), as_dict(manifest.get("spec"))
    allowed, healthy, desired = (
        status.get(k) for k in ("disruptionsAllowed", "currentHealthy", "desiredHealthy")
    )
    workload = _selected_workload(case.facts, ref, manifest)
    if isinstance(healthy, int) and isinstance(desired, int) and healthy < desired and workload is not None:
        finding = case.follow(workload)
        if finding is not None:
            return finding
    if allowed != 0:
        return None
    rule = (
        f"minAvailable {spec['minAvailable']}"
        if "minAvailable" in spec
        else f"maxUnavailable {spec.get('maxUnavailable')}"
    )
    told = f"{ref} allows no disruption (disruptionsAllowed 0): {rule} with {status.get('expectedPods')} pods, {healthy} of them healthy, {desired} required"
    blocked = _blocked_nodes(case.facts)
    return Finding(
        family="pdb",
        summary=f"{told}. The budget equals the number of replicas of {workload or 'its pods'}, so every eviction is refused{blocked}.",
        target=ref,
        certainty=0.9,
        symptoms=("PodDisruptionBudgetAtLimit", "PDBBlocked", "DrainBlocked"),
        remedies=(RemedyKind.RELAX_PDB, RemedyKind.SCALE_UP),
        factors=(told,),
        workload=workload,
        traits=frozenset({"pdb_at_limit", "pods_healthy", "pdb_blocks"}),
        denied=frozenset({"pods_unhealthy", "oom", "config_content", "template_changed", "node_failure"}),
    )


def _selected_workload(facts: Facts, ref: ObjectRef, manifest: Manifest) -> ObjectRef | None:
    selector = dig(manifest, "spec", "selector")
    for pod in facts.objects("Pod", ref.namespace):
        if selects(selector, labels_of(pod)):
            return workloads.root_workload(facts, pod)
    for kind in ("Deployment", "StatefulSet"):
        for workload in facts.objects(kind, ref.namespace):
            labels = {
                str(k): str(v)
                for k, v in as_dict(dig(workload, "spec", "template", "metadata", "labels")).items()
            }
            if selects(selector, labels):
                return make_ref(kind, str(dig(workload, "metadata", "name")), ref.namespace)
    values = [str(v) for v in as_dict(as_dict(selector).get("matchLabels")).values()]
    for kind in ("Deployment", "StatefulSet"):
        for row in facts.rows(kind, ref.namespace):
            if row.get("NAME") in values:
                facts.get(kind, row["NAME"], ref.namespace)
                return make_ref(kind, row["NAME"], ref.namespace)
    return None


def _blocked_nodes(facts: Facts) -> str:
    names = [
        r.get("NAME", "")
        for r in facts.rows("Node", ask=False)
        if "SchedulingDisabled" in r.get("STATUS", "")
    ]
    return f", also those of the drain of node {', '.join(names)}" if names else ""


def diagnose_autoscaler(case: Case, ref: ObjectRef) -> Finding | None:
    """A HorizontalPodAutoscaler: at its ceiling, without metrics, or without its target."""
    manifest = case.facts.of(ref)
    if manifest is None:
        return None
    target = as_dict(dig(manifest, "spec", "scaleTargetRef"))
    workload = make_ref(
        str(target.get("kind") or ""),
        str(target.get("name") or ""),
        ref.namespace,
        str(target.get("apiVersion") or ""),
    )
    active, able = condition(manifest, "ScalingActive"), condition(manifest, "AbleToScale")
    if able.get("status") == "False":
        told = f"{ref} cannot scale {workload}: {able.get('reason')}: {short(str(able.get('message') or ''))}"
        case.facts.of(workload)
        return _hpa(ref, workload, told, 0.78, {"hpa_target_missing"}, (RemedyKind.FIX_METRICS,))
    if active.get("status") == "False":
        return _without_metrics(case, ref, workload, active)
    return _at_ceiling(case, ref, workload, manifest)


def _without_metrics(case: Case, ref: ObjectRef, workload: ObjectRef, active: Manifest) -> Finding:
    message = f"{active.get('reason')}: {active.get('message')}"
    told = f"{ref} gets no metrics for {workload}: {short(message)}"
    spec = pod_spec(case.facts.of(workload) or {})
    bare = [
        str(c.get("name")) for c in containers_of(spec, init=False) if not dig(c, "resources", "requests")
    ]
    if NO_REQUEST in message or bare:
        return _hpa(
            workload,
            workload,
            f"{told}. Its containers {', '.join(bare)} state no resource requests",
            0.82,
            {"metrics_missing", "missing_requests"},
            (),
        )
    cause = case.follow(make_ref("Deployment", "metrics-server", "kube-system"))
    if cause is not None:
        return cause
    return _hpa(ref, workload, told, 0.66, {"metrics_missing"}, (RemedyKind.FIX_METRICS,))


def _at_ceiling(case: Case, ref: ObjectRef, workload: ObjectRef, manifest: Manifest) -> Finding | None:
    spec, status = as_dict(manifest.get("spec")), as_dict(manifest.get("status"))
    limited = condition(manifest, "ScalingLimited")
    ceiling, current = spec.get("maxReplicas"), status.get("currentReplicas")
    if not (limited.get("reason") == "TooManyReplicas" or (isinstance(ceiling, int) and ceiling == current)):
        return None
    if workloads.sick_pods(case.facts, workload, case.facts.of(workload, ask=False)):
        cause = case.follow(workload)
        if cause is not None and cause.certainty >= STRONG:
            return cause
    load = ", ".join(_metrics(spec, status))
    told = f"{ref} is at its maximum: maxReplicas {ceiling}, current replicas {current}, {load or 'metric above target'}"
    wanted = _wanted(spec, status)
    return Finding(
        family="hpa",
        summary=f"{told}. The load wants more replicas of {workload} than the maximum allows ({limited.get('reason')}: {short(str(limited.get('message') or ''))}).",
        target=ref,
        certainty=0.9,
        symptoms=("HPAMaxedOut", "HPAAtMaxReplicas", "HighCPU"),
        remedies=(RemedyKind.RAISE_HPA, RemedyKind.SCALE_UP),
        factors=(told,),
        workload=workload,
        traits=frozenset({"hpa_at_max", "honest_load", "pods_healthy"}),
        denied=frozenset(
            {"metrics_missing", "cpu_defect", "oom", "config_content", "template_changed", "quota"}
        ),
        hints={"max_replicas": wanted},
    )


def _metrics(spec: Manifest, status: Manifest) -> Iterator[str]:
    targets = {
        str(dig(m, "resource", "name")): dig(m, "resource", "target", "averageUtilization")
        for m in as_list(spec.get("metrics"))
    }
    for metric in as_list(status.get("currentMetrics")):
        name, value = (
            dig(metric, "resource", "name"),
            dig(metric, "resource", "current", "averageUtilization"),
        )
        if value is not None:
            yield f"{name} at {value} % of its request (target {targets.get(str(name))} %)"


def _wanted(spec: Manifest, status: Manifest) -> int:
    """Replicas that would bring the metric to its target, at most three times the present maximum."""
    current, ceiling = status.get("currentReplicas"), spec.get("maxReplicas")
    base = ceiling if isinstance(ceiling, int) else 1
    targets = {
        str(dig(m, "resource", "name")): dig(m, "resource", "target", "averageUtilization")
        for m in as_list(spec.get("metrics"))
    }
    best = base * 2
    for metric in as_list(status.get("currentMetrics")):
        value, target = (
            dig(metric, "resource", "current", "averageUtilization"),
            targets.get(str(dig(metric, "resource", "name"))),
        )
        if isinstance(value, int) and isinstance(target, int) and target and isinstance(current, int):
            best = max(best, -(-current * value // target))
    return min(best, base * 3)


def _hpa(
    target: ObjectRef,
    workload: ObjectRef,
    told: str,
    certainty: float,
    traits: Iterable[str],
    remedies: tuple[RemedyKind, ...],
) -> Finding:
    return Finding("hpa", f"{told}.", target, certainty, ("HPAMetricsMissing", "FailedGetResourceMetric"), remedies, (told,), workload,
                   frozenset(traits), frozenset({"honest_load", "hpa_at_max", "oom", "template_changed"}))  # fmt: skip


def diagnose_quota(case: Case, ref: ObjectRef) -> Finding | None:
    """A ResourceQuota that is used up."""
    manifest = case.facts.of(ref)
    if manifest is None:
        return None
    full = list(exhausted(manifest))
    if not full:
        return None
    told = f"{ref} is used up: {', '.join(full)}"
    refused = [
        e
        for e in reversed(case.facts.events)
        if e.namespace == ref.namespace and "exceeded quota" in e.message
    ]
    if not refused:
        case.facts.ask_events(ref.namespace)
    seen = f" New pods are refused: {short(refused[0].message)}." if refused else ""
    return Finding("quota", f"{told}.{seen}", ref, 0.86, ("FailedCreate", "QuotaExceeded", "ResourceQuotaExceeded", "PodPending"), (RemedyKind.RAISE_QUOTA,),
                   (told,), None, frozenset({"quota", "quota_exhausted"}), frozenset({"oom", "oom_own_limit", "config_content", "insufficient_resources"}))  # fmt: skip


def exhausted(quota: Manifest) -> Iterator[str]:
    """Resources of a quota that are used to 95 % or more: `requests.memory 512Mi of 512Mi`."""
    hard = as_dict(dig(quota, "status", "hard")) or as_dict(dig(quota, "spec", "hard"))
    used = as_dict(dig(quota, "status", "used"))
    for name, limit in hard.items():
        top, now = quantity(limit), quantity(used.get(name))
        if top and now is not None and now >= 0.95 * top:
            yield f"{name} {used.get(name)} of {limit}"
