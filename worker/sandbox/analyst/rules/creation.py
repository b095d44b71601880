"""Pods that the API server refuses: quotas, limits, webhooks, security, missing accounts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.loglines import Trouble, classify
from worker.sandbox.analyst.refs import as_dict, make_ref
from worker.sandbox.analyst.rules import certificates, hosts
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import seen_from, with_change
from worker.sandbox.analyst.rules.rollouts import last_change
from worker.sandbox.analyst.shapes import condition

QUOTA = re.compile(r"exceeded quota: ([\w.-]+), requested: (.*?), used: (.*?), limited: (.*)$")
MUST_SPECIFY = re.compile(r"failed quota: ([\w.-]+): must specify (.+)$")
LIMITS = re.compile(
    r"(?:maximum|minimum) (?:cpu|memory|[\w-]+) (?:usage )?per|limit to request ratio|LimitRange",
    re.IGNORECASE,
)
WEBHOOK = re.compile(r"(?:failed calling|failed to call) webhook[: ]+\\?\"([^\"\\]+)\\?\"", re.IGNORECASE)
DENIED = re.compile(
    r"admission webhook \\?\"([^\"\\]+)\\?\" denied|denied the request|policy violation|validation error",
    re.IGNORECASE,
)
SECURITY = re.compile(
    r"violates PodSecurity|security context constraint|PodSecurityPolicy|pod security", re.IGNORECASE
)
ACCOUNT = re.compile(r"serviceaccount \\?\"?(?:[\w-]+/)?([\w.-]+)\\?\"? not found", re.IGNORECASE)
PRIORITY = re.compile(
    r"PriorityClass (?:with name )?\\?\"?([\w.-]+)\\?\"? (?:was )?(?:not )?found|no PriorityClass with name ([\w.-]+)",
    re.IGNORECASE,
)
REASONS = frozenset({"FailedCreate", "FailedUpdate", "ReplicaSetCreateError", "FailedDelete"})
SYMPTOMS = ("FailedCreate", "ReplicaSetCreateError", "PodPending")


def creation_finding(case: Case, ref: ObjectRef, manifest: Manifest | None) -> Finding | None:
    """Why pods of a workload are not created, from its condition, its ReplicaSets' and their events."""
    message = creation_message(case, ref, manifest)
    if not message:
        return None
    for explain in (_quota, _limits, _webhook, _denied, _missing):
        finding = explain(case, ref, message)
        if finding is not None:
            return finding
    return Finding(
        "create",
        f"The pods of {ref} cannot be created: {short(message)}.",
        ref,
        0.6,
        SYMPTOMS,
        factors=(short(message),),
        workload=ref,
    )


def creation_message(case: Case, ref: ObjectRef, manifest: Manifest | None) -> str:
    """The API server's newest refusal."""
    failure = condition(as_dict(manifest), "ReplicaFailure")
    if failure.get("status") == "True":
        return str(failure.get("message") or "")
    named = [
        e
        for e in case.facts.events
        if e.reason in REASONS and e.namespace == ref.namespace and _about(e.name, ref.name)
    ]
    if named:
        return named[-1].message
    for child in case.facts.objects("ReplicaSet", ref.namespace):
        failure = condition(child, "ReplicaFailure")
        if (
            _about(str(as_dict(child.get("metadata")).get("name")), ref.name)
            and failure.get("status") == "True"
        ):
            return str(failure.get("message") or "")
    return ""


def _about(name: str, workload: str) -> bool:
    return name == workload or name.rpartition("-")[0] == workload


def _workload(case: Case, ref: ObjectRef) -> ObjectRef:
    """The Deployment of a ReplicaSet."""
    manifest = case.facts.of(ref)
    root = case.facts.root_of(manifest) if manifest else None
    return root or ref


def _quota(case: Case, ref: ObjectRef, message: str) -> Finding | None:
    match = QUOTA.search(message)
    if match is None:
        must = MUST_SPECIFY.search(message)
        if must is None:
            return None
        told = f"the quota {must[1]} demands that pods of {ref} state {must[2]}, and they do not"
        return _finding(case, ref, told, _workload(case, ref), 0.8, {"quota", "missing_requests"}, ())
    quota = make_ref("ResourceQuota", match[1], ref.namespace)
    case.facts.of(quota)
    told = f"{quota} is exceeded: a new pod of {_workload(case, ref)} requests {match[2]}, used are {match[3]}, the limit is {match[4]}"
    return _finding(case, ref, told, quota, 0.92, {"quota", "quota_exhausted"}, (RemedyKind.RAISE_QUOTA,))


