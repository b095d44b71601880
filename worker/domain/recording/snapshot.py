"""Takes a redacted snapshot of namespaces.

It holds their objects and logs, the nodes and volumes they use, and owners of other kinds.

The snapshot cluster serves it again, so it is a case for `rca demo`, `rca eval`, or a test. Secrets are never
read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from worker.domain.cluster.fields import controller_of, dig, meta, name_of, reference, referred, text
from worker.domain.cluster.kinds import BUILT_IN
from worker.domain.cluster.owners import MAX_OWNERS
from worker.domain.cluster.pod_finding import worst_first
from worker.domain.cluster.pods import containers, pod_failing, pod_reason, pod_status
from worker.domain.untrusted.redaction.redact import redact, redact_json
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import ClusterError, ClusterReason, ReportedError, or_none
from worker.domain.values.objects import ListQuery, LogQuery, Manifest, ObjectRef
from worker.domain.values.ports import Cluster

LEFT_OUT = frozenset(
    {"Secret", "Lease", "PodTemplate", "Role", "RoleBinding", "CSIStorageCapacity", "Endpoints"}
)
NAMESPACED = tuple(
    dict.fromkeys(info.kind for info, _ in BUILT_IN if info.namespaced and info.kind not in LEFT_OUT)
)
CLUSTER_WIDE = (
    "StorageClass", "PriorityClass", "IngressClass", "APIService", "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration", "VolumeAttachment",
)  # fmt: skip
MAX_OBJECTS, MAX_LOGS = 5_000, 200
LOG_LINES, LOG_BYTES = 2_000, 256 * 1024
READS_AT_ONCE = 8

LogKey = tuple[str, str, str, bool]
"""Namespace, pod, container, previous."""


@dataclass(frozen=True, slots=True)
class NamespaceSnapshot:
    """The objects and logs that were read, redacted. `unread` says what could not be read, and why."""

    objects: Sequence[Manifest]
    logs: Mapping[LogKey, bytes]
    unread: tuple[str, ...]

    @property
    def failing(self) -> tuple[Manifest, ...]:
        """The failing pods, the worst one first."""
        pods = [item for item in self.objects if item["kind"] == "Pod" and pod_failing(item)]
        return worst_first(pods)


async def take_snapshot(cluster: Cluster, namespaces: Sequence[str]) -> NamespaceSnapshot:
    """Read the namespaces. Raises ClusterError when one of them, or its pods, cannot be read."""
    taking = _Taking(cluster)
    for namespace in namespaces:
        await taking.read(ObjectRef("Namespace", namespace), needed=True)
        await taking.read_list("Pod", namespace, needed=True)
    await taking.read_all(
        taking.read_list(kind, space) for kind in NAMESPACED if kind != "Pod" for space in namespaces
    )
    await taking.read_all(taking.read_list(kind) for kind in CLUSTER_WIDE)
    await taking.read_all(map(taking.read, taking.used()))
    await taking.read_list("Event", "default", field_selector="involvedObject.kind=Node")
    for _ in range(MAX_OWNERS):
        await taking.read_all(map(taking.read, taking.owners()))
    await taking.read_logs()
    objects = [redact_json(item) for item in taking.objects.values()]
    return NamespaceSnapshot(objects, taking.logs, tuple(dict.fromkeys(taking.unread)))


@dataclass(slots=True)
class _Taking:
    """The objects read so far, by kind, namespace and name."""

    cluster: Cluster
    objects: dict[tuple[str, str, str], Manifest] = field(default_factory=dict)
    logs: dict[LogKey, bytes] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    asked: set[ObjectRef] = field(default_factory=set)

    async def read_all(self, reads: Any) -> None:
        await concurrently(list(reads), at_once=READS_AT_ONCE)

    async def read_list(
        self, kind: str, namespace: str = "", *, field_selector: str = "", needed: bool = False
    ) -> None:
        query = ListQuery(kind, namespace, field_selector=field_selector, limit=MAX_OBJECTS)
        listing = await self._tried(
            f"{kind} {namespace}".strip(), lambda: self.cluster.list(query), needed=needed
        )
        for item in listing.items if listing else ():
            self._add(item)
        if listing and not listing.complete:
            self.unread.append(f"{kind} {namespace}: there are more than {len(listing.items)}")

    async def read(self, ref: ObjectRef, *, needed: bool = False) -> None:
        self.asked.add(ref)
        if found := await self._tried(str(ref), lambda: self.cluster.get(ref), needed=needed):
            self._add(found)

    async def _tried(self, what: str, ask: Callable[[], Awaitable[Any]], *, needed: bool) -> Any:
        try:
            return await ask()
        except ClusterError as error:
            if needed:
                raise
            if error.reason not in {ClusterReason.UNKNOWN_KIND, ClusterReason.NOT_FOUND}:
                self.unread.append(f"{what}: {error.message}")

    def _add(self, item: Manifest) -> None:
        self.objects[text(item.get("kind")), text(meta(item).get("namespace")), name_of(item)] = item

    def used(self) -> set[ObjectRef]:
        """Nodes of the pods, and volumes of the claims."""
        nodes = {("Node", dig(item, "spec", "nodeName")) for item in self._of("Pod")}
        volumes = {
            ("PersistentVolume", dig(item, "spec", "volumeName"))
            for item in self._of("PersistentVolumeClaim")
        }
        return {ObjectRef(kind, name) for kind, name in nodes | volumes if isinstance(name, str) and name}

    def owners(self) -> set[ObjectRef]:
        """Controllers that are not among the objects, and have not been asked for."""
        found = set()
        for item in self.objects.values():
            ref = referred(controller_of(item), text(meta(item).get("namespace")))
            if ref.name and ref not in self.asked and (ref.kind, ref.namespace, ref.name) not in self.objects:
                found.add(ref)
        return found

    def _of(self, kind: str) -> list[Manifest]:
        return [item for (known, _, _), item in self.objects.items() if known == kind]

    async def read_logs(self) -> None:
        """The ends of the logs of all containers, of failing pods first; also of the run before."""
        wanted = [
            LogQuery(meta(pod)["namespace"], name_of(pod), part.name, previous, LOG_LINES, LOG_BYTES)
            for pod in worst_first(self._of("Pod"))
            for part in containers(pod)
            for previous in (False, True)
            if part.ran_before or not previous
        ]
        if len(wanted) > MAX_LOGS:
            self.unread.append(f"logs of {len(wanted) - MAX_LOGS} more containers")
        await self.read_all(map(self._log, wanted[:MAX_LOGS]))

    async def _log(self, asked: LogQuery) -> None:
        log = await or_none(self.cluster.logs(asked))
        if log is None:  # there is none, as for a container that has not started
            return
        clean = redact(log.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        self.logs[asked.namespace, asked.pod, asked.container, asked.previous] = clean


def incident_of(snapshot: NamespaceSnapshot, now: datetime) -> dict[str, Any]:
    """The body of a request about the owner of the worst pod. Raises ReportedError when no pod is failing."""
    pod = next(iter(snapshot.failing), None)
    if pod is None:
        raise ReportedError("no pod is failing: give the request of the incident with --incident FILE")
    found = _top_owner(snapshot, pod)
    name = f"snapshot-{found.namespace or 'cluster'}-{found.name}-{now:%Y%m%dT%H%M%S}"
    return {
        "incident_id": name,
        "remediation_id": name,
        "signal_type": pod_status(pod),
        "severity": "high",
        "resource_kind": found.kind,
        "resource_name": found.name,
        "resource_namespace": found.namespace,
        "error_message": redact(pod_reason(pod)),
        "received_time": now.isoformat(),
    }


def _top_owner(snapshot: NamespaceSnapshot, item: Manifest) -> ObjectRef:
    """The top controller that is in the snapshot."""
    known = {(o["kind"], text(meta(o).get("namespace")), name_of(o)): o for o in snapshot.objects}
    for _ in range(MAX_OWNERS):
        owner = referred(controller_of(item), text(meta(item).get("namespace")))
        above = known.get((owner.kind, owner.namespace, owner.name))
        if above is None:
            break
        item = above
    return reference(item)
