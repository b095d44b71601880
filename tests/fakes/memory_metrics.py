"""Metrics in memory: the same series for every query, or a failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from worker.domain.values.errors import MetricsError
from worker.domain.values.ports import Series


@dataclass
class MemoryMetrics:
    series: Sequence[Series] = ()
    error: MetricsError | None = None
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    async def instant(self, query: str, at: datetime) -> Sequence[Series]:
        return self._answer(query, at)

    async def over_time(
        self, query: str, start: datetime, end: datetime, step_seconds: int
    ) -> Sequence[Series]:
        return self._answer(query, start, end, step_seconds)

    def _answer(self, *asked: Any) -> Sequence[Series]:
        self.asked.append(asked)
        if self.error:
            raise self.error
        return self.series
