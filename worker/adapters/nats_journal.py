"""The journal of requests in a KV bucket: one numbered list per request, appended to by create only.

The list is also the lock. A run appends `begin` at the next free number; from then on every append of an older run
meets a taken number and raises LostClaim. No lease, no clock and no liveness check is needed for that. What it can't
do is see whether the older run still lives: one that is frozen in a paid call when its message is redelivered has
that one call paid twice, as after a kill.

A step is one line of JSON (its head), then its data. Steps above INLINE_BYTES keep their data in the object store,
under a name with the run in it. Subjects and objects are laid out as NATS ADR-8 and ADR-20 say, so any client can look
into the bucket. nats-py's own KV class isn't used: its `create` answers "exists" for an entry of our own whose ack was
lost, and "not found" to the loser of a race on replicas.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError
from nats.js.object_store import ObjectStore
from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.subjects import kv_key
from worker.domain.errors import JournalGap, LostClaim, Unavailable
from worker.domain.journal import BEGIN, END
from worker.domain.ports import Step

FORMAT = 1
INLINE_BYTES = 256 * 1024
STEP_BYTES = 16 * 1024 * 1024
OBJECT_REQUEST_SECONDS = 5.0


class StoredMessage(Protocol):
    """A message of the bucket's stream."""

    @property
    def subject(self) -> str: ...
    @property
    def body(self) -> bytes: ...


class FencedLog(Protocol):
    """The bucket's stream. Both methods ask its leader and raise Unavailable."""

    async def newest(self, subject: str) -> StoredMessage | None:
        """The last message on a subject, wildcards allowed."""

    async def create(self, subject: str, body: bytes, *, msg_id: str) -> StoredMessage:
        """Store the first message of a subject. What is stored there now, which may be another writer's."""


class _Version(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    v: int


class _Head(_Version):
    """The first line of a step. `object` names its data in the object store, empty when the data follows."""

    v: int = FORMAT
    kind: str
    run: str
    notes: dict[str, Any]
    size: int
    sha256: str
    object: str = ""


class NatsJournal:
    """Implements Journal. `log` is the stream of the bucket, `nc` serves the object store of the same name."""

    def __init__(self, log: FencedLog, nc: Client, bucket: str) -> None:
        self._log, self._bucket = log, bucket
        self._js = nc.jetstream(timeout=OBJECT_REQUEST_SECONDS)

    async def open(self, request_key: str, run: str) -> NatsJournalRun:
        """`run` is unique for a delivery, not for a process: a redelivery can reach the process that runs it."""
        key = kv_key(request_key)
        return NatsJournalRun(self, key, run, await self._steps(key))

    async def create(self, key: str, step: Step) -> bool:
        """Store one step under its number. False: an earlier append of the same run stands there.

        Such an append was cancelled after the server had it. Raises LostClaim when another run's step stands there,
        Unavailable, and ValueError above STEP_BYTES.
        """
        if len(step.data) > STEP_BYTES:
            raise ValueError(f"a journal step of {len(step.data)} bytes, at most {STEP_BYTES}")
        name, data = f"{key}.{step.number}.{step.run}", step.data
        large = len(data) > INLINE_BYTES
        head = _Head(
            kind=step.kind,
            run=step.run,
            notes=dict(step.notes),
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            object=name if large else "",
        )
        if large:
            # First the object, then the step that names it. No two runs share an object: put() on a shared name lets
            # them purge each other's chunks. A loser's object stays until its TTL.
            await self._put_object(name, data)
        body = head.model_dump_json().encode() + b"\n" + (b"" if large else data)
        stored = await self._log.create(self._subject(key, str(step.number)), body, msg_id=name)
        if stored.body == body:  # perhaps stored by an earlier try, whose ack was lost
            return True
        if (owner := _owner(stored.body)) != step.run:
            raise LostClaim(f"{key}: step {step.number} was written by {owner or 'an unknown writer'}")
        return False

    def _subject(self, key: str, number: str) -> str:
        return f"$KV.{self._bucket}.{key}.{number}"

    async def _steps(self, key: str) -> list[Step]:
        """All steps in order. `*` is one token: an incident's list never picks up a recovery of the same id."""
        newest = await self._log.newest(self._subject(key, "*"))
        if newest is None:
            return []
        last, steps = newest.subject.rpartition(".")[2], list[Step]()
        if not (last.isascii() and last.isdecimal()):
            raise JournalGap(f"{key}: {last!r} is not the number of a step")
        total = int(last)
        for number in range(1, total):
            message = await self._log.newest(self._subject(key, str(number)))
            if message is None:
                raise JournalGap(f"{key}: step {number} of {total} is gone")
            steps.append(await self._decode(number, message.body))
        return [*steps, await self._decode(total, newest.body)]

    async def _decode(self, number: int, body: bytes) -> Step:
        line, _, data = body.partition(b"\n")
        try:
            version = _Version.model_validate_json(line).v
            if version != FORMAT:
                raise JournalGap(f"step {number}: format {version}, this version reads {FORMAT}")
            head = _Head.model_validate_json(line)
        except ValidationError as e:  # a delete marker of a KV client, for one
            raise JournalGap(f"step {number}: not a journal step") from e
        if head.object:
            data = await self._get_object(head.object, head.size)
        if hashlib.sha256(data).hexdigest() != head.sha256:
            raise JournalGap(f"step {number}: its content does not match its hash")
        return Step(number, head.kind, head.run, data, head.notes)

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
                raise JournalGap(f"{name}: a part in the object store is gone") from e
        return data


class NatsJournalRun:
    """Implements JournalRun."""

    def __init__(self, journal: NatsJournal, key: str, run: str, past: Sequence[Step]) -> None:
        self._journal, self._key, self._run = journal, key, run
        self._past, self._next = tuple(past), len(past) + 1

    @property
    def past(self) -> Sequence[Step]:
        return self._past

    async def begin(self, *, alone: bool = False) -> None:
        await self.append(BEGIN, alone=alone)

    async def append(self, kind: str, data: bytes = b"", **notes: Any) -> None:
        """On Unavailable it isn't known whether the step is stored: give up the run, the next one will see."""
        stored = False
        while not stored:
            step = Step(self._next, kind, self._run, data, notes)
            stored = await self._journal.create(self._key, step)
            self._next += 1

    async def end(self, outcome: str, **notes: Any) -> None:
        await self.append(END, outcome=outcome, **notes)


@contextlib.contextmanager
def _unavailable(what: str) -> Iterator[None]:
    """Vendor errors become Unavailable: nothing is known to be stored, or nothing can be read."""
    try:
        yield
    except (TimeoutError, nats.errors.Error) as e:
        raise Unavailable(f"object store, {what}: {e!r}") from e


def _owner(body: bytes) -> str:
    """The run that wrote a step, empty when it can't be told."""
    try:
        return _Head.model_validate_json(body.partition(b"\n")[0]).run
    except ValidationError:
        return ""
