"""Prometheus on loopback: answers from a list, then with a small set of series; keeps what was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.loopback import PlannedServer, served

LABELS = {"namespace": "shop", "pod": "api-7d9-x2x", "container": "app"}


@dataclass
class Prometheus(PlannedServer):
    """After the planned answers, every query gives 0.25 of LABELS."""

    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append((request.path, dict(request.query)))
        if (planned := await self.planned(request)) is not None:
            return planned
        if request.path.endswith("/query_range"):
            start, step = float(request.query["start"]), float(request.query["step"])
            count = int((float(request.query["end"]) - start) // step) + 1
            values = [[start + i * step, str(i)] for i in range(count)]
            return success("matrix", [{"metric": LABELS, "values": values}])
        return success("vector", [{"metric": LABELS, "value": [float(request.query["time"]), "0.25"]}])


def success(kind: str, result: Any) -> web.Response:
    return web.json_response({"status": "success", "data": {"resultType": kind, "result": result}})


def failure(status: int, kind: str, message: str) -> web.Response:
    return web.json_response({"status": "error", "errorType": kind, "error": message}, status=status)


@asynccontextmanager
async def serve() -> AsyncIterator[Prometheus]:
    """Run the server on a free loopback port."""
    prometheus = Prometheus()
    app = web.Application()
    app.router.add_get("/{path:.*}", prometheus.handle)
    async with served(app, prometheus.closing) as url:
        prometheus.url = url
        yield prometheus
