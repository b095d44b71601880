"""The tool that asks Prometheus. Offered only where one is configured; read-only, bounded in time range and size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field, StringConstraints

from worker.domain.cluster.fields import stamp
from worker.domain.cluster.timeline import since_moment
from worker.domain.investigation.toolbox.findings import Finding, ToolProblem
from worker.domain.investigation.toolbox.series import MAX_POINTS, MAX_SERIES, courses, moments
from worker.domain.investigation.toolbox.specs import Arguments, Word, json_schema
from worker.domain.investigation.toolbox.toolbox import Tool
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.conversation import ToolSpec
from worker.domain.values.errors import MetricsError
from worker.domain.values.ports import Metrics
from worker.domain.values.series import Series
from worker.domain.values.tokens import RESULT_TOKENS

NAME = "query_prometheus"
MAX_QUERY = 1000  # characters
LONGEST = timedelta(days=30)
NO_SERIES = "no series: the metric or the labels do not exist at that time, or a comparison filtered all out"


class QueryPrometheus(Arguments):
    """Arguments of query_prometheus."""

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUERY)] = (
        Field(description="PromQL; aggregate to few series")
    )
    since: Word = Field(default="", description="e.g. 2h for a range; empty: one moment")
    until: Word = Field(default="", description="empty: the time of the signal")


QUERY_PROMETHEUS = ToolSpec(
    NAME,
    "Metrics by PromQL: the value at a moment, or its course since a time.",
    json_schema(QueryPrometheus),
)


@dataclass(frozen=True, slots=True)
class MetricTools:
    """`now` is when the signal was received: the default end of every query."""

    metrics: Metrics
    now: datetime

    @property
    def tools(self) -> dict[str, Tool]:
        """What a toolbox takes in."""
        return {NAME: Tool(QueryPrometheus, self.query_prometheus)}

    async def query_prometheus(self, asked: QueryPrometheus) -> Finding:
        """The newest values of some series, or their course over time. Raises ToolProblem."""
        end = _moment(asked.until, self.now, "until") if asked.until else self.now
        if not asked.since:
            scope = f"{_shown(asked.query)} at {stamp(end)}"
            series = await self._read(scope, asked, end, None)
            return _finding(series, moments(series, RESULT_TOKENS), scope)
        start = _moment(asked.since, self.now, "since")
        if not timedelta(0) < end - start <= LONGEST:
            raise ToolProblem(
                f"since must be before {stamp(end)} and at most {LONGEST.days} days earlier", scope=NAME
            )
        scope = f"{_shown(asked.query)} from {stamp(start)} to {stamp(end)}"
        series = await self._read(scope, asked, end, start)
        return _finding(series, courses(series, start, end, RESULT_TOKENS), scope)

    async def _read(
        self, scope: str, asked: QueryPrometheus, end: datetime, start: datetime | None
    ) -> Sequence[Series]:
        try:
            if start is None:
                return await self.metrics.instant(asked.query, end)
            step = math.ceil((end - start).total_seconds() / (MAX_POINTS - 1))
            return await self.metrics.over_time(asked.query, start, end, step)
        except MetricsError as error:
            raise ToolProblem(f"{scope}: {error}", scope=scope, passing=error.passing) from error


def _finding(series: Sequence[Series], body: str, scope: str) -> Finding:
    if not series:
        return Finding(NO_SERIES, scope)
    cut = (
        f"the {MAX_SERIES} largest of {len(series)} series; aggregate (sum by, topk) or add labels"
        if len(series) > MAX_SERIES
        else ""
    )
    return Finding(body, f"{scope}: {len(series)} series", cut)


def _moment(text: str, now: datetime, name: str) -> datetime:
    found = since_moment(text, now)
    if found is None:
        raise ToolProblem(f"{name} must be like 30m, 2h, 1d or a time like 2026-06-04T19:00:00Z", scope=NAME)
    return found


def _shown(query: str) -> str:
    return one_line(query, 140)
