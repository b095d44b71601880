"""Which rules look at which kind of object, and the best explanation of an incident."""

from __future__ import annotations

from collections.abc import Callable

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts
from worker.sandbox.analyst.finding import Finding
from worker.sandbox.analyst.refs import dig, make_ref
from worker.sandbox.analyst.rules import (
    alerts,
    claims,
    custom,
    evictions,
    ingress,
    jobs,
    namespaces,
    nodes,
    pods,
    policies,
    recovered,
    services,
    workloads,
)
from worker.sandbox.analyst.rules.case import Case
from worker.sandbox.analyst.transcript import Incident

Diagnose = Callable[[Case, ObjectRef], Finding | None]


def investigate(facts: Facts, incident: Incident) -> Finding | None:
    """The explanation of the incident, None when no rule decides. Questions are left in `facts.wanted`."""
    case = Case(facts, incident, look)
    finding = case.follow(incident.resource)
    if finding is None and not facts.wanted:
        finding = alerts.themed_finding(case, incident.resource)
    if finding is None and not facts.wanted:
        finding = recovered.recovered_finding(case, incident.resource)
    return finding


def look(case: Case, ref: ObjectRef) -> Finding | None:
    """Diagnose one object by the rules of its kind."""
    return RULES.get(ref.kind.lower(), custom.diagnose_custom)(case, ref)


def _pod(case: Case, ref: ObjectRef) -> Finding | None:
    pod = case.facts.of(ref)
    if pod is None:
        case.facts.ask_events(ref.namespace)
        return evictions.evicted_by_events(case, ref) or _successor(case, ref)
    workload = workloads.root_workload(case.facts, pod)
    if workload is not None:
        case.facts.of(workload)
    finding = None if pods.well(pod) else pods.diagnose_pod(case, pod, workload)
    if finding is not None or workload is None:
        return finding
    return case.follow(workload)


def _successor(case: Case, ref: ObjectRef) -> Finding | None:
    """A pod that is gone: its workload, by the name, as long as it is known to exist."""
    for kind, cut in (("Deployment", 2), ("StatefulSet", 1), ("DaemonSet", 1)):
        name = ref.name.rsplit("-", cut)[0]
        rows = case.facts.rows(kind, ref.namespace, ask=kind != "DaemonSet")
        if name != ref.name and any(r.get("NAME") == name for r in rows):
            return case.follow(make_ref(kind, name, ref.namespace))
    return None


def _replica_set(case: Case, ref: ObjectRef) -> Finding | None:
    manifest = case.facts.of(ref)
    root = case.facts.root_of(manifest) if manifest else None
    finding = workloads.diagnose_workload(case, ref)
    if finding is not None or root is None:
        return finding
    return case.follow(root)


def _claim(case: Case, ref: ObjectRef) -> Finding | None:
    finding = claims.claim_finding(case, ref, None)
    if finding is not None:
        return finding
    for row in case.facts.rows("Pod", ref.namespace):
        if row.get("NAME", "") and (
            row["NAME"] in ref.name or ref.name in row.get("REASON", "") or not workloads.row_is_well(row)
        ):
            pod = case.facts.get("Pod", row["NAME"], ref.namespace)
            if pod is None or ref.name not in {c.name for c in claims.claims_of(pod)}:
                continue
            found = case.follow(make_ref("Pod", row["NAME"], ref.namespace))
            if found is not None:
                return found
    return claims.resize_finding(case, ref)


def _config(case: Case, ref: ObjectRef) -> Finding | None:
    """A ConfigMap or Secret: the sick pods of its namespace tell whether it is at fault."""
    case.facts.of(ref)
    return (
        namespaces.diagnose_namespace(case, make_ref("Namespace", ref.namespace)) if ref.namespace else None
    )


def _volume(case: Case, ref: ObjectRef) -> Finding | None:
    manifest = case.facts.of(ref)
    name, namespace = (
        dig(manifest or {}, "spec", "claimRef", "name"),
        dig(manifest or {}, "spec", "claimRef", "namespace"),
    )
    return case.follow(make_ref("PersistentVolumeClaim", str(name), str(namespace))) if name else None


RULES: dict[str, Diagnose] = {
    "pod": _pod,
    "deployment": workloads.diagnose_workload,
    "statefulset": workloads.diagnose_workload,
    "daemonset": workloads.diagnose_workload,
    "replicaset": _replica_set,
    "job": jobs.diagnose_job,
    "cronjob": jobs.diagnose_cron_job,
    "node": nodes.diagnose_node,
    "ingress": ingress.diagnose_ingress,
    "service": services.diagnose_service,
    "endpoints": services.diagnose_service,
    "persistentvolumeclaim": _claim,
    "persistentvolume": _volume,
    "poddisruptionbudget": policies.diagnose_budget,
    "horizontalpodautoscaler": policies.diagnose_autoscaler,
    "resourcequota": policies.diagnose_quota,
    "namespace": namespaces.diagnose_namespace,
    "configmap": _config,
    "secret": _config,
}
