"""A client of one DataStorage over HTTP: retries within one deadline, and a circuit breaker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from worker.adapters.json_server import Exchange, JsonServer, RequestFailedError
from worker.domain.values import breaker

MAX_BODY_BYTES = 2 * 1024 * 1024
RULE = breaker.BreakerRule(failures=3, open_seconds=5.0, longest_seconds=10.0)
"""Short pauses: a server that is back is soon used again."""
TRIES, PAUSE_SECONDS = 2, 0.5
PATIENCE = 0.8
"""How much of a call goes to retries: a call that reaches its deadline cannot say what was wrong."""
HINTS = {
    401: ": it does not accept the token",
    403: ": the worker may not read it",
    404: ": no such API at this address",
}

Result = TypeVar("Result")


class DataStorageClient:
    """`url` is the base address of the server. `failure` turns a message that names it into the port's own error.

    `call_seconds` bounds one call of a port, however many requests and retries it takes. A server that answered
    the last call is waited for, because it may only be restarted. Others are tried twice.

    After three failed calls in a row, or when the server asks for it (Retry-After), the circuit breaker opens:
    nothing is sent for a while and every call fails at once.
    """

    def __init__(
        self,
        url: str,
        failure: Callable[[str], Exception],
        *,
        token: str = "",
        call_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.server = JsonServer(url, token=token, call_seconds=call_seconds, max_bytes=MAX_BODY_BYTES)
        self.monotonic = monotonic
        self._failure, self._call_seconds, self._sleep = failure, call_seconds, sleep
        self._breaker, self._last, self._tries = breaker.Breaker(), "", TRIES

    async def call(self, work: Callable[[Exchange], Awaitable[Result]]) -> Result:
        """The result of `work`, before the deadline. Raises the port's error."""
        if breaker.pause(self._breaker, self.monotonic()):
            raise self._failed(f"paused after repeated failures ({self._last})")
        self._breaker = breaker.started(self._breaker)
        try:
            async with asyncio.timeout(self._call_seconds):
                found = await work(
                    Exchange(self.server, self._sleep, HINTS, pause_seconds=PAUSE_SECONDS, tries=self._tries)
                )
        except TimeoutError as error:
            self._note(f"no answer within {self._call_seconds:g} s", None)
            raise self._failed(self._last) from error
        except RequestFailedError as error:
            self._note(str(error), error.after)
            raise self._failed(self._last) from error
        except BaseException:
            self._breaker = breaker.abandoned(self._breaker)
            raise
        self._breaker = breaker.answered()
        self._tries = max(TRIES, int(PATIENCE * self._call_seconds / PAUSE_SECONDS))
        return found

    def _note(self, why: str, after: float | None) -> None:
        self._last, self._tries = why, TRIES
        self._breaker = breaker.unavailable(self._breaker, self.monotonic(), RULE, after)

    def _failed(self, why: str) -> Exception:
        return self._failure(f"DataStorage at {self.server.url}: {why}")
