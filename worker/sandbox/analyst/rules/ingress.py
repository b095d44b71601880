"""Ingresses: their class, their backend Services, their TLS Secrets."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, dig, make_ref
from worker.sandbox.analyst.rules.case import Case
from worker.sandbox.analyst.shapes import annotations_of

OLD_CLASS = "kubernetes.io/ingress.class"
SYMPTOMS = ("IngressMisconfigured", "IngressBackendDown", "ServiceUnavailable")


def diagnose_ingress(case: Case, ref: ObjectRef) -> Finding | None:
    """A class that no controller serves, a backend that is not there, or one that is not well."""
    manifest = case.facts.of(ref)
    if manifest is None:
        return None
    finding = _class(case, ref, manifest)
    if finding is not None:
        return finding
    for name, port in _backends(manifest):
        service = make_ref("Service", name, ref.namespace)
        rows = case.facts.rows("Service", ref.namespace)
        if rows and all(r.get("NAME") != name for r in rows):
            close = difflib.get_close_matches(name, [r.get("NAME", "") for r in rows], 1)
            told = f"{ref} sends to Service {name}, which does not exist{f'; there is one called {close[0]}' if close else ''}"
            return _finding(ref, told, ref if close else service)
        ports = [
            p for p in as_list(dig(case.facts.of(service) or {}, "spec", "ports")) if isinstance(p, dict)
        ]
        if port and ports and port not in {str(v) for p in ports for v in (p.get("port"), p.get("name"))}:
            shown = ", ".join(str(p.get("port")) for p in ports)
            return _finding(ref, f"{ref} sends to port {port} of {service}, which offers {shown}", ref)
        behind = case.follow(service)
        if behind is not None:
            return behind
    return None


def _class(case: Case, ref: ObjectRef, manifest: Manifest) -> Finding | None:
    wanted = str(dig(manifest, "spec", "ingressClassName") or annotations_of(manifest).get(OLD_CLASS) or "")
    rows = case.facts.rows("IngressClass")
    names = [r.get("NAME", "") for r in rows]
    if not wanted or not names or wanted in names:
        return None
    told = f"{ref} names the ingress class {wanted}, which does not exist (there are: {', '.join(names)}), so no controller serves it"
    return _finding(ref, told, ref)


def _backends(manifest: Manifest) -> Iterator[tuple[str, str]]:
    backends = [dig(manifest, "spec", "defaultBackend")]
    for rule in as_list(dig(manifest, "spec", "rules")):
        backends += [as_dict(p).get("backend") for p in as_list(dig(rule, "http", "paths"))]
    for backend in backends:
        service = as_dict(as_dict(backend).get("service"))
        if service.get("name"):
            yield (
                str(service["name"]),
                str(dig(service, "port", "number") or dig(service, "port", "name") or ""),
            )


def _finding(ref: ObjectRef, told: str, target: ObjectRef) -> Finding:
    return Finding(
        family="ingress",
        summary=f"{told}.",
        target=target,
        certainty=0.84,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.FIX_SERVICE,) if target.kind == "Service" else (),
        factors=(told,),
        workload=ref,
        traits=frozenset({"ingress"}),
        denied=frozenset({"oom", "config_content", "template_changed", "dependency_down"}),
    )
