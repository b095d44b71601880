"""`/livez`, `/readyz` and `/metrics`.

Alive means that the event loop runs. Ready means that no check reports a problem; the body of a 503 lists the
problems, one per line, so that `kubectl describe` and `curl` show the same. Notices are listed too, but the
worker stays ready: an operator has to fix what they report, and taking the worker out of service would fix
nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

from aiohttp import web

from worker.app.http_server import listening, livez
from worker.app.metrics import WorkerMetrics

Check = Callable[[], str]
"""Says what is wrong; empty if all is well. Must not block."""


def problems(checks: Mapping[str, Check]) -> list[str]:
    """`name: what is wrong` of every check that complains."""
    said = ((name, check()) for name, check in checks.items())
    return [f"{name}: {wrong}" for name, wrong in said if wrong]


@asynccontextmanager
async def serve(
    host: str,
    port: int,
    *,
    checks: Mapping[str, Check],
    metrics: WorkerMetrics,
    notices: Mapping[str, Check] = MappingProxyType({}),
) -> AsyncIterator[int]:
    """Serve until the context ends; yields the port (the system's choice for 0)."""

    async def readyz(_: web.Request) -> web.Response:
        wrong = problems(checks)
        lines = [*(wrong or ["ok"]), *problems(notices)]
        return web.Response(text="\n".join(lines) + "\n", status=503 if wrong else 200)

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(
            body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    app = web.Application()
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", exposition)
    async with listening(app, host, port) as taken:
        yield taken
