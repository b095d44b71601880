"""The tool that queries Prometheus, offered only if one is configured. Bounded in time range and size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field, StringConstraints

from worker.domain.cluster.fields import stamp
from worker.domain.investigation.toolbox import tool
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.errors import MetricsError
from worker.domain.values.ports import Series
from worker.domain.values.tokens import fits

NAME = "query_prometheus"
MAX_QUERY = 1000  # characters
LONGEST = timedelta(days=30)
MAX_SERIES = 10
MAX_POINTS = 60
FEWER_POINTS = (MAX_POINTS, 40, 30, 20, 12, 8, 4, 2)
MAX_LABELS = 24
MAX_LABEL = 120  # characters
GAP = "-"
NO_SERIES = "no series: the metric or the labels do not exist at that time, or a comparison filtered all out"


class QueryPrometheus(tool.Arguments):
    """Arguments of query_prometheus."""

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUERY)] = (
        Field(description="PromQL; aggregate to few series")
    )
    since: tool.Word = Field(default="", description="e.g. 2h for a range; empty: one moment")
    until: tool.Word = Field(default="", description="empty: the time of the signal")


async def query_prometheus(run: tool.ToolContext, asked: QueryPrometheus) -> tool.ToolOutput:
    """The newest values of some series, or their course over time. Raises ToolProblem."""
    end = tool.moment_of(asked.until, run.now, "until", scope=NAME) if asked.until else run.now
    if not asked.since:
        scope = f"{_shown(asked.query)} at {stamp(end)}"
        series = await _read(run, scope, asked, end, None)
        return _output(series, moments(series, tool.RESULT_TOKENS), scope)
    start = tool.moment_of(asked.since, run.now, "since", scope=NAME)
    if not timedelta(0) < end - start <= LONGEST:
        raise tool.ToolProblem(
            f"since must be before {stamp(end)} and at most {LONGEST.days} days earlier", scope=NAME
        )
    scope = f"{_shown(asked.query)} from {stamp(start)} to {stamp(end)}"
    series = await _read(run, scope, asked, end, start)
    return _output(series, courses(series, start, end, tool.RESULT_TOKENS), scope)


async def _read(
    run: tool.ToolContext, scope: str, asked: QueryPrometheus, end: datetime, start: datetime | None
) -> Sequence[Series]:
    assert run.metrics is not None  # the tool is offered only with metrics
    try:
        if start is None:
            return await run.metrics.instant(asked.query, end)
        step = math.ceil((end - start).total_seconds() / (MAX_POINTS - 1))
        return await run.metrics.over_time(asked.query, start, end, step)
    except MetricsError as error:
        raise tool.ToolProblem(f"{scope}: {error}", scope=scope, passing=error.passing) from error


def _output(series: Sequence[Series], body: str, scope: str) -> tool.ToolOutput:
    if not series:
        return tool.ToolOutput(NO_SERIES, scope)
    cut = (
        f"the {MAX_SERIES} largest of {len(series)} series; aggregate (sum by, topk) or add labels"
        if len(series) > MAX_SERIES
        else ""
    )
    return tool.ToolOutput(body, f"{scope}: {len(series)} series", cut)


def _shown(query: str) -> str:
    return one_line(query, 140)


def moments(series: Sequence[Series], max_tokens: int) -> str:
    """One line a series with its newest value, the largest first."""
    ranked = sorted(series, key=_newest, reverse=True)[:MAX_SERIES]
    common = _common(ranked)
    lines = [f"{_labels(one, common)} {_value(one.points[-1][1]) if one.points else GAP}" for one in ranked]
    return _within("\n".join([*_heading(common), *lines]), max_tokens)


def courses(series: Sequence[Series], start: datetime, end: datetime, max_tokens: int) -> str:
    """One line a series: lowest, highest and last value, then values at equal distances in time.

    As many points as fit, at most 60 a series. A point without a value is `-`.
    """
    ranked = sorted(series, key=_highest, reverse=True)[:MAX_SERIES]
    common = _common(ranked)
    shown = ""
    for points in FEWER_POINTS:
        step = (end - start).total_seconds() / (points - 1)
        lines = [f"{_labels(one, common)} {_course(one, start, step, points)}" for one in ranked]
        times = f"{points} values from {stamp(start)} to {stamp(end)}, one every {step:.4g} s, {GAP} is none"
        shown = "\n".join([times, *_heading(common), *lines])
        if fits(shown, max_tokens):
            break
    return _within(shown, max_tokens)


def _within(text: str, max_tokens: int) -> str:
    lines = text.split("\n")
    while len(lines) > 1 and not fits("\n".join(lines), max_tokens):
        lines.pop()
    return "\n".join(lines)


def _course(one: Series, start: datetime, step: float, points: int) -> str:
    places: list[float | None] = [None] * points
    for at, value in one.points:
        index = round((at - start.timestamp()) / step)
        if 0 <= index < points:
            places[index] = value
    values = [value for _, value in one.points if not math.isnan(value)]
    if not values:
        return "no values"
    extent = f"min {_value(min(values))} max {_value(max(values))} last {_value(one.points[-1][1])}"
    return f"{extent}: {' '.join(GAP if value is None else _value(value) for value in places)}"


def _value(value: float) -> str:
    """`0.25`, `1.074e+09`, `NaN`, `+Inf`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    whole = value.is_integer() and abs(value) < 1e7
    return str(int(value)) if whole else f"{value:.4g}"


def _newest(one: Series) -> float:
    return _sortable(one.points[-1][1]) if one.points else -math.inf


def _highest(one: Series) -> float:
    return max((_sortable(value) for _, value in one.points), default=-math.inf)


def _sortable(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _common(series: Sequence[Series]) -> dict[str, str]:
    """The labels that all series share, if there are several."""
    if len(series) < 2:
        return {}
    first, *others = (one.labels for one in series)
    return {k: v for k, v in first.items() if all(other.get(k) == v for other in others)}


def _heading(common: Mapping[str, str]) -> list[str]:
    return [f"all have {_braced(common)}"] if common else []


def _labels(one: Series, common: Mapping[str, str]) -> str:
    return _braced({k: v for k, v in one.labels.items() if k not in common})


def _braced(labels: Mapping[str, str]) -> str:
    shown = [f'{_word(name)}="{_word(value)}"' for name, value in sorted(labels.items())[:MAX_LABELS]]
    return "{" + ", ".join(shown) + (", …" if len(labels) > MAX_LABELS else "") + "}"


def _word(text: str) -> str:
    return one_line(text, MAX_LABEL)


QUERY_PROMETHEUS = tool.ToolDef(
    NAME,
    (
        "Metrics by PromQL: the value at a moment, or its course since a time. For an alert on a metric read its expression"
        " around the firing time first, then usage against limits and requests of the same container or node (rate() of"
        " counters, sum by labels), and compare with before the last change."
    ),
    QueryPrometheus,
    query_prometheus,
    details=frozenset({"since"}),
)
