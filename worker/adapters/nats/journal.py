"""The journal of requests in a KV bucket: one numbered list per request, appended to by create only.

The list is also the lock. Each append names the sequence of the last step that its run knows, so from the `begin` of
a run on every append of an older one raises LostClaim. That needs no lease, no clock and no liveness check. It does not
show whether the older run still lives: one that is frozen in a paid call when its message is redelivered has that one
call paid twice, as after a kill.

When the result of a request is stored, a `finished` step is appended and all others are deleted. It still fences older
runs, and shows a redelivered message that its request was answered.

A step is one line of JSON (its head), one line for each audit event that belongs to it, then its data. What follows the
head is compressed (zlib) if the head says PACKED. Steps above INLINE_BYTES keep their data in the object store, under a
name with the run in it. Subjects and objects are laid out as NATS ADR-8 and ADR-20 say, so any client can look into the
bucket. nats-py's own KV class isn't used: its `create`
answers "exists" for an entry of our own whose ack was lost, and "not found" to the loser of a race on replicas.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError
from nats.js.object_store import ObjectStore
from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.subjects import kv_key
from worker.adapters.nats.stream import FencedStream
from worker.domain.audit.record import read_record
from worker.domain.journal.steps import finished, since_finished
from worker.domain.values.errors import LostClaim, Unavailable
from worker.domain.values.ports import AuditRecord, Step
from worker.domain.values.step_kinds import FINISHED, UNREADABLE
from worker.domain.values.together import together

PLAIN, PACKED = 2, 3
"""The formats. Workers up to 0.1 read PLAIN only, so short steps keep it: among them the one that is left of a request."""
PACKED_FROM_BYTES = 1_024
INLINE_BYTES = 256 * 1024
STEP_BYTES = 16 * 1024 * 1024
OBJECT_REQUEST_SECONDS = 5.0
MAX_DIGITS = 7
READS_AT_ONCE = 16


class _Version(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    v: int


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    sequence: int
    sha256: str


class _Unreadable(Exception):  # noqa: N818 - a state
    """Why a step cannot be gone on from."""


class _Head(_Version):
    """The first line of a step. `object` names its data in the object store, empty when the data follows."""

    v: int = PLAIN
    kind: str
    run: str
    notes: dict[str, Any]
    size: int
    sha256: str
    object: str = ""
    events: tuple[_Event, ...] = ()


class NatsJournal:
    """Implements Journal. `stream` is that of the bucket, `nc` serves the object store of the same name."""

    def __init__(self, stream: FencedStream, nc: Client, bucket: str) -> None:
        self._stream, self._bucket = stream, bucket
        self._js = nc.jetstream(timeout=OBJECT_REQUEST_SECONDS)

    async def open(self, request_key: str, run: str) -> NatsJournalRun:
        """`run` is unique for a delivery, not for a process: a redelivery can reach the process that runs it."""
        key = kv_key(request_key)
        steps, after = await self._steps(key)
        return NatsJournalRun(self, key, run, steps, after)

    async def create(self, key: str, step: Step, after: int) -> tuple[bool, int]:
        """Store one step under its number; `after` is the sequence of the last one. Returns the sequence of what is stored.

        False with it: an earlier append of the same run stands there, which was cancelled after the server had it. Raises
        LostClaim when another run's step stands there or anywhere behind, Unavailable, and ValueError above STEP_BYTES.
        """
        if len(step.data) > STEP_BYTES:
            raise ValueError(f"a journal step of {len(step.data)} bytes, at most {STEP_BYTES}")
        name, data = object_name(key, step), step.data
        large = is_large(step)
        head = _Head(
            kind=step.kind,
            run=step.run,
            notes=dict(step.notes),
            size=len(data),
            sha256=_sha256(data),
            object=name if large else "",
            events=tuple(_Event(sequence=e.sequence, sha256=_sha256(e.body)) for e in step.events),
        )
        if large:
            # First the object, then the step that names it. No two runs share an object: put() on a shared name lets
            # them purge each other's chunks. A loser's object stays until its TTL.
            await self._put_object(name, data)
        body = _body(head, [*(event.body for event in step.events), b"" if large else data])
        stored = await self._stream.create(
            self._subject(key, str(step.number)),
            body,
            msg_id=name,
            replacing=after,
            among=self._subject(key, "*"),
        )
        if stored.body == body:
            if not stored.ours:  # stored by an earlier try, whose ack was lost: others may have gone on since
                await self._check_last(key, step)
            return True, stored.sequence
        if (owner := _owner(stored.body)) != step.run:
            raise LostClaim(f"{key}: step {step.number} was written by {owner or 'an unknown writer'}")
        return False, stored.sequence

    async def _check_last(self, key: str, step: Step) -> None:
        newest = await self._stream.newest(self._subject(key, "*"))
        if newest is not None and _number(newest.subject) > step.number:
            raise LostClaim(f"{key}: another run has gone on after step {step.number}")

    async def retire(self, key: str, objects: Sequence[str]) -> None:
        """Delete all steps but the last, and these objects. What is not deleted expires. Raises Unavailable."""
        await self._stream.purge(self._subject(key, "*"), keep=1)
        if objects:
            store = await self._objects()
            for name in objects:
                with _unavailable(name), contextlib.suppress(NotFoundError):
                    await store.delete(name)

    def _subject(self, key: str, number: str) -> str:
        return f"$KV.{self._bucket}.{key}.{number}"

    async def _steps(self, key: str) -> tuple[list[Step], int]:
        """All steps in order, and the sequence of the last one. Of a finished request only the last step counts.

        `*` is one token: an incident's list never picks up a recovery of the same id.
        """
        newest = await self._stream.newest(self._subject(key, "*"))
        if newest is None:
            return [], 0
        total = _number(newest.subject)
        if not total:  # somebody has put something else there: what the last step is must be looked up
            total = max(map(_number, await self._stream.subjects(self._subject(key, "*"))), default=0)

        async def step(number: int) -> Step:
            known = number == _number(newest.subject)
            message = newest if known else await self._stream.newest(self._subject(key, str(number)))
            try:
                return await self._decode(number, message.body if message else None)
            except _Unreadable as e:
                return Step(number, UNREADABLE, "", b"", {"why": f"step {number} of {total}: {e}"})

        last = [await step(total)] if total else []
        if finished(last):
            return last, newest.sequence
        earlier = await together([step(number) for number in range(1, total)], at_once=READS_AT_ONCE)
        return list(since_finished([*earlier, *last])), newest.sequence

    async def _decode(self, number: int, body: bytes | None) -> Step:
        if body is None:
            raise _Unreadable("it is gone")
        line, _, rest = body.partition(b"\n")
        try:
            version = _Version.model_validate_json(line).v
            if version not in {PLAIN, PACKED}:
                raise _Unreadable(f"format {version}, this version reads {PLAIN} and {PACKED}")
            head = _Head.model_validate_json(line)
        except ValidationError as e:  # a delete marker of a KV client, for one
            raise _Unreadable("not a journal step") from e
        *lines, data = (_unpacked(rest) if version == PACKED else rest).split(b"\n", len(head.events))
        events = _events(head, lines)
        if head.object:
            data = await self._get_object(head.object, head.size)
        if _sha256(data) != head.sha256:
            raise _Unreadable("its content does not match its hash")
        return Step(number, head.kind, head.run, data, head.notes, events)

    async def _objects(self) -> ObjectStore:
        with _unavailable(self._bucket):
            return await self._js.object_store(self._bucket)

    async def _put_object(self, name: str, data: bytes) -> None:
        store = await self._objects()
        with _unavailable(name):
            await store.put(name, data)

    async def _get_object(self, name: str, size: int) -> bytes:
        """Not ObjectStore.get(): it waits for ever for a missing chunk, and needs the right to create consumers."""
        store = await self._objects()
        data, after = b"", 1
        with _unavailable(name):
            try:
                info = await store.get_info(name)
                while len(data) < size:
                    chunk = await self._js.get_msg(
                        f"OBJ_{self._bucket}",
                        seq=after,
                        next=True,
                        subject=f"$O.{self._bucket}.C.{info.nuid}",
                    )
                    data, after = data + (chunk.data or b""), (chunk.seq or 0) + 1
            except NotFoundError as e:
                raise _Unreadable("a part in the object store is gone") from e
        return data


class NatsJournalRun:
    """Implements JournalRun."""

    def __init__(self, journal: NatsJournal, key: str, run: str, past: Sequence[Step], after: int) -> None:
        self._journal, self._key, self._run, self._after = journal, key, run, after
        self._past, self._next = tuple(past), past[-1].number + 1 if past else 1
        self._finished = finished(past)
        self._objects = [object_name(key, step) for step in past if is_large(step)]

    @property
    def past(self) -> Sequence[Step]:
        return self._past

    async def append(
        self, kind: str, data: bytes = b"", *, events: Sequence[AuditRecord] = (), **notes: Any
    ) -> None:
        """On Unavailable it isn't known whether the step is stored: give up the run, the next one will see."""
        stored = False
        while not stored:
            step = Step(self._next, kind, self._run, data, notes, events)
            stored, self._after = await self._journal.create(self._key, step, self._after)
            self._next += 1
        self._finished = kind == FINISHED
        if is_large(step):
            self._objects.append(object_name(self._key, step))

    async def finish(self, **notes: Any) -> None:
        if not self._finished:
            await self.append(FINISHED, **notes)
        await self._journal.retire(self._key, self._objects)


