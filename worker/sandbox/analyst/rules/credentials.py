"""Credentials that are rejected: stale in a running process, or wrong where they are kept."""

from __future__ import annotations

from worker.domain.cluster.quantities import seconds_between
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import dig, make_ref
from worker.sandbox.analyst.rules import hosts
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import last_change
from worker.sandbox.analyst.shapes import ContainerState, Reference, container_named, pod_spec, references

LONG_SECONDS = 1800
SYMPTOMS = ("AuthenticationFailure", "AuthenticationFailed", "CredentialsRejected", "Unauthorized")


def credentials_finding(
    case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str
) -> Finding | None:
    """Who holds the credentials, and whether the process took them up before they were changed."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    told = f"{target} is refused by a service it calls: {short(line)}"
    change = last_change(case.facts, target)
    if change is not None and change.touches("].env", "envFrom", "image", "secret"):
        return with_change(_wrong(told, target, target, 0.74), change)
    secrets = secret_references(pod, state.name)
    server = _server(case, pod, line)
    if server is not None and (server.kind, server.name) == (target.kind, target.name):
        return None
    if long_running(case, state):
        return _stale(told, target, secrets, server, state)
    if secrets:
        secret = make_ref("Secret", secrets[0].name, namespace)
        return _wrong(f"{told}. Its credentials come from {secret} ({secrets[0].how})", secret, target, 0.72)
    return _wrong(told, target, target, 0.58)


def secret_references(pod: Manifest, container: str) -> list[Reference]:
    """Secrets the container reads its settings from, environment before files."""
    spec = pod_spec(pod)
    wanted = container_named(spec, container)
    alone = {"containers": [wanted]} if wanted else spec
    found = [r for r in references({**spec, **alone}) if r.kind == "Secret" and r.how != "imagePullSecrets"]
    return sorted(found, key=lambda r: not r.how.startswith("env"))


def long_running(case: Case, state: ContainerState) -> bool:
    """Whether the process has been running for long, so that it once started well with what it had."""
    age = seconds_between(state.running_since, case.incident.received)
    return age is not None and age >= LONG_SECONDS


def _server(case: Case, pod: Manifest, line: str) -> ObjectRef | None:
    """The workload that refuses, if it runs in the cluster."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    for host in [*hosts.hosts_in(line), *hosts.configured_hosts(pod)]:
        service = hosts.service_for(case.facts, host, namespace)
        if service is not None:
            return next(iter(hosts.workloads_behind(case.facts, service)), None)
    return None


def _stale(
    told: str, target: ObjectRef, secrets: list[Reference], server: ObjectRef | None, state: ContainerState
) -> Finding:
    source = f"Secret {secrets[0].name} ({secrets[0].how})" if secrets else "its environment"
    since = f"The process runs since {state.running_since} with the credentials it read at its start from {source}"
    why = f"{since}; they worked before and are rejected now, so they were rotated and the running pods still use the old, stale ones"
    if server is not None:
        why += f". {server} itself runs and answers"
    return Finding(
        family="stale-credentials",
        summary=f"{sentence(told)}. {why}.",
        target=target,
        certainty=0.86 if secrets else 0.7,
        symptoms=SYMPTOMS,
        remedies=(RemedyKind.RESTART,),
        factors=(told, since),
        workload=target,
        traits=frozenset({"stale_environment", "credentials_rejected", "pods_running"}),
        denied=frozenset({"crash_on_start", "oom", "dependency_down", "template_changed", "recent_revision"}),
        hints={"secret": secrets[0].name if secrets else ""},
    )


def _wrong(told: str, holder: ObjectRef, workload: ObjectRef, certainty: float) -> Finding:
    return Finding(
        family="credentials",
        summary=f"{sentence(told)}. The credentials are wrong where they are kept.",
        target=holder,
        certainty=certainty,
        symptoms=("CrashLoopBackOff", *SYMPTOMS),
        remedies=(RemedyKind.ROTATE_CREDENTIALS,),
        factors=(told,),
        workload=workload,
        traits=frozenset({"credentials_rejected", "crash_on_start"}),
        denied=frozenset({"oom", "stale_environment", "dependency_down"}),
        hints={"secret": holder.name if holder.kind == "Secret" else ""},
    )
