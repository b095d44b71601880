"""How workloads, pods and revisions belong together, read from owner references, selectors and templates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from worker.domain.cluster.changes import differences, revision_number, revisions_of, template_of
from worker.domain.cluster.conditions import condition, holds
from worker.domain.cluster.detected_labels import ARGO_ANNOTATION, ARGO_LABEL, FLUX_LABELS
from worker.domain.cluster.fields import (
    controller_of,
    dig,
    mapping,
    mappings,
    meta,
    moment,
    name_of,
    pod_template,
    reference,
    sequence,
    strings,
    text,
    whole,
)
from worker.domain.cluster.kinds import REVISIONS_KEPT_AS, WORKLOADS
from worker.domain.cluster.pods import Container, containers, pod_failing
from worker.domain.cluster.references import references_of, selects
from worker.domain.diagnosis.causes import Diagnosis, Remedy, named
from worker.domain.diagnosis.facts import API_VERSIONS, ClusterFacts
from worker.domain.values.objects import Manifest, ObjectRef

MAX_DEPTH = 5
NAMED_BY_SPEC = {
    "ServiceAccount": "serviceAccountName", "PriorityClass": "priorityClassName", "RuntimeClass": "runtimeClassName",
}  # fmt: skip
GIVEN = frozenset({"", "default", "system-cluster-critical", "system-node-critical"})
"""Accounts and classes that Kubernetes makes again."""
SLACK = timedelta(minutes=2)  # clocks of API server, controllers and nodes differ


def ref_to(kind: str, name: str, namespace: str = "", api_version: str = "") -> ObjectRef:
    """A reference to an object of a built-in kind, with its API version."""
    return ObjectRef(kind, name, namespace, api_version or API_VERSIONS.get(kind, ""))


def owner_of(manifest: Manifest) -> ObjectRef | None:
    """The controlling owner of an object."""
    owner = controller_of(manifest)
    kind, name = text(owner.get("kind")), text(owner.get("name"))
    if not kind or not name:
        return None
    namespace = "" if kind == "Node" else reference(manifest).namespace
    return ObjectRef(kind, name, namespace, text(owner.get("apiVersion")), text(owner.get("uid")))


def chain_of(facts: ClusterFacts, manifest: Manifest) -> tuple[ObjectRef, ...]:
    """The object and its controlling owners, the top one last, as far as they are known."""
    chain = [reference(manifest)]
    current: Manifest | None = manifest
    while current is not None and len(chain) <= MAX_DEPTH:
        owner = owner_of(current)
        if owner is None or owner.kind == "Node" or any(named(owner) == named(known) for known in chain):
            break
        chain.append(owner)
        current = _owner(facts, owner)
    return tuple(chain)


def _owner(facts: ClusterFacts, owner: ObjectRef) -> Manifest | None:
    """The owner, if it is of a kind that usually has an owner itself. Others are not worth a read."""
    if owner.kind == "ReplicaSet":
        return _replica_set(facts, owner)
    return None if owner.kind in {"Deployment", "StatefulSet", "DaemonSet", "CronJob"} else facts.get(owner)


def _replica_set(facts: ClusterFacts, owner: ObjectRef) -> Manifest | None:
    listed = facts.list("ReplicaSet", owner.namespace)
    return next((item for item in listed.items if name_of(item) == owner.name), None)


def root_of(facts: ClusterFacts, pod: Manifest) -> ObjectRef:
    """The workload that a pod belongs to; the pod itself when nothing controls it."""
    return chain_of(facts, pod)[-1]


def pods_of(facts: ClusterFacts, workload: ObjectRef) -> list[Manifest]:
    """Pods of a workload of any kind, by the chain of owners, or by selector for kinds that own nothing."""
    listed = facts.list("Pod", workload.namespace).items
    if workload.kind == "Pod":
        return [pod for pod in listed if name_of(pod) == workload.name]
    owned = [pod for pod in listed if any(named(ref) == named(workload) for ref in chain_of(facts, pod))]
    if owned:
        return owned
    manifest = facts.get(workload) if workload.kind not in WORKLOADS else None
    selector = dig(manifest, "spec", "selector")
    if not isinstance(selector, dict) or not selector:
        return []
    rule = selector if {"matchLabels", "matchExpressions"} & selector.keys() else {"matchLabels": selector}
    return selected(facts, workload.namespace, rule)


def selected(facts: ClusterFacts, namespace: str, rule: Any) -> list[Manifest]:
    """The pods of a namespace that a label selector matches."""
    return [pod for pod in facts.list("Pod", namespace).items if selects(rule, labels_of(pod))]


def pods_behind(facts: ClusterFacts, service: Manifest | None) -> list[Manifest]:
    """The pods that a Service selects; none for one without a selector."""
    selector = strings(dig(service, "spec", "selector"))
    home = reference(service).namespace if service else ""
    return selected(facts, home, {"matchLabels": selector}) if selector else []


def labels_of(manifest: Manifest) -> dict[str, str]:
    """Labels of an object."""
    return strings(meta(manifest).get("labels"))


def sick_pods(facts: ClusterFacts, workload: ObjectRef) -> list[Manifest]:
    """Unhealthy pods of a workload. Finished pods that have been replaced are left out."""
    pods = pods_of(facts, workload)
    sick = [pod for pod in pods if pod_failing(pod)]
    if workload.kind in {"Job", "CronJob", "Pod"}:
        return sick
    healthy_after = max((at for pod in pods if not pod_failing(pod) and (at := created(pod))), default=None)
    return [pod for pod in sick if not _replaced(pod, healthy_after)]


def _replaced(pod: Manifest, healthy_after: datetime | None) -> bool:
    """A failed pod is only kept for its record once a younger pod of the same workload is well."""
    since = created(pod)
    failed = dig(pod, "status", "phase") == "Failed"
    return failed and healthy_after is not None and since is not None and healthy_after >= since


def created(manifest: Manifest) -> datetime | None:
    """The time at which an object was created."""
    return moment(meta(manifest).get("creationTimestamp"))


def changed(manifest: Manifest) -> datetime | None:
    """The last change of the content of an object, by the times of its field managers; else its creation.

    Pruned objects have the newest of these times in `metadata.lastChange`.
    """
    pruned = moment(dig(meta(manifest), "lastChange", "at"))
    times = [pruned] if pruned else []
    managed = [m for m in mappings(meta(manifest).get("managedFields")) if m.get("subresource") != "status"]
    times += [found for entry in managed if (found := moment(entry.get("time")))]
    return max([*times, *([when] if (when := created(manifest)) else [])], default=None)


def pod_spec_of(manifest: Manifest) -> dict[str, Any]:
    """The pod spec of a pod or of a workload's template."""
    if manifest.get("kind") == "Pod":
        return mapping(manifest.get("spec"))
    return mapping(pod_template(manifest).get("spec"))


