"""One time series, as a metrics server answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Series:
    """One time series: its labels, and (Unix seconds, value) in order of time. Values may be NaN or infinite."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]
