"""Requests in the queue whose answer is no longer needed, while no model answers and none is taken from the queue.

A worker ends a request that it holds by itself, but while a model refuses all calls, nobody takes those that wait
in the queue. They are read there one after another, without a delivery: none of the others is let through, and
their order and their deliveries stay as they are. One that is cancelled or has expired gets its result, and is
then removed from the queue.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from worker.app.admission import Admission
from worker.app.handler import RequestHandler
from worker.app.stranded import contained
from worker.domain.values.delays import HELD_CHECK_SECONDS
from worker.domain.values.errors import LostClaim, Unavailable
from worker.domain.values.ports import Clock, Requests, StoredRequest

AT_ONCE = 100
"""How many requests one look reads. The next look goes on from there, and begins again at the end of the queue."""


@dataclass(slots=True)
class HaltedRequests:
    """Looks through the queue while no model answers."""

    requests: Requests
    handler: RequestHandler
    admission: Admission
    clock: Clock
    last: int = 0
    """Sequence of the request that was read last."""

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await self.clock.sleep(HELD_CHECK_SECONDS)
            if self.admission.blocked:
                with contextlib.suppress(Unavailable):  # the broker is away, which is reported elsewhere
                    await self.look()

    async def look(self) -> None:
        """Look at the next requests once. Raises Unavailable."""
        for _ in range(AT_ONCE):
            stored = await self.requests.after(self.last)
            self.last = stored.sequence if stored else 0
            if stored is None:
                return
            with contextlib.suppress(LostClaim):  # another worker handles it
                await contained(self._end(stored), stored)

    async def _end(self, stored: StoredRequest) -> None:
        if await self.handler.ended_in_queue(stored):
            await self.requests.remove(stored.message)
