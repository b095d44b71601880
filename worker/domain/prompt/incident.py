"""The first user turn of an incident: all sections in order, and the evidence gathered before the first call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from schemas.enrichment import DetectedLabels
from schemas.incident import IncidentRequest
from worker.domain.budget import cut_middle
from worker.domain.evidence import Evidence, fence
from worker.domain.prompt import impact, signal, surroundings
from worker.domain.redact import redact

SENDER_TOKENS = {"error_message": 250, "description": 200, "signal_labels": 200, "signal_annotations": 200}
"""How much of each text of the sender is shown, in tokens."""


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """What was observed. There is no field for a conclusion, a confidence or a chosen workflow."""

    fence_token: str
    received_time: datetime
    evidence: Sequence[Evidence] = ()
    detected_labels: DetectedLabels | None = None
    custom_labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unknown_sources: Sequence[str] = ()


def incident_turn(request: IncidentRequest, facts: PromptFacts) -> str:
    """The whole turn, Markdown. Text of the sender and of the cluster is redacted, bounded and fenced."""

    def sender(name: str, text: str) -> str:
        shown = cut_middle(redact(text), SENDER_TOKENS[name]).text
        return fence(Evidence(source="sender", scope=name, body=shown), facts.fence_token)

    sections = [
        f"# Incident Analysis Request\nData of this request stands in fences <data-{facts.fence_token}>.",
        impact.summary(request, sender),
        signal.details(request, facts.received_time, sender),
        signal.deduplication(request),
        signal.storm(request),
        surroundings.cluster(request, sender),
        surroundings.business(request),
        surroundings.environment(facts.detected_labels, facts.custom_labels),
        evidence_pack(facts),
    ]
    return "\n\n".join(section for section in sections if section)


def evidence_pack(facts: PromptFacts) -> str:
    """What was read from the cluster before the first call; sources that failed are unknown, not absent."""
    lines = ["## Evidence gathered so far"]
    lines += [fence(item, facts.fence_token) for item in facts.evidence]
    if not facts.evidence:
        lines.append("Nothing could be read from the cluster.")
    if facts.unknown_sources:
        lines.append(f"Could not be read, so unknown: {', '.join(facts.unknown_sources)}.")
    return "\n".join(lines)
