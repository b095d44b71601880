r"""The hash chain that makes the audit events of a request tamper-evident, and what a signature covers.

Canonical JSON, which is also how events are published, byte for byte:

- UTF-8; keys sorted by code point; no spaces; in strings only `"`, `\` and characters below U+0020 are
  escaped, as `\"`, `\\`, `\n`, `\r`, `\t`, `\f`, `\b` or `\u00xx` (lower case);
- integers in decimal; other numbers in the shortest decimal form that reads back as the same IEEE 754 double,
  with a point (`1.0`, not `1`), and with an exponent (`1e-07`, `1e+16`) below 1e-4 and from 1e16 on.

A reader in another language needs no writer of numbers: the bytes that were hashed are the published ones
with `"hash":"<64 digits>",` cut out at its first occurrence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from schemas.audit import AuditEvent

UNSEALED: Final = "0" * 64
"""Stands in an event whose hash is not computed yet; never published."""

HEAD_PURPOSE: Final = "rca.audit.head.v1"
"""Stands in every signed text, so that a signature serves for nothing else."""


def canonical(value: Mapping[str, Any]) -> bytes:
    """The canonical JSON of a document. Raises ValueError where there is none (unpaired surrogates)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def genesis(request_key: str, chain: str) -> str:
    """What the first event of a chain has in place of the hash of the one before."""
    return _sha256(canonical({"chain": chain, "request_key": request_key}))


def event_hash(event: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of an event without its `hash`."""
    return _sha256(canonical({name: value for name, value in event.items() if name != "hash"}))


def head_text(event: Mapping[str, Any]) -> bytes:
    """What is signed of the last event of a chain: canonical JSON with the five keys below.

    `count` is the number of events, `head` the hash that the event would have without a signature.
    """
    unsigned = {name: value for name, value in event.items() if name != "signature"}
    return canonical(
        {
            "chain": event["chain"],
            "count": event["sequence"],
            "head": event_hash(unsigned),
            "purpose": HEAD_PURPOSE,
            "request_key": event["request_key"],
        }
    )


def sealed(event: AuditEvent) -> AuditEvent:
    """The event with its hash."""
    return event.model_copy(update={"hash": event_hash(event.model_dump(mode="json"))})


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
