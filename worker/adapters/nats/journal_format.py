"""The bytes of a journal step.

They are one line of JSON (the head), one line for each audit event of the step, then its data.

What follows the head is the content. It is not compressed in steps that describe a run, so that each version
can count runs. All other steps are compressed (deflate), with the contents of earlier steps and a fixed text
as dictionary, because the steps of a request repeat one another. These are the steps of the same run from the
number `since` in the head on. If one of them cannot be read, the step cannot be read either.

Audit events are compressed without what follows from the event before. In front of them stand the first bytes
of the hash of what the step holds, so that a step comes back byte for byte or is unreadable.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from worker.domain.audit.record import read_record, restored, shortened
from worker.domain.values.ports import AuditRecord, Step
from worker.domain.values.step_kinds import BEGIN, END, FINISHED, UNREADABLE

PLAIN, PACKED, CHAINED, COMPACT = 2, 3, 4, 5
"""The formats: as it is; compressed on its own, and with a dictionary, which only earlier versions write;
compressed with a dictionary, without what can be derived.
"""
OF_RUNS = frozenset({BEGIN, END, FINISHED})
"""The kinds that describe a run."""
INLINE_BYTES = 256 * 1024
STEP_BYTES = 16 * 1024 * 1024
DICTIONARY_BYTES = 32 * 1024
"""How far back zlib can refer."""
WORDS = Path(__file__).with_name("journal_words.txt").read_bytes()
"""The end of each dictionary: text of most journals. If it changed, no stored step could be read."""
LEVEL, RAW = 5, -zlib.MAX_WBITS
"""Level and window of the compression.

