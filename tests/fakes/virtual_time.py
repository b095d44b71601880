"""An event loop whose time passes only when nothing else is to be done, and then at once: hours in a moment."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skipping(selectors.DefaultSelector):
    """In place of waiting for `timeout` seconds it adds them to `passed`."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everybody waits for somebody else")
        self.passed += max(timeout, 0.0)
        found: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.passed


def run_quickly(main: Coroutine[Any, Any, T]) -> T:
    """What `main` returns. `loop.time()`, sleeps and timeouts are of the time that would have passed."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)
