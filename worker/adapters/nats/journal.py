"""The journal of requests in a KV bucket: one numbered list per request, appended to by create only.

The list is also the lock. Each append names the sequence of the last step that its run knows, so from the
`begin` of a run on every append of an older one raises LostClaim. That needs no lease, no clock and no
liveness check. The lock does not tell whether the older run is still alive. If that run is frozen in a paid
call while its message is redelivered, this one call is paid for twice, as after a kill.

When the result of a request is stored, a `finished` step is appended and all others are deleted. It still
fences older runs, and shows a redelivered message that its request was answered.

Steps above INLINE_BYTES keep their data in the object store, under a name with the run in it. Subjects and
objects are laid out as NATS ADR-8 and ADR-20 say, so any client can look into the bucket. nats-py's own KV
class isn't used: its `create` answers "exists" for an entry of our own whose ack was lost, and "not found" to
the loser of a race on replicas.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError
from nats.js.object_store import ObjectStore

from schemas.subjects import kv_key
from worker.adapters.nats.journal_format import STEP_BYTES, Unreadable, decode, encode, is_large, read_head
from worker.adapters.nats.stream import FencedStream, StoredMessage
from worker.domain.journal.steps import finished, since_finished
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import LostClaim, Unavailable
from worker.domain.values.ports import AuditRecord, Step
from worker.domain.values.step_kinds import FINISHED, UNREADABLE

OBJECT_REQUEST_SECONDS = 5.0
MAX_DIGITS = 7
READS_AT_ONCE = 16


class NatsJournal:
    """Implements Journal. `stream` is that of the bucket, `nc` serves the object store of the same name."""

    def __init__(self, stream: FencedStream, nc: Client) -> None:
        self._stream, self._bucket = stream, stream.bucket
        self._js = nc.jetstream(timeout=OBJECT_REQUEST_SECONDS)

    async def open(self, request_key: str, run: str) -> NatsJournalRun:
        """Open the journal of a request. `run` is unique for a delivery: a redelivery can reach the same process."""
        key = kv_key(request_key)
        steps, after = await self._steps(key)
        return NatsJournalRun(self, key, run, steps, after)

    async def create(self, key: str, step: Step, after: int, before: Sequence[Step] = ()) -> tuple[bool, int]:
        """Store one step under its number. Returns the sequence of what is stored.

        `after` is the sequence of the last step, `before` are those that its run has written without a gap.

        False with it: the step is there from an earlier append of the same run, which was cancelled after the
        server had it. Raises LostClaim if another run's step is there or anywhere behind, Unavailable, and
        ValueError above STEP_BYTES.
        """
        if len(step.data) > STEP_BYTES:
            raise ValueError(f"a journal step of {len(step.data)} bytes, at most {STEP_BYTES}")
        name = object_name(key, step)
        if is_large(step):
            # First the object, then the step that names it. No two runs share an object: put() on a shared
            # name lets them purge each other's chunks. A loser's object stays until its TTL.
            await self._stream.patiently(f"store {name}", lambda: self._put_object(name, step.data))
        body = encode(step, before, name)
        stored = await self._stream.create(
            self._subject(key, str(step.number)), body, replacing=after, among=self._subject(key, "*")
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
        """Delete all steps but the last, and these objects. The rest expires. Raises Unavailable."""
        await self._stream.purge(self._subject(key, "*"), keep=1)
        if objects:
            store = await self._objects()
            for name in objects:
                with _unavailable(name), contextlib.suppress(NotFoundError):
                    await store.delete(name)

    def _subject(self, key: str, number: str) -> str:
        return f"$KV.{self._bucket}.{key}.{number}"

    async def _steps(self, key: str) -> tuple[list[Step], int]:
        """All steps in order, and the sequence of the last one.

        Of a finished request only the last step counts.

        `*` is one token: an incident's list never picks up a recovery of the same id.
        """
        newest = await self._stream.newest(self._subject(key, "*"))
        if newest is None:
            return [], 0
        total = _number(newest.subject)
        if not total:  # another client has put something else there: the last step must be looked up
            total = max(map(_number, await self._stream.subjects(self._subject(key, "*"))), default=0)
        if not total:
            return [], newest.sequence

        async def stored(number: int) -> tuple[bytes | None, bytes]:
            known = number == _number(newest.subject)
            message = newest if known else await self._stream.newest(self._subject(key, str(number)))
            return await self._stored(message)

        last = await stored(total)
        if finished(steps := [_step(total, total, last, [])]):
            return steps, newest.sequence
        earlier = await concurrently([stored(number) for number in range(1, total)], at_once=READS_AT_ONCE)
        steps = []
        for number, parts in enumerate([*earlier, last], 1):
            steps.append(_step(number, total, parts, steps))
            await asyncio.sleep(0)  # a journal can be long
        return list(since_finished(steps)), newest.sequence

    async def _stored(self, message: StoredMessage | None) -> tuple[bytes | None, bytes]:
        """A step as it is stored, None if it is gone, and what is there of its data in the object store."""
        if message is None:
            return None, b""
        with contextlib.suppress(Unreadable):
            if (head := read_head(message.body)).object:
                return message.body, await self._get_object(head.object, head.size)
        return message.body, b""

    async def _objects(self) -> ObjectStore:
        with _unavailable(self._bucket):
            return await self._js.object_store(self._bucket)

    async def _put_object(self, name: str, data: bytes) -> None:
        await (await self._js.object_store(self._bucket)).put(name, data)

    async def _get_object(self, name: str, size: int) -> bytes:
        """What is there of an object.

        Not ObjectStore.get(): it waits for ever for a missing chunk, and needs the right to create consumers.
        """
        store = await self._objects()
        data, after = b"", 1
        with _unavailable(name), contextlib.suppress(NotFoundError):
            info = await store.get_info(name)
            while len(data) < size:
                chunk = await self._js.get_msg(
                    f"OBJ_{self._bucket}", seq=after, next=True, subject=f"$O.{self._bucket}.C.{info.nuid}"
                )
                data, after = data + (chunk.data or b""), (chunk.seq or 0) + 1
        return data


class NatsJournalRun:
    """Implements JournalRun."""

    def __init__(self, journal: NatsJournal, key: str, run: str, past: Sequence[Step], after: int) -> None:
        self._journal, self._key, self._run, self._after = journal, key, run, after
        self._past, self._next = tuple(past), past[-1].number + 1 if past else 1
        self._finished = finished(past)
        self._objects = [object_name(key, step) for step in past if is_large(step)]
        self._written: list[Step] = []
        """The steps of this run, since the last one of which it does not know what is stored."""

    @property
    def past(self) -> Sequence[Step]:
        return self._past

    async def append(
        self, kind: str, data: bytes = b"", *, events: Sequence[AuditRecord] = (), **notes: Any
    ) -> None:
        """Store a step. After Unavailable, it is unknown whether it is stored: end the run, the next will find out."""
        stored = False
        while not stored:
            step = Step(self._next, kind, self._run, data, notes, events)
            stored, self._after = await self._journal.create(self._key, step, self._after, self._written)
            self._next += 1
            self._written = [*self._written, step] if stored else []
        self._finished = kind == FINISHED
        if is_large(step):
            self._objects.append(object_name(self._key, step))

    async def finish(self, **notes: Any) -> None:
        if not self._finished:
            await self.append(FINISHED, **notes)
        await self._journal.retire(self._key, self._objects)


def object_name(key: str, step: Step) -> str:
    """The name of the data of a large step."""
    return f"{key}.{step.number}.{step.run}"


@contextlib.contextmanager
def _unavailable(what: str) -> Iterator[None]:
    """Translate vendor errors to Unavailable: it is unknown whether a step is stored, or no step can be read."""
    try:
        yield
    except (TimeoutError, nats.errors.Error) as e:
        raise Unavailable(f"object store, {what}: {e!r}") from e


def _step(number: int, total: int, stored: tuple[bytes | None, bytes], before: Sequence[Step]) -> Step:
    """The step with this number, which follows those before it."""
    body, large = stored
    try:
        if body is None:
            raise Unreadable("it is gone")
        return decode(number, body, large, before)
    except Unreadable as e:
        return Step(number, UNREADABLE, "", b"", {"why": f"step {number} of {total}: {e}"})


def _owner(body: bytes) -> str:
    """The run that wrote a step; empty if unknown."""
    try:
        return read_head(body).run
    except Unreadable:
        return ""


def _number(subject: str) -> int:
    """The number of a step; 0 if the subject is not that of a step."""
    last = subject.rpartition(".")[2]
    return int(last) if last.isascii() and last.isdecimal() and len(last) < MAX_DIGITS else 0
