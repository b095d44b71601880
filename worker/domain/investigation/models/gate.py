"""Limits the concurrent calls of one provider, and decides which call goes first."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator

from worker.domain.values.delivery import MOST_URGENT


class ModelGate:
    """Slots for calls.

    The waiting call with the smallest `urgency` number gets the next one; among equals, the first.

    A quarter of the slots, at least one of two or more, is reserved for the most urgent calls, so that long
    calls of others do not delay them.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._kept = (slots + 3) // 4 if slots > 1 else 0
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @contextlib.asynccontextmanager
    async def slot(self, urgency: int) -> AsyncIterator[None]:
        """Hold a slot while the context is open."""
        await self._take(urgency)
        try:
            yield
        finally:
            self._give_back()

    async def _take(self, urgency: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (urgency, next(self._order), turn))
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()  # it got the slot at the same moment
            raise

    def _give_back(self) -> None:
        self._free += 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting:
            urgency, _, turn = self._waiting[0]
            if turn.done():  # it no longer waits
                heapq.heappop(self._waiting)
            elif self._free > (0 if urgency <= MOST_URGENT else self._kept):
                heapq.heappop(self._waiting)
                self._free -= 1
                turn.set_result(None)
            else:
                return
