"""Compares the newest revisions of a workload field by field.

A Deployment keeps its revisions as ReplicaSets, a StatefulSet or DaemonSet as ControllerRevisions (Kubernetes
API).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from worker.domain.cluster.fields import controller_of, dig, mapping, meta, name_of, strings, text, whole
from worker.domain.cluster.kinds import REVISIONS_KEPT_AS
from worker.domain.cluster.references import selector_of
from worker.domain.cluster.rendering.compact import to_json
from worker.domain.cluster.rendering.prune import prune
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import ListQuery, Manifest, ObjectRef
from worker.domain.values.ports import Cluster

REVISIONS = ("deployment.kubernetes.io/revision", "rollout.argoproj.io/revision")
MAX_COMPARED = 3  # pairs of neighbouring revisions
MAX_LINES = 16  # differences shown of one pair
MAX_VALUE = 140  # characters
MAX_DEPTH = 14
NOISE = ("metadata.labels.pod-template-hash", "metadata.labels.controller-revision-hash")


async def read_changes(cluster: Cluster, workload: ObjectRef) -> list[str]:
    """Lines about the changes of the newest revisions of a workload.

    Empty for a kind without revisions. Raises ClusterError.
    """
    kind = REVISIONS_KEPT_AS.get(workload.kind)
    if kind is None:
        return []
    listing = await cluster.list(ListQuery(kind, workload.namespace))
    if not listing.complete:
        selector = await selector_of(cluster, workload)
        listing = await cluster.list(ListQuery(kind, workload.namespace, label_selector=selector))
    if not listing.complete:
        raise ClusterError(ClusterReason.UNAVAILABLE, f"more objects of kind {kind} than were read")
    return describe_changes(revisions_of(workload, listing.items))


def revisions_of(owner: ObjectRef, candidates: Sequence[Manifest]) -> list[Manifest]:
    """The revisions that belong to a workload, oldest first."""
    mine = []
    for candidate in candidates:
        by = controller_of(candidate)
        same = text(by.get("kind")) == owner.kind and text(by.get("name")) == owner.name
        if same and (not owner.uid or not by.get("uid") or by.get("uid") == owner.uid):
            mine.append(candidate)
    return sorted(mine, key=lambda m: (revision_number(m), text(meta(m).get("creationTimestamp"))))


def revision_number(manifest: Manifest) -> int:
    """The revision number of a ReplicaSet or ControllerRevision; 0 if it does not say."""
    marks = strings(meta(manifest).get("annotations"))
    number = next((marks[key] for key in REVISIONS if key in marks), "")
    return int(number) if number.isdecimal() and len(number) < 12 else whole(manifest.get("revision"))


def template_of(revision: Manifest) -> dict[str, Any]:
    """The pod template of a revision, pruned."""
    found = dig(revision, "spec", "template") or dig(revision, "data", "spec", "template")
    pruned = prune({"kind": "ReplicaSet", "spec": {"template": mapping(found)}})
    return mapping(dig(pruned, "spec", "template"))


def describe_changes(revisions: Sequence[Manifest]) -> list[str]:
    """Lines that tell what the newest revisions changed, newest first; the last line names the oldest one.

    Empty when there is only one revision.
    """
    lines: list[str] = []
    newest = [(revision, template_of(revision)) for revision in revisions[-(MAX_COMPARED + 1) :]]
    for (_, before), (new, after) in reversed(list(itertools.pairwise(newest))):
        lines.append(f"{_named(new)} changed:")
        found = differences(before, after)
        lines += [f"  {line}" for line in found[:MAX_LINES]] or ["  nothing in the template"]
        if len(found) > MAX_LINES:
            lines.append(f"  and {len(found) - MAX_LINES} more differences")
    return [*lines, _named(newest[0][0])] if lines else []


def _named(revision: Manifest) -> str:
    """`revision 4 (created TIME, ReplicaSet api-7d9, 0/1 ready)`.

    Without the name if the ReplicaSet has no pods.
    """
    told = [f"created {text(meta(revision).get('creationTimestamp'))}"]
    wanted = whole(dig(revision, "spec", "replicas"))
    if revision.get("kind") == "ReplicaSet" and not wanted:
        told.append("scaled to 0")
    else:
        told.append(f"{text(revision.get('kind'))} {name_of(revision)}")
    if wanted:
        told.append(f"{whole(dig(revision, 'status', 'readyReplicas'))}/{wanted} ready")
    return f"revision {revision_number(revision)} ({', '.join(told)})"


def differences(old: Any, new: Any) -> list[str]:
    """`spec.containers[app].image: a:1 -> a:2` for each field that differs.

    Elements of arrays are matched by name.
    """
    return [line for line in _differences(old, new, "", 0) if not line.startswith(NOISE)]


def _differences(old: Any, new: Any, path: str, depth: int) -> list[str]:
    if old == new:
        return []
    before, after = _members(old), _members(new)
    if before is None or after is None or depth > MAX_DEPTH:
        return [f"{path or 'template'}: {_shown(old)} -> {_shown(new)}"]
    lines: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        deeper = f"{path}{key}" if key.startswith("[") else f"{path}.{key}" if path else key
        lines += _differences(before.get(key), after.get(key), deeper, depth + 1)
    return lines


def _members(value: Any) -> dict[str, Any] | None:
    """Members by key: of an object, or of an array whose elements all have names of their own."""
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, list) and value:
        names = [text(mapping(item).get("name")) or text(mapping(item).get("mountPath")) for item in value]
        if all(names) and len(set(names)) == len(names):
            return {f"[{name}]": item for name, item in zip(names, value, strict=True)}
    return None


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    return one_line(value if isinstance(value, str) else to_json(value), MAX_VALUE)
