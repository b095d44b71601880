"""The offline analyst behind HTTP: OpenAI chat completions, without streaming, on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from worker.sandbox.analyst.respond import respond

HOST = "127.0.0.1"
MODEL = "offline-analyst"
MAX_BODY_BYTES = 16 * 1024 * 1024


def create_app() -> web.Application:
    """The application: `POST /v1/chat/completions`, `GET /v1/models`."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    pool = ThreadPoolExecutor(
        max_workers=1, thread_name_prefix="analyst"
    )  # keeps the loop free for other work

    async def completions(request: web.Request) -> web.Response:
        try:
            asked = json.loads(await request.read())
            if not isinstance(asked, dict) or not isinstance(asked.get("messages"), list):
                return _refused("the body must be a JSON object with a list of messages")
            if asked.get("stream"):
                return _refused("streaming is not supported: leave stream out")
        except (ValueError, RecursionError) as e:
            return _refused(f"the body is not JSON: {e}")
        return web.json_response(await asyncio.get_running_loop().run_in_executor(pool, respond, asked))

    async def models(_: web.Request) -> web.Response:
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "rca-worker"}
        return web.json_response({"object": "list", "data": [model]})

    async def close(_: web.Application) -> None:
        pool.shutdown()

    app.router.add_post("/v1/chat/completions", completions)
    app.router.add_get("/v1/models", models)
    app.on_cleanup.append(close)
    return app


def _refused(message: str) -> web.Response:
    error: dict[str, Any] = {"message": message, "type": "invalid_request_error", "code": None}
    return web.json_response({"error": error}, status=400)


@asynccontextmanager
async def serve(port: int = 0) -> AsyncIterator[str]:
    """Serve until the context ends; yields the address without `/v1`. Port 0 takes a free one."""
    runner = web.AppRunner(create_app(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