def container_specs(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Containers and init containers of a pod spec."""
    return [*mappings(spec.get("initContainers")), *mappings(spec.get("containers"))]


def written_in(spec: dict[str, Any]) -> Iterator[str]:
    """Yield plain settings, commands and arguments of the containers of a pod spec."""
    for container in container_specs(spec):
        yield from (text(variable.get("value")) for variable in mappings(container.get("env")))
        yield from map(text, [*sequence(container.get("command")), *sequence(container.get("args"))])


def sick_containers(pod: Manifest) -> Iterator[Container]:
    """Yield containers that are unhealthy, or were restarted."""
    yield from (c for c in containers(pod) if c.kind != "ephemeral" and (c.failing or c.last))


def memory_limit(container: Container) -> str:
    """The memory limit of a container, empty if it has none."""
    return text(dig(container.spec, "resources", "limits", "memory"))


@dataclass(frozen=True, slots=True)
class Rollout:
    """The newest revision and the one to go back to. `lines` name the differing fields, since `began`."""

    newest: Manifest
    previous: Manifest
    lines: tuple[str, ...]
    began: datetime | None

    @property
    def revision(self) -> int:
        """The revision to go back to."""
        return revision_number(self.previous)

    @property
    def told(self) -> str:
        """The first differences, as field and values."""
        return "; ".join(line[:160] for line in self.lines[:4])

    def undoing(self, finding: Diagnosis) -> Diagnosis:
        """The finding, with a rollback among its remedies."""
        told = f"{finding.sentence[:-1]}; its newest revision changed {self.told}."
        remedies = finding.remedies | {Remedy.ROLL_BACK}
        return replace(finding, sentence=told, remedies=remedies, revision=self.revision)

    def touches(self, *words: str, container: str = "") -> bool:
        """True if a changed field has one of the words in its path, or as a key in its value.

        With `container`, fields of other containers do not count.
        """
        for line in self.lines:
            path = line.split(":", maxsplit=1)[0]
            inside = "ontainers[" in path
            if inside and container and f"[{container}]" not in path:
                continue
            if not words or any(word in path or f'"{word}"' in line for word in words):
                return True
        return False


def rollout_of(facts: ClusterFacts, workload: ObjectRef) -> Rollout | None:
    """The changes since the revision before the newest, or since the one that still runs well beside it.

    None without an earlier revision, when only marks differ, or when the workload was unavailable before.
    """
    found = [(r, template) for r in revisions(facts, workload) if (template := template_of(r))]
    well = [pod for pod in pods_of(facts, workload) if not pod_failing(pod)] if len(found) > 1 else []
    ran = [entry for entry in found[:-1] if any(made_by(facts, pod, entry[0]) for pod in well)]
    for previous, before in reversed(ran or found[:-1]):
        if lines := _telling(differences(before, found[-1][1])):
            began = created(found[found.index((previous, before)) + 1][0])
            failed = unavailable_since(facts.get(workload))
            earlier = began is not None and failed is not None and failed < began - SLACK
            return None if earlier else Rollout(found[-1][0], previous, tuple(lines), began)
    return None


def needed(spec: dict[str, Any]) -> set[tuple[str, str]]:
    """Kind and name of what pods of a spec cannot be made or started without.

    Secrets are left out, because they are not read, and the account `default`, which each namespace gets again.
    """
    used = references_of(spec)
    maps = {("ConfigMap", name) for name in used.config_maps if name not in used.optional}
    claims = {("PersistentVolumeClaim", name) for name in used.claims}
    others = {(kind, text(spec.get(field))) for kind, field in NAMED_BY_SPEC.items()}
    return maps | claims | {(kind, name) for kind, name in others if name not in GIVEN}


def unavailable_since(manifest: Manifest | None) -> datetime | None:
    """Return since when a workload has been unavailable: before that it was available."""
    down = condition(manifest, "Available") if holds(manifest, "Available", "False") else {}
    return moment(down.get("lastTransitionTime"))


def revisions(facts: ClusterFacts, workload: ObjectRef) -> list[Manifest]:
    """The revisions of a workload, oldest first; none for a kind that keeps none."""
    kind = REVISIONS_KEPT_AS.get(workload.kind)
    return list(revisions_of(workload, facts.list(kind, workload.namespace).items)) if kind else []


def former_spec(facts: ClusterFacts, workload: ObjectRef, number: int) -> dict[str, Any]:
    """The pod spec of a revision of a workload; empty if there is none of this number."""
    found = (r for r in revisions(facts, workload) if number and revision_number(r) == number)
    return mapping(template_of(next(found, {})).get("spec"))


def made_by(facts: ClusterFacts, pod: Manifest, revision: Manifest) -> bool:
    """True if a revision made the pod. Pods of a StatefulSet or DaemonSet name their revision in a label."""
    made = reference(revision)
    if made.kind == "ReplicaSet":
        return any(named(ref) == named(made) for ref in chain_of(facts, pod))
    written = text(dig(pod, "metadata", "labels", "controller-revision-hash"))
    return written in {"", made.name, made.name.rpartition("-")[2]}


LATELY = timedelta(hours=48)
"""How long a change may take to show: a changed ConfigMap takes effect at the next start."""


def lately(facts: ClusterFacts, change: datetime | None) -> bool:
    """True if a change is young enough to matter now, or its time is not known."""
    return facts.now is None or change is None or facts.now - change <= LATELY


def template_since(facts: ClusterFacts, workload: ObjectRef, pod: Manifest) -> datetime | None:
    """Since when the template of the pod has been in use; a mere restart does not change it."""
    for ref in chain_of(facts, pod):
        if ref.kind == "ReplicaSet":
            owner = _replica_set(facts, ref)
            return _same_since(facts, workload, owner) if owner else None
    manifest = facts.get(workload)
    return created(manifest) if manifest else None


def _same_since(facts: ClusterFacts, workload: ObjectRef, revision: Manifest) -> datetime | None:
    template, others = template_of(revision), revisions(facts, workload)
    alike = [other for other in others if not _telling(differences(template_of(other), template))]
    return min((at for r in [*alike, revision] if (at := created(r))), default=None)


def _telling(lines: Sequence[str]) -> list[str]:
    """Differences between templates, without those of labels and annotations."""
    return [line for line in lines if not line.startswith(("metadata.annotations", "metadata.labels"))]


def replica_sets_of(facts: ClusterFacts, workload: ObjectRef) -> list[ObjectRef]:
    """The ReplicaSets of a Deployment: they create its pods."""
    replicated = REVISIONS_KEPT_AS.get(workload.kind) == "ReplicaSet"
    return [reference(r) for r in revisions(facts, workload)] if replicated else []


def has_progressed(manifest: Manifest) -> bool:
    """True if the Deployment controller states that the present revision has become available."""
    return text(condition(manifest, "Progressing").get("reason")) == "NewReplicaSetAvailable"


def was_available(facts: ClusterFacts, workload: ObjectRef) -> bool:
    """True if controllers state that the workload was available at some time after it was made."""
    manifest = facts.get(workload)
    made = created(manifest) if manifest else None
    if manifest is None or made is None:
        return False
    since = moment(condition(manifest, "Available").get("lastTransitionTime"))
    later = since is not None and since > made + timedelta(minutes=1)
    worked = has_progressed(manifest) or holds(manifest, "Available") or later
    return worked or any(whole(dig(manifest, "status", key)) for key in ("readyReplicas", "numberReady"))


PULLING = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)


def observed(facts: ClusterFacts, workload: ObjectRef, pod: Manifest) -> tuple[str, ...]:
    """Signal types that a pod and its workload show now, the most telling first."""
    found: list[str] = []
    manifest = facts.get(workload) if workload.kind != "Pod" else None
    jobs = [ref for ref in chain_of(facts, pod) if ref.kind == "Job"]
    found += [reason for ref in jobs if (reason := text(condition(facts.get(ref), "Failed").get("reason")))]
    found += ["FailedScheduling"] if holds(pod, "PodScheduled", "False") else []
    for container in containers(pod):
        waiting = text(container.waiting.get("reason"))
        ended = container.terminated or container.last
        if container.failing and text(ended.get("reason")) == "OOMKilled":
            found.append("OOMKilled")
        elif waiting in PULLING:
            found.append("ImagePullBackOff")
        elif waiting in {"CrashLoopBackOff", "RunContainerError"} or (
            container.failing and ended and container.restarts
        ):
            found.append("CrashLoopBackOff")
    about = facts.events(workload.namespace, reference(pod))
    found += ["FailedMount" for e in about if e.reason in {"FailedMount", "FailedAttachVolume"}][:1]
    if text(condition(manifest, "Progressing").get("reason")) == "ProgressDeadlineExceeded":
        found.append("ProgressDeadlineExceeded")
    return tuple(dict.fromkeys(found))


GITOPS_MARKS = (ARGO_ANNOTATION, ARGO_LABEL, *FLUX_LABELS)
"""Keys that GitOps tools put on what they own. Only their presence counts."""
GITOPS_WRITERS = frozenset({"argocd-controller", "kustomize-controller", "helm-controller"})
"""Names by which GitOps tools own fields. Argo CD may mark what it owns with a label that others use, too."""


def gitops_managed(facts: ClusterFacts, *refs: ObjectRef) -> bool:
    """True if a GitOps tool would put back a change of one of the objects."""
    heads = [meta(facts.get(ref)) for ref in refs if ref.kind != "Secret"]
    keys = {key for h in heads for field in ("annotations", "labels") for key in mapping(h.get(field))}
    writers = {text(entry.get("manager")) for h in heads for entry in mappings(h.get("managedFields"))}
    return not keys.isdisjoint(GITOPS_MARKS) or not writers.isdisjoint(GITOPS_WRITERS)


def changed_by_hand(manifest: Manifest) -> bool:
    """True if somebody else has written the pod spec or the data of an object after a GitOps tool."""
    entries = mappings(meta(manifest).get("managedFields"))
    fields = [("f:spec", "f:template", "f:spec"), ("f:data",)]
    wrote = [e for e in entries if any(dig(e, "fieldsV1", *path) for path in fields)]
    names = [text(e.get("manager")) for e in sorted(wrote, key=lambda e: text(e.get("time")))]
    return not GITOPS_WRITERS.isdisjoint(names) and names[-1] not in GITOPS_WRITERS