def _limits(case: Case, ref: ObjectRef, message: str) -> Finding | None:
    if not LIMITS.search(message):
        return None
    rows = case.facts.rows("LimitRange", ref.namespace)
    told = f"a LimitRange{' ' + rows[0].get('NAME', '') if rows else ''} of namespace {ref.namespace} does not allow the pods of {ref}: {short(message)}"
    target = (
        make_ref("LimitRange", rows[0]["NAME"], ref.namespace) if len(rows) == 1 else _workload(case, ref)
    )
    return _finding(case, ref, told, target, 0.76, {"limit_range", "quota"}, ())


def _webhook(case: Case, ref: ObjectRef, message: str) -> Finding | None:
    match = WEBHOOK.search(message)
    if match is None:
        return None
    told = f"pods of {_workload(case, ref)} cannot be created because the call of the admission webhook {match[1]} fails: {short(message, 420)}"
    for host in hosts.hosts_in(message):
        service = hosts.service_for(case.facts, host, ref.namespace)
        for behind in hosts.workloads_behind(case.facts, service) if service else ():
            finding = case.follow(behind)
            if finding is not None:
                return seen_from(finding, "FailedCreate", _workload(case, ref), f"{sentence(told)}.")
            if service is not None and classify(message) is Trouble.CERTIFICATE:
                served = certificates.served_finding(case, behind, service, told, message)
                if served is not None:
                    return replace(served, symptoms=SYMPTOMS)
            return _finding(
                case, ref, told, behind, 0.7, {"webhook"}, (RemedyKind.FIX_WEBHOOK, RemedyKind.RESTART)
            )
    target = make_ref("ValidatingWebhookConfiguration", match[1])
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        for row in case.facts.rows(kind):
            name = row.get("NAME", "")
            if name and (name in match[1] or match[1].split(".")[0] in name):
                target = make_ref(kind, name)
    return _finding(case, ref, told, target, 0.7, {"webhook"}, (RemedyKind.FIX_WEBHOOK,))


def _denied(case: Case, ref: ObjectRef, message: str) -> Finding | None:
    if not (DENIED.search(message) or SECURITY.search(message)):
        return None
    target = _workload(case, ref)
    told = f"the pods of {target} are refused by a security or admission policy: {short(message)}"
    finding = _finding(case, ref, told, target, 0.8, {"policy_denied"}, (RemedyKind.FIX_SECURITY,))
    return with_change(finding, last_change(case.facts, target))


def _missing(case: Case, ref: ObjectRef, message: str) -> Finding | None:
    explain: tuple[tuple[re.Pattern[str], str, Callable[[str], ObjectRef]], ...] = (
        (ACCOUNT, "ServiceAccount", lambda name: make_ref("ServiceAccount", name, ref.namespace)),
        (PRIORITY, "PriorityClass", lambda name: make_ref("PriorityClass", name)),
    )
    for pattern, kind, build in explain:
        match = pattern.search(message)
        if match:
            missing = build(next(g for g in match.groups() if g))
            told = f"the pods of {_workload(case, ref)} cannot be created: {kind} {missing.name} does not exist (not found)"
            return _finding(
                case, ref, told, missing, 0.82, {"missing_reference"}, (RemedyKind.RESTORE_REFERENCE,)
            )
    return None


def _finding(
    case: Case,
    ref: ObjectRef,
    told: str,
    target: ObjectRef,
    certainty: float,
    traits: set[str],
    remedies: tuple[RemedyKind, ...],
) -> Finding:
    return Finding(
        family="creation",
        summary=f"{sentence(told)}.",
        target=target,
        certainty=certainty,
        symptoms=SYMPTOMS,
        remedies=remedies,
        factors=(told,),
        workload=_workload(case, ref),
        traits=frozenset(traits),
        denied=frozenset(
            {
                "oom",
                "oom_own_limit",
                "config_content",
                "insufficient_resources",
                "dependency_down",
                "bad_image",
            }
        ),
        hints={"quota": target.name if target.kind == "ResourceQuota" else ""},
    )
