"""The Metrics port on the HTTP API of Prometheus and compatible servers.

It uses `/api/v1/query` and `/api/v1/query_range`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from worker.adapters.json_server import JsonServer, ServerAnswer, ServerClient, TooLongError, UnreachableError
from worker.domain.cluster.fields import dig, mapping, mappings, sequence, strings, text
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.errors import MetricsError
from worker.domain.values.ports import Series

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_SERIES = 1_000
MAX_POINTS = 200  # of one series; more were not requested
MAX_MESSAGE = 300  # characters
HINTS = {
    401: "the worker's token is rejected",
    403: "the worker may not query it",
    404: "there is no Prometheus API at the configured address",
    429: "too many requests; try again later with a cheaper query",
}


class PrometheusMetrics(ServerClient):
    """`url` is the base address, with a path prefix, if any; `call_seconds` bounds one query."""

    def __init__(self, url: str, *, token: str = "", call_seconds: float = 10.0) -> None:
        self._call_seconds = call_seconds
        super().__init__(JsonServer(url, token=token, call_seconds=call_seconds, max_bytes=MAX_BODY_BYTES))

    async def instant(self, query: str, at: datetime) -> Sequence[Series]:
        """The value of each series at a moment. Raises MetricsError."""
        return await self._ask("query", {"query": query, "time": _seconds(at)})

    async def over_time(
        self, query: str, start: datetime, end: datetime, step_seconds: int
    ) -> Sequence[Series]:
        """The values of each series at equal distances. Raises MetricsError."""
        window = {"start": _seconds(start), "end": _seconds(end), "step": str(max(1, step_seconds))}
        return await self._ask("query_range", {"query": query, **window})

    async def _ask(self, path: str, asked: dict[str, str]) -> Sequence[Series]:
        bounds = {"timeout": f"{self._call_seconds:g}s", "limit": str(MAX_SERIES)}
        try:
            async with asyncio.timeout(self._call_seconds):
                answer = await self._server.get(f"/api/v1/{path}", {**asked, **bounds})
        except TimeoutError as error:
            message = f"Prometheus gave no answer within {self._call_seconds:g} s; ask for less time or fewer series"
            raise MetricsError(message, passing=True) from error
        except UnreachableError as error:
            raise MetricsError(f"Prometheus {error}", passing=True) from error
        except TooLongError as error:
            raise MetricsError(
                "the answer of Prometheus is too long; aggregate (sum by, topk) or add labels"
            ) from error
        document = answer.object() or {}
        if answer.status != 200 or document.get("status") != "success":
            raise _refused(answer, document)
        return _series(mapping(document.get("data")))


def _seconds(moment: datetime) -> str:
    return f"{moment.timestamp():.3f}"


def _refused(answer: ServerAnswer, document: dict[str, Any]) -> MetricsError:
    """Return the error to show.

    Prometheus's own words about the query (`parse error: ...`) help best; those of a proxy do not.
    """
    said = one_line(text(document.get("error")), MAX_MESSAGE)
    kind = one_line(text(document.get("errorType")), 40)
    if said:
        return MetricsError(f"Prometheus says {kind or answer.status}: {said}", passing=answer.may_pass)
    if answer.status == 200:
        return MetricsError("the answer is not a response of the Prometheus API", passing=True)
    hint = HINTS.get(answer.status, "it gave no reason")
    return MetricsError(f"Prometheus answered {answer.status}: {hint}", passing=answer.may_pass)


def _series(data: dict[str, Any]) -> Sequence[Series]:
    kind, result = data.get("resultType"), data.get("result")
    if kind == "scalar":
        return _with_points({}, [result])
    if kind == "vector":
        return [s for item in _items(result) for s in _with_points(item, [item.get("value")])]
    if kind == "matrix":
        return [s for item in _items(result) for s in _with_points(item, sequence(item.get("values")))]
    raise MetricsError("the query does not give numbers; ask for an instant vector or a scalar")


def _items(result: Any) -> list[dict[str, Any]]:
    return mappings(result)[:MAX_SERIES]


def _with_points(item: dict[str, Any], pairs: list[Any]) -> list[Series]:
    points = tuple(point for pair in pairs[-MAX_POINTS:] if (point := _point(pair)) is not None)
    return [Series(strings(dig(item, "metric")), points)] if points else []


def _point(pair: Any) -> tuple[float, float] | None:
    """`[1717515185.123, "0.25"]`; None for anything else, such as a native histogram."""
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    try:
        at, value = float(pair[0]), float(pair[1])
    except (TypeError, ValueError, OverflowError):
        return None
    return (at, value) if math.isfinite(at) else None
