"""All results as rows of a list and as figures. Pure: results go in, values come out."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from schemas.analysis import AnalysisResult
from worker.app.verdict_line import decision_line, reported, tone_of, where
from worker.domain.values.bounded import BoundedDict

ROWS_KEPT = 10_000
PAGE_ROWS = 100


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One result in a list."""

    key: str
    at: datetime
    status: str
    reason: str
    verdict: str
    tone: str
    target: str
    environment: str
    signal: str
    reported: str
    """The signal and its object; empty in results of earlier versions."""
    by: str
    factors: tuple[str, ...]
    tokens: int
    cost_usd: float | None
    seconds: float

    def matches(self, words: Sequence[str]) -> bool:
        """True if the row contains every word. Words are in lower case."""
        text = f"{self.key} {self.verdict} {self.target} {self.environment} {self.signal} {self.reason} {self.reported}".lower()
        return all(word in text for word in words)


@dataclass(slots=True)
class ResultIndex:
    """The newest results by key; a later result of a key replaces the earlier one."""

    last_sequence: int = 0
    _rows: BoundedDict[str, IncidentRow] = field(default_factory=lambda: BoundedDict(ROWS_KEPT))

    def add(self, key: str, result: AnalysisResult) -> None:
        """Take in a result, in the order of the stream."""
        self._rows.pop(key, None)
        self._rows[key] = _row(key, result)

    def newest(self) -> list[IncidentRow]:
        """All rows, the newest first."""
        return list(reversed(self._rows.values()))

    def search(self, text: str = "", status: str = "") -> list[IncidentRow]:
        """Rows with all words of the text and with the status, the newest first."""
        words = text.lower().split()
        return [row for row in self.newest() if (not status or row.status == status) and row.matches(words)]


Shares = Sequence[tuple[str, int]]
"""Bars of a figure: names, and how often each occurs."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Totals of the rows. `cost_usd` is without the `unpriced` results, whose price is unknown."""

    results: int
    statuses: Shares
    reasons: Shares
    factors: Shares
    confirmed_by: Shares
    cost_usd: float
    unpriced: int
    tokens_median: float
    seconds_median: float
    seconds_worst_tenth: float


def figures(rows: Sequence[IncidentRow]) -> Figures:
    """The totals of the rows."""
    seconds = sorted(row.seconds for row in rows)
    return Figures(
        results=len(rows),
        statuses=_shares(row.status for row in rows),
        reasons=_shares(row.reason for row in rows if row.reason),
        factors=_shares(factor for row in rows for factor in row.factors),
        confirmed_by=_shares(row.by for row in rows if row.by),
        cost_usd=sum(row.cost_usd or 0.0 for row in rows),
        unpriced=sum(row.cost_usd is None for row in rows),
        tokens_median=statistics.median([row.tokens for row in rows]) if rows else 0.0,
        seconds_median=statistics.median(seconds) if seconds else 0.0,
        seconds_worst_tenth=seconds[int(len(seconds) * 0.9)] if seconds else 0.0,
    )


def _shares(names: Iterable[str]) -> Shares:
    return Counter(names).most_common(20)


def _row(key: str, result: AnalysisResult) -> IncidentRow:
    cause = result.root_cause_analysis
    return IncidentRow(
        key=key,
        at=result.completed_at,
        status=str(result.status),
        reason=str(result.human_review_reason or ""),
        verdict=decision_line(result),
        tone=tone_of(result),
        target=where(result.affected_resource),
        environment=result.environment,
        signal=cause.signal_type if cause else "",
        reported=f"{result.signal.signal_type} on {reported(result)}" if result.signal else "",
        by=str(result.corroboration.by) if result.corroboration else "",
        factors=tuple(factor.code for factor in result.approval.factors) if result.approval.required else (),
        tokens=result.usage.input_tokens + result.usage.output_tokens,
        cost_usd=result.usage.cost_usd,
        seconds=result.usage.wall_seconds,
    )
