"""The offline analyst behind the OpenAI chat completions protocol, on the loopback interface only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from worker.sandbox.analyst.respond import MODEL, NAME, respond

MAX_BODY_BYTES = 32 * 1024 * 1024
HOST = "127.0.0.1"


def create_app() -> web.Application:
    """`POST /v1/chat/completions` (non-streaming) and `GET /v1/models`. Keeps nothing between requests."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/chat/completions", _complete)
    app.router.add_get("/v1/models", _models)
    return app


@asynccontextmanager
async def serve(port: int = 0) -> AsyncIterator[str]:
    """Serve until left; gives the base URL (`http://127.0.0.1:41234/v1`). Port 0 takes a free one."""
    runner = web.AppRunner(create_app(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        await site.start()
        yield f"http://{HOST}:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def _complete(request: web.Request) -> web.Response:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        return _refused("the body is not JSON")
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        return _refused("messages must be a list")
    if body.get("stream"):
        return _refused("streaming is not supported: send stream false")
    return web.json_response(await asyncio.to_thread(respond, body))


async def _models(_request: web.Request) -> web.Response:
    entry = {"id": NAME, "object": "model", "created": 0, "owned_by": "rca-worker", "name": MODEL}
    return web.json_response({"object": "list", "data": [entry]})


def _refused(message: str) -> web.Response:
    error: dict[str, Any] = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return web.json_response({"error": error}, status=400)
