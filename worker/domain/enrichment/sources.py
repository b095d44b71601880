"""The sources of the first look: each reads one thing and offers it as pieces of evidence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import ClassVar

from worker.domain.cluster.changes import read_changes
from worker.domain.cluster.events import Happening, read_events, read_events_around, read_node_events
from worker.domain.cluster.fields import dig, mapping, name_of, reference, text
from worker.domain.cluster.kinds import WORKLOADS, belongs_by_name
from worker.domain.cluster.pod_finding import get_optional
from worker.domain.cluster.pods import Container, containers
from worker.domain.cluster.rendering.compact import Rendered, render_object
from worker.domain.cluster.rendering.logs import clean_lines, log_excerpt, most_interesting, redacted
from worker.domain.cluster.rendering.tables import render_table, unhealthy
from worker.domain.cluster.timeline import timeline
from worker.domain.enrichment.evidence_pack import CHANGES, Piece
from worker.domain.enrichment.incident_target import IncidentTarget
from worker.domain.untrusted.evidence import EvidenceKind
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import ListQuery, LogQuery, Manifest, ObjectRef
from worker.domain.values.ports import Cluster

LOG_LINES, LOG_BYTES = 150, 64 * 1024
MAX_PODS_WITH_LOGS = 2
MAX_NODES = 3
ROUTINE = frozenset({"Scheduled", "Pulled", "Created", "Started"})
"""Reasons of events that only repeat the state of a container. Beside warnings, they are left out."""
MAX_REFERENCES = 8

Reader = Callable[[], Awaitable[list[Piece]]]


class Sources:
    """Readers of what is around the objects that were found.

    `failed` names parts of a source that could not be read, with the reason.
    """

    ORDER: ClassVar[tuple[str, ...]] = (
        "pods", "events", "logs", "changes", "nodes", "node events", "storage", "configuration", "kind", "neighbours",
    )  # fmt: skip

    def __init__(self, cluster: Cluster, now: datetime, target: IncidentTarget) -> None:
        self._cluster, self._now, self._target = cluster, now, target
        self.failed: dict[str, str] = {}

    def wanted(self) -> dict[str, Reader]:
        """The readers that apply to these objects, by name."""
        target = self._target
        readers: dict[str, Reader] = {
            "pods": self._pods,
            "events": self._events,
            "changes": self._changes,
            "nodes": self._nodes,
            "kind": self._kind_specific,
            "neighbours": self._neighbours,
        }
        if any(target.failing_on) and target.object.kind != "Node":
            readers["node events"] = self._node_events
        if target.pods.own and target.object.kind not in {"Node", "ResourceQuota", "LimitRange"}:
            readers["logs"] = self._logs
        if target.pod_spec and target.object.kind != "Node":
            readers["configuration"] = self._configuration
            readers["storage"] = self._storage
        return readers

    def seen(self) -> list[Piece]:
        """The target and its worst pod, which have been read already."""
        target = self._target
        manifest, start = target.owners.manifests[0], target.object
        if manifest is None:
            return self._gone() if target.owners.exists is False else []
        pieces = [self._json("object", start, _without_template(manifest, target.pods.own), 3, 520)]
        worst = target.worst_pods[:1]
        if (
            worst
            and start.kind not in {"Node", "Namespace", "ResourceQuota"}
            and not start.same_as(reference(worst[0]))
        ):
            pieces.append(self._json("pod", reference(worst[0]), worst[0], 2, 560))
        return pieces

    def _gone(self) -> list[Piece]:
        """A target that does not exist, and its maker, if known."""
        start, maker = self._target.object, self._target.workload
        if maker is not None and maker.start.same_as(start):
            maker = None
        by = f"; it was made by {maker.start}" if maker else ""
        gone = Rendered(f"does not exist (any more){by}; events may still tell what happened to it")
        pieces = [Piece("object", str(start), 0, 60, lambda _: gone, EvidenceKind.OBJECT)]
        if maker and maker.manifests[0]:
            pieces.append(self._json("object", maker.start, maker.manifests[0], 2, 560))
        return pieces

    def _json(self, source: str, ref: ObjectRef, manifest: Manifest, rank: int, cap: int) -> Piece:
        def render(tokens: int) -> Rendered:
            shown = render_object(manifest, tokens)
            return Rendered(redact(shown.body), shown.cut)

        return Piece(source, str(ref), rank, cap, render, EvidenceKind.OBJECT)

    def _table(
        self,
        source: str,
        scope: str,
        items: Sequence[Manifest],
        rank: int,
        cap: int,
        *,
        everywhere: bool = False,
    ) -> list[Piece]:
        """The objects as a table; nothing if there are none."""

        def render(tokens: int) -> Rendered:
            return self._rows(items, tokens, everywhere=everywhere)

        return [Piece(source, scope, rank, cap, render)] if items else []

    def _rows(self, items: Sequence[Manifest], tokens: int, *, everywhere: bool = False) -> Rendered:
        kind = text(items[0].get("kind"))
        table = render_table(kind, items, self._now, tokens, all_namespaces=everywhere)
        note = f"{table.left_out} of {table.total} rows; list_resources shows them" if table.left_out else ""
        return Rendered(redact(table.body), note)

    async def _pods(self) -> list[Piece]:
        target = self._target
        more = "" if target.pods.complete else ", more than were read"
        of = target.workload.start if target.workload and target.owners.exists is False else target.object
        scope = f"pods of {of}: {len(target.pods.own)}, {len(target.pods.failing)} failing{more}"
        return self._table("pods", scope, target.pods.own, 0, 420, everywhere=target.object.kind == "Node")

    async def _neighbours(self) -> list[Piece]:
        others = self._target.pods.others
        scope = f"other failing pods in {self._target.namespace}: {len(others)}"
        return self._table("neighbours", scope, others, 6, 200)

    async def _events(self) -> list[Piece]:
        found, about = await self._relevant_events(), self._target.object
        if not found:
            scope = f"events of {about}"
            return [Piece("events", scope, 5, 20, lambda _: Rendered("none"), EvidenceKind.EVENTS)]

        telling = [item for item in found if item.warning or item.reason not in ROUTINE]
        if not any(item.warning for item in telling):
            telling = found
        left = len(found) - len(telling)
        scope = f"events of {about}, its owners and pods" + (
            f", without {left} of normal starts" if left else ""
        )
        return self._timeline("events", scope, telling, 1, 480)

    async def _relevant_events(self) -> list[Happening]:
        target, start = self._target, self._target.object
        if not target.namespace or start.kind == "Namespace":
            found = await read_events(
                self._cluster, start if not target.namespace else ObjectRef("", "", start.name)
            )
        else:
            pods = tuple(reference(pod) for pod in target.pods.own)
            about = (*target.members, *target.pods.between, *pods, *self._claims())
            root = target.workload.root if target.workload else None
            found = await read_events_around(self._cluster, target.namespace, about, root)
        if found.error:
            raise found.error
        if found.gap:
            self.failed["events"] = f"not read: {found.gap}"
        return list(found.items)

    async def _node_events(self) -> list[Piece]:
        names = [name for name in self._target.failing_on if name][:MAX_NODES]
        found = await read_node_events(self._cluster, names)
        if found.gap:
            self.failed["node events"] = f"not read: {found.gap}"
        return self._timeline("nodes", f"events of nodes: {', '.join(names)}", found.items, 2, 200)

    def _timeline(
        self, source: str, scope: str, found: Sequence[Happening], rank: int, cap: int
    ) -> list[Piece]:
        def render(tokens: int) -> Rendered:
            shown = timeline(found, tokens)
            note = f"{shown.left_out} of {len(found)} events; get_events shows them" if shown.left_out else ""
            return Rendered(redact(shown.body), note)

        return [Piece(source, scope, rank, cap, render, EvidenceKind.EVENTS)] if found else []

    def _claims(self) -> list[ObjectRef]:
        names = self._target.references.claims
        return [ObjectRef("PersistentVolumeClaim", name, self._target.namespace) for name in names]

    async def _logs(self) -> list[Piece]:
        pods = self._target.pods
        chosen = (pods.failing or pods.own)[:MAX_PODS_WITH_LOGS]
        if not pods.failing:
            chosen = chosen[:1]
        found = await concurrently([self._logs_of(pod, first=index == 0) for index, pod in enumerate(chosen)])
        return [piece for pieces in found for piece in pieces]

    async def _logs_of(self, pod: Manifest, *, first: bool) -> list[Piece]:
        states = list(containers(pod))
        if not states:
            return []
        container = most_interesting(states)
        started = container.running or bool(container.terminated)
        runs = [True] if container.ran_before else []
        runs += [False] if started else []
        pieces = await concurrently([self._log(pod, container, previous=run, first=first) for run in runs])
        found = [piece for piece in pieces if piece]
        if not found and container.ran_before and not started:  # the runtime has dropped the previous log
            last = await self._log(pod, container, previous=False, first=first)
            found = [last] if last else []
        return found

    async def _log(self, pod: Manifest, container: Container, *, previous: bool, first: bool) -> Piece | None:
        ref = reference(pod)
        run = "previous" if previous else "current"
        scope = f"{ref} container {container.name}, {run}, last {LOG_LINES} lines"
        query = LogQuery(ref.namespace, ref.name, container.name, previous, LOG_LINES, LOG_BYTES)
        try:
            lines = clean_lines(await self._cluster.logs(query))
        except ClusterError as error:
            if error.reason not in {ClusterReason.BAD_REQUEST, ClusterReason.NOT_FOUND}:
                self.failed[f"{run} log of {ref}"] = error.reason.value
            return None
        if not lines:
            return Piece("logs", scope, 6, 20, lambda _: Rendered("the log is empty"), EvidenceKind.LOG)
        shown = redacted(lines)
        rank = (1 if previous or not container.ran_before else 4) + (0 if first else 3)
        return Piece(
            "logs",
            scope,
            rank,
            420 if rank == 1 else 160,
            lambda n: log_excerpt(shown, n, len(lines)),
            EvidenceKind.LOG,
        )

    async def _changes(self) -> list[Piece]:
        if self._target.workload is None:
            return []
        root = self._target.workload.root
        lines = await read_changes(self._cluster, root)
        if not lines:
            return []

        def render(tokens: int) -> Rendered:
            kept: list[str] = []
            room = tokens
            for line in lines:
                room -= len(line) // 3 + 2
                if room < 0 and kept:
                    break
                kept.append(line)
            missing = len(lines) - len(kept)
            return Rendered(
                redact("\n".join(kept)), f"{missing} lines about older changes" if missing else ""
            )

        return [Piece(CHANGES, f"changes of the pod template of {root}, newest first", 2, 280, render)]

    async def _nodes(self) -> list[Piece]:
        target = self._target
        if target.object.kind == "Node":
            return []
        names = target.failing_on or [text(dig(pod, "spec", "nodeName")) for pod in target.pods.own[:1]]
        if "" in names:  # not scheduled: every node may be the reason
            listing = await self._cluster.list(ListQuery("Node"))
            return self._table("nodes", f"all nodes: {len(listing.items)}", listing.items, 3, 260)
        refs = [ObjectRef("Node", name) for name in names[:MAX_NODES]]
        nodes = [node for node in await self._read(refs) if node]
        troubled = [node for node in nodes if unhealthy(node)]
        scope = f"nodes of the pods: {', '.join(map(name_of, nodes))}"
        table = self._table("nodes", scope, nodes, 2 if troubled else 5, 160)
        return [*table, *(await self._around(troubled[0]) if troubled else ())]

    async def _around(self, node: Manifest) -> list[Piece]:
        """The other pods on a node in trouble, since the culprit may belong to somebody else."""
        query = ListQuery("Pod", field_selector=f"spec.nodeName={name_of(node)}")
        listing = await self._cluster.list(query)
        known = {reference(pod) for pod in self._target.pods.own}
        others = [pod for pod in listing.items if reference(pod) not in known]
        scope = f"other pods on Node {name_of(node)}: {len(others)}"
        return self._table("nodes", scope, others, 4, 220, everywhere=True)

    async def _configuration(self) -> list[Piece]:
        found = self._target.references
        names = found.config_maps[:MAX_REFERENCES]
        refs = [ObjectRef("ConfigMap", name, self._target.namespace) for name in names]
        there = await self._read(refs)
        return self._told("configuration", "ConfigMaps the pods refer to", refs, there, found.optional)

    async def _storage(self) -> list[Piece]:
        refs = self._claims()[:MAX_REFERENCES]
        if self._target.object.kind == "PersistentVolumeClaim":
            refs = [ObjectRef("PersistentVolumeClaim", self._target.object.name, self._target.namespace)]
        found = await self._read(refs)
        pieces = self._told("storage", "claims the pods mount", refs, found)
        if not self._target.pods.failing:
            return pieces
        claims = [claim for claim in found if claim]
        classes = dict.fromkeys(c for claim in claims if (c := text(dig(claim, "spec", "storageClassName"))))
        wanted = [ObjectRef("StorageClass", name) for name in classes]
        pieces += self._told("storage", "storage classes of the claims", wanted, await self._read(wanted))
        return pieces + await self._volumes(claims)

    async def _volumes(self, claims: Sequence[Manifest]) -> list[Piece]:
        names = [name for claim in claims if (name := text(dig(claim, "spec", "volumeName")))]
        refs = [ObjectRef("PersistentVolume", name) for name in names]
        there = [volume for volume in await self._read(refs) if volume]
        return self._table("storage", "volumes of the claims", there, 4, 170)

    async def _read(self, refs: Sequence[ObjectRef]) -> list[Manifest | None]:
        """The objects in the order of their names, None for those that do not exist."""
        return await concurrently([get_optional(self._cluster, ref) for ref in refs])

    def _told(
        self,
        source: str,
        scope: str,
        refs: Sequence[ObjectRef],
        found: Sequence[Manifest | None],
        optional: frozenset[str] = frozenset(),
    ) -> list[Piece]:
        """A table of the objects that exist, and a line for each that does not; nothing without any."""
        there = [manifest for manifest in found if manifest]
        gone = [ref for ref, manifest in zip(refs, found, strict=True) if manifest is None]
        lines = [f"{ref} does not exist{' (optional)' if ref.name in optional else ''}" for ref in gone]
        needed = any(ref.name not in optional for ref in gone)

        def render(tokens: int) -> Rendered:
            shown = self._rows(there, tokens) if there else Rendered("")
            return Rendered("\n".join(part for part in (*lines, shown.body) if part), shown.cut)

        return [Piece(source, scope, 1 if needed else 4, 170, render)] if refs else []

    async def _kind_specific(self) -> list[Piece]:
        """Objects that matter for a target of this kind, besides its pods."""
        start, workload = self._target.object, self._target.workload
        if start.kind in {"Service", "Endpoints"} and start.api_version in {"", "v1"}:
            ref = ObjectRef("Endpoints", start.name, start.namespace)
            return self._told("kind", f"endpoints of {start}", [ref], await self._read([ref]))
        if start.kind == "HorizontalPodAutoscaler" and workload and workload.root_manifest:
            return self._table("kind", f"what {start} scales", [workload.root_manifest], 2, 160)
        if start.kind == "CronJob":
            jobs = await self._cluster.list(ListQuery("Job", start.namespace))
            mine = [job for job in jobs.items if belongs_by_name(start, reference(job))]
            return self._table("kind", f"jobs of {start}", mine, 1, 240)
        return await self._quota()

    async def _quota(self) -> list[Piece]:
        """Quotas, if a workload has fewer pods than it wants."""
        target = self._target
        root = target.workload.root_manifest if target.workload else None
        wanted = dig(root, "spec", "replicas")
        short = isinstance(wanted, int) and len(target.pods.own) < wanted
        if not short and target.object.kind not in {"LimitRange", "Namespace"}:
            return []
        listing = await self._cluster.list(ListQuery("ResourceQuota", target.namespace))
        return self._table("kind", f"quotas of {target.namespace}", listing.items, 2, 160)


def _without_template(manifest: Manifest, pods: Sequence[Manifest]) -> Manifest:
    """The object, without its pod template if a pod made from it is shown as well."""
    if not pods or text(manifest.get("kind")) not in WORKLOADS or not dig(manifest, "spec", "template"):
        return manifest
    spec = {key: value for key, value in mapping(manifest.get("spec")).items() if key != "template"}
    return {**manifest, "spec": {**spec, "template": "[as in the pod below; path=spec.template]"}}
