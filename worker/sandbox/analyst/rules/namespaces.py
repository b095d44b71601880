"""Namespaces: stuck in Terminating, or the place of a trouble whose object the signal does not name."""

from __future__ import annotations

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.loglines import Telling, classify, telling_lines
from worker.sandbox.analyst.refs import as_list, dig, make_ref
from worker.sandbox.analyst.rules import alerts, hosts, messages, policies, workloads
from worker.sandbox.analyst.rules.case import Case, short
from worker.sandbox.analyst.shapes import condition, container_states

MAX_SICK = 3
MAX_LOGS = 5


def diagnose_namespace(case: Case, ref: ObjectRef) -> Finding | None:
    """What goes wrong in a namespace."""
    manifest = case.facts.of(ref)
    if manifest is not None and (
        dig(manifest, "status", "phase") == "Terminating" or dig(manifest, "metadata", "deletionTimestamp")
    ):
        return _terminating(ref, manifest)
    return _sick(case, ref.name) or _quotas(case, ref.name) or _from_logs(case, ref.name)


def _terminating(ref: ObjectRef, manifest: Manifest) -> Finding:
    said = [
        str(condition(manifest, c).get("message") or "")
        for c in (
            "NamespaceFinalizersRemaining",
            "NamespaceContentRemaining",
            "NamespaceDeletionDiscoveryFailure",
            "NamespaceDeletionContentFailure",
        )
    ]
    told = f"{ref} is stuck in Terminating: {short(' '.join(s for s in said if s)) or as_list(dig(manifest, 'spec', 'finalizers'))}"
    return Finding("finalizer", f"{told}.", ref, 0.82, ("NamespaceTerminatingStuck", "StuckTerminating"), (RemedyKind.REMOVE_FINALIZER,), (told,), None,
                   frozenset({"finalizer"}), frozenset({"oom", "config_content", "template_changed"}))  # fmt: skip


def _sick(case: Case, namespace: str) -> Finding | None:
    """The worst pods of the namespace, those that the signal speaks of first."""
    rows = [r for r in case.facts.rows("Pod", namespace) if not workloads.row_is_well(r)]
    owners: dict[str, ObjectRef] = {}
    words = f"{case.incident.message} {' '.join(case.incident.labels.values())}"
    for row in sorted(rows, key=lambda r: r.get("NAME", "") not in words):
        owner = hosts.owner_in_row(row, namespace)
        if owner is not None:
            owners.setdefault(str(owner), owner)
    findings = [f for o in list(owners.values())[:MAX_SICK] if (f := case.follow(o)) is not None]
    return max(findings, key=lambda f: f.certainty, default=None)


def _quotas(case: Case, namespace: str) -> Finding | None:
    if "quota" not in f"{case.incident.signal_type} {case.incident.message}".lower():
        return None
    for row in case.facts.rows("ResourceQuota", namespace):
        finding = policies.diagnose_quota(case, make_ref("ResourceQuota", row.get("NAME", ""), namespace))
        if finding is not None:
            return finding
    return None


def _from_logs(case: Case, namespace: str) -> Finding | None:
    """What the logs of running pods say when every pod looks well; what the signal speaks of comes first."""
    spoken = classify(alerts.spoken(case))
    told: list[tuple[dict[str, str], list[Telling]]] = []
    for row in [r for r in case.facts.rows("Pod", namespace) if r.get("STATUS") == "Running"][:MAX_LOGS]:
        lines = case.facts.log(namespace, row.get("NAME", ""), previous=False)
        case.facts.get("Pod", row.get("NAME", ""), namespace)
        told.append((row, [t for t in telling_lines(lines) if t.loud]))
    if told:
        case.facts.rows("Service", namespace)
    fitting = [(row, [t for t in telling if t.trouble is spoken]) for row, telling in told]
    for row, telling in [x for x in fitting if x[1]] or told:
        owner = hosts.owner_in_row(row, namespace)
        pod = case.facts.get("Pod", row.get("NAME", ""), namespace) if telling and owner else None
        states = container_states(pod) if pod else []
        if pod is not None and owner is not None and states:
            finding = messages.from_lines(case, pod, states[0], owner, telling)
            if finding is not None:
                return finding
    return None
