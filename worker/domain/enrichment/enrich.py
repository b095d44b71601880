"""The first look at the cluster, before the model is called.

Only observable facts, no conclusions. `Sources.wanted` names the sources for the kind of object, and
`evidence_pack.py` chooses what fits into the prompt. Sources are read concurrently within one deadline and fail
independently: a source that failed is named as unknown, never as absent, and never stops the run. Failing
objects get the room first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from schemas.enrichment import DetectedLabels
from schemas.incident import Signal
from worker.domain.cluster.detected_labels import UNKNOWN_LABELS, detect_labels
from worker.domain.cluster.fields import reference
from worker.domain.cluster.kinds import canonical_kind, is_secret
from worker.domain.cluster.owners import OwnerChain, owner_chain
from worker.domain.cluster.pod_finding import Pods, find_pods, find_workload, workload_of_pods
from worker.domain.cluster.rendering.tables import unhealthy
from worker.domain.enrichment.evidence_pack import Piece, pack
from worker.domain.enrichment.incident_target import IncidentTarget
from worker.domain.enrichment.sources import Sources
from worker.domain.untrusted.evidence import Evidence, one_line
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import ClusterError, ClusterReason, or_none
from worker.domain.values.limits import ENRICHMENT_SECONDS
from worker.domain.values.objects import ObjectRef
from worker.domain.values.ports import Clock, Cluster

EVIDENCE_TOKENS = 2_300
LABELS = "detected labels"
MAX_TROUBLE = 20


@dataclass(frozen=True, slots=True)
class Enrichment:
    """The facts that were found. The evidence is redacted and within its budget, not yet numbered.

    `failed_sources` name what is unknown, with the reason. `first_look` is the part that speaks against an
    answer which finds nothing to do.
    """

    evidence: tuple[Evidence, ...]
    detected_labels: DetectedLabels
    first_look: FirstLook
    failed_sources: tuple[str, ...] = ()


async def enrich(
    request: Signal, cluster: Cluster, clock: Clock, *, deadline_seconds: float = ENRICHMENT_SECONDS
) -> Enrichment:
    """Gather facts about the signal's resource and the objects behind it. Never raises ClusterError.

    Ages are counted from the time the signal was received.
    """
    asked = ObjectRef(
        canonical_kind(request.resource_kind),
        request.resource_name,
        request.resource_namespace,
        request.resource_api_version,
    )
    not_read = OwnerChain((asked,), (None,), exists=None, note="not read")
    run = _EnrichmentRun(asked, cluster, request.received_time, not_read)
    until = clock.monotonic() + deadline_seconds
    for stage in (run.find, run.behind, run.gather):
        left = until - clock.monotonic()
        if left <= 0 or not await run.within(left, stage):
            break
    return run.result()


@dataclass(slots=True)
class _EnrichmentRun:
    """One enrichment: what is known so far, and which sources are still open."""

    asked: ObjectRef
    cluster: Cluster
    now: datetime
    chain: OwnerChain
    workload: OwnerChain | None = None
    pods: Pods = field(default_factory=Pods)
    labels: DetectedLabels | None = None
    sources: Sources | None = None
    """Set once everything else is being gathered."""
    pieces: dict[str, Sequence[Piece]] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)

    async def within(self, seconds: float, stage: Callable[[], Awaitable[None]]) -> bool:
        """Run a stage. Sources that are still open when the time is up have failed."""
        try:
            async with asyncio.timeout(seconds):
                await stage()
        except TimeoutError:
            self.failed |= dict.fromkeys(sorted(self.open), "no answer in time")
            self.open.clear()
            return False
        return True

    async def find(self) -> None:
        """The target and its owners."""
        self.open.add(str(self.asked))
        if is_secret(self.asked.kind):
            self.chain = OwnerChain((self.asked,), (None,), exists=None, note="Secrets are never read")
            self.failed[str(self.asked)] = "Secrets are never read"
        else:
            self.chain = await owner_chain(self.cluster, await self._resolved())
        self.open.discard(str(self.asked))
        if self.chain.exists is None:
            self.failed.setdefault(str(self.asked), one_line(self.chain.note, 160))
        elif self.chain.exists and self.chain.note:
            self.failed["further owners"] = one_line(self.chain.note, 160)

    async def _resolved(self) -> ObjectRef:
        """The target with the API version and scope that discovery knows."""
        asked = self.asked
        info = await or_none(self.cluster.kind(asked.kind, asked.api_version))
        if info is None:
            return asked
        return ObjectRef(info.kind, asked.name, asked.namespace if info.namespaced else "", info.api_version)

    async def behind(self) -> None:
        """The pods, and the workload that runs them."""
        self.workload = await find_workload(self.cluster, self.chain)
        await self._source("pods", self._find_pods)
        if self.workload is None:
            chosen = self.pods.failing or self.pods.own
            self.workload = await workload_of_pods(self.cluster, chosen)

    async def _find_pods(self) -> None:
        self.pods = await find_pods(self.cluster, self.chain, self.workload)
        if not self.pods.complete:
            self.failed["pods"] = "there are more than were read"
        elif not self.pods.all_read:
            self.failed["other pods"] = f"{self.chain.start.home} has more than were read"

    async def gather(self) -> None:
        """Everything else, at the same time."""
        self.sources = self._sources()
        readers = [self._source(name, read) for name, read in self.sources.wanted().items()]
        await concurrently([self._source(LABELS, self._detect), *readers])

    def _sources(self) -> Sources:
        return Sources(self.cluster, self.now, IncidentTarget(self.chain, self.workload, self.pods))

    async def _detect(self) -> None:
        pod = self.pods.own[0] if self.pods.own and self.chain.start.kind != "Node" else None
        self.labels = await detect_labels(self.cluster, self.chain, pod)

    async def _source(self, name: str, read: Callable[[], Awaitable[Sequence[Piece] | None]]) -> None:
        self.open.add(name)
        try:
            self.pieces[name] = await read() or ()
        except ClusterError as error:
            if error.reason is not ClusterReason.UNKNOWN_KIND:
                self.failed[name] = f"{error.reason.value}: {one_line(redact(error.message), 120)}"
        self.open.discard(name)

    def result(self) -> Enrichment:
        """The facts that were found in time."""
        sources = self.sources or self._sources()
        if self.sources is None:
            self.failed |= dict.fromkeys([LABELS, *sources.wanted()], "no time left to read it")
        found = [piece for name in sources.ORDER for piece in self.pieces.get(name, ())]
        return Enrichment(
            evidence=pack([*sources.seen(), *found], EVIDENCE_TOKENS),
            detected_labels=self.labels or UNKNOWN_LABELS,
            failed_sources=tuple(f"{name} ({why})" for name, why in (self.failed | sources.failed).items()),
            first_look=self._first_look(),
        )

    def _first_look(self) -> FirstLook:
        root = self.workload.root_manifest if self.workload else None
        looked_at = [*self.chain.manifests, root, *self.pods.failing]
        trouble = dict.fromkeys(str(reference(item)) for item in looked_at if item and unhealthy(item))
        read = zip(self.chain.chain, self.chain.manifests, strict=True)
        unread = [source for source in (str(self.asked), "pods", "events") if source in self.failed]
        if self.sources is None:
            unread.append("anything in time")
        return FirstLook(
            chain=tuple(ref for ref, manifest in read if manifest is not None),
            trouble=tuple(trouble)[:MAX_TROUBLE],
            unread=tuple(unread),
        )


@dataclass(frozen=True, slots=True)
class FirstLook:
    """The state of the cluster before the model was asked.

    `chain`: the signal's resource and its owners, as far as they were read. `trouble`: objects in trouble
    among them and their pods. `unread`: sources that could not be read.
    """

    chain: tuple[ObjectRef, ...] = ()
    trouble: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
