"""The streams that refuse calls at the moment, for readiness and the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from worker.domain.values.delays import FAULT_MEMORY_SECONDS


@dataclass
class StreamFaults:
    """The streams of one connection that refuse calls at the moment, and why. For readiness.

    A fault is forgotten when the same kind of call succeeds, or when nobody has met it for a while: another
    worker may have the request now. `tell` is called with each new one.
    """

    tell: Callable[[str], None] = lambda _: None
    _seen: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict, init=False)

    def add(self, stream: str, call: str, why: str) -> None:
        """A call (`read` or `write`) has failed."""
        if self._seen.get((stream, call), (0.0, ""))[1] != why:
            self.tell(_said(stream, call, why))
        self._seen[stream, call] = (time.monotonic(), why)

    def clear(self, stream: str, call: str) -> None:
        """A call has succeeded."""
        self._seen.pop((stream, call), None)

    def problem(self) -> str:
        """The problem; empty if there is none."""
        oldest = time.monotonic() - FAULT_MEMORY_SECONDS
        found = sorted((key, why) for key, (at, why) in self._seen.items() if at >= oldest)
        return "; ".join(_said(*key, why) for key, why in found)


def _said(stream: str, call: str, why: str) -> str:
    return f"{stream} refuses to {call}: {why}"
