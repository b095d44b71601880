"""Journal steps as earlier versions wrote them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence

from worker.adapters.nats.journal_format import CHAINED, DICTIONARY_BYTES, PACKED, PLAIN
from worker.domain.values.ports import Step

PACKED_FROM_BYTES = 1_024


def earlier_body(step: Step) -> bytes:
    """Short steps as they are, long ones compressed on their own."""
    content = _content(step)
    packed = len(content) >= PACKED_FROM_BYTES
    head = {
        "v": PACKED if packed else PLAIN,
        "kind": step.kind,
        "run": step.run,
        "notes": dict(step.notes),
        "size": len(step.data),
        "sha256": _sha256(step.data),
        "object": "",
        "events": [{"sequence": event.sequence, "sha256": _sha256(event.body)} for event in step.events],
    }
    return json.dumps(head).encode() + b"\n" + (zlib.compress(content) if packed else content)


def chained_body(step: Step, before: Sequence[Step]) -> bytes:
    """Compressed with the contents of these steps as dictionary."""
    content = _content(step)
    head = {
        "v": CHAINED,
        "kind": step.kind,
        "run": step.run,
        "notes": dict(step.notes),
        "sha256": _sha256(content),
        "lines": len(step.events),
        "since": before[0].number if before else 0,
    }
    packer = zlib.compressobj(zdict=b"".join(map(_content, before))[-DICTIONARY_BYTES:])
    return json.dumps(head).encode() + b"\n" + packer.compress(content) + packer.flush()


def _content(step: Step) -> bytes:
    return b"\n".join([*(event.body for event in step.events), step.data])


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
