"""Certificates: expired, not trusted, and where the one in question comes from."""

from __future__ import annotations

import re

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import dig, make_ref
from worker.sandbox.analyst.rules import hosts
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.configs import PATH, mounted_at
from worker.sandbox.analyst.shapes import ContainerState, Reference, pod_spec, references

EXPIRED = re.compile(r"expire|not (?:yet )?valid", re.IGNORECASE)
CERT_WORD = re.compile(r"cert|tls|ssl|pki|\bca\b|pem|crt", re.IGNORECASE)
REMOTE = re.compile(
    r"https?://|dial|handshake|connect|remote error|failed to verify|verify failed|post \"|get \"",
    re.IGNORECASE,
)
DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]?[\d:]*Z?")


def certificate_finding(
    case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str
) -> Finding | None:
    """The object that holds the certificate a message complains about."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    told = f"container {state.name} of {target} stops over a certificate: {short(line)}"
    expired = bool(EXPIRED.search(line))
    if REMOTE.search(line):
        remote = _remote(case, pod, target, line)
        if remote is not None:
            return remote
    source = _source(pod, line)
    why = "has expired" if expired else "is not accepted"
    dates = [d for d in DATE.findall(line) if not line.startswith(d)]
    when = f" ({dates[-1].strip()})" if dates and expired else ""
    if source is None:
        return _finding(
            told,
            f"The certificate {why}{when}; where it comes from is not visible.",
            target,
            target,
            0.6,
            expired=expired,
        )
    reference = make_ref(source.kind, source.name, namespace)
    managed = managing_certificate(case.facts, reference) if source.kind == "Secret" else None
    holder = managed or reference
    where = f"The certificate in {reference} (mounted at {source.mount or source.how}) {why}{when}."
    if managed:
        where += f" It is issued by {managed}."
    return _finding(told, where, holder, target, 0.86, expired=expired)


def _finding(
    told: str, where: str, holder: ObjectRef, workload: ObjectRef, certainty: float, *, expired: bool
) -> Finding:
    config_map = holder.kind == "ConfigMap"
    remedies = (
        (RemedyKind.FIX_CONFIG,)
        if config_map
        else (RemedyKind.FIX_CERTIFICATE, RemedyKind.ROTATE_CREDENTIALS)
    )
    traits = {"crash_on_start"} | ({"certificate_expired"} if expired else set())
    if holder.kind == "Certificate":
        traits |= {"cert_manager", "certificate_not_ready"}
    if config_map:
        traits |= {"config_content", "template_unchanged", "config_invalid", "certificate_in_configmap"}
    return Finding(
        family="certificate",
        summary=f"{sentence(told)}. {where}",
        target=holder,
        certainty=certainty,
        symptoms=("CrashLoopBackOff",),
        remedies=remedies,
        factors=(told, where),
        workload=workload,
        traits=frozenset(traits),
        denied=frozenset(
            {"oom", "dependency_down", "template_changed", "bad_image"}
            | ({"cert_manager"} if config_map else set())
        ),
        hints={
            "configmap": holder.name if config_map else "",
            "secret": holder.name if holder.kind == "Secret" else "",
            "certificate": holder.name if holder.kind == "Certificate" else "",
        },
    )


def _source(pod: Manifest, line: str) -> Reference | None:
    candidates = [
        r
        for r in references(pod_spec(pod))
        if r.kind in {"ConfigMap", "Secret"} and r.how != "imagePullSecrets"
    ]
    by_path = mounted_at(candidates, PATH.findall(line))
    if by_path is not None:
        return by_path
    spoken = [r for r in candidates if CERT_WORD.search(f"{r.name} {r.key} {r.mount} {r.sub_path}")]
    return spoken[0] if spoken else (candidates[0] if len({c.name for c in candidates}) == 1 else None)


def managing_certificate(facts: Facts, secret: ObjectRef) -> ObjectRef | None:
    """The cert-manager Certificate that writes the Secret, if there is one."""
    for row in facts.rows("Certificate", secret.namespace):
        name = row.get("NAME", "")
        manifest = facts.get(
            "Certificate", name, secret.namespace, ask=name in secret.name or secret.name in name
        )
        if dig(manifest or {}, "spec", "secretName") == secret.name or (
            manifest is None and name == secret.name
        ):
            return make_ref(
                "Certificate",
                name,
                secret.namespace,
                str((manifest or {}).get("apiVersion") or "cert-manager.io/v1"),
            )
    return None


def _remote(case: Case, pod: Manifest, target: ObjectRef, line: str) -> Finding | None:
    """The certificate of the server that was called."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    for host in hosts.hosts_in(line):
        service = hosts.service_for(case.facts, host, namespace)
        if service is not None:
            told = f"container of {target} does not accept the certificate of {service}: {short(line)}"
            finding = served_finding(case, target, service, told, line)
            if finding is not None:
                return finding
    return None


def served_finding(
    case: Case, workload: ObjectRef, service: ObjectRef, told: str, line: str
) -> Finding | None:
    """The Secret, or the Certificate that writes it, with what a Service shows to its clients."""
    expired = bool(EXPIRED.search(line))
    for secret in _served_secrets(case.facts, service):
        holder = managing_certificate(case.facts, secret) or secret
        why = "has expired" if expired else "is not accepted"
        where = f"The certificate served by {service} stands in {secret} and {why}."
        return _finding(told, where, holder, workload, 0.8, expired=expired)
    return None


def _served_secrets(facts: Facts, service: ObjectRef) -> list[ObjectRef]:
    found = []
    for workload in hosts.workloads_behind(facts, service):
        manifest = facts.of(workload)
        found += [
            make_ref("Secret", r.name, workload.namespace)
            for r in references(pod_spec(manifest or {}))
            if r.kind == "Secret" and CERT_WORD.search(f"{r.name} {r.mount}")
        ]
    return found
