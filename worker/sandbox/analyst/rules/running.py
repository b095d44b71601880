"""Workloads whose pods run and are ready, and that still do not do their work: what their logs say."""

from __future__ import annotations

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.loglines import Trouble, telling_lines
from worker.sandbox.analyst.refs import dig, make_ref
from worker.sandbox.analyst.rules import hosts, messages, netpol
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import last_change
from worker.sandbox.analyst.shapes import condition, container_states

MAX_PODS = 2
LAST_LINES = 8
ERROR_ALERT = (
    "error",
    "latency",
    "slo",
    "budget",
    "5xx",
    "availability",
    "unavailable",
    "failure",
    "connect",
    "pool",
    "auth",
    "timeout",
    "slow",
    "certificate",
    "down",
    "unreachable",
    "network",
)


def running_finding(case: Case, ref: ObjectRef, manifest: Manifest | None) -> Finding | None:
    """The cause of errors in a workload that looks well."""
    for pod in _pods(case, ref):
        finding = _from_logs(case, ref, pod)
        if finding is not None:
            return finding
    if manifest is None:
        return None
    finding = _stalled(case, ref, manifest)
    if finding is not None:
        return finding
    return _blocked(case, ref) or _recent_rollout(case, ref)


def _pods(case: Case, ref: ObjectRef) -> list[Manifest]:
    listed = case.facts.rows("Pod", ref.namespace, ask=not case.facts.listed_for(ref, "Pod"))
    rows = [r for r in listed if _owned(r, ref)]
    for row in rows[:MAX_PODS]:
        case.facts.get("Pod", row["NAME"], ref.namespace)
    known = {r.get("NAME") for r in rows}
    return [p for p in case.facts.objects("Pod", ref.namespace) if str(dig(p, "metadata", "name")) in known][
        :MAX_PODS
    ]


def _owned(row: dict[str, str], ref: ObjectRef) -> bool:
    owner = hosts.owner_in_row(row, ref.namespace)
    return owner is not None and owner.name == ref.name and row.get("STATUS") == "Running"


def _from_logs(case: Case, ref: ObjectRef, pod: Manifest) -> Finding | None:
    name = str(dig(pod, "metadata", "name"))
    for state in container_states(pod):
        if state.init:
            continue
        lines = case.facts.log(ref.namespace, name, state.name, previous=False)
        last = len(lines) - LAST_LINES
        telling = [
            t
            for t in telling_lines(lines)
            if (t.loud or t.position >= last) and t.trouble is not Trouble.CRASH
        ]
        finding = messages.from_lines(case, pod, state, ref, telling)
        if finding is not None:
            return finding
    return None


def _stalled(case: Case, ref: ObjectRef, manifest: Manifest) -> Finding | None:
    """A rollout that has passed its deadline although no pod shows why."""
    progressing = condition(manifest, "Progressing")
    if progressing.get("status") != "False":
        return None
    told = f"the rollout of {ref} does not progress: {progressing.get('reason')}: {short(str(progressing.get('message') or ''))}"
    finding = Finding("rollout", f"{sentence(told)}.", ref, 0.6, ("ProgressDeadlineExceeded", "CrashLoopBackOff"), (), (told,), ref,
                      frozenset({"progress_deadline"}), frozenset({"oom"}))  # fmt: skip
    return with_change(finding, last_change(case.facts, ref))


def _speaks_of_errors(case: Case) -> bool:
    text = f"{case.incident.signal_type} {case.incident.message}".lower()
    return any(word in text for word in ERROR_ALERT)


def _blocked(case: Case, ref: ObjectRef) -> Finding | None:
    """A policy that isolates the pods of the workload, or keeps them from what their settings name."""
    if not _speaks_of_errors(case):
        return None
    for pod in _pods(case, ref)[:1]:
        for host in hosts.configured_hosts(pod):
            service = hosts.service_for(case.facts, host, ref.namespace)
            if service is None:
                continue
            finding = netpol.blocking_policy(case, pod, service)
            for workload in hosts.workloads_behind(case.facts, service):
                finding = finding or case.follow(workload)
            if finding is not None:
                return finding
    return None


def _recent_rollout(case: Case, ref: ObjectRef) -> Finding | None:
    """Errors right after a rollout, without another explanation."""
    change = last_change(case.facts, ref)
    if change is None or not change.parts or not _speaks_of_errors(case):
        return None
    told = f"errors of {ref} began after its rollout at {change.at}"
    finding = Finding("regression", f"{sentence(told)}.", make_ref(ref.kind, ref.name, ref.namespace), 0.74, ("ErrorBudgetBurn", "HighErrorRate"),
                      (RemedyKind.ROLLBACK,), (told,), ref, frozenset({"error_budget"}), frozenset({"oom", "dependency_down", "config_content", "external_dependency"}))  # fmt: skip
    return with_change(finding, change)
