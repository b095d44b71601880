"""Embedder port on servers that speak the OpenAI embeddings API (`POST <base>/embeddings`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from worker.adapters.json_server import JsonServer, ServerAnswer, ServerClient, TooLongError, UnreachableError
from worker.domain.catalog.ranking import Vector, unit_vectors
from worker.domain.cluster.fields import mapping, mappings
from worker.domain.values.errors import EmbedderUnavailable

MAX_BODY_BYTES = 16 * 1024 * 1024
ATTEMPTS = 2
PAUSE_SECONDS = 0.5
HINTS = {
    400: ": it rejects the texts or the model",
    401: ": it does not accept the key",
    403: ": the key may not use the model",
    404: ": no such API or model at this address",
    429: ": too many requests",
}


class EmbeddingRequestError(Exception):
    """A request failed. `again`: a retry may work after `after` seconds."""

    def __init__(self, message: str, *, again: bool = False, after: float = PAUSE_SECONDS) -> None:
        super().__init__(message)
        self.again, self.after = again, after


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
        try:
            async with asyncio.timeout(self._call_seconds):
                rows = await self._with_retries(plain)
        except TimeoutError as error:
            raise EmbedderUnavailable(f"{self.name}: no answer within {self._call_seconds:g} s") from error
        except EmbeddingRequestError as error:
            raise EmbedderUnavailable(f"{self.name}: {error}") from error
        vectors = unit_vectors(rows, len(plain), self.dimensions)
        self.dimensions = len(vectors[0])
        return vectors

    async def _with_retries(self, texts: list[str]) -> list[Any]:
        left = ATTEMPTS
        while True:
            left -= 1
            try:
                return await self._ask(texts)
            except EmbeddingRequestError as error:
                if not left or not error.again or error.after >= self._call_seconds:
                    raise
                wait = error.after
            await self._sleep(wait)

    async def _ask(self, texts: list[str]) -> list[Any]:
        asked = {"model": self.name, "input": texts, "encoding_format": "float"}
        try:
            answer = await self._server.post("/embeddings", asked)
        except UnreachableError as error:
            raise EmbeddingRequestError(f"the server {error}", again=True) from error
        except TooLongError as error:
            raise EmbeddingRequestError("the answer is too long") from error
        if answer.status != 200:
            raise _error_of(answer)
        try:
            return _rows(answer.json(), len(texts))
        except ValueError as error:
            raise EmbeddingRequestError("the answer is not JSON") from error


def _error_of(answer: ServerAnswer) -> EmbeddingRequestError:
    message = f"the server answered {answer.status}{HINTS.get(answer.status, '')}"
    after = PAUSE_SECONDS if answer.after is None else answer.after
    return EmbeddingRequestError(message, again=answer.may_pass, after=after)


def _rows(document: Any, count: int) -> list[Any]:
    """The vectors in the order of the texts. The server may answer in any order: each vector has an index."""
    items = mappings(mapping(document).get("data"))
    rows = {item["index"]: item.get("embedding") for item in items if type(item.get("index")) is int}
    if len(items) != count or set(rows) != set(range(count)):
        raise EmbeddingRequestError(f"the answer does not have one vector for each of {count} texts")
    return [rows[n] for n in range(count)]
