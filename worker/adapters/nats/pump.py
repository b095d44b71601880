"""Intake of long jobs from a JetStream work queue: one pull request per free slot, a heartbeat per job.

Plain pull requests on a connection that somebody else owns, with nats-py's public API only. Why not its
PullSubscription or a framework's subscriber:
- `fetch(1)` gives up at the same moment as the server, so with latency a message can be delivered to nobody
  and then sits without a heartbeat; here the server always gives up first;
- a cancelled `fetch` or `next_msg` can swallow the message that has just arrived, a callback can't;
- while disconnected nats-py buffers what is published, pull requests too, and sends them all after the
  reconnect;
- frameworks create missing durables, and answer to any `reply_to` header that a producer names.

Protocol: NATS ADR-13 (pull requests) and the acknowledgement words of the JetStream wire API.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from worker.adapters.nats.stream import FencedStream
from worker.domain.values.delays import (
    LAST_WORDS_SECONDS,
    NOT_NOW_SECONDS,
    RECONNECT_GRACE_SECONDS,
    SETTLE_PATIENCE_SECONDS,
    UNDECIDED_SECONDS,
)
from worker.domain.values.delivery import Delivery, Fate, MessageHandler, MessageId, Settlement, retry
from worker.domain.values.errors import Unavailable

EXPIRED, NO_RESPONDERS, MESSAGE, DISCONNECTED = "408", "503", "message", "disconnected"
SETTLE_ATTEMPT_SECONDS = 2.0
SETTLE_PAUSE_SECONDS = 0.5
REASON_LENGTH = 256
V1_TOKENS, V1_TIMESTAMP = 9, 7
"""Of a reply subject `$JS.ACK...` without domain and account (NATS ADR-15)."""
EPOCH = datetime.fromtimestamp(0, UTC)

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LaneConsumer:
    """A bulkhead: one durable consumer with its own slots.

    `subjects` only document it: the filter is the durable's.
    """

    durable: str
    subjects: tuple[str, ...]
    slots: int


async def _always() -> bool:
    return False


@dataclass(eq=False)
class Pump:
    """Moves the messages of one lane to a handler and settles them as it decides.

    With `removes_acked`, for a work queue, a message is settled only while the stream still holds that very
    message. `after_outage`: the broker was away before, so the first pull waits as after a reconnect. No
    message is requested while `admit` waits, which returns True if it had to wait. At most `lane.slots`
    messages are ever out at the server. `ack_wait_seconds` is the durable's; a handler that raises without a
    decision is retried after `fallback_seconds`, one that was cancelled by drain after `nak_seconds`.
    """

    nc: Client
    stream: str
    lane: LaneConsumer
    handler: MessageHandler
    _: KW_ONLY
    admit: Callable[[], Awaitable[bool]] = _always
    ack_wait_seconds: float = 60.0
    """The ack_wait of the durable, as far as known. Heartbeats follow a change at once."""
    pull_seconds: float = 3.0
    nak_seconds: float = NOT_NOW_SECONDS
    fallback_seconds: float = UNDECIDED_SECONDS
    settle_seconds: float = SETTLE_PATIENCE_SECONDS
    grace_seconds: float = RECONNECT_GRACE_SECONDS
    removes_acked: bool = True
    after_outage: bool = False
    spread: Callable[[float, float], float] = random.uniform
    answered_at: float = field(default=0.0, init=False)
    """When JetStream last answered a pull request, on the event loop's clock; for readiness."""

    def __post_init__(self) -> None:
        self._reconnects, self._quiet_until, self._beat_due = self.nc.stats["reconnects"], 0.0, False
        self._started = self._stopping = self._held_back = False
        self._stalled = ""
        self._messages = FencedStream(self.nc, self.stream, patience_seconds=SETTLE_ATTEMPT_SECONDS)
        self._asking_since: float | None = None
        self._jobs: dict[MessageId, Msg] = {}  # newest delivery of each message that runs here
        self._tasks: set[asyncio.Task[None]] = set()
        self._without_slot: set[MessageId] = set()
        self._free = asyncio.Semaphore(self.lane.slots)
        self._answer: asyncio.Future[str] | None = None

    @property
    def running(self) -> int:
        """Jobs in flight."""
        return len(self._jobs)

    def silent_seconds(self) -> float:
        """For how long pull requests have gone without any answer; 0 while none is sent."""
        if self._asking_since is None or self._held_back:
            return 0.0
        return asyncio.get_running_loop().time() - max(self.answered_at, self._asking_since)

    @property
    def loops(self) -> Mapping[str, asyncio.Task[None]]:
        """The loops that must run from `start` to `drain`, for a supervisor."""
        name = self.lane.durable
        return {f"pull {name}": self._puller, f"heartbeat {name}": self._heart} if self._started else {}

    async def start(self) -> None:
        """Begin to ask for messages. Raises nats-py's errors when it cannot subscribe."""
        self.answered_at = asyncio.get_running_loop().time()
        if self.after_outage:
            self._quiet_until = self.answered_at + self.grace_seconds
        self._inbox = self.nc.new_inbox()
        self._subscription = await self.nc.subscribe(self._inbox, cb=self._on_reply)
        self._puller = asyncio.create_task(self._pull())
        self._heart = asyncio.create_task(self._beat())
        self._started = True

    async def drain(self, seconds: float, hurry: asyncio.Event | None = None) -> None:
        """Take no more messages, give the running jobs this long, then cancel them and return their messages.

        `hurry` ends the patience early.
        """
        self._stopping = True
        if not self._started:
            return
        with contextlib.suppress(TimeoutError, nats.errors.Error):
            async with asyncio.timeout(2):  # a round trip: whatever the server had sent has been given back
                await self._subscription.drain()  # type: ignore[no-untyped-call]  # nats-py has no annotation here
        self._puller.cancel()
        await self._patience(seconds, hurry or asyncio.Event())
        for timeout in LAST_WORDS_SECONDS:
            for task in list(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=timeout)
        self._heart.cancel()
        await asyncio.wait({self._puller, self._heart})

    async def _patience(self, seconds: float, hurry: asyncio.Event) -> None:
        """Wait for the running jobs, for this long or until `hurry` is set."""
        hurrying = asyncio.create_task(hurry.wait())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._tasks and not hurry.is_set():
                    await asyncio.wait({hurrying, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()

    # --- asking

    async def _pull(self) -> None:
        while not self._stopping:
            await self._free.acquire()  # the slot first: what arrives can start at once
            while (status := await self._ask_when_admitted()) != MESSAGE:
                self._note(status)
                if status != EXPIRED:
                    # The consumer, its leader or the connection is missing: never spin on it.
                    await asyncio.sleep(self.spread(0.5, 1.5))
            self._note(status)
            self._asking_since = None

    async def _ask_when_admitted(self) -> str:
        self._held_back = True
        waited = await self.admit()
        self._held_back = False
        if waited or self._asking_since is None:
            self._asking_since = asyncio.get_running_loop().time()
        return await self._ask()

    async def _ask(self) -> str:
        """Send one pull request. Returns its answer."""
        if not self.nc.is_connected:
            return DISCONNECTED
        self._note_reconnect()
        if (left := self._quiet_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)
        self._answer = asyncio.get_running_loop().create_future()
        request = b'{"batch": 1, "expires": %d}' % int(self.pull_seconds * 1e9)
        try:
            await self.nc.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.lane.durable}", request, self._inbox
            )
            async with asyncio.timeout(self.pull_seconds + 1):  # the server must give up first
                return await self._answer
        except TimeoutError:
            return EXPIRED  # lost with a connection; the server's side has expired by now
        except nats.errors.Error as e:
            return repr(e)

    def _note(self, status: str) -> None:
        """Log once that the lane gets no answers, and once that it does again."""
        stalled = "" if status in {EXPIRED, MESSAGE} else status
        if stalled and stalled != self._stalled:
            log.warning("lane_stalled", stream=self.stream, lane=self.lane.durable, status=stalled)
        elif self._stalled and not stalled:
            log.info("lane_resumed", stream=self.stream, lane=self.lane.durable)
        self._stalled = stalled

    # --- receiving

    async def _on_reply(self, msg: Msg) -> None:
        waiting = self._answer if self._answer and not self._answer.done() else None
        if not msg.reply:  # a status of the server. Not told by its header: a producer can send that one too
            status = (msg.headers or {}).get("Status", EXPIRED)
            # NO_RESPONDERS comes from a server without JetStream, or without this consumer.
            if status != NO_RESPONDERS:
                self.answered_at = asyncio.get_running_loop().time()
            if waiting:
                waiting.set_result(status)
            return
        self.answered_at = asyncio.get_running_loop().time()
        try:
            delivery = _delivery(msg)
        except (nats.errors.NotJSMessageError, ValueError):
            log.warning("invalid_delivery", lane=self.lane.durable)
            return
        if waiting:
            waiting.set_result(MESSAGE)
        if delivery.message in self._jobs:  # redelivered, as the server was away for ack_wait; it runs here
            self._jobs[delivery.message] = msg
            if waiting:
                self._free.release()
        elif self._stopping or waiting is None:  # no slot for it here: another worker has one
            await self._settle(msg, delivery.message, retry(self.nak_seconds))
        else:
            self._jobs[delivery.message] = msg
            delivery = replace(delivery, release_slot=partial(self._release_slot, delivery.message))
            self._tasks.add(task := asyncio.create_task(self._run(msg, delivery)))
            task.add_done_callback(partial(self._ended, delivery.message))

    async def _run(self, msg: Msg, delivery: Delivery) -> None:
        how: Settlement | None = None
        try:
            how = await self.handler(msg.data, msg.headers or {}, delivery)
        finally:  # no decision: the handler raised, or was cancelled by drain
            if how is None:
                how = retry(self.nak_seconds if self._stopping else self.fallback_seconds)
            # First out of the jobs: a heartbeat after a nak puts the redelivery off to a full ack_wait.
            await self._settle(self._jobs.pop(delivery.message), delivery.message, how)

    def _release_slot(self, message: MessageId) -> None:
        if message not in self._without_slot:
            self._without_slot.add(message)
            self._free.release()

    def _ended(self, message: MessageId, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._release_slot(message)
        self._without_slot.discard(message)
        if not task.cancelled() and (error := task.exception()):
            log.error("handler_failed", lane=self.lane.durable, exc_info=error)

    def _note_reconnect(self) -> None:
        """After a reconnect, send heartbeats first, and pull nothing for a while."""
        reconnects = self.nc.stats["reconnects"]
        if reconnects != self._reconnects:
            self._reconnects, self._beat_due = reconnects, True
            self._quiet_until = asyncio.get_running_loop().time() + self.grace_seconds

    async def _beat(self) -> None:
        now = asyncio.get_running_loop().time
        beaten_at = now()
        while True:
            await asyncio.sleep(min(1.0, self.ack_wait_seconds / 3))
            self._note_reconnect()
            if not self._beat_due and now() < beaten_at + self.ack_wait_seconds / 3:
                continue
            beaten_at, self._beat_due = now(), False
            for msg in list(self._jobs.values()) if self.nc.is_connected else ():
                with contextlib.suppress(nats.errors.Error):
                    await msg.in_progress()

    # --- settling

    async def _settle(self, msg: Msg, message: MessageId, how: Settlement) -> None:
        """Settle a delivery and wait for the server's confirmation.

        Unconfirmed, it comes back after ack_wait.
        """
        payload = _words(how)
        if not payload:
            return
        problem, end = "", asyncio.get_running_loop().time() + self.settle_seconds
        while not self.nc.is_closed:
            if how.fate is Fate.RETRY and not self.nc.is_connected:
                # nats-py would send it after the reconnect, when another worker may have the message.
                problem = DISCONNECTED
                break
            try:
                if self.removes_acked and not await self._is_stored(message):
                    # In a stream created anew the ack would remove another message with this sequence.
                    problem = "the stream no longer holds this message"
                    break
                await self.nc.request(msg.reply, payload, timeout=SETTLE_ATTEMPT_SECONDS)
            except (TimeoutError, Unavailable, nats.errors.Error) as e:  # NoResponders: no such consumer
                problem = repr(e)
                # A nak is never repeated: it would hit whoever runs the message by then.
                if how.fate is Fate.RETRY or asyncio.get_running_loop().time() > end:
                    break
                self._release_slot(message)  # a consumer that was created anew confirms no older delivery
                await asyncio.sleep(SETTLE_PAUSE_SECONDS)
            else:
                return
        log.warning("settlement_failed", fate=how.fate, sequence=message.sequence, error=problem)

    async def _is_stored(self, message: MessageId) -> bool:
        stored = await self._messages.at(message.sequence)
        return stored is not None and message.matches(MessageId(stored.sequence, stored.stored_at))


def _delivery(msg: Msg) -> Delivery:
    """The origin of a message.

    Raises NotJSMessageError and ValueError for a message that no stream has delivered.
    """
    m, tokens = msg.metadata, msg.reply.split(".")
    nanoseconds = int(tokens[V1_TIMESTAMP if len(tokens) == V1_TOKENS else Msg.Ack.Timestamp])
    # nats-py rounds, whereas reading the stored message cuts the time: both must give the same identity.
    stored_at = EPOCH + timedelta(microseconds=nanoseconds // 1_000)
    return Delivery(msg.subject, m.stream, m.consumer, m.sequence.stream, m.num_delivered, stored_at)


def _words(how: Settlement) -> bytes:
    """The words for the server, empty for LET_GO.

    A reason ends up in the server's MSG_TERMINATED advisory.
    """
    match how.fate:
        case Fate.DONE:
            return b"+ACK"
        case Fate.RETRY:
            return b'-NAK {"delay": %d}' % max(1, int(how.after_seconds * 1e9))
        case Fate.TERMINATE:
            return f"+TERM {how.reason[:REASON_LENGTH]}".encode(errors="replace")
        case Fate.LET_GO:
            return b""
