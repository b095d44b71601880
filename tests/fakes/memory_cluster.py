"""A cluster in memory that behaves like the real adapter: same reasons, same limits, no sockets."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import KindInfo, Listing, ListQuery, LogQuery, Manifest, ObjectRef
from worker.sandbox.cluster_failure import ApiFailure
from worker.sandbox.cluster_kinds import Resource
from worker.sandbox.cluster_logs import LogOptions
from worker.sandbox.cluster_store import ListOptions, Snapshot

REASONS = {
    400: ClusterReason.BAD_REQUEST,
    403: ClusterReason.FORBIDDEN,
    404: ClusterReason.NOT_FOUND,
}
LogKey = tuple[str, str, str, bool]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the port: `get`, `list`, `logs` or `kind`, and what was asked."""

    method: str
    query: Any


class MemoryCluster:
    """Cluster port over manifests; `logs` by namespace, pod, container and previous.

    `fail` makes calls about a kind (or all) end in an error; `calls` lists what was asked, in order.
    """

    def __init__(
        self, manifests: Iterable[Manifest] = (), logs: Mapping[LogKey, bytes] | None = None
    ) -> None:
        self.calls: list[Call] = []
        self._snapshot = Snapshot(manifests, dict(logs or {}))
        self._failures: dict[tuple[str, str], ClusterError] = {}

    @classmethod
    def read(cls, directory: Path) -> MemoryCluster:
        """The cluster of a snapshot directory."""
        cluster = cls()
        cluster._snapshot = Snapshot.read(directory)
        return cluster

    def fail(self, reason: ClusterReason, *, kind: str = "*", method: str = "*") -> None:
        """From now on, calls about this kind (logs count as Pod) end in this error."""
        self._failures[kind, method] = ClusterError(reason, f"{kind} {method}: {reason}")

    def heal(self) -> None:
        """From now on nothing fails."""
        self._failures.clear()

    async def get(self, ref: ObjectRef) -> Manifest:
        resource = self._readable("get", ref, ref.kind, ref.api_version)
        if resource.namespaced and not ref.namespace:
            raise ClusterError(
                ClusterReason.BAD_REQUEST, f"{resource.kind} is a namespaced kind: name a namespace"
            )
        namespace = ref.namespace if resource.namespaced else ""
        try:
            manifest = self._snapshot.get(resource, namespace, ref.name)
        except ApiFailure as failure:
            raise _error(failure) from failure
        return _whole(resource, manifest)

    async def list(self, query: ListQuery) -> Listing:
        resource = self._readable("list", query, query.kind, query.api_version)
        options = ListOptions(
            namespace=query.namespace if resource.namespaced else "",
            label_selector=query.label_selector,
            field_selector=query.field_selector,
            limit=query.limit,
        )
        try:
            page = self._snapshot.list(resource, options)
        except ApiFailure as failure:
            raise _error(failure) from failure
        whole = (_whole(resource, item) for item in page["items"])
        items = tuple(whole if query.keep is None else filter(None, map(query.keep, whole)))
        return Listing(items, complete="continue" not in page["metadata"])

    async def logs(self, query: LogQuery) -> bytes:
        self._called("logs", query, "Pod")
        options = LogOptions(query.container, query.previous, query.tail_lines)
        try:
            text = self._snapshot.log(query.namespace, query.pod, options)
        except ApiFailure as failure:
            raise _error(failure) from failure
        return text[-query.limit_bytes :]

    async def kind(self, kind: str, api_version: str = "") -> KindInfo:
        self._called("kind", (kind, api_version), kind)
        resource = self._resource(kind, api_version)
        return KindInfo(resource.kind, resource.api_version, resource.plural, resource.namespaced)

    def _readable(self, method: str, query: Any, kind: str, api_version: str) -> Resource:
        self._called(method, query, kind)
        if kind.lower() in {"secret", "secrets"}:
            raise ClusterError(ClusterReason.FORBIDDEN, "Secrets are not read")
        return self._resource(kind, api_version)

    def _called(self, method: str, query: Any, kind: str) -> None:
        self.calls.append(Call(method, query))
        for key in ((kind, method), (kind, "*"), ("*", method), ("*", "*")):
            if key in self._failures:
                raise self._failures[key]

    def _resource(self, kind: str, api_version: str) -> Resource:
        wanted, _, group = kind.lower().partition(".")
        if not (wanted.isascii() and wanted.isalnum()):
            raise ClusterError(ClusterReason.BAD_REQUEST, f"not a valid kind: {kind!r}")
        named = [
            resource
            for resource in self._snapshot.resources
            if wanted in {resource.kind.lower(), resource.plural, resource.singular, *resource.short_names}
            and group in {"", resource.group}
        ]
        exact = [resource for resource in named if resource.api_version == api_version]
        same_group = [r for r in named if r.group == api_version.rpartition("/")[0]]
        found = (exact or same_group) if api_version else named
        if not found:
            raise ClusterError(ClusterReason.UNKNOWN_KIND, f"the cluster serves no kind {kind!r}")
        if not found[0].built_in and len({resource.group for resource in found}) > 1:
            raise ClusterError(ClusterReason.BAD_REQUEST, f"{kind!r} is served by several groups")
        return found[0]


def _whole(resource: Resource, manifest: Manifest) -> Manifest:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **copy.deepcopy(manifest)}


def _error(failure: ApiFailure) -> ClusterError:
    return ClusterError(REASONS[failure.code], failure.message)
