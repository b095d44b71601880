"""An OPA server on loopback: its Data API over real HTTP, evaluating real Rego. `faults` come before good answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import regorus
from aiohttp import web

from tests.fakes.loopback import served

HANG, BREAK = "hang", "break"


@dataclass
class Opa:
    """`faults`, one a question: a response, HANG, or BREAK for a connection that is cut. `token` is asked for if set."""

    engine: Any
    token: str = ""
    faults: list[web.StreamResponse | str] = field(default_factory=list)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    url: str = ""
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def data(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        raw = await request.read()
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return failure(401, "unauthorized", "request rejected by administrative policy")
        try:
            document = json.loads(raw)
        except ValueError:
            return failure(400, "invalid_parameter", "invalid body")
        self.asked.append((path, document.get("input")))
        if self.faults:
            fault = self.faults.pop(0)
            if fault == BREAK:
                request.transport.abort()
                return web.Response()
            if fault == HANG:
                await self.closing.wait()
                return web.Response(status=503)
            return fault
        return self._evaluated(path, document.get("input"))

    def _evaluated(self, path: str, given: Any) -> web.Response:
        one = self.engine.clone()
        one.set_input_json(json.dumps(given))
        try:
            found = json.loads(one.eval_query_as_json(f"data.{path.replace('/', '.')}"))
        except RuntimeError:
            return failure(500, "internal_error", "error(s) occurred while evaluating query")
        rows = found.get("result") or []
        return web.json_response({"result": rows[0]["expressions"][0]["value"]} if rows else {})


async def healthy(_: web.Request) -> web.Response:
    return web.json_response({})


def failure(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"code": code, "message": message}, status=status)


def engine_of(modules: Sequence[str], data: Mapping[str, Any]) -> Any:
    engine = regorus.Engine()
    for number, text in enumerate(modules):
        engine.add_policy(f"{number}.rego", text)
    engine.add_data_json(json.dumps(dict(data)))
    return engine


@asynccontextmanager
async def serve(
    *modules: str, data: Mapping[str, Any] | None = None, token: str = "", faults: Sequence[Any] = ()
) -> AsyncIterator[Opa]:
    """Run the server on a free loopback port, with these modules and this data."""
    opa = Opa(engine_of(modules, data or {}), token, list(faults))
    app = web.Application()
    app.router.add_get("/health", healthy)
    app.router.add_post("/v1/data/{path:.+}", opa.data)
    try:
        async with served(app, opa.closing) as url:
            opa.url = url
            yield opa
    finally:
        opa.engine = None  # here and not by the garbage collector, which may run in another thread
