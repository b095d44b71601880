"""A clock that only moves when a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 6, 4, 15, 34, tzinfo=UTC)


class FixedClock:
    """The Clock port. `advance` moves both hands, and whoever sleeps moves them too."""

    def __init__(self, now: datetime = START) -> None:
        self._now, self._monotonic = now, 1_000.0

    def now(self) -> datetime:
        return self._now

    def has_passed(self, moment: datetime) -> bool:
        return moment <= self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
