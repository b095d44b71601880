"""Supervises loops that must run as long as the process, such as pulling and sending heartbeats.

One that ends by itself, with or without an exception, makes readiness fail and ends the worker: Intake.run
lets running analyses finish within the drain time, returns the rest to the queue, and raises IntakeError.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

log = structlog.stdlib.get_logger(__name__)

CANCEL_AGAIN_SECONDS = 0.5


@dataclass(slots=True)
class Supervisor:
    """Watches loops.

    `problem` names the first one that ended without having been cancelled; `failed` is set then.
    """

    problem: str = ""
    failed: asyncio.Event = field(default_factory=asyncio.Event)

    def watch(self, name: str, task: asyncio.Task[None]) -> None:
        """Report at once if the task ends by itself, with or without an exception."""

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                return
            error = task.exception()
            why = f"{type(error).__name__}: {error}" if error else "it returned"
            log.error("loop_died", loop=name, reason=why, exc_info=error)
            self.problem = self.problem or f"the loop {name!r} has died ({why})"
            self.failed.set()

        task.add_done_callback(ended)

    @asynccontextmanager
    async def running(self, name: str, work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Run and watch a loop while the context is open."""
        task = asyncio.create_task(work, name=name)
        self.watch(name, task)
        try:
            yield
        finally:
            # A cancellation that meets the end of a call can be lost in it (asyncio.wait_for).
            while not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=CANCEL_AGAIN_SECONDS)
