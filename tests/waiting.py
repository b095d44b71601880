"""Waiting for what must happen, however slow the machine is.

await until(lambda: worker.notices["policy"]())
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 100.0
LOOK_SECONDS = 0.02


async def until(condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as the condition holds. It is a function or a coroutine function."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return
        if time.monotonic() > end:
            raise AssertionError(f"it did not happen in {seconds} s: {inspect.getsource(condition).strip()}")
        await asyncio.sleep(LOOK_SECONDS)
