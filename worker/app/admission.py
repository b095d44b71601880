"""Admission control: which runs of this process may start now, and whether messages may be pulled.

- A suspect runs in isolation, by the rules of worker/domain/journal/isolation.py.
- While no model answers our calls (a run ended with one of the reasons BLOCKING of
  worker/domain/values/errors.py; worker/domain/investigation/models/health.py says when a failure is an
  outage), no message is pulled and one request probes the model, with the pauses of
  worker/domain/values/retry.py. The worker keeps the probing request, so that probes use up no deliveries. The
  intake goes on when any run has had a reply and ends with a result; when the probing request ends without one,
  the next message probes.
- Once the worker shuts down, no run starts, and waiting messages are returned to the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable

from worker.domain.journal.isolation import (
    ProcessLoad,
    StartDecision,
    may_overtake,
    must_yield,
    start_decision,
)
from worker.domain.values.delays import SUSPECT_HOLD_SECONDS, SUSPECTS_WAIT_SECONDS
from worker.domain.values.delivery import MOST_URGENT, MessageId
from worker.domain.values.ports import Clock

FREE_STEPS = 2
"""A suspect that has waited long enough passes two checks before it yields again, so it begins and makes one
call.
"""


class Admission:
    """One object for all lanes of a process. An urgency is the number of a lane, 0 for P0."""

    def __init__(
        self,
        clock: Clock,
        *,
        patience_seconds: float = SUSPECTS_WAIT_SECONDS,
        suspect_seconds: float = SUSPECT_HOLD_SECONDS,
    ) -> None:
        self.blocked = ""
        """Why no request can be analysed at the moment; empty while requests can. For readiness."""
        self._paused: dict[str, str] = {}  # what has paused the intake -> why
        self._clock = clock
        self._patience_seconds, self._suspect_seconds = patience_seconds, suspect_seconds
        self._runs = Counter[int]()  # urgency -> running requests that are not suspects
        self._waiting = 0
        self._suspects: dict[MessageId, int] = {}  # message -> urgency
        self._alone: MessageId | None = None  # the running suspect
        self._due_at = 0.0  # on the event loop's clock: from then on a waiting suspect goes next
        self._free = 0  # how many checks the running suspect may still pass before it yields
        self._probing: MessageId | None = None
        self._probes = 0  # of the probing message
        self.probes = 0
        """How many probes have failed since a model answered."""
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()

    # --- for pull requests

    async def admit(self, urgency: int) -> bool:
        """Wait until a message may be pulled. Returns True if it had to wait."""
        if self._may_pull(urgency):
            return False
        await self._until(lambda: self._may_pull(urgency))
        return True

    def _may_pull(self, urgency: int) -> bool:
        blocked = bool(self._paused) or (self.blocked and self._probing is not None)
        return may_overtake(self._load(), urgency) and not blocked and not self._stopping.is_set()

    # --- for the handler

    @contextlib.asynccontextmanager
    async def running(self, message: MessageId, urgency: int, *, alone: bool) -> AsyncIterator[bool]:
        """Run while the context is open.

        Yields False when the message must be returned to the queue instead.
        """
        if alone:
            async with self._running_alone(message, urgency) as admitted:
                yield admitted
            return
        if not await self._may_run(message, urgency):
            yield False
            return
        self._runs[urgency] += 1
        try:
            yield True
        finally:
            self._runs[urgency] -= 1
            self._notify()

    async def _may_run(self, message: MessageId, urgency: int) -> bool:
        if self._decision(urgency) is StartDecision.WAIT:
            self._waiting += 1  # the running suspect yields to it
            try:
                await self._until(
                    lambda: self._stopping.is_set() or self._decision(urgency) is not StartDecision.WAIT
                )
            finally:
                self._waiting -= 1
                self._notify()
        if self._stopping.is_set() or self._paused or not self._may_probe(message):
            return False
        if self.blocked and self._probing is None:
            self._probing, self._probes = message, 0  # before it fails: one request probes at a time
        return self._decision(urgency) is StartDecision.NOW

    @contextlib.asynccontextmanager
    async def _running_alone(self, message: MessageId, urgency: int) -> AsyncIterator[bool]:
        if not self._suspects:
            self._restart_wait()
        self._suspects[message] = urgency
        try:
            if not await self._may_run_alone(urgency):
                yield False
                return
            self._alone, self._free = message, FREE_STEPS if self._due else 0
            try:
                yield True
            finally:
                self._alone = None
                self._restart_wait()
        finally:
            del self._suspects[message]
            self._notify()

    async def _may_run_alone(self, urgency: int) -> bool:
        def decided() -> bool:
            return self._stopping.is_set() or self._decision(urgency, suspect=True) is StartDecision.NOW

        now = asyncio.get_running_loop().time
        end = now() + self._patience_seconds + self._suspect_seconds
        while not decided() and now() < end:
            until = end if self._due else min(end, self._due_at)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until - now()):
                    await self._until(decided)
        return decided() and not self._stopping.is_set()

    def _restart_wait(self) -> None:
        self._due_at = asyncio.get_running_loop().time() + self._patience_seconds

    @property
    def _due(self) -> bool:
        return bool(self._suspects) and asyncio.get_running_loop().time() >= self._due_at

    def must_yield(self, message: MessageId) -> bool:
        """True if the run of this message must end before its next call.

        Ask exactly once before each call.
        """
        if message != self._alone or not must_yield(self._load(), self._suspects[message]):
            return False
        self._free -= 1
        return self._free < 0

    def _load(self) -> ProcessLoad:
        urgent, suspects = self._runs[MOST_URGENT], tuple(self._suspects.values())
        others, alone = self._runs.total() - urgent, self._alone is not None
        return ProcessLoad(urgent, others, suspects, alone, self._waiting, self._due)

    def _decision(self, urgency: int, *, suspect: bool = False) -> StartDecision:
        return start_decision(self._load(), urgency, suspect=suspect)

    def pause(self, source: str, why: str) -> None:
        """Begin no further request while `why` of any source is not empty. Running requests go on."""
        if why:
            self._paused[source] = why
        elif self._paused.pop(source, ""):
            self._notify()

    def is_paused_by(self, source: str) -> bool:
        """True if this source pauses the intake."""
        return source in self._paused

    def block(self, why: str) -> None:
        """Start no further run: no model answers our calls. `why` is shown in readiness."""
        self.blocked = why
        self._notify()

    def unblock(self) -> bool:
        """A model has answered. Returns True if nothing could start before."""
        was_blocked, self.blocked, self.probes = bool(self.blocked), "", 0
        self._notify()
        return was_blocked

    def probe_count(self, message: MessageId) -> int:
        """Take over the probing of the model, unless another message does it.

        Returns how many probes in a row this message has made, including the next one; 0 if it must not
        probe.
        """
        if self._probing is None:
            self._probing, self._probes = message, 0
        if self._probing != message:
            return 0
        self._probes, self.probes = self._probes + 1, self.probes + 1
        return self._probes

    def _may_probe(self, message: MessageId) -> bool:
        return not self.blocked or self._probing in {None, message}

    async def model_answers(self, message: MessageId) -> bool:
        """Wait until the model answers or this message may probe it.

        Returns False if the worker shuts down.
        """
        await self._until(lambda: self._stopping.is_set() or self._may_probe(message))
        return not self._stopping.is_set()

    def release(self, message: MessageId) -> None:
        """The message is settled: another one may probe."""
        if self._probing == message:
            self._probing = None
            self._notify()

    async def wait_unless_stopping(self, seconds: float) -> bool:
        """Keep a message for so many seconds.

        Returns False if it must be returned because the worker shuts down.
        """
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({sleeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            stopping.cancel()
        return not self._stopping.is_set()

    # --- for the end

    def stop(self) -> None:
        """The worker shuts down."""
        self._stopping.set()
        self._notify()

    # --- waiting

    async def _until(self, allowed: Callable[[], object]) -> None:
        while not allowed():
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
