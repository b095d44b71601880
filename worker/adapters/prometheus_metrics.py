"""Metrics port on the HTTP API of Prometheus (`/api/v1/query`, `/api/v1/query_range`), and of what speaks it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import httpx

from worker.domain.errors import MetricsError
from worker.domain.evidence import one_line
from worker.domain.fields import dig, mapping, mappings, sequence, strings, text
from worker.domain.metric_series import Series

CONNECTIONS = 8
MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_SERIES = 1_000
MAX_POINTS = 200  # of one series; more were not asked for
MAX_MESSAGE = 300  # characters
TRANSIENT = frozenset({429, 500, 502, 503, 504})
HINTS = {
    401: "the worker's token is not taken",
    403: "the worker may not ask it",
    404: "there is no Prometheus API at the configured address",
    429: "it is asked too much; try again later with a cheaper query",
}


class PrometheusMetrics:
    """`url` is the base address, with a prefix where there is one; `call_seconds` bounds one query."""

    def __init__(self, url: str, *, token: str = "", call_seconds: float = 10.0) -> None:
        self._base, self._call_seconds = f"{url.rstrip('/')}/api/v1", call_seconds
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
            timeout=call_seconds,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        """Opens nothing yet: connections are made with the first query."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connections."""
        await self._http.aclose()

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
            async with (
                asyncio.timeout(self._call_seconds),
                self._http.stream("GET", f"{self._base}/{path}", params={**asked, **bounds}) as answer,
            ):
                document = _document(await _body(answer))
                if answer.status_code != 200 or document.get("status") != "success":
                    raise _refused(answer.status_code, document)
                return _series(mapping(document.get("data")))
        except (TimeoutError, httpx.TimeoutException) as error:
            message = f"Prometheus gave no answer within {self._call_seconds:g} s; ask for less time or fewer series"
            raise MetricsError(message, passing=True) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise MetricsError(
                f"Prometheus cannot be reached ({type(error).__name__})", passing=True
            ) from error


def _seconds(moment: datetime) -> str:
    return f"{moment.timestamp():.3f}"


async def _body(answer: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise MetricsError("the answer of Prometheus is too long; aggregate (sum by, topk) or add labels")
    return bytes(body)


def _document(body: bytes) -> dict[str, Any]:
    try:
        return mapping(json.loads(body))
    except (ValueError, RecursionError):
        return {}


def _refused(status: int, document: dict[str, Any]) -> MetricsError:
    """What Prometheus says about the query (`parse error: ...`) helps best; a proxy in between says nothing useful."""
    said = one_line(text(document.get("error")), MAX_MESSAGE)
    kind = one_line(text(document.get("errorType")), 40)
    if said:
        return MetricsError(f"Prometheus says {kind or status}: {said}", passing=status in TRANSIENT)
    if status == 200:
        return MetricsError("the answer is not one of Prometheus", passing=True)
    hint = HINTS.get(status, "it gave no reason")
    return MetricsError(f"Prometheus answered {status}: {hint}", passing=status in TRANSIENT)


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
