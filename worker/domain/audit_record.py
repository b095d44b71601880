"""An audit event as bytes: canonical JSON, so that whoever publishes it again publishes the same."""

from __future__ import annotations

import json
from typing import Any

from schemas.audit import AuditEvent
from worker.domain.ports import AuditRecord


def record_of(event: AuditEvent) -> AuditRecord:
    """An event as it is published: JSON with sorted keys and without spaces."""
    text = json.dumps(
        event.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return AuditRecord(event.event_id, event.event_type, event.request_key, event.sequence, text.encode())


def read_record(body: bytes) -> AuditRecord:
    """An event that was published or kept, perhaps by another version: only what the headers need is read.

    Raises ValueError for anything that is no event.
    """
    try:
        event: Any = json.loads(body)
        names = event["event_id"], event["event_type"], event["request_key"]
        sequence = event["sequence"]
    except (ValueError, RecursionError, KeyError, TypeError) as e:
        raise ValueError(f"no audit event: {e!r}") from e
    if not all(isinstance(name, str) for name in names) or not isinstance(sequence, int):
        raise ValueError("no audit event: an id, a type, a key and a sequence are needed")
    return AuditRecord(*names, sequence, body)
