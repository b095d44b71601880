"""Requests JSON from an HTTP server: answers bounded in size, no redirects, no proxy from the environment.

Shared by the adapters of HTTP APIs, which decide what an answer means.
"""

from __future__ import annotations

import email.utils
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import httpx2

CONNECTIONS = 8
TRANSIENT = frozenset({429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed later (RFC 9110)."""


class UnreachableError(Exception):
    """There is no connection, or it broke. The message is the end of a sentence: `cannot be reached
    (ConnectError)`.
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
        return self.status in TRANSIENT

    def json(self) -> Any:
        """The body. Raises ValueError when it is not JSON, or too deep."""
        try:
            return json.loads(self.body)
        except RecursionError as error:
            raise ValueError("nested too deep") from error


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
        """Send a GET. Raises UnreachableError, TimeoutError, and TooLongError for an answer with status
        200.
        """
        return await self._ask("GET", path, params=dict(params))

    async def post(self, path: str, document: Mapping[str, Any]) -> ServerAnswer:
        """Send a POST of JSON. Raises as `get` does."""
        return await self._ask("POST", path, json=dict(document))

    async def _ask(self, method: str, path: str, **given: Any) -> ServerAnswer:
        try:
            async with self._http.stream(method, f"{self.url}{path}", **given) as answer:
                return ServerAnswer(
                    answer.status_code, await self._body(answer), _retry_after(answer.headers)
                )
        except httpx2.TimeoutException as error:
            raise TimeoutError from error
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError) as error:
            raise UnreachableError(f"broke the connection ({type(error).__name__})") from error
        except (
            httpx2.HTTPError,
            httpx2.InvalidURL,
            ExceptionGroup,
        ) as error:  # a group for a port above 65535
            raise UnreachableError(f"cannot be reached ({type(error).__name__})") from error

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


class ServerClient:
    """A client of one server. It connects with the first request, and closes the connections as a context
    manager.
    """

    def __init__(self, server: JsonServer) -> None:
        self._server = server

    async def __aenter__(self) -> Self:
        """Opens nothing yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connections."""
        await self._server.aclose()


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds, or a date by the server's own clock (RFC 9110, section 10.2.3)."""
    said = headers.get("Retry-After", "").strip()
    if said.isdecimal() and len(said) < 8:
        return float(said)
    until = _date(said)
    if until is None:
        return None
    now = _date(headers.get("Date", "")) or datetime.now(UTC)
    return max(0.0, (until - now).total_seconds())


def _date(said: str) -> datetime | None:
    try:
        found = email.utils.parsedate_to_datetime(said)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
