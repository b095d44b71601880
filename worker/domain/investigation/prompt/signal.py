"""Times, repetition and storms of the signal (ADR-041, sections on error details, deduplication and storms)."""

from __future__ import annotations

from collections.abc import Callable

from schemas.incident import Signal
from worker.domain.cluster.fields import stamp
from worker.domain.investigation.prompt.words import word

CONTINUOUSLY_PRESENT = (
    "The same alert fired again while its condition lasted: the condition has been continuously present since it was "
    "first seen. It does not mean that a remediation was tried and failed."
)
SHOWN_RESOURCES = 10


def details(request: Signal, sender: Callable[[str, str], str]) -> str:
    """What the sender said about the error, and when."""
    lines = ["## Error Details"]
    if request.description:
        lines.append(f"- Description:\n{sender('description', request.description)}")
    if request.firing_time:
        lines.append(f"- Firing Time: {stamp(request.firing_time)}")
    lines.append(f"- Received Time: {stamp(request.received_time)} (all ages below are relative to it)")
    return "\n".join(lines)


def deduplication(request: Signal) -> str:
    """How often the same signal came, and what that means; empty when it came once and no more was said."""
    repeated = request.is_duplicate or request.occurrence_count > 1
    if not (repeated or request.first_seen or request.last_seen):
        return ""
    lines = [
        "## Deduplication",
        f"- Is Duplicate: {'yes' if request.is_duplicate else 'no'}",
        f"- First Seen: {stamp(request.first_seen)}" if request.first_seen else "",
        f"- Last Seen: {stamp(request.last_seen)}" if request.last_seen else "",
        f"- Occurrence Count: {request.occurrence_count}",
        CONTINUOUSLY_PRESENT if repeated else "",
    ]
    return "\n".join(line for line in lines if line)


def storm(request: Signal, shown: Callable[[str, str], str]) -> str:
    """Facts about an alert storm; empty when there is none."""
    if not request.is_storm:
        return ""
    lines = ["## Alert Storm", "This signal is part of an alert storm: one cause may explain many alerts."]
    if request.storm_type:
        meaning = {"rate": "many alerts in a short time", "pattern": "similar alerts on several resources"}
        lines.append(f"- Storm Type: {request.storm_type} ({meaning[request.storm_type]})")
    if request.storm_window:
        lines.append(f"- Storm Window: {word(request.storm_window)}")
    if request.storm_alert_count is not None:
        lines.append(f"- Alert Count: {request.storm_alert_count}")
    if request.affected_resources:
        more = len(request.affected_resources) - SHOWN_RESOURCES
        names = shown("affected_resources", stormy_resources(request))
        lines.append(f"- Affected Resources: {names}" + (f" and {more} more" if more > 0 else ""))
    return "\n".join(lines)


def stormy_resources(request: Signal) -> str:
    """The first resources of a storm."""
    return ", ".join(word(name) for name in request.affected_resources[:SHOWN_RESOURCES])
