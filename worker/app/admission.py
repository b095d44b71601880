"""Who may start now: the rules that concern all runs of a process at once.

- A suspect runs alone: it waits until the others are done, and steps aside for the most urgent requests. What is taken
  from the queue meanwhile says isolation.py.
- While no model takes our calls (credentials, spending), one request is tried now and then, and nothing else is
  taken. That request stays in hand, so that trying uses up no deliveries and work goes on as soon as it works.
- After the end was announced nothing starts, and who only waits gives back what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from worker.domain.investigation.models.gate import MOST_URGENT
from worker.domain.journal.isolation import Crowd, Turn, goes_first, steps_aside, turn
from worker.domain.values.delays import SUSPECT_HOLD_SECONDS, SUSPECTS_WAIT_SECONDS
from worker.domain.values.ports import Clock

FREE_STEPS = 2
"""What a suspect that was due does before it steps aside again: begin, and make one call."""


@dataclass(frozen=True, slots=True)
class Door:
    """Admission for one lane."""

    admission: Admission
    urgency: int

    async def admit(self) -> bool:
        """Return when a message may be asked for. Whether that took any time."""
        return await self.admission.admit(self.urgency)


class Admission:
    """One object for all lanes of a process. An urgency is the number of a lane, 0 for the most urgent."""

    def __init__(
        self,
        clock: Clock,
        *,
        patience_seconds: float = SUSPECTS_WAIT_SECONDS,
        suspect_seconds: float = SUSPECT_HOLD_SECONDS,
    ) -> None:
        self.blocked = ""
        """Why no request can be analysed at the moment; empty when that is not so. For readiness."""
        self._clock = clock
        self._patience_seconds, self._suspect_seconds = patience_seconds, suspect_seconds
        self._urgent = self._others = 0  # runs that are no suspects
        self._waiting = 0
        self._suspects: dict[int, int] = {}  # message -> urgency
        self._alone: int | None = None  # the suspect that runs
        self._due_at = 0.0  # on the event loop's clock: from then on a suspect that waits goes next
        self._free = 0  # steps before the suspect that runs lets others go first
        self._prober: int | None = None
        self._tries = 0
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()

    # --- for the pumps

    async def admit(self, urgency: int) -> bool:
        """Return when a message may be asked for. Whether that took any time."""
        if self._may_ask(urgency):
            return False
        await self._until(lambda: self._may_ask(urgency))
        return True

    def _may_ask(self, urgency: int) -> bool:
        blocked = self.blocked and self._prober is not None
        return goes_first(self._crowd(), urgency) and not blocked and not self._stopping.is_set()

    # --- for the handler

    @contextlib.asynccontextmanager
    async def running(self, message: int, urgency: int, *, alone: bool) -> AsyncIterator[bool]:
        """Run while the context is open. False: not now, give the message back."""
        if alone:
            async with self._running_alone(message, urgency) as admitted:
                yield admitted
            return
        if not await self._may_run(message, urgency):
            yield False
            return
        self._count(urgency, 1)
        try:
            yield True
        finally:
            self._count(urgency, -1)
            self._tell()

    def _count(self, urgency: int, runs: int) -> None:
        if urgency == MOST_URGENT:
            self._urgent += runs
        else:
            self._others += runs

    async def _may_run(self, message: int, urgency: int) -> bool:
        if self._turn(urgency) is Turn.SOON:
            with self._asking_to_step_aside():
                await self._until(lambda: self._stopping.is_set() or self._turn(urgency) is not Turn.SOON)
        if self._stopping.is_set() or (self.blocked and self._prober not in {None, message}):
            return False
        return self._turn(urgency) is Turn.NOW

    @contextlib.asynccontextmanager
    async def _running_alone(self, message: int, urgency: int) -> AsyncIterator[bool]:
        if not self._suspects:
            self._wait_anew()
        self._suspects[message] = urgency
        try:
            if not await self._gets_its_turn(urgency):
                yield False
                return
            self._alone, self._free = message, FREE_STEPS if self._due else 0
            try:
                yield True
            finally:
                self._alone = None
                self._wait_anew()
        finally:
            del self._suspects[message]
            self._tell()

    async def _gets_its_turn(self, urgency: int) -> bool:
        def decided() -> bool:
            return self._stopping.is_set() or self._turn(urgency, suspect=True) is Turn.NOW

        now = asyncio.get_running_loop().time
        end = now() + self._patience_seconds + self._suspect_seconds
        with self._asking_to_step_aside() if urgency == MOST_URGENT else contextlib.nullcontext():
            while not decided() and now() < end:
                until = end if self._due else min(end, self._due_at)
                await self._within(until - now(), decided)
            return decided() and not self._stopping.is_set()

    def _wait_anew(self) -> None:
        self._due_at = asyncio.get_running_loop().time() + self._patience_seconds

    @property
    def _due(self) -> bool:
        return bool(self._suspects) and asyncio.get_running_loop().time() >= self._due_at

    @contextlib.contextmanager
    def _asking_to_step_aside(self) -> Iterator[None]:
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            self._tell()

    def steps_aside(self, message: int) -> bool:
        """Whether the run of this message is to end before its next call, as others go first. Ask once for each."""
        if message != self._alone or not steps_aside(self._crowd(), self._suspects[message]):
            return False
        self._free -= 1
        return self._free < 0

    def _crowd(self) -> Crowd:
        suspects = tuple(self._suspects.values())
        return Crowd(self._urgent, self._others, suspects, self._alone is not None, self._waiting, self._due)

    def _turn(self, urgency: int, *, suspect: bool = False) -> Turn:
        return turn(self._crowd(), urgency, suspect=suspect)

    def block(self, why: str) -> None:
        """No model takes our calls until a person acts."""
        self.blocked = why
        self._tell()

    def unblock(self) -> bool:
        """A model has answered. Whether that is news."""
        was_blocked, self.blocked = bool(self.blocked), ""
        self._tell()
        return was_blocked

    def tried(self, message: int) -> int:
        """How often in a row, if this message is the one that is tried while all others wait; 0 if another one is."""
        if self._prober is None:
            self._prober, self._tries = message, 0
        if self._prober != message:
            return 0
        self._tries += 1
        return self._tries

    def leave(self, message: int) -> None:
        """The message is out of hand."""
        if self._prober == message:
            self._prober = None
            self._tell()

    async def hold(self, seconds: float) -> bool:
        """Keep a message in hand for so long. False: the end was announced meanwhile, give it back."""
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
        """Announce the end."""
        self._stopping.set()
        self._tell()

    # --- waiting

    async def _within(self, seconds: float, decided: Callable[[], bool]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._until(decided)

    async def _until(self, allowed: Callable[[], object]) -> None:
        while not allowed():
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