Higher levels take 19 ms or more for 256 KiB of the worst input. RAW is deflate without the header and
the checksum of zlib.
"""
DIGEST_BYTES = 8


class Unreadable(Exception):  # noqa: N818 - a state
    """Why a step cannot be read."""


class _Version(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    v: int


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    sequence: int
    sha256: str


class Head(_Version):
    """The first line of a step. `object` names its data in the object store; empty if the data follow.

    `size` is that of the data. CHAINED and COMPACT steps have it only if the data is in the object store, and
    have the number of events (`lines`) and no `events`. `sha256` is the hash of the data; in a CHAINED step
    that of events and data.
    """

    kind: str
    run: str
    notes: dict[str, Any] = {}
    size: int = 0
    sha256: str = ""
    object: str = ""
    events: tuple[_Event, ...] = ()
    lines: int = 0
    since: int = 0


def encode(step: Step, before: Sequence[Step], name: str) -> bytes:
    """The bytes of a step.

    `before`: the steps that its run wrote immediately before it. `name`: the name of its object if it is
    large.
    """
    large = is_large(step)
    shared: dict[str, Any] = {
        "kind": step.kind,
        "run": step.run,
        "notes": dict(step.notes),
        "object": name if large else "",
    }
    if step.kind in OF_RUNS:
        events = tuple(_Event(sequence=event.sequence, sha256=_sha256(event.body)) for event in step.events)
        head = Head(v=PLAIN, **shared, size=len(step.data), sha256=_sha256(step.data), events=events)
        return head.model_dump_json(exclude={"lines", "since"}).encode() + b"\n" + _content(step)
    size, since = len(step.data) if large else 0, before[0].number if before else 0
    head = Head(v=COMPACT, **shared, size=size, lines=len(step.events), since=since)
    digest = hashlib.sha256(_joined(step.events, step.data)).digest()[:DIGEST_BYTES]
    packer = zlib.compressobj(level=LEVEL, wbits=RAW, zdict=_dictionary(before, shortened, WORDS))
    content = b"\n".join([*_short_lines(step, _tail(before)), b"" if large else step.data])
    packed = packer.compress(content) + packer.flush()
    return head.model_dump_json(exclude_defaults=True).encode() + b"\n" + digest + packed


def read_head(body: bytes) -> Head:
    """The first line of a step. Raises Unreadable."""
    line = body.partition(b"\n")[0]
    try:
        version = _Version.model_validate_json(line).v
        if version not in {PLAIN, PACKED, CHAINED, COMPACT}:
            raise Unreadable(f"format {version}, this version reads {PLAIN} to {COMPACT}")
        return Head.model_validate_json(line)
    except ValidationError as e:  # a delete marker of a KV client, for one
        raise Unreadable("not a journal step") from e


def decode(number: int, body: bytes, large: bytes, before: Sequence[Step]) -> Step:
    """The step with this number. `before` are the steps before it, `large` is what is in the object store.

    Raises Unreadable.
    """
    head, rest = read_head(body), body.partition(b"\n")[2]
    earlier = before[head.since - 1 :] if head.since else ()
    if any(step.kind == UNREADABLE for step in earlier):
        raise Unreadable("it continues a step that cannot be read")
    *lines, data = _unpacked(head.v, rest, earlier).split(b"\n", head.lines or len(head.events))
    if head.object and len(large) < head.size:
        raise Unreadable("a part in the object store is gone")
    data = large if head.object else data
    if head.v < CHAINED and [event.sha256 for event in head.events] != [_sha256(line) for line in lines]:
        raise Unreadable("its events do not match their hashes")
    try:
        records = _records(lines, head.run, _tail(earlier))
    except ValueError as e:
        raise Unreadable("one of its audit events cannot be read") from e
    digest = _sha256(data if head.v < CHAINED else _joined(records, data))
    kept = rest[:DIGEST_BYTES].hex() if head.v == COMPACT else head.sha256
    if kept != (digest[: 2 * DIGEST_BYTES] if head.v == COMPACT else digest):
        raise Unreadable("its content does not match its hash")
    return Step(number, head.kind, head.run, data, head.notes, records)


def is_large(step: Step) -> bool:
    """True if its data is in the object store."""
    return len(step.data) > INLINE_BYTES


def _short_lines(step: Step, tail: str) -> Iterator[bytes]:
    """The events of a step after the one with the hash `tail`, each in its short form if it has one."""
    for event in step.events:
        short = shortened(event.body)
        yield short if restored(short, step.run, tail) == event.body else event.body
        tail = event.hash


def _records(lines: Sequence[bytes], run: str, tail: str) -> tuple[AuditRecord, ...]:
    """The events that are stored like this. Raises ValueError."""
    records: list[AuditRecord] = []
    for line in lines:
        body = line if line.startswith(b"{") else restored(line, run, tail)
        records.append(read_record(body))
        tail = records[-1].hash
    return tuple(records)


def _tail(steps: Sequence[Step]) -> str:
    """The hash of the last event of these steps; empty if they have none."""
    return next((step.events[-1].hash for step in reversed(steps) if step.events), "")


def _joined(events: Sequence[AuditRecord], data: bytes, form: Callable[[bytes], bytes] = bytes) -> bytes:
    """One line for each event, in this form, then the data."""
    return b"\n".join([*(form(event.body) for event in events), data])


def _content(step: Step, form: Callable[[bytes], bytes] = bytes) -> bytes:
    """What follows the head, before compression."""
    return _joined(step.events, b"" if is_large(step) else step.data, form)


def _dictionary(steps: Sequence[Step], form: Callable[[bytes], bytes] = bytes, found: bytes = b"") -> bytes:
    """The end of what these steps hold, with their events in this form, in front of what is `found`."""
    for step in reversed(steps):
        if len(found) >= DICTIONARY_BYTES:
            break
        found = _content(step, form) + found
    return found[-DICTIONARY_BYTES:]


def _unpacked(version: int, packed: bytes, earlier: Sequence[Step]) -> bytes:
    """Return the content of a step."""
    if version == PLAIN:
        return packed
    if version == COMPACT:
        packed = packed[DIGEST_BYTES:]
        unpacker = zlib.decompressobj(RAW, zdict=_dictionary(earlier, shortened, WORDS))
    else:
        unpacker = zlib.decompressobj(zdict=_dictionary(earlier))
    try:
        content = unpacker.decompress(packed, STEP_BYTES)
    except zlib.error as e:
        raise Unreadable("its content cannot be decompressed") from e
    if not unpacker.eof:
        raise Unreadable(f"its content is cut, or larger than {STEP_BYTES} bytes")
    return content


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
