"""`rca worker` on a machine whose wall clock is wrong.

    python -m tests.drills.wrong_clock SECONDS

SECONDS is how far the clock is ahead.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime, timedelta

from worker.app import health, logs
from worker.app.settings.environment import load
from worker.app.wiring import open_worker
from worker.app.wiring.clock import SystemClock


class WrongClock(SystemClock):
    """The clock of a machine that is ahead."""

    def __init__(self, seconds: float) -> None:
        self._ahead = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return super().now() + self._ahead


async def main(seconds: float) -> None:
    """Work until a signal."""
    settings = load()
    logs.configure(settings.log.level, json_lines=settings.log.json_lines)
    async with (
        open_worker(settings, WrongClock(seconds)) as opened,
        health.serve(
            settings.http.host,
            settings.http.port,
            checks=opened.checks,
            notices=opened.notices,
            metrics=opened.metrics,
        ),
    ):
        await opened.intake.run()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
