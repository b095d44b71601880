"""Limits reads to the namespaces and kinds of the operator's lists, on top of RBAC.

It applies to every read, those of the first look and of the checks included, so that no tool and no rule can
bypass it. Anything outside counts as forbidden: it is unknown, never absent.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass, replace

from worker.domain.cluster.fields import meta, text
from worker.domain.cluster.kinds import kind_named
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import KindInfo, Listing, ListQuery, LogQuery, Manifest, ObjectRef
from worker.domain.values.ports import Cluster

NAMESPACE = ("Namespace", "v1")
OUTSIDE = "outside the scope of this worker; whether it exists is unknown"


@dataclass(frozen=True, slots=True)
class Scope:
    """Names are globs (`team-*`).

    No `namespaces` means all; `denied_namespaces` and `denied_kinds` take precedence.

    Objects without a namespace are only limited by `denied_kinds`, except Namespaces, which go by their
    names. Kinds may be written in every way that tools understand (`cm`, `configmaps`, `ConfigMap`).
    """

    namespaces: tuple[str, ...] = ()
    denied_namespaces: tuple[str, ...] = ()
    denied_kinds: tuple[str, ...] = ()

    @property
    def everything(self) -> bool:
        """True if there are no limits."""
        return not (self.namespaces or self.denied_namespaces or self.denied_kinds)

    def allows_namespace(self, name: str) -> bool:
        """True if objects in this namespace may be read."""
        allowed = not self.namespaces or _matches(name, self.namespaces)
        return allowed and not _matches(name, self.denied_namespaces)

    def allows_kind(self, *names: str) -> bool:
        """True if objects of this kind may be read. All names of it: as it was asked for, its plural."""
        return {_plain(name) for name in self.denied_kinds}.isdisjoint(map(_plain, names))

    def allows(self, kind: KindInfo, name: str, namespace: str) -> bool:
        """True if this object may be read. Without a namespace it counts as cluster-scoped."""
        if not self.allows_kind(kind.kind, kind.plural):
            return False
        place = name if (kind.kind, kind.api_version) == NAMESPACE else namespace
        return not place or self.allows_namespace(place)


class ScopedCluster:
    """The Cluster port, within a scope. Raises ClusterError FORBIDDEN for anything outside.

    Discovery resolves the kind first, so that every spelling is judged by what it means. A list of all
    namespaces leaves out objects outside the scope, and is then incomplete.
    """

    def __init__(self, cluster: Cluster, scope: Scope) -> None:
        self._cluster, self._scope = cluster, scope

    async def get(self, ref: ObjectRef) -> Manifest:
        """One object."""
        kind = await self._check(ref)
        return await self._cluster.get(replace(ref, kind=kind.kind, api_version=kind.api_version))

    async def list(self, query: ListQuery) -> Listing:
        """Objects of one kind."""
        kind = await self._check(ObjectRef(query.kind, "", query.namespace, query.api_version))
        listing = await self._cluster.list(replace(query, kind=kind.kind, api_version=kind.api_version))
        kept = tuple(item for item in listing.items if self._scope.allows(kind, *_place(item)))
        if len(kept) == len(listing.items):
            return listing
        return replace(listing, items=kept, complete=False)

    async def logs(self, query: LogQuery) -> bytes:
        """The end of a container's log."""
        await self._check(ObjectRef("Pod", query.pod, query.namespace, "v1"))
        return await self._cluster.logs(query)

    async def kind(self, kind: str, api_version: str = "") -> KindInfo:
        """A kind as discovery knows it."""
        info = await self._cluster.kind(kind, api_version)
        if not self._scope.allows_kind(kind, info.kind, info.plural):
            raise _outside(kind)
        return info

    async def _check(self, ref: ObjectRef) -> KindInfo:
        kind = await self.kind(ref.kind, ref.api_version)
        if not self._scope.allows(kind, ref.name, ref.namespace):
            raise _outside(str(ref) if ref.name else f"{ref.kind} {ref.namespace}".strip())
        return kind


def _outside(what: str) -> ClusterError:
    return ClusterError(ClusterReason.FORBIDDEN, f"{what} is {OUTSIDE}")


def _place(item: Manifest) -> tuple[str, str]:
    about = meta(item)
    return text(about.get("name")), text(about.get("namespace"))


def _plain(kind: str) -> str:
    return kind_named(kind).lower()


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
