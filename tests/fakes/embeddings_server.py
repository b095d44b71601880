"""A server of the OpenAI embeddings API on loopback, with the model of MemoryEmbedder; keeps what was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.loopback import PlannedServer, served
from tests.fakes.memory_embedder import vector


@dataclass
class EmbeddingsServer(PlannedServer):
    """After the planned answers it embeds what it is asked."""

    requests: list[dict[str, Any]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.requests.append(asked)
        planned = await self.planned(request)
        return planned if planned is not None else vectors([vector(text) for text in asked["input"]])


def vectors(rows: list[Any]) -> web.Response:
    """An answer with these vectors, the last one first: their places are what counts."""
    data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
    return web.json_response({"object": "list", "data": data[::-1], "model": "fake"})


@asynccontextmanager
async def serve() -> AsyncIterator[EmbeddingsServer]:
    """Run the server on a free loopback port."""
    server = EmbeddingsServer()
    app = web.Application()
    app.router.add_post("/v1/embeddings", server.handle)
    async with served(app, server.closing) as url:
        server.url = f"{url}/v1"
        yield server
