"""From the telling lines of a log to the family of rules that explains them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from worker.domain.cluster.quantities import doubled
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.loglines import Telling, Trouble
from worker.sandbox.analyst.refs import dig
from worker.sandbox.analyst.rules import (
    certificates,
    configs,
    credentials,
    dependencies,
    disks,
    mesh,
    permissions,
    pools,
    refusals,
)
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import last_change
from worker.sandbox.analyst.shapes import ContainerState, container_named, labels_of, pod_spec

Explain = Callable[[Case, Manifest, ContainerState, ObjectRef, str], Finding | None]
MAX_TRIED = 4


def from_lines(
    case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, telling: Sequence[Telling]
) -> Finding | None:
    """The explanation of the most telling line that has one. Each class is tried once."""
    tried: dict[Trouble, str] = {}
    for item in telling:
        tried.setdefault(item.trouble, item.line)
    for trouble, line in list(tried.items())[:MAX_TRIED]:
        explain = EXPLANATIONS.get(trouble)
        asked = case.asked
        finding = explain(case, pod, state, target, line) if explain else None
        if finding is not None or case.waits(asked):
            return finding
    return None


def architecture(case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str) -> Finding:
    """A program for another processor than the node's."""
    node_name = str(dig(pod, "spec", "nodeName") or "")
    node = case.facts.get("Node", node_name) or {}
    built = labels_of(node).get("kubernetes.io/arch") or str(
        dig(node, "status", "nodeInfo", "architecture") or ""
    )
    image = str(container_named(pod_spec(pod), state.name).get("image") or "")
    told = f"container {state.name} of {target} cannot be executed on node {node_name}: {short(line)}"
    where = (
        f"node {node_name} has architecture {built}" if built else "the node's architecture is another one"
    )
    finding = Finding(
        family="architecture",
        summary=f"{sentence(told)}. The image {image} is built for another CPU architecture: {where}.",
        target=target,
        certainty=0.88,
        symptoms=("CrashLoopBackOff",),
        factors=(told, where),
        workload=target,
        traits=frozenset({"architecture", "crash_on_start"}),
        denied=frozenset({"oom", "config_content", "node_failure", "dependency_down"}),
        hints={"container": state.name, "image": image, "node": node_name},
    )
    return with_change(finding, last_change(case.facts, target), only=("image", "nodeSelector", "affinity"))


def _process_memory(
    case: Case,  # noqa: ARG001 - every explanation is called alike
    pod: Manifest,
    state: ContainerState,
    target: ObjectRef,
    line: str,
) -> Finding:
    limit = str(dig(container_named(pod_spec(pod), state.name), "resources", "limits", "memory") or "")
    told = f"the process in container {state.name} of {target} has no memory left: {short(line)}"
    return Finding(
        family="process-memory",
        summary=f"{sentence(told)} (memory limit {limit or 'not set'}).",
        target=target,
        certainty=0.75,
        symptoms=("OOMKilled", "CrashLoopBackOff"),
        remedies=(RemedyKind.MORE_MEMORY, RemedyKind.RESTART),
        factors=(told,),
        workload=target,
        traits=frozenset({"oom"}),
        denied=frozenset({"node_memory"}),
        hints={"container": state.name, "memory_limit": limit, "new_memory": doubled(limit)},
    )


def _fragmented(case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str) -> Finding:  # noqa: ARG001 - every explanation is called alike
    told = f"the key-value store of {target} has used up its database quota: {short(line)}"
    return Finding(
        family="fragmentation",
        summary=f"{sentence(told)}.",
        target=target,
        certainty=0.78,
        symptoms=("EtcdHighFragmentation", "EtcdDatabaseQuota", "CrashLoopBackOff"),
        remedies=(RemedyKind.DEFRAGMENT,),
        factors=(told,),
        workload=target,
        traits=frozenset({"fragmentation"}),
    )


def _own_fault(family: str, what: str) -> Explain:
    """A fault in how the workload is put together: a rollback helps when a rollout brought it."""

    def explain(case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, line: str) -> Finding:  # noqa: ARG001 - every explanation is called alike
        told = f"container {state.name} of {target} {what}: {short(line)}"
        finding = Finding(
            family=family,
            summary=f"{sentence(told)}.",
            target=target,
            certainty=0.72,
            symptoms=("CrashLoopBackOff",),
            factors=(told,),
            workload=target,
            traits=frozenset({"application_error"}),
            denied=frozenset({"oom", "dependency_down"}),
            hints={"container": state.name},
        )
        changed = with_change(finding, last_change(case.facts, target))
        return replace(changed, certainty=0.84) if "healthy_before" in changed.traits else changed

    return explain


EXPLANATIONS: dict[Trouble, Explain] = {
    Trouble.EXEC_FORMAT: architecture,
    Trouble.REFUSAL: refusals.refusal_finding,
    Trouble.APP_MEMORY: _process_memory,
    Trouble.DISK_FULL: disks.disk_finding,
    Trouble.DB_FRAGMENTED: _fragmented,
    Trouble.CERTIFICATE: certificates.certificate_finding,
    Trouble.POOL: pools.pool_finding,
    Trouble.RBAC: permissions.rbac_finding,
    Trouble.MESH: mesh.denied_finding,
    Trouble.CREDENTIALS: credentials.credentials_finding,
    Trouble.MISSING_ENV: configs.missing_setting_finding,
    Trouble.ARGUMENTS: _own_fault("arguments", "does not accept its command line"),
    Trouble.CONFIG: configs.config_finding,
    Trouble.DNS: dependencies.dependency_finding,
    Trouble.DEPENDENCY: dependencies.dependency_finding,
    Trouble.READ_ONLY: permissions.file_finding,
    Trouble.PERMISSION: permissions.file_finding,
    Trouble.MISSING_FILE: configs.missing_file_finding,
    Trouble.CORRUPT: disks.corrupt_finding,
    Trouble.MIGRATION: _own_fault("schema", "expects another database schema than it finds"),
    Trouble.PORT_IN_USE: _own_fault("port", "cannot listen on its port"),
}
