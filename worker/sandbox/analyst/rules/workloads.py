"""From a workload to the pods that suffer, and to what may be wrong when none does."""

from __future__ import annotations

import re
from collections.abc import Callable

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding
from worker.sandbox.analyst.refs import as_dict, dig, make_ref, owners_of
from worker.sandbox.analyst.rules import creation, idle, jobs, pods, rollouts, running
from worker.sandbox.analyst.rules.case import Case
from worker.sandbox.analyst.shapes import labels_of, selects

FINE = frozenset({"Running", "Completed", "Succeeded"})
READY = re.compile(r"^(\d+)/(\d+)$")
MAX_PODS = 2
RANK = ("OOMKilled", "CrashLoopBackOff", "Error", "ImagePullBackOff", "ErrImagePull", "CreateContainer", "Init:",
        "Evicted", "Pending", "ContainerCreating", "Terminating")  # fmt: skip


def diagnose_workload(case: Case, ref: ObjectRef) -> Finding | None:
    """The cause behind the state of a Deployment, StatefulSet, DaemonSet, ReplicaSet or a custom owner of pods."""
    manifest = case.facts.of(ref)
    sick = sick_pods(case.facts, ref, manifest)
    if not sick and case.facts.wanted:
        rollouts.last_change(case.facts, ref)  # its revisions are asked for together with its pods
    for pod in sick[:MAX_PODS]:
        finding = pods.diagnose_pod(case, pod, workload=root_workload(case.facts, pod) or ref)
        if finding is not None:
            return finding
    steps: tuple[Callable[[Case, ObjectRef, Manifest | None], Finding | None], ...] = (
        creation.creation_finding,
        jobs.suspended_finding,
        idle.scaled_down_finding,
        running.running_finding,
    )
    for step in steps:
        finding = step(case, ref, manifest)
        if finding is not None:
            return finding
    return None


def root_workload(facts: Facts, pod: Manifest) -> ObjectRef | None:
    """What the pod belongs to in the end. A ReplicaSet that cannot be read still tells its Deployment by its name."""
    root = facts.root_of(pod, ask=False)
    if root is None or root.kind == "Node":  # a static pod belongs to its node's kubelet
        return None
    if root.kind == "ReplicaSet":
        suffix = labels_of(pod).get("pod-template-hash", "")
        name = root.name.removesuffix(f"-{suffix}")
        if name != root.name and not facts.absent("Deployment", name, root.namespace):
            return make_ref("Deployment", name, root.namespace)
        return facts.root_of(pod) or root
    return root


def sick_pods(facts: Facts, ref: ObjectRef, manifest: Manifest | None) -> list[Manifest]:
    """Pods of the workload that are not well, the worst first. Asks for those that are only known from a listing."""
    known_rows = facts.rows("Pod", ref.namespace, ask=not facts.listed_for(ref, "Pod"))
    rows = [r for r in known_rows if belongs(r, ref) and not row_is_well(r)]
    rows.sort(key=lambda r: (_alerted(facts, r.get("NAME", "")), _rank(r.get("STATUS", ""))))
    for row in rows[:MAX_PODS]:
        if facts.get("Pod", row["NAME"], ref.namespace) is None and row.get("RESTARTS", "0") != "0":
            facts.log(ref.namespace, row["NAME"], previous=True)
    known = [
        p
        for p in facts.objects("Pod", ref.namespace)
        if owned_by(facts, p, ref, manifest) and not pods.well(p)
    ]
    known.sort(key=lambda p: (_alerted(facts, _name(p)), pods.badness(p)))
    return known


def row_is_well(row: dict[str, str]) -> bool:
    """Whether a row of a pod listing shows a pod that runs with all containers ready, or that has finished."""
    if row.get("STATUS") not in FINE:
        return False
    ready = READY.match(row.get("READY", ""))
    return row.get("STATUS") != "Running" or ready is None or ready[1] == ready[2]


def belongs(row: dict[str, str], ref: ObjectRef) -> bool:
    """Whether a row of a pod listing is a pod of the workload, by its owner or by how its name is made."""
    owner = row.get("OWNER", "")
    kind, _, name = owner.rpartition("/")
    if owner and kind:
        if name == ref.name and kind.lower() == ref.kind.lower():
            return True
        stem = name.rpartition("-")[0]
        return stem == ref.name and {"ReplicaSet": "Deployment", "Job": "CronJob"}.get(kind, "") == ref.kind
    return bool(re.fullmatch(rf"{re.escape(ref.name)}(?:-[a-z0-9]{{1,12}}){{1,2}}", row.get("NAME", "")))


def owned_by(facts: Facts, pod: Manifest, ref: ObjectRef, manifest: Manifest | None) -> bool:
    """Whether the pod belongs to the workload: an owner on the way up, or its selector."""
    owners = owners_of(pod)
    root = root_workload(facts, pod)
    if root is not None and (root.kind.lower(), root.name) == (ref.kind.lower(), ref.name):
        return True
    if any((o.kind.lower(), o.name) == (ref.kind.lower(), ref.name) for o in owners):
        return True
    selector = dig(as_dict(manifest), "spec", "selector")
    return not owners and isinstance(selector, dict) and selects(selector, labels_of(pod))


def _name(pod: Manifest) -> str:
    return str(dig(pod, "metadata", "name") or "")


def _alerted(facts: Facts, name: str) -> bool:
    incident = facts.incident
    return (
        name not in incident.message
        and name not in incident.labels.values()
        and name != incident.resource.name
    )


def _rank(status: str) -> int:
    return next((i for i, word in enumerate(RANK) if word in status), len(RANK))
