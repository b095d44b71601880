"""A journal step as bytes: one line of JSON (the head), one line for each audit event of the step, then its
data.

What follows the head is the content. It is not compressed in steps that describe a run, so that each version
can count runs. All other steps are compressed (zlib), with the end of the contents of earlier steps as
dictionary, because the steps of a request repeat one another. These are steps of the same run, from the
number `since` in the head on. If one of them cannot be read, the step cannot be read either.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from worker.domain.audit.record import read_record
from worker.domain.values.ports import Step
from worker.domain.values.step_kinds import BEGIN, END, FINISHED, UNREADABLE

PLAIN, PACKED, CHAINED = 2, 3, 4
"""The formats: as it is, compressed on its own (which only earlier versions write), compressed with a
dictionary."""
OF_RUNS = frozenset({BEGIN, END, FINISHED})
"""The kinds that describe a run."""
INLINE_BYTES = 256 * 1024
STEP_BYTES = 16 * 1024 * 1024
DICTIONARY_BYTES = 32 * 1024
"""How far back zlib can refer."""
LEVEL = 5
"""Of compression. Levels above take 19 ms or more for 256 KiB that are made to be slow."""


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

    `size` is that of the data; a CHAINED step has it only if the data is in the object store. `sha256` is the
    hash of the data; in a CHAINED step that of content and data, so that it has the number of events
    (`lines`) and no `events`.
    """

    kind: str
    run: str
    notes: dict[str, Any] = {}
    size: int = 0
    sha256: str
    object: str = ""
    events: tuple[_Event, ...] = ()
    lines: int = 0
    since: int = 0


def encode(step: Step, before: Sequence[Step], name: str) -> bytes:
    """`before` are the steps that its run has written just before it, `name` is that of its object if it is
    large.
    """
    content, large = _content(step), is_large(step)
    shared: dict[str, Any] = {
        "kind": step.kind,
        "run": step.run,
        "notes": dict(step.notes),
        "object": name if large else "",
    }
    if step.kind in OF_RUNS:
        events = tuple(_Event(sequence=event.sequence, sha256=_sha256(event.body)) for event in step.events)
        head = Head(v=PLAIN, **shared, size=len(step.data), sha256=_sha256(step.data), events=events)
        return head.model_dump_json(exclude={"lines", "since"}).encode() + b"\n" + content
    since, dictionary = _dictionary(before)
    outside = step.data if large else b""
    digest, lines = _sha256(content + outside), len(step.events)
    head = Head(v=CHAINED, **shared, size=len(outside), sha256=digest, lines=lines, since=since)
    packer = zlib.compressobj(level=LEVEL, zdict=dictionary)
    packed = packer.compress(content) + packer.flush()
    return head.model_dump_json(exclude_defaults=True).encode() + b"\n" + packed


def read_head(body: bytes) -> Head:
    """Raises Unreadable."""
    line = body.partition(b"\n")[0]
    try:
        version = _Version.model_validate_json(line).v
        if version not in {PLAIN, PACKED, CHAINED}:
            raise Unreadable(f"format {version}, this version reads {PLAIN} to {CHAINED}")
        return Head.model_validate_json(line)
    except ValidationError as e:  # a delete marker of a KV client, for one
        raise Unreadable("not a journal step") from e


def decode(number: int, body: bytes, large: bytes, before: Sequence[Step]) -> Step:
    """The step with this number, after the steps 1, 2, ... `before` it. `large` is what is in the object
    store.

    Raises Unreadable.
    """
    head, rest = read_head(body), body.partition(b"\n")[2]
    content = rest if head.v == PLAIN else _unpacked(rest, head, before)
    *lines, data = content.split(b"\n", head.lines if head.v == CHAINED else len(head.events))
    if head.object and len(large) < head.size:
        raise Unreadable("a part in the object store is gone")
    data = large if head.object else data
    if head.v != CHAINED and [event.sha256 for event in head.events] != [_sha256(line) for line in lines]:
        raise Unreadable("its events do not match their hashes")
    if head.sha256 != _sha256(content + large if head.v == CHAINED else data):
        raise Unreadable("its content does not match its hash")
    try:
        return Step(number, head.kind, head.run, data, head.notes, tuple(map(read_record, lines)))
    except ValueError as e:
        raise Unreadable("one of its audit events cannot be read") from e


def is_large(step: Step) -> bool:
    """True if its data is in the object store."""
    return len(step.data) > INLINE_BYTES


def _content(step: Step) -> bytes:
    """What follows the head, before compression."""
    return b"\n".join([*(event.body for event in step.events), b"" if is_large(step) else step.data])


def _dictionary(steps: Sequence[Step]) -> tuple[int, bytes]:
    """The end of what these steps hold, and the number of the first one that it is from; 0 without steps."""
    since, found = 0, b""
    for step in reversed(steps):
        if len(found) >= DICTIONARY_BYTES:
            break
        since, found = step.number, _content(step) + found
    return since, found[-DICTIONARY_BYTES:]


def _unpacked(packed: bytes, head: Head, before: Sequence[Step]) -> bytes:
    """Return the content of a compressed step."""
    earlier = before[head.since - 1 :] if head.since else ()
    if any(step.kind == UNREADABLE for step in earlier):
        raise Unreadable("it continues a step that cannot be read")
    unpacker = zlib.decompressobj(zdict=_dictionary(earlier)[1])
    try:
        content = unpacker.decompress(packed, STEP_BYTES)
    except zlib.error as e:
        raise Unreadable("its content cannot be decompressed") from e
    if not unpacker.eof:
        raise Unreadable(f"its content is cut, or larger than {STEP_BYTES} bytes")
    return content


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
