"""Small clusters in one state each, and what the rules say about them."""

from __future__ import annotations

from typing import Any

from tests.fakes.manifests import NOW, crashing, deployment, obj, pod, replica_set, template
from tests.fakes.memory_cluster import MemoryCluster
from worker.domain.cluster.fields import reference
from worker.domain.diagnosis.actions import ProposedAction
from worker.domain.diagnosis.causes import Diagnosis, named
from worker.domain.diagnosis.claims import Claim, ClaimVerdict, corroborate, diagnose
from worker.domain.diagnosis.driver import Investigator
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.values.objects import Manifest, ObjectRef
from worker.domain.values.workflows import Workflow


def blames(finding: Diagnosis, ref: ObjectRef) -> bool:
    """Whether an answer may blame the object for the finding."""
    return any(named(ref) == named(subject) for subject in finding.subjects)


async def findings(*manifests: Manifest, about: Manifest | ObjectRef) -> tuple[Diagnosis, ...]:
    """What stands and the rest, for a signal about an object."""
    signal = about if isinstance(about, ObjectRef) else reference(about)
    facts = ClusterFacts(now=NOW)
    return await Investigator(MemoryCluster(manifests)).conclude(facts, lambda f: diagnose(f, signal))


async def judged(*manifests: Manifest, about: Manifest, claim: Claim) -> ClaimVerdict:
    """The verdict on a claim."""
    facts = ClusterFacts(now=NOW)
    signal = reference(about)
    return await Investigator(MemoryCluster(manifests)).conclude(
        facts, lambda f: corroborate(f, signal, claim)
    )


def claim(blamed: Manifest, action_type: str = "", **fields: Any) -> Claim:
    """An answer that blames an object and, with an action type, wants something done to it."""
    ref = reference(blamed)
    if not action_type:
        return Claim(ref)
    labels = fields.pop("labels", {})
    workflow = Workflow("some-v1", action_type, labels=labels)
    return Claim(ref, ProposedAction(workflow, targets=fields.pop("targets", (ref,)), **fields))


def workload(name: str = "api", *, status: dict[str, Any] | None = None, **container: Any) -> list[Manifest]:
    """A Deployment with one revision and one pod, which crashes unless a status says otherwise."""
    owner = deployment(name)
    owner["spec"]["template"] = template(name, **container)
    revision = replica_set(owner, "aa", 1, **container)
    return [owner, revision, pod_of(revision, name, status=status or crashing(), **container)]


def pod_of(
    revision: Manifest, name: str, suffix: str = "p1", *, status: dict[str, Any], **container: Any
) -> Manifest:
    """A pod that a revision made."""
    spec = {**template(name, **container)["spec"], "nodeName": "node-1"}
    return pod(
        f"{revision['metadata']['name']}-{suffix}",
        status=status,
        spec=spec,
        owner=revision,
        labels={"app": name},
    )


def service(name: str, port: int = 80, target: int | str = 8080, **spec: Any) -> Manifest:
    """A Service that selects app=<name>."""
    ports = [{"port": port, "targetPort": target, "protocol": "TCP"}]
    return obj("Service", name, spec={"selector": {"app": name}, "ports": ports, **spec})


def node(name: str = "node-1", **fields: Any) -> Manifest:
    """A node in good health with 4 cores and 8 GiB; `conditions` replaces its conditions."""
    conditions = fields.pop("conditions", [{"type": "Ready", "status": "True", "reason": "KubeletReady"}])
    allocatable = fields.pop("allocatable", {"cpu": "4", "memory": "8Gi", "pods": "110"})
    labels = fields.pop("labels", {"kubernetes.io/hostname": name})
    return obj(
        "Node",
        name,
        "",
        labels=labels,
        spec=fields,
        status={"conditions": conditions, "allocatable": allocatable},
    )


def waiting(reason: str, message: str = "", phase: str = "Pending") -> dict[str, Any]:
    """The status of a pod whose container waits."""
    return {
        "phase": phase,
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}],
        "containerStatuses": [
            {
                "name": "app",
                "ready": False,
                "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": message}},
            }
        ],
    }


def unscheduled(message: str = "") -> dict[str, Any]:
    """The status of a pod that no node takes."""
    found = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [found]}
