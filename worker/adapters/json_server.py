"""Requests JSON from an HTTP server: answers bounded in size, no redirects, no proxy from the environment.

Shared by the adapters of HTTP APIs, which decide what an answer means.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import httpx2

from worker.domain.values.errors import network_reason
from worker.domain.values.json_read import read_json
from worker.domain.values.retry import TRANSIENT_STATUSES, retry_after

CONNECTIONS = 8
MAX_CALL_BYTES = 32 * 1024 * 1024


class UnreachableError(Exception):
    """There is no connection, or it broke.

    The message is the end of a sentence: `cannot be reached (Connection refused)`.
    """


class TooLongError(Exception):
    """The answer is longer than allowed."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """An answer. `after` is the wait that the server asked for (Retry-After), in seconds."""

    status: int
    body: bytes
    after: float | None = None

    @property
    def may_pass(self) -> bool:
        """True if the same request may succeed later."""
        return self.status in TRANSIENT_STATUSES

    def json(self) -> Any:
        """The body. Raises ValueError when it is not JSON, or too deep."""
        try:
            return json.loads(self.body)
        except RecursionError as error:
            raise ValueError("nested too deep") from error

    def object(self) -> dict[str, Any] | None:
        """The JSON object in the body; None for any other body."""
        found = read_json(self.body)
        return found if isinstance(found, dict) else None


class JsonServer:
    """One server. `call_seconds` bounds each wait for it (connecting, reading), `max_bytes` a body."""

    def __init__(self, url: str, *, token: str, call_seconds: float, max_bytes: int) -> None:
        self.url, self._max_bytes = url.rstrip("/"), max_bytes
        plain = {"Accept-Encoding": "identity"}  # a small compressed body may be huge
        self._http = httpx2.AsyncClient(
            headers={**plain, "Authorization": f"Bearer {token}"} if token else plain,
            limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
            timeout=call_seconds,
            trust_env=False,
        )

    async def get(self, path: str, params: Mapping[str, str]) -> ServerAnswer:
        """Send a GET request.

        Raises UnreachableError, TimeoutError, and TooLongError for an answer with status 200.
        """
        return await self._ask("GET", path, params=dict(params))

    async def post(self, path: str, document: Mapping[str, Any]) -> ServerAnswer:
        """Send a POST of JSON. Raises as `get` does."""
        return await self._ask("POST", path, json=dict(document))

    async def _ask(self, method: str, path: str, **given: Any) -> ServerAnswer:
        try:
            async with self._http.stream(method, f"{self.url}{path}", **given) as answer:
                return ServerAnswer(
                    answer.status_code,
                    await self._body(answer),
                    retry_after(answer.headers, datetime.now(UTC)),
                )
        except httpx2.TimeoutException as error:
            raise TimeoutError from error
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError) as error:
            raise UnreachableError(
                f"closed the connection ({network_reason(error) or type(error).__name__})"
            ) from error
        # A group for a port above 65535.
        except (httpx2.HTTPError, httpx2.InvalidURL, ExceptionGroup) as error:
            raise UnreachableError(
                f"cannot be reached ({network_reason(error) or type(error).__name__})"
            ) from error

    async def _body(self, answer: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in answer.aiter_raw():
            body += chunk
            if len(body) > self._max_bytes:
                if answer.status_code == 200:
                    raise TooLongError
                break
        return bytes(body[: self._max_bytes])

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()


class RequestFailedError(Exception):
    """A request failed. `status` is 0 without a response; `again`: a retry may work after `after` seconds.

    `absent`: the API itself says that the resource does not exist. A 404 without JSON may come from a proxy.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        again: bool = False,
        after: float | None = None,
        absent: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.again, self.after, self.absent = status, again, after, absent


@dataclass(slots=True)
class Exchange:
    """The requests of one call of a port. They share its deadline, and one limit on the bytes read.

    `hints` explain a status, `who` begins the messages. A request is tried up to `tries` times where that may help,
    after `pause_seconds` or what the server asks for, but not above `longest_seconds`.
    """

    server: JsonServer
    sleep: Callable[[float], Awaitable[None]]
    hints: Mapping[int, str]
    who: str = "it"
    pause_seconds: float = 0.2
    longest_seconds: float = 2.0
    tries: int = 2
    _left: int = MAX_CALL_BYTES

    async def get(self, path: str, params: Mapping[str, str]) -> Any:
        """The JSON of a response with status 200. Raises RequestFailedError."""
        return await self._patiently(lambda: self.server.get(path, params))

    async def post(self, path: str, document: Mapping[str, Any]) -> Any:
        """The JSON of a response to a POST of JSON, with status 200. Raises RequestFailedError."""
        return await self._patiently(lambda: self.server.post(path, document))

    async def _patiently(self, send: Callable[[], Awaitable[ServerAnswer]]) -> Any:
        left = self.tries
        while True:
            left -= 1
            try:
                return self._document(await self._ask(send))
            except RequestFailedError as error:
                wait = self.pause_seconds if error.after is None else error.after
                if not left or not error.again or wait > self.longest_seconds:
                    raise
            await self.sleep(wait)

    async def _ask(self, send: Callable[[], Awaitable[ServerAnswer]]) -> ServerAnswer:
        try:
            answer = await send()
        except UnreachableError as error:
            raise RequestFailedError(f"{self.who} {error}", again=True) from error
        except TooLongError as error:
            raise RequestFailedError("the answer is too long") from error
        self._left -= len(answer.body)
        if self._left < 0:
            raise RequestFailedError("the answers are too long")
        return answer

    def _document(self, answer: ServerAnswer) -> Any:
        status = answer.status
        if status != 200:
            hint = ": redirects are not followed" if 300 <= status < 400 else self.hints.get(status, "")
            raise RequestFailedError(
                f"{self.who} answered {status}{hint}",
                status=status,
                again=answer.may_pass,
                after=answer.after,
                absent=status == 404 and answer.object() is not None,
            )
        try:
            return answer.json()
        except ValueError as error:
            raise RequestFailedError("the answer is not JSON") from error


class ServerClient:
    """A client of one server.

    It connects with the first request, and closes the connections as a context manager.
    """

    def __init__(self, server: JsonServer) -> None:
        self._server = server

    async def __aenter__(self) -> Self:
        """Opens nothing yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connections."""
        await self._server.aclose()
