"""Opens an investigation: gathers facts from the cluster, and writes the first turn for the model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from schemas.enrichment import DetectedLabels
from schemas.incident import Signal
from worker.domain.enrichment.enrich import FirstLook, enrich
from worker.domain.intake.accepted import sent_enrichment
from worker.domain.investigation.prompt import PromptFacts, opening_turn
from worker.domain.untrusted.evidence import Evidence, EvidenceLog
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.ports import Clock, Cluster

NOT_LOOKED = FirstLook(unread=("anything",))


@dataclass(frozen=True, slots=True)
class Opening:
    """The first turn, and the facts behind it. Made once, then replayed from the journal."""

    text: str
    fence_token: str
    evidence: tuple[Evidence, ...]
    detected_labels: DetectedLabels | None
    failed_sources: tuple[str, ...]
    first_look: FirstLook = NOT_LOOKED


OPENING_STEP = TypeAdapter(Opening)


async def open_investigation(
    request: Signal,
    cluster: Cluster,
    clock: Clock,
    *,
    deadline_seconds: float,
    fence_token: str,
    tells_filters: bool = False,
) -> Opening:
    """Gather facts about the signal's resource, and write the first turn.

    Failed sources are facts, never errors.

    `tells_filters`: whether the model is told the labels of a workflow search, for tools of other servers.
    """
    found = await enrich(request, cluster, clock, deadline_seconds=deadline_seconds)
    log = EvidenceLog(now=clock.now)
    numbered = tuple(log.add(replace(item, body=redact(item.body))) for item in found.evidence)
    sent = sent_enrichment(request)
    labels = sent.detected_labels if sent and sent.detected_labels else found.detected_labels
    facts = PromptFacts(
        fence_token=fence_token,
        evidence=numbered,
        detected_labels=labels,
        custom_labels=sent.custom_labels if sent else {},
        unknown_sources=found.failed_sources,
        tells_filters=tells_filters,
    )
    return Opening(
        text=opening_turn(request, facts),
        fence_token=fence_token,
        evidence=numbered,
        detected_labels=labels,
        failed_sources=tuple(found.failed_sources),
        first_look=found.first_look,
    )
