"""The same pods under an owner of another kind: StatefulSet, DaemonSet, Argo Rollout, or a custom resource."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.variants.content import CaseContent, map_text, name_of, namespace_of, place_of
from worker.domain.diagnosis.actions import remedies_of
from worker.domain.diagnosis.causes import Remedy
from worker.domain.values.objects import Manifest
from worker.domain.values.workflows import Workflow

REVISION = "deployment.kubernetes.io/revision"
HASH = "pod-template-hash"


@dataclass(frozen=True)
class OwnerKind:
    """A kind of owner. `revisions` is the kind in which it keeps its templates, empty for none."""

    kind: str
    api_version: str
    revisions: str


STATEFUL_SET = OwnerKind("StatefulSet", "apps/v1", "ControllerRevision")
DAEMON_SET = OwnerKind("DaemonSet", "apps/v1", "ControllerRevision")
ROLLOUT = OwnerKind("Rollout", "argoproj.io/v1alpha1", "ReplicaSet")
CUSTOM = OwnerKind("CloneSet", "apps.kruise.io/v1alpha1", "")


def change_owner(content: CaseContent, to: OwnerKind) -> CaseContent | None:
    """The Deployment of the case as another kind, with workflows that cover it; None where the case has none to change."""
    name = _deployment(content, to)
    if name is None:
        return None
    found = content.copy()
    owner = found.find(name)
    assert owner is not None
    if to is ROLLOUT:
        for replica_set in found.owned_by(owner, "ReplicaSet"):
            marks = replica_set["metadata"].get("annotations") or {}
            if REVISION in marks:
                marks["rollout.argoproj.io/revision"] = marks.pop(REVISION)
    else:
        found = _without_replica_sets(found, owner, to)
    _name_kind(found, owner, to)
    owner["kind"], owner["apiVersion"] = to.kind, to.api_version
    found = replace(found, workflows=tuple(_covering(w, to) for w in found.workflows))
    _accept_others(found, to)
    return found


def _deployment(content: CaseContent, to: OwnerKind) -> tuple[str, str, str] | None:
    """The Deployment that is to blame, else the one that the alert is about."""
    blamed = content.expected["affected_resource"]
    places = [(blamed["kind"], blamed.get("namespace") or "", blamed["name"]), content.signal]
    owner = next((m for p in places if (m := content.find(p)) and m["kind"] == "Deployment"), None)
    if owner is None or namespace_of(owner) == "kube-system":
        return None
    pods = content.pods_of(owner)
    if to in (DAEMON_SET, CUSTOM) and not (pods and all(p["spec"].get("nodeName") for p in pods)):
        return None  # a DaemonSet's pods are bound to their nodes; nothing is known of what a controller failed to make
    return place_of(owner)


def _without_replica_sets(found: CaseContent, owner: Manifest, to: OwnerKind) -> CaseContent:
    """Pods that the owner makes itself, and revisions as it keeps them."""
    sets = found.owned_by(owner, "ReplicaSet")
    hashes = {
        name_of(s): s["metadata"].get("labels", {}).get(HASH) or name_of(s).rpartition("-")[2] for s in sets
    }
    pods = {name_of(s): found.owned_by(s, "Pod") for s in sets}
    for made in sets:
        for pod in pods[name_of(made)]:
            pod["metadata"]["ownerReferences"] = [_reference(owner)]
            labels = pod["metadata"].setdefault("labels", {})
            labels.pop(HASH, None)
            if to.revisions:
                labels["controller-revision-hash"] = f"{name_of(owner)}-{hashes[name_of(made)]}"
    kept = [o for o in found.objects if not any(o is s for s in sets)]
    if to.revisions:
        kept += [_revision(s, owner, hashes[name_of(s)]) for s in sets]
    kept += list(_refusals(owner, found))
    names = {name_of(s) for s in sets}
    for event in kept:
        about = event.get("involvedObject") or {}
        if about.get("kind") == "ReplicaSet" and about.get("name") in names:
            about |= {"kind": "Deployment", "name": name_of(owner), "uid": owner["metadata"].get("uid", "")}
    count = owner["spec"].get("replicas", 1)
    by_age = sorted(sets, key=lambda s: int((s["metadata"].get("annotations") or {}).get(REVISION, "1")))
    _rewrite_status(owner, count, [hashes[name_of(s)] for s in by_age], to)
    found = replace(found, objects=kept)
    return (
        _ordinals(found, [p for made in pods.values() for p in made], owner) if to is STATEFUL_SET else found
    )


def _reference(owner: Manifest) -> dict[str, Any]:
    names = {"name": name_of(owner), "uid": owner["metadata"].get("uid", "")}
    return {"apiVersion": "apps/v1", "kind": "Deployment", **names, "controller": True}


def _revision(replica_set: Manifest, owner: Manifest, digest: str) -> Manifest:
    head = replica_set["metadata"]
    number = (head.get("annotations") or {}).get(REVISION, "1")
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{name_of(owner)}-{digest}",
            "namespace": namespace_of(owner),
            "uid": head.get("uid", digest),
            "creationTimestamp": head.get("creationTimestamp"),
            "ownerReferences": [_reference(owner)],
        },
        "revision": int(number),
        "data": {"spec": {"template": {**replica_set["spec"].get("template", {}), "$patch": "replace"}}},
    }


def _refusals(owner: Manifest, found: CaseContent) -> Iterator[Manifest]:
    """What a Deployment states in a condition, other controllers report as an event."""
    for condition in (owner.get("status") or {}).get("conditions", ()):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            at = condition.get("lastTransitionTime") or found.incident.get("received_time")
            yield {
                "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "FailedCreate", "count": 9,
                "metadata": {"name": f"{name_of(owner)}.refused", "namespace": namespace_of(owner)},
                "message": condition.get("message", ""), "firstTimestamp": at, "lastTimestamp": at,
                "involvedObject": {**_reference(owner), "namespace": namespace_of(owner)},
            }  # fmt: skip


def _rewrite_status(owner: Manifest, count: int, revisions: list[str], to: OwnerKind) -> None:
    status = owner.get("status") or {}
    status.pop("conditions", None)
    owner["spec"].pop("progressDeadlineSeconds", None)
    owner["spec"].pop("strategy", None)
    if to is STATEFUL_SET:
        owner["spec"]["serviceName"] = name_of(owner)
        if len(revisions) > 1:  # its controller states which revision was the last one that all pods ran with
            current, update = (f"{name_of(owner)}-{digest}" for digest in revisions[-2:])
            status |= {"currentRevision": current, "updateRevision": update}
    if to is DAEMON_SET:
        owner["spec"].pop("replicas", None)
        ready = status.get("readyReplicas", 0)
        scheduled = ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled")
        status = {**dict.fromkeys(scheduled, count), "numberReady": ready, "numberUnavailable": count - ready}
    owner["status"] = status


def _ordinals(found: CaseContent, pods: list[Manifest], owner: Manifest) -> CaseContent:
    """Pods of a StatefulSet are numbered."""
    new = {name_of(pod): f"{name_of(owner)}-{n}" for n, pod in enumerate(pods)}

    def renamed(text: str) -> str:
        for old, name in new.items():
            text = text.replace(old, name)
        return text

    logs = {(ns, new.get(pod, pod), c, p): text for (ns, pod, c, p), text in found.logs.items()}
    objects = map_text(found.objects, renamed)
    for before, after in zip(found.objects, objects, strict=True):
        before.clear()
        before.update(after)
    return replace(
        found,
        incident=map_text(found.incident, renamed),
        expected=map_text(found.expected, renamed),
        logs=logs,
    )


def _name_kind(found: CaseContent, owner: Manifest, to: OwnerKind) -> None:
    """Give every reference to the Deployment its new kind: of owners, autoscalers, events, the alert and the answer."""

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if value.get("kind") == "Deployment" and value.get("name") == name_of(owner):
                value["kind"] = to.kind
                value |= {"apiVersion": to.api_version} if "apiVersion" in value else {}
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk([o.get(key) for o in found.objects for key in ("metadata", "spec", "involvedObject")])
    walk(found.expected)
    given = found.incident
    if given["resource_kind"] == "Deployment" and given["resource_name"] == name_of(owner):
        given["resource_kind"] = to.kind
        if to.api_version != "apps/v1":
            given["resource_api_version"] = to.api_version


def _accept_others(found: CaseContent, to: OwnerKind) -> None:
    """Workflows for the new kind that do the same; none where nothing can act: no state says which revision worked, or
    parameters name a Deployment."""
    accepted = found.expected["workflows"]["acceptable"]
    known = [w for w in found.workflows if w.workflow_id in accepted]
    remedies = frozenset().union(*(remedies_of(w.action_type) for w in known))
    same = [w for w in found.workflows if remedies_of(w.action_type) & remedies and w not in known]
    if accepted and not any(_can_act(w, to) for w in known) and "(none)" not in accepted:
        accepted.append("(none)")
    accepted += [
        w.workflow_id for w in same if any(c.endswith(f"/{to.kind}") for c in w.labels.get("component", ()))
    ]
    if to is not ROLLOUT and found.expected["signal_type"] == "ProgressDeadlineExceeded":
        found.expected["signal_type"] = ""  # only Deployments and Rollouts state that


def _can_act(workflow: Workflow, to: OwnerKind) -> bool:
    named = any("DEPLOYMENT" in p.name for p in workflow.parameters)
    return not named and (
        to in {STATEFUL_SET, ROLLOUT} or Remedy.ROLL_BACK not in remedies_of(workflow.action_type)
    )


def _covering(workflow: Workflow, to: OwnerKind) -> Workflow:
    """The workflow, covering the new kind where it covers Deployments."""
    component = workflow.labels.get("component", ())
    if not any(c.endswith("/Deployment") for c in component):
        return workflow
    parameters = tuple(
        replace(p, enum=(*p.enum, to.kind)) if "Deployment" in p.enum and to.kind not in p.enum else p
        for p in workflow.parameters
    )
    labels = {
        **workflow.labels,
        "component": tuple(dict.fromkeys((*component, f"{to.api_version}/{to.kind}"))),
    }
    return replace(workflow, labels=labels, parameters=parameters)
