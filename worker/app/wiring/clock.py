"""The machine's clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)

    def has_passed(self, moment: datetime) -> bool:
        """True if the moment has passed by this machine's clock."""
        return moment <= self.now()

    def monotonic(self) -> float:
        """Seconds of a clock that is never set."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait; others run meanwhile."""
        await asyncio.sleep(seconds)
