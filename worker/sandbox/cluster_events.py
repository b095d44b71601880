"""Events in both of their API forms: core/v1 and events.k8s.io/v1, which are two views of the same objects.

Field names follow the API reference of Event in core/v1 and in events.k8s.io/v1.
"""

from __future__ import annotations

from typing import Any

from worker.domain.values.objects import Manifest

CORE = "v1"
GROUPED = "events.k8s.io/v1"

# core/v1 field: events.k8s.io/v1 field
RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
RENAMED_BACK = {grouped: core for core, grouped in RENAMED.items()}


def to_grouped(event: Manifest) -> Manifest:
    """A core/v1 Event as events.k8s.io/v1 shows it."""
    return {**_rename(event, RENAMED), "apiVersion": GROUPED}


def to_core(event: Manifest) -> Manifest:
    """An events.k8s.io/v1 Event as core/v1 shows it."""
    core = {**_rename(event, RENAMED_BACK), "apiVersion": CORE}
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        core.setdefault(name, None)
    core.setdefault("source", {})
    return core


def _rename(event: Manifest, names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in event.items()}