def is_large(step: Step) -> bool:
    """True if its data is in the object store."""
    return len(step.data) > INLINE_BYTES


def object_name(key: str, step: Step) -> str:
    """Of the data of a large step."""
    return f"{key}.{step.number}.{step.run}"


@contextlib.contextmanager
def _unavailable(what: str) -> Iterator[None]:
    """Vendor errors become Unavailable: nothing is known to be stored, or nothing can be read."""
    try:
        yield
    except (TimeoutError, nats.errors.Error) as e:
        raise Unavailable(f"object store, {what}: {e!r}") from e


def _body(head: _Head, parts: Sequence[bytes]) -> bytes:
    """A step as it is stored."""
    rest = b"\n".join(parts)
    if len(rest) >= PACKED_FROM_BYTES:
        # Fast rather than small; a small window, since setting one up takes longer than compressing a step.
        packer = zlib.compressobj(level=2, wbits=14, memLevel=7)
        head, rest = head.model_copy(update={"v": PACKED}), packer.compress(rest) + packer.flush()
    return head.model_dump_json().encode() + b"\n" + rest


def _unpacked(packed: bytes) -> bytes:
    """Return what follows the head of a packed step."""
    unpacker = zlib.decompressobj()
    try:
        rest = unpacker.decompress(packed, STEP_BYTES)
    except zlib.error as e:
        raise _Unreadable("its content cannot be decompressed") from e
    if not unpacker.eof:
        raise _Unreadable(f"its content is cut, or larger than {STEP_BYTES} bytes")
    return rest


def _owner(body: bytes) -> str:
    """The run that wrote a step, empty if it can't be told."""
    try:
        return _Head.model_validate_json(body.partition(b"\n")[0]).run
    except ValidationError:
        return ""


def _number(subject: str) -> int:
    """The number of a step; 0 when the subject is none of a step."""
    last = subject.rpartition(".")[2]
    return int(last) if last.isascii() and last.isdecimal() and len(last) < MAX_DIGITS else 0


def _events(head: _Head, lines: Sequence[bytes]) -> tuple[AuditRecord, ...]:
    """The events of a step, byte for byte as they were kept."""
    if [event.sha256 for event in head.events] != [_sha256(line) for line in lines]:
        raise _Unreadable("its events do not match their hashes")
    try:
        return tuple(map(read_record, lines))
    except ValueError as e:
        raise _Unreadable("one of its events is none") from e


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
