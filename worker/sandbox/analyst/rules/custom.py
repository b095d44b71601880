"""Objects without rules of their own: custom resources and what their conditions say."""

from __future__ import annotations

import re

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, dig, make_ref
from worker.sandbox.analyst.rules import workloads
from worker.sandbox.analyst.rules.case import Case, short

GOOD_WHEN_TRUE = re.compile(
    r"ready|available|healthy|synced|reconciled|accepted|progressing|installed|succeeded|established|valid|active|bound|released|programmed",
    re.IGNORECASE,
)
BAD_WHEN_TRUE = re.compile(
    r"fail|degraded|stalled|error|unhealthy|invalid|missing|conflict|pressure|blocked|unavailable",
    re.IGNORECASE,
)
REMEDIES = {
    "certificate": ((RemedyKind.FIX_CERTIFICATE,), "certificate"),
    "issuer": ((RemedyKind.FIX_CERTIFICATE,), "certificate"),
    "clusterissuer": ((RemedyKind.FIX_CERTIFICATE,), "certificate"),
    "subscription": ((RemedyKind.RESTORE_OPERATOR,), "operator_failed"),
    "clusterserviceversion": ((RemedyKind.RESTORE_OPERATOR,), "operator_failed"),
    "installplan": ((RemedyKind.RESTORE_OPERATOR,), "operator_failed"),
    "application": ((RemedyKind.REVERT_COMMIT,), "gitops_sync"),
    "kustomization": ((RemedyKind.REVERT_COMMIT,), "gitops_sync"),
    "helmrelease": ((RemedyKind.REVERT_COMMIT, RemedyKind.ROLLBACK), "gitops_sync"),
}
SICK = frozenset({"Degraded", "Missing", "Error", "Failed"})
MAX_PARTS = 40
TRAITS = {"certificate": ("cert_manager", "certificate_not_ready")}
SYMPTOMS = {
    "certificate": ("CertificateExpired", "CertificateNotReady", "CertificateExpiry"),
    "operator_failed": ("OperatorCSVFailed",),
    "gitops_sync": ("GitOpsSyncFailed", "OutOfSync"),
}


def diagnose_custom(case: Case, ref: ObjectRef) -> Finding | None:
    """The pods a custom resource owns, else the first condition that reports trouble."""
    manifest = case.facts.of(ref)
    owned = workloads.diagnose_workload(case, ref) if ref.namespace else None
    if owned is not None:
        return owned
    if manifest is None:
        return None
    deleted = dig(manifest, "metadata", "deletionTimestamp")
    finalizers = as_list(dig(manifest, "metadata", "finalizers"))
    if deleted and finalizers:
        told = (
            f"{ref} was deleted at {deleted} and waits for its finalizers {', '.join(map(str, finalizers))}"
        )
        return Finding(
            "finalizer",
            f"{told}.",
            ref,
            0.8,
            ("StuckTerminating",),
            (RemedyKind.REMOVE_FINALIZER,),
            (told,),
            None,
            frozenset({"finalizer"}),
        )
    return _by_parts(case, manifest) or _by_conditions(case, ref, manifest) or _by_health(ref, manifest)


def _by_conditions(case: Case, ref: ObjectRef, manifest: Manifest) -> Finding | None:
    bad = next(
        (c for c in as_list(dig(manifest, "status", "conditions")) if isinstance(c, dict) and _bad(c)), None
    )
    if bad is None:
        return None
    remedies, trait = REMEDIES.get(ref.kind.lower(), ((), "custom"))
    issuer = _issuer(case, ref, manifest)
    told = f"{ref} reports {bad.get('type')}={bad.get('status')} ({bad.get('reason')}): {short(str(bad.get('message') or ''), 300)}"
    return Finding(
        family=f"custom-{ref.kind.lower()}",
        summary=f"{told}.{issuer}",
        target=ref,
        certainty=0.74 if remedies else 0.62,
        symptoms=(*SYMPTOMS.get(trait, ()), str(bad.get("reason") or ""), str(bad.get("type") or "")),
        remedies=remedies,
        factors=(told, issuer.strip()),
        traits=frozenset({trait, *TRAITS.get(trait, ())}),
        denied=frozenset({"oom", "config_content"}),
    )


def _by_parts(case: Case, manifest: Manifest) -> Finding | None:
    """The first sick object that the resource lists as its own (Argo CD Application, `status.resources`)."""
    for part in as_list(dig(manifest, "status", "resources"))[:MAX_PARTS]:
        if str(dig(part, "health", "status")) in SICK:
            entry = as_dict(part)
            group, version = str(entry.get("group") or ""), str(entry.get("version") or "")
            sick = make_ref(
                str(entry.get("kind")),
                str(entry.get("name")),
                str(entry.get("namespace") or ""),
                f"{group}/{version}" if group else version,
            )
            finding = case.follow(sick)
            if finding is not None:
                return finding
    return None


def _by_health(ref: ObjectRef, manifest: Manifest) -> Finding | None:
    """Health and sync as GitOps tools report them."""
    health, sync = dig(manifest, "status", "health", "status"), dig(manifest, "status", "sync", "status")
    if str(health) not in SICK and sync != "OutOfSync":
        return None
    message = short(
        str(
            dig(manifest, "status", "health", "message")
            or dig(manifest, "status", "operationState", "message")
            or ""
        )
    )
    told = f"{ref} is {health or 'unknown'} and {sync or 'unknown'}{f': {message}' if message else ''}"
    remedies, trait = REMEDIES.get(ref.kind.lower(), ((), "custom"))
    return Finding(
        f"custom-{ref.kind.lower()}",
        f"{told}.",
        ref,
        0.66,
        SYMPTOMS.get(trait, ()),
        remedies,
        (told,),
        traits=frozenset({trait}),
    )


def _issuer(case: Case, ref: ObjectRef, manifest: Manifest) -> str:
    """What the issuer of a cert-manager Certificate reports, empty when it is fine or not known."""
    issuer = as_dict(dig(manifest, "spec", "issuerRef"))
    if ref.kind != "Certificate" or not issuer.get("name"):
        return ""
    kind = str(issuer.get("kind") or "Issuer")
    namespace = "" if kind == "ClusterIssuer" else ref.namespace
    found = case.facts.get(kind, str(issuer["name"]), namespace, str(ref.api_version or "cert-manager.io/v1"))
    bad = next(
        (c for c in as_list(dig(found or {}, "status", "conditions")) if isinstance(c, dict) and _bad(c)),
        None,
    )
    return (
        f" Its issuer {kind} {issuer['name']} is not ready: {short(str(bad.get('message') or ''))}."
        if bad
        else ""
    )


def _bad(entry: Manifest) -> bool:
    name, status = str(entry.get("type") or ""), str(entry.get("status") or "")
    if BAD_WHEN_TRUE.search(name):
        return status == "True"
    return status == "False" and bool(GOOD_WHEN_TRUE.search(name))
