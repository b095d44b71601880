"""Time series as text for a model: few points, common labels once, values with four digits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from worker.domain.cluster.fields import stamp
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.series import Series
from worker.domain.values.tokens import fits

MAX_SERIES = 10
MAX_POINTS = 60
FEWER_POINTS = (MAX_POINTS, 40, 30, 20, 12, 8, 4, 2)
MAX_LABELS = 24
MAX_LABEL = 120  # characters
GAP = "-"


def moments(series: Sequence[Series], max_tokens: int) -> str:
    """One line a series with its newest value, the largest first."""
    ranked = sorted(series, key=_newest, reverse=True)[:MAX_SERIES]
    common = _common(ranked)
    lines = [f"{_labels(one, common)} {_value(one.points[-1][1]) if one.points else GAP}" for one in ranked]
    return _within("\n".join([*_heading(common), *lines]), max_tokens)


def courses(series: Sequence[Series], start: datetime, end: datetime, max_tokens: int) -> str:
    """One line a series: lowest, highest and last value, then values at equal distances in time.

    As many points as fit, at most 60 a series. A place without a value is `-`.
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
    """Labels that all of several series share."""
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
