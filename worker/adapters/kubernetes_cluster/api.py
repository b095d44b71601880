"""GETs against the API server: bounded in time, size and number of attempts; failures are ClusterErrors."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config import ConfigException

from worker.adapters.kubernetes_cluster.auth import ClusterCredentials
from worker.adapters.kubernetes_cluster.failures import failure_of, unavailable
from worker.domain.values.concurrency import MAX_INLINE_JSON_BYTES
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import Manifest
from worker.domain.values.retry import TRANSIENT_STATUSES, retry_after

MIB = 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
MAX_ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0
CHUNK_BYTES = 64 * 1024
SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")

T = TypeVar("T")
Params = Sequence[tuple[str, str | int]]
Consume = Callable[[aiohttp.StreamReader], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """The limits of calls, of which each may take several attempts."""

    call_seconds: float = 10.0
    attempt_seconds: float = 4.0
    body_bytes: int = 8 * MIB
    connections: int = 64


class BodyTooLargeError(Exception):
    """The answer is longer than `body_bytes`; it was not read to its end."""


class _TransientError(Exception):
    def __init__(self, error: ClusterError, after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.after = after


class _UnauthorizedError(Exception):
    """401: the credentials of this generation are rejected."""

    def __init__(self, error: ClusterError, generation: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.generation = generation


@dataclass(slots=True, eq=False, repr=False)
class ApiReader:
    """Sends GETs, and retries refused connections, timeouts, broken answers, and TRANSIENT_STATUSES."""

    credentials: ClusterCredentials
    limits: ApiLimits
    _: KW_ONLY
    monotonic: Callable[[], float]
    jitter: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    _slots: asyncio.Semaphore = field(init=False)
    _decoding: asyncio.Lock = field(default_factory=asyncio.Lock)
    _client: Any = field(init=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.limits.connections)
        configuration = self.credentials.configuration
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.connection_pool_maxsize = self.limits.connections
        self._client = ApiClient(configuration)
        self._client.user_agent = "rca-worker"

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    def deadline(self) -> float:
        """The deadline of a call that starts now, by the monotonic clock."""
        return self.monotonic() + self.limits.call_seconds

    async def json(
        self,
        path: str,
        params: Params = (),
        *,
        deadline: float | None = None,
        accept: str = "application/json",
    ) -> tuple[Manifest, int]:
        """A JSON object and its size in bytes. Raises ClusterError, BodyTooLargeError."""
        return await self._send(path, params, accept, self._read_object, deadline)

    async def text_tail(self, path: str, params: Params, keep_bytes: int) -> bytes:
        """The last bytes of a text, with no more than those in memory. Raises ClusterError."""
        return await self._send(path, params, "*/*", lambda content: _read_tail(content, keep_bytes), None)

    async def _send(
        self, path: str, params: Params, accept: str, consume: Consume[T], deadline: float | None
    ) -> T:
        deadline = self.deadline() if deadline is None else deadline
        renewed = False
        attempt = 0
        while True:
            try:
                return await self._attempt(path, params, accept, consume, deadline)
            except _UnauthorizedError as refused:
                if renewed:
                    raise refused.error from refused
                renewed = True
                await self.credentials.renew(refused.generation)
                continue
            except _TransientError as failed:
                pause = self._pause(attempt, failed.after)
                attempt += 1
                if attempt == MAX_ATTEMPTS or self.monotonic() + pause >= deadline:
                    raise failed.error from failed
            await self.sleep(pause)

    def _pause(self, attempt: int, after: float | None) -> float:
        longest: float = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt)
        return max(after or 0.0, longest * (1 + self.jitter()) / 2)

    async def _attempt(
        self, path: str, params: Params, accept: str, consume: Consume[T], deadline: float
    ) -> T:
        try:
            async with asyncio.timeout(max(0.0, deadline - self.monotonic())):
                await self.credentials.authorize()
            seconds = max(0.001, min(self.limits.attempt_seconds, deadline - self.monotonic()))
            async with asyncio.timeout(seconds), self._slots:
                return await self._get(path, params, accept, consume, seconds)
        except TimeoutError as error:
            message = f"no answer within {self.limits.call_seconds:g} s"
            raise _TransientError(ClusterError(ClusterReason.TIMEOUT, message)) from error
        except (aiohttp.ClientError, ApiException, ConfigException, OSError, ValueError) as error:
            raise _TransientError(unavailable("the API server cannot be read", error)) from error

    async def _get(self, path: str, params: Params, accept: str, consume: Consume[T], seconds: float) -> T:
        generation = self.credentials.generation
        request = await self._client.param_serialize(
            "GET",
            path,
            query_params=list(params),
            header_params={"Accept": accept},
            auth_settings=["BearerToken"],
        )
        timeout = aiohttp.ClientTimeout(total=seconds)
        response = await self._client.call_api(*request, _request_timeout=timeout)
        async with response.response as answer:
            if any(step.url.origin() != answer.url.origin() for step in answer.history):
                raise ClusterError(ClusterReason.UNAVAILABLE, "the API server redirects to another host")
            if answer.status == 200:
                return await consume(answer.content)
            error = failure_of(answer.status, await _read_start(answer.content, MAX_ERROR_BYTES))
            if answer.status == 401:
                raise _UnauthorizedError(error, generation)
            if answer.status in TRANSIENT_STATUSES:
                raise _TransientError(error, retry_after(answer.headers, datetime.now(UTC)))
            raise error

    async def _read_object(self, content: aiohttp.StreamReader) -> tuple[Manifest, int]:
        """Decode an answer.

        Large ones are decoded one at a time, because as objects they need ten times the memory.
        """
        body = bytearray()
        async for chunk in content.iter_chunked(CHUNK_BYTES):
            body += chunk
            if len(body) > self.limits.body_bytes:
                raise BodyTooLargeError
        if len(body) <= MAX_INLINE_JSON_BYTES:
            return _decode(body), len(body)
        async with self._decoding:
            return await asyncio.to_thread(_decode, body), len(body)


def _decode(body: bytearray) -> Manifest:
    try:
        document = _parsed(body)
        if SURROGATE_ESCAPE.search(body):
            # An unpaired surrogate cannot be encoded: as in Go, U+FFFD replaces it.
            text = json.dumps(document, ensure_ascii=False)
            document = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - bad data, not a wrong type of ours
    return document


def _parsed(body: bytearray) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise ValueError("its answer is not JSON: is it a Kubernetes API server?") from error


async def _read_tail(content: aiohttp.StreamReader, keep: int) -> bytes:
    tail = bytearray()
    async for chunk in content.iter_chunked(CHUNK_BYTES):
        tail += chunk
        if len(tail) > keep:
            del tail[:-keep]
    return bytes(tail)


async def _read_start(content: aiohttp.StreamReader, limit: int) -> bytes:
    start = bytearray()
    async for chunk in content.iter_chunked(CHUNK_BYTES):
        start += chunk
        if len(start) >= limit:
            break
    return bytes(start[:limit])
