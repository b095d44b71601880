"""One published audit event as a link of a chain. Read strictly: a worker writes canonical JSON only."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from schemas.audit import ENDS
from schemas.chain import canonical, event_hash, head_text

MAX_SEQUENCE: Final = 1_000_000
SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
TEXTS: Final = ("event_id", "request_key", "chain", "event_type", "time")
HASHES: Final = ("prev", "hash")


@dataclass(frozen=True, slots=True)
class End:
    """The end of a chain: the digest of its result, and its signature. `key_id` is empty when it is not signed."""

    sequence: int
    time: datetime
    result_sha256: str
    key_id: str = ""
    signature: bytes = b""
    text: bytes = b""


@dataclass(frozen=True, slots=True)
class Link:
    """An event. `intact`: its content matches its hash. Only a first event has `continues` and `replayed`."""

    request_key: str
    chain: str
    sequence: int
    event_type: str
    time: datetime
    prev: str
    hash: str
    intact: bool
    continues: str = ""
    replayed: bool = False
    end: End | None = None


def read_link(body: bytes) -> Link:
    """The event in a message. Raises ValueError for anything that is not an event in canonical form."""
    try:
        event: Any = json.loads(body)
        same = canonical(event) == body
    except (ValueError, RecursionError) as e:
        raise ValueError("no JSON") from e
    if not same or not isinstance(event, dict):
        raise ValueError("not a JSON object in canonical form")
    if not all(isinstance(event.get(name), str) for name in TEXTS):
        raise ValueError(f"an event needs {', '.join(TEXTS)}")
    if not all(isinstance(event.get(name), str) and SHA256.fullmatch(event[name]) for name in HASHES):
        raise ValueError("not part of a chain: an event needs prev and hash")
    sequence, time = event.get("sequence"), _time(event["time"])
    if type(sequence) is not int or not 1 <= sequence <= MAX_SEQUENCE:
        raise ValueError(f"an event needs a sequence from 1 to {MAX_SEQUENCE}")
    payload = event.get("payload")
    said: Mapping[str, Any] = payload if isinstance(payload, Mapping) else {}
    ends = event["event_type"] in ENDS
    return Link(
        request_key=event["request_key"],
        chain=event["chain"],
        sequence=sequence,
        event_type=event["event_type"],
        time=time,
        prev=event["prev"],
        hash=event["hash"],
        intact=event_hash(event) == event["hash"],
        continues=str(said.get("continues") or ""),
        replayed=said.get("replayed") is True,
        end=_end(event, sequence, time, said) if ends else None,
    )


def _end(event: Mapping[str, Any], sequence: int, time: datetime, said: Mapping[str, Any]) -> End:
    end = End(sequence, time, str(said.get("result_sha256") or ""))
    signature = event.get("signature")
    if not isinstance(signature, Mapping):
        return end
    try:
        value = base64.b64decode(str(signature.get("value")), validate=True)
    except (binascii.Error, ValueError):
        value = b""
    key_id = str(signature.get("key_id"))
    return End(sequence, time, end.result_sha256, key_id, value, head_text(event))


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as e:
        raise ValueError("an event needs a time") from e
    if time.tzinfo is None:
        raise ValueError("an event needs a time with an offset")
    return time
