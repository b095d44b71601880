"""Who may start now: the rules that concern all runs of a process at once.

- A suspect runs alone: it waits until the others are done, and until it is done nothing is taken from the queue.
- While no model takes our calls (credentials, spending), one request is tried now and then, and nothing else is
  taken. That request stays in hand, so that trying uses up no deliveries and work goes on as soon as it works.
- After the end was announced nothing starts, and who only waits gives back what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from worker.domain.ports import Clock


class Admission:
    """One object for all lanes of a process."""

    def __init__(self, clock: Clock) -> None:
        self.blocked = ""
        """Why no request can be analysed at the moment; empty when that is not so. For readiness."""
        self._clock = clock
        self._running = 0
        self._suspects = 0
        self._alone = False
        self._prober: int | None = None
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()

    # --- for the pumps

    async def admit(self) -> bool:
        """Return when a message may be asked for. Whether that took any time."""
        if self._may_ask():
            return False
        await self._until(self._may_ask)
        return True

    def _may_ask(self) -> bool:
        waits = self._suspects > 0 or (self.blocked and self._prober is not None)
        return not waits and not self._stopping.is_set()

    # --- for the handler

    @contextlib.asynccontextmanager
    async def running(self, message: int, *, alone: bool) -> AsyncIterator[bool]:
        """Run while the context is open. False: not now, give the message back."""
        if alone:
            async with self._running_alone() as admitted:
                yield admitted
            return
        if (
            self._suspects
            or self._stopping.is_set()
            or (self.blocked and self._prober not in {None, message})
        ):
            yield False
            return
        self._running += 1
        try:
            yield True
        finally:
            self._running -= 1
            self._tell()

    @contextlib.asynccontextmanager
    async def _running_alone(self) -> AsyncIterator[bool]:
        self._suspects += 1
        try:
            await self._until(lambda: self._stopping.is_set() or not (self._running or self._alone))
            if self._stopping.is_set():
                yield False
                return
            self._alone = True
            try:
                yield True
            finally:
                self._alone = False
        finally:
            self._suspects -= 1
            self._tell()

    def block(self, why: str) -> None:
        """No model takes our calls until a person acts."""
        self.blocked = why
        self._tell()

    def unblock(self) -> bool:
        """A model has answered. Whether that is news."""
        was_blocked, self.blocked = bool(self.blocked), ""
        self._tell()
        return was_blocked

    def becomes_prober(self, message: int) -> bool:
        """Whether this message is the one that is tried again and again while all others wait."""
        if self._prober is None:
            self._prober = message
        return self._prober == message

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

    async def _until(self, allowed: Callable[[], object]) -> None:
        while not allowed():
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
