"""Things a process may not do: towards the Kubernetes API, and with files."""

from __future__ import annotations

import re

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, make_ref
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import last_change
from worker.sandbox.analyst.shapes import ContainerState, container_named, pod_spec

ACCOUNT = re.compile(r"system:serviceaccount:([a-z0-9.-]+):([a-z0-9.-]+)")
WHAT = re.compile(r"cannot (\w+) resource \"?([\w./-]+)\"?", re.IGNORECASE)


def rbac_finding(case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str) -> Finding:
    """A ServiceAccount without a permission: the role that is bound to it, or the binding that is missing."""
    match = ACCOUNT.search(line)
    namespace = match[1] if match else target.namespace
    account = match[2] if match else str(pod_spec(pod).get("serviceAccountName") or "default")
    what = WHAT.search(line)
    told = f"the ServiceAccount {namespace}/{account} of {target} lacks a permission: {short(line)}"
    holder = _bound_role(case.facts, namespace, account) or make_ref("ServiceAccount", account, namespace)
    why = f"{holder} does not allow {what[1]} {what[2]}" if what else f"{holder} does not allow it"
    return Finding(
        family="rbac",
        summary=f"{sentence(told)}. {why}.",
        target=holder,
        certainty=0.74,
        symptoms=("CrashLoopBackOff", "Forbidden"),
        remedies=(RemedyKind.FIX_RBAC,),
        factors=(told,),
        workload=target,
        traits=frozenset({"rbac"}),
        denied=frozenset({"oom", "config_content", "dependency_down"}),
        hints={"service_account": account, "container": state.name},
    )


def _bound_role(facts: Facts, namespace: str, account: str) -> ObjectRef | None:
    for row in facts.rows("RoleBinding", namespace)[:6]:
        binding = facts.get("RoleBinding", row.get("NAME", ""), namespace)
        for subject in as_list((binding or {}).get("subjects")):
            if as_dict(subject).get("name") == account:
                role = as_dict((binding or {}).get("roleRef"))
                return make_ref(str(role.get("kind") or "Role"), str(role.get("name") or ""), namespace)
    return None


def file_finding(case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str) -> Finding:
    """A file or a port that the process may not use: its security context, or the owner of a volume."""
    spec = pod_spec(pod)
    own = container_named(spec, state.name)
    context = as_dict(spec.get("securityContext")) | as_dict(own.get("securityContext"))
    shown = (
        ", ".join(f"{k}={v}" for k, v in context.items() if isinstance(v, bool | int | str))
        or "no security context"
    )
    told = f"container {state.name} of {target} is denied by the system: {short(line)} ({shown})"
    finding = Finding(
        family="file-permission",
        summary=f"{sentence(told)}.",
        target=target,
        certainty=0.7,
        symptoms=("CrashLoopBackOff",),
        remedies=(RemedyKind.FIX_SECURITY,),
        factors=(told,),
        workload=target,
        traits=frozenset({"permission"}),
        denied=frozenset({"oom", "config_content", "dependency_down"}),
        hints={"container": state.name},
    )
    return with_change(finding, last_change(case.facts, target))
