"""Runs several calls at the same time, of which none outlives the caller, and bounds work on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
MAX_INLINE_JSON_BYTES: Final = 256 * 1024
"""A larger request, or a larger answer of the cluster, is decoded in a thread, so that heartbeats go on."""


async def concurrently(calls: Sequence[Awaitable[T]], *, at_once: int | None = None) -> list[T]:
    """Await all calls, `at_once` of them at a time. Returns their results in order.

    The first failure cancels the others and is raised as it is, where `asyncio.gather` would leave them
    running.
    """
    gate = asyncio.Semaphore(at_once or max(1, len(calls)))

    async def one(call: Awaitable[T]) -> T:
        async with gate:
            return await call

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(call)) for call in calls]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        for call in calls:
            if asyncio.iscoroutine(call):
                call.close()  # a call that was cancelled before its turn was never awaited
    return [task.result() for task in tasks]
