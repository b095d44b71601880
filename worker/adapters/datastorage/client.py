"""A client of one DataStorage over HTTP: one retry within one deadline, and a circuit breaker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from worker.adapters.json_server import JsonServer, ServerAnswer, TooLongError, UnreachableError
from worker.domain.investigation.models.breaker import (
    Breaker,
    BreakerRule,
    abandoned,
    answered,
    pause,
    started,
    unavailable,
)

MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_CALL_BYTES = 32 * 1024 * 1024
ATTEMPTS = 2
PAUSE_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 2.0
RULE = BreakerRule(failures=3, open_seconds=30.0, longest_seconds=300.0)
HINTS = {
    401: ": it does not accept the token",
    403: ": the worker may not read it",
    404: ": no such API at this address",
}

Result = TypeVar("Result")


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
        self.absent = absent
        self.status, self.again, self.after = status, again, after


class Exchange:
    """The requests of one call of a port. They share its deadline, and one limit on the bytes read."""

    def __init__(self, server: JsonServer, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._server, self._sleep, self._left = server, sleep, MAX_CALL_BYTES

    async def get(self, path: str, params: Mapping[str, str]) -> Any:
        """The JSON of a response with status 200, after one retry where that may help. Raises
        RequestFailedError.
        """
        left = ATTEMPTS
        while True:
            left -= 1
            try:
                return _document(await self._ask(path, params))
            except RequestFailedError as error:
                wait = PAUSE_SECONDS if error.after is None else error.after
                if not left or not error.again or wait > LONGEST_WAIT_SECONDS:
                    raise
            await self._sleep(wait)

    async def _ask(self, path: str, params: Mapping[str, str]) -> ServerAnswer:
        try:
            answer = await self._server.get(path, params)
        except UnreachableError as error:
            raise RequestFailedError(f"it {error}", again=True) from error
        except TooLongError as error:
            raise RequestFailedError("the answer is too long") from error
        self._left -= len(answer.body)
        if self._left < 0:
            raise RequestFailedError("the answers are too long")
        return answer


class DataStorageClient:
    """`call_seconds` bounds one call of a port, however many requests and retries it takes.

    After three failed calls in a row, or when the server asks for it (Retry-After), the circuit breaker
    opens: nothing is sent for a while and every call fails at once. `failure` turns a message that names the
    server into the port's own error.
    """

    def __init__(
        self,
        url: str,
        failure: Callable[[str], Exception],
        *,
        token: str,
        call_seconds: float,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.server = JsonServer(url, token=token, call_seconds=call_seconds, max_bytes=MAX_BODY_BYTES)
        self._failure, self._call_seconds = failure, call_seconds
        self._monotonic, self._sleep = monotonic, sleep
        self._breaker, self._last = Breaker(), ""

    async def call(self, work: Callable[[Exchange], Awaitable[Result]]) -> Result:
        """The result of `work`, before the deadline. Raises the port's error."""
        if pause(self._breaker, self._monotonic()):
            raise self._failed(f"no request is sent for a while ({self._last})")
        self._breaker = started(self._breaker)
        try:
            async with asyncio.timeout(self._call_seconds):
                found = await work(Exchange(self.server, self._sleep))
        except TimeoutError as error:
            self._note(f"no answer within {self._call_seconds:g} s", None)
            raise self._failed(self._last) from error
        except RequestFailedError as error:
            self._note(str(error), error.after)
            raise self._failed(self._last) from error
        except BaseException:
            self._breaker = abandoned(self._breaker)
            raise
        self._breaker = answered()
        return found

    def _note(self, why: str, after: float | None) -> None:
        self._last = why
        self._breaker = unavailable(self._breaker, self._monotonic(), RULE, after)

    def _failed(self, why: str) -> Exception:
        return self._failure(f"DataStorage at {self.server.url}: {why}")


def _document(answer: ServerAnswer) -> Any:
    status = answer.status
    if status != 200:
        hint = ": redirects are not followed" if 300 <= status < 400 else HINTS.get(status, "")
        raise RequestFailedError(
            f"it answered {status}{hint}",
            status=status,
            again=answer.may_pass,
            after=answer.after,
            absent=status == 404 and _is_object(answer),
        )
    try:
        return answer.json()
    except ValueError as error:
        raise RequestFailedError("the answer is not JSON") from error


def _is_object(answer: ServerAnswer) -> bool:
    """True if the body is a JSON object, as every error of the API is (RFC 7807)."""
    try:
        return isinstance(answer.json(), dict)
    except ValueError:
        return False
