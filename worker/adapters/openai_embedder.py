"""The Embedder port on servers that speak the OpenAI embeddings API (`POST <base>/embeddings`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from worker.adapters.json_server import Exchange, JsonServer, RequestFailedError, ServerClient
from worker.domain.catalog.similarity import Vector, unit_vectors
from worker.domain.cluster.fields import mapping, mappings
from worker.domain.values.errors import EmbedderUnavailable

MAX_BODY_BYTES = 16 * 1024 * 1024
PAUSE_SECONDS = 0.5
HINTS = {
    400: ": it rejects the texts or the model",
    401: ": it does not accept the key",
    403: ": the key may not use the model",
    404: ": no such API or model at this address",
    429: ": too many requests",
}


class OpenAIEmbedder(ServerClient):
    """Implements Embedder. `url` is the base address (`https://api.openai.com/v1`).

    `call_seconds` bounds one call, retries included. The API does not distinguish queries from passages.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str = "",
        call_seconds: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = model
        """The name of the model on the server."""
        self.dimensions = 0
        """The length of a vector; 0 until the first one has arrived."""
        self._call_seconds, self._sleep = call_seconds, sleep
        super().__init__(JsonServer(url, token=key, call_seconds=call_seconds, max_bytes=MAX_BODY_BYTES))

    async def embed(self, texts: Sequence[str], *, query: bool) -> Sequence[Vector]:  # noqa: ARG002 - see class
        """One vector for each text. Raises EmbedderUnavailable."""
        plain = [text.encode("utf-8", "replace").decode() or " " for text in texts]
        if not plain:
            return []
        asked = {"model": self.name, "input": plain, "encoding_format": "float"}
        exchange = Exchange(
            self._server,
            self._sleep,
            HINTS,
            who="the server",
            pause_seconds=PAUSE_SECONDS,
            longest_seconds=self._call_seconds,
        )
        try:
            async with asyncio.timeout(self._call_seconds):
                rows = _rows(await exchange.post("/embeddings", asked), len(plain))
        except TimeoutError as error:
            raise EmbedderUnavailable(f"{self.name}: no answer within {self._call_seconds:g} s") from error
        except RequestFailedError as error:
            raise EmbedderUnavailable(f"{self.name}: {error}") from error
        vectors = unit_vectors(rows, len(plain), self.dimensions)
        self.dimensions = len(vectors[0])
        return vectors


def _rows(document: Any, count: int) -> list[Any]:
    """The vectors in the order of the texts. The server may answer in any order: each vector has an index."""
    items = mappings(mapping(document).get("data"))
    rows = {item["index"]: item.get("embedding") for item in items if type(item.get("index")) is int}
    if len(items) != count or set(rows) != set(range(count)):
        raise RequestFailedError(f"the answer does not have one vector for each of {count} texts")
    return [rows[n] for n in range(count)]
