"""Finds the pods that an object of any kind has made, directly or not, by owner references and selectors.

A DeploymentConfig has its pods through ReplicationControllers, a Knative Service through four kinds, a custom
resource through the StatefulSet of its operator. No such kind is known here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from worker.domain.cluster.fields import dig, mapping, mappings, name_of, owner_of, referred, strings, text
from worker.domain.cluster.kinds import MADE_NAMES, belongs_by_name, built_in
from worker.domain.cluster.owners import MAX_OWNERS
from worker.domain.cluster.references import selects
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import or_none
from worker.domain.values.objects import ListQuery, Manifest, ObjectRef
from worker.domain.values.ports import Cluster

MAX_READ = 12
"""How many owners of custom kinds, and how many built-in kinds, are read on one level."""
AT_ONCE = 8
CREATED_OR_DELETED = ("SuccessfulCreate", "SuccessfulDelete")
EQUALS = re.compile(r"([^,=!\s]+)==?([^,=!\s]*)")

Name = tuple[str, str]
"""Kind and name of an object in the namespace."""


async def descent(
    cluster: Cluster, owner: ObjectRef, pods: Sequence[Manifest]
) -> tuple[frozenset[str], tuple[ObjectRef, ...]]:
    """The names of the pods that belong to the owner, and the objects between them and the owner.

    Pods belong to it by their owner references and those of their owners.

    Never raises ClusterError: references of objects that cannot be read are not followed.
    """
    known: dict[Name, ObjectRef | None] = {
        ("Pod", name_of(pod)): _owner(pod, owner.namespace) for pod in pods
    }
    for _ in range(MAX_OWNERS):
        above = {(ref.kind, ref.name): ref for ref in known.values() if ref and not _same(ref, owner)}
        unread = [ref for name, ref in above.items() if name not in known]
        if not unread:
            break
        known |= dict.fromkeys(((ref.kind, ref.name) for ref in unread), None)
        for found in await _read(cluster, unread):
            known[text(found.get("kind")), name_of(found)] = _owner(found, owner.namespace)
    members = {name for name in known if _leads_to(name, owner, known)}
    between = [ref for ref in dict.fromkeys(known.values()) if ref and (ref.kind, ref.name) in members]
    return frozenset(name for kind, name in members if kind == "Pod"), tuple(between)


def _owner(manifest: Manifest, namespace: str) -> ObjectRef | None:
    """The controller, or the first owner if none is marked as controller."""
    found = referred(owner_of(manifest), namespace)
    return found if found.kind and found.name else None


def _same(ref: ObjectRef, owner: ObjectRef) -> bool:
    groups = {one.api_version.rpartition("/")[0] for one in (ref, owner) if one.api_version}
    return (ref.kind, ref.name) == (owner.kind, owner.name) and len(groups) < 2


def _leads_to(name: Name, owner: ObjectRef, known: dict[Name, ObjectRef | None]) -> bool:
    for _ in range(MAX_OWNERS + 1):
        above = known.get(name)
        if above is None:
            return False
        if _same(above, owner):
            return True
        name = above.kind, above.name
    return False


async def _read(cluster: Cluster, refs: Sequence[ObjectRef]) -> list[Manifest]:
    """Read built-in kinds by one list each, others by name, because the worker may only `get` those."""
    kinds = {(ref.kind, ref.api_version) for ref in refs if built_in(ref.kind.lower(), ref.api_version)}
    custom = [ref for ref in refs if (ref.kind, ref.api_version) not in kinds][:MAX_READ]
    namespace = refs[0].namespace
    lists = [
        _list(cluster, ListQuery(kind, namespace, version)) for kind, version in sorted(kinds)[:MAX_READ]
    ]
    found = await concurrently([*lists, *(_get(cluster, ref) for ref in custom)], at_once=AT_ONCE)
    return [manifest for answer in found for manifest in answer]


async def _list(cluster: Cluster, query: ListQuery) -> Sequence[Manifest]:
    listing = await or_none(cluster.list(query))
    return listing.items if listing else ()


async def _get(cluster: Cluster, ref: ObjectRef) -> Sequence[Manifest]:
    found = await or_none(cluster.get(ref))
    return () if found is None else (found,)


def pod_selector(manifest: Any) -> dict[str, Any] | None:
    """The selector of the pods of an object, as a LabelSelector; None if it has none.

    `spec.selector` is a LabelSelector or a plain map. Kinds with a scale subresource may give it as text in
    their status.
    """
    selector = mapping(dig(manifest, "spec", "selector"))
    if mapping(selector.get("matchLabels")) or mappings(selector.get("matchExpressions")):
        return selector
    if selector and len(strings(selector)) == len(selector):
        return {"matchLabels": selector}
    written = text(dig(manifest, "status", "selector")) or text(dig(manifest, "status", "labelSelector"))
    terms = [EQUALS.fullmatch(term.strip()) for term in written.split(",")] if written else []
    if terms and all(terms):
        return {"matchLabels": {term[1]: term[2] for term in terms if term}}
    return None


def is_selected(pod: Manifest, manifest: Any) -> bool:
    """True if the object selects the pod."""
    return selects(pod_selector(manifest), strings(dig(pod, "metadata", "labels")))


async def maker_of(cluster: Cluster, gone: ObjectRef) -> ObjectRef | None:
    """The maker of a deleted pod; None if nothing shows it.

    It is the object whose pods have such names, or else the one whose events name the pod.

    Never raises ClusterError.
    """
    parts = gone.name.split("-")
    candidates = [
        replace(gone, kind=kind, name="-".join(parts[:-cut]), api_version="")
        for cut in (1, 2)
        for kind in MADE_NAMES
        if len(parts) > cut
    ]
    named = [ref for ref in candidates if belongs_by_name(ref, gone)]
    found = await concurrently([_get(cluster, ref) for ref in named], at_once=AT_ONCE)
    for ref, answer in zip(named, found, strict=True):
        if answer:
            return ref
    queries = [
        ListQuery("Event", gone.namespace, "v1", field_selector=f"reason={r}") for r in CREATED_OR_DELETED
    ]
    for event in [e for answer in [await _list(cluster, query) for query in queries] for e in answer]:
        about = referred(event.get("involvedObject"), gone.namespace)
        if text(event.get("message")).rpartition(" ")[2] == gone.name and about.name:
            return about
    return None
