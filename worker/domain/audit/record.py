"""An audit event as bytes: canonical JSON, so that every run publishes the same bytes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from typing import Any

from schemas.audit import ENDS, AuditEvent, Signature
from schemas.chain import canonical, head_text, sealed
from worker.domain.values.ports import AuditRecord, Signer

EVENT_NAMESPACE = uuid.UUID("6f1f6c5e-9f3b-5d57-9a49-0b6f0f8f3c1d")
DERIVED = re.compile(rb'"(?:event_id|hash|prev)":"[0-9a-f-]+",')


def event_id(run: str, prev: str) -> str:
    """The id of the event that a run records after the one with the hash `prev`."""
    return str(uuid.uuid5(EVENT_NAMESPACE, f"{run}:{prev}"))


def shortened(body: bytes) -> bytes:
    """An event without what `restored` derives: its id, its hash, and the hash before."""
    return DERIVED.sub(b"", body).removeprefix(b"{")


def restored(short: bytes, run: str, prev: str) -> bytes:
    """The event of which this is the short form, if this run recorded it after the one with the hash `prev`."""
    start, key, end = short.rpartition(b'"request_key":')
    linked = b'{%b"prev":"%b",%b%b' % (start, prev.encode(), key, end)
    own_id, event_type, incident = event_id(run, prev).encode(), b'"event_type":', b'"incident_id":'
    unsealed = linked.replace(event_type, b'"event_id":"%b",%b' % (own_id, event_type), 1)
    own_hash = hashlib.sha256(unsealed).hexdigest().encode()
    return unsealed.replace(incident, b'"hash":"%b",%b' % (own_hash, incident), 1)


def record_of(event: AuditEvent) -> AuditRecord:
    """An event as it is published."""
    return AuditRecord(
        event.event_id,
        event.event_type,
        event.request_key,
        event.sequence,
        canonical(event.model_dump(mode="json")),
        event.chain,
        event.hash,
    )


def finished(event: AuditEvent, signer: Signer | None) -> AuditEvent:
    """The event with its hash, signed if it ends a chain and there is a signer."""
    if signer is not None and event.event_type in ENDS:
        value = base64.b64encode(signer.sign(head_text(event.model_dump(mode="json")))).decode()
        event = event.model_copy(update={"signature": Signature(key_id=signer.key_id, value=value)})
    return sealed(event)


def read_record(body: bytes) -> AuditRecord:
    """A stored event, perhaps of another version: only the fields for headers and chain are read.

    Raises ValueError for anything that is not an event.
    """
    try:
        event: Any = json.loads(body)
        names = event["event_id"], event["event_type"], event["request_key"]
        sequence = event["sequence"]
        links = event.get("chain", ""), event.get("hash", "")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"no audit event: {e!r}") from e
    if not all(isinstance(name, str) for name in (*names, *links)) or not isinstance(sequence, int):
        raise ValueError("no audit event: an id, a type, a key and a sequence are needed")
    return AuditRecord(*names, sequence, body, *links)
