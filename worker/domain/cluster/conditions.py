"""The conditions that a controller writes into the status of an object."""

from __future__ import annotations

from typing import Any

from worker.domain.cluster.fields import dig, mappings, text


def condition(manifest: Any, kind: str) -> dict[str, Any]:
    """A condition of the status, empty if it is missing."""
    found = (c for c in mappings(dig(manifest, "status", "conditions")) if c.get("type") == kind)
    return next(found, {})


def holds(manifest: Any, kind: str, status: str = "True") -> bool:
    """True if a condition has a status."""
    return text(condition(manifest, kind).get("status")) == status
