"""Name resolution of the cluster itself."""

from __future__ import annotations

from dataclasses import replace

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import make_ref
from worker.sandbox.analyst.rules.case import Case

SYSTEM = "kube-system"
RESOLVERS = ("coredns", "kube-dns")


def resolver_finding(case: Case, service: ObjectRef) -> Finding | None:
    """The cluster's DNS servers, when a name does not resolve although its Service is there and its pods are well."""
    if "resol" not in case.incident.message.lower() and not _spoken_of(case, service):
        return None
    for name in RESOLVERS:
        rows = [r for r in case.facts.rows("Pod", SYSTEM) if r.get("NAME", "").startswith(name)]
        if not rows:
            continue
        finding = case.follow(make_ref("Deployment", name, SYSTEM))
        if finding is not None:
            told = f"The Service {service} exists, but its name cannot be resolved: the cluster's DNS is not well."
            remedies = tuple(dict.fromkeys([*finding.remedies, RemedyKind.FIX_DNS]))
            return replace(
                finding,
                summary=f"{told} {finding.summary}",
                factors=(told, *finding.factors),
                remedies=remedies,
            )
    return None


def _spoken_of(case: Case, service: ObjectRef) -> bool:
    """Whether some log says that the name of the Service does not resolve."""
    words = ("no such host", "resolve", "resolution", "not known", "enotfound", "eai_again", "unknownhost")
    return any(
        service.name in line and any(w in line.lower() for w in words)
        for log in case.facts.logs
        for line in log.lines[-60:]
    )
