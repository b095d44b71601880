"""The time of the NATS server: the clock that a worker and its producers share.

A deadline (`expires_at`) must not pass early because the clock of one machine is wrong. The server writes its
time into each answer about a stream. This time lies between request and answer, so a look at all streams
bounds the difference of the two clocks. Between two looks, the monotonic clock of this machine continues the
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog

from worker.domain.values.delays import CLOCK_SKEW_SECONDS
from worker.domain.values.ports import Clock

EPOCH = datetime.fromtimestamp(0, UTC)

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One look: the server's clock minus our monotonic one, and the wall clock minus it, in seconds."""

    server: float
    wall: float
    uncertainty: float


class ServerClock:
    """Implements Clock: the clock of this machine, corrected by the server's from the first look on."""

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._last: _Comparison | None = None
        self._spread = 0.0
        self._skewed = False

    def now(self) -> datetime:
        """Now, in UTC."""
        if self._last is None:
            return self._machine.now()
        return EPOCH + timedelta(seconds=self._machine.monotonic() + self._last.server)

    def has_passed(self, moment: datetime) -> bool:
        """True if the moment has certainly passed; False while the clocks cannot be compared well enough."""
        if self._last is None or self._uncertain:
            return False
        return moment + timedelta(seconds=self._last.uncertainty) <= self.now()

    def monotonic(self) -> float:
        """Seconds of a clock that is never set."""
        return self._machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait; others run meanwhile."""
        await self._machine.sleep(seconds)

    def compare(self, server_times: Sequence[datetime], asked: float) -> None:
        """Take over the times that servers gave since the monotonic time `asked`.

        Servers of a cluster whose clocks differ by more than the look took widen the uncertainty.
        """
        if not server_times:
            return
        answered = self.monotonic()
        latest, earliest = (_seconds(pick(server_times)) - at for pick, at in ((max, answered), (min, asked)))
        uncertainty = abs(earliest - latest) / 2
        self._spread = max(0.0, latest - earliest)
        wall = _seconds(self._machine.now()) - answered
        self._last = _Comparison((latest + earliest) / 2, wall, uncertainty)
        if (skewed := abs(self.skew_seconds) > CLOCK_SKEW_SECONDS) != self._skewed:
            self._skewed = skewed
            if skewed:
                log.warning("clock_skew", seconds=round(self.skew_seconds, 1))
            else:
                log.info("clock_in_sync")

    @property
    def skew_seconds(self) -> float:
        """How far the clock of this machine is ahead of the server's; 0 before the first comparison."""
        return self._last.wall - self._last.server if self._last else 0.0

    @property
    def _uncertain(self) -> bool:
        """True if the last look was too slow or contradictory, or the machine slept or its clock was set."""
        if self._last is None:
            return True
        moved = _seconds(self._machine.now()) - self.monotonic() - self._last.wall
        return max(self._last.uncertainty, abs(moved)) > CLOCK_SKEW_SECONDS

    def notice(self) -> str:
        """The notice for an operator about the clocks; empty if they agree."""
        if self._spread > CLOCK_SKEW_SECONDS:
            return (
                f"the clocks of the NATS servers differ by {self._spread:.0f} s, so that no request expires; "
                "synchronise them"
            )
        if abs(self.skew_seconds) > CLOCK_SKEW_SECONDS:
            side = "ahead of" if self.skew_seconds > 0 else "behind"
            return (
                f"the clock of this machine is {abs(self.skew_seconds):.0f} s {side} the clock of the NATS server, "
                "whose time is used; synchronise them"
            )
        return ""


def _seconds(moment: datetime) -> float:
    return (moment - EPOCH).total_seconds()
