"""Remediation history from Kubernaut's DataStorage: `GET /api/v1/remediation-history/context` (DD-HAPI-016).

DataStorage collects what was executed by itself and compares hashes by itself; we only ask. An answer of another shape
is a failure, never an empty history: a changed contract must not pass for "nothing was ever tried".
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from schemas.outcome import ExecutionOutcome
from worker.domain.errors import HistoryUnavailable
from worker.domain.fields import dig, mapping, mappings, moment, sequence, text
from worker.domain.history import Past, PastRemediation, SpecMatch
from worker.domain.objects import ObjectRef

PATH = "/api/v1/remediation-history/context"
WINDOWS = {"tier1Window": "24h", "tier2Window": "2160h"}
CONNECTIONS = 8
MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_ENTRIES = 200
MAX_CACHED = 256
ATTEMPTS = 2
PAUSE_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 2.0
FAILURES_TO_OPEN = 3
OPEN_SECONDS = 30.0
LONGEST_OPEN_SECONDS = 300.0
TRANSIENT = frozenset({429, 500, 502, 503, 504})
WORDS = {
    ExecutionOutcome.COMPLETED: ("completed", "success", "succeeded"),
    ExecutionOutcome.FAILED: ("failed", "failure", "error", "timeout", "timedout"),
    ExecutionOutcome.CANCELLED: ("cancelled", "canceled", "skipped"),
}
OUTCOMES = {word: outcome for outcome, words in WORDS.items() for word in words}
SPEC_DRIFT = "specdrift"


class _FailedError(Exception):
    """One attempt failed. `again`: another one may work, `after` seconds from now if the server said so."""

    def __init__(self, message: str, *, again: bool = False, after: float | None = None) -> None:
        super().__init__(message)
        self.again, self.after = again, after


@dataclass(frozen=True, slots=True)
class _Cached:
    past: Past
    until: float


class DataStorageHistory:
    """Implements History. `url` is the base address; `call_seconds` bounds one look-up, retries included.

    Answers are kept for `cache_seconds`: one investigation looks twice. After three failed look-ups in a row, or when
    the server asks for it (Retry-After), it is left alone for a while and every look-up fails at once.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        cluster_id: str = "",
        call_seconds: float = 5.0,
        cache_seconds: float = 20.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._url, self._cluster_id = f"{url.rstrip('/')}{PATH}", cluster_id
        self._call_seconds, self._cache_seconds = call_seconds, cache_seconds
        self._monotonic, self._sleep = monotonic, sleep
        self._cache: dict[tuple[str, ...], _Cached] = {}
        self._failures, self._closed_until = 0, 0.0
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
            timeout=call_seconds,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        """Opens nothing yet: connections are made with the first look-up."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def past(self, target: ObjectRef, spec_hash: Awaitable[str]) -> Past:
        """What DataStorage knows of this resource with this spec. Raises HistoryUnavailable."""
        current = await spec_hash
        if not current:
            raise HistoryUnavailable(f"the spec of {target} could not be read, which its history is kept by")
        key = (target.kind, target.namespace, target.name, current)
        cached, now = self._cache.get(key), self._monotonic()
        if cached and now < cached.until:
            return cached.past
        if now < self._closed_until:
            raise HistoryUnavailable("DataStorage has failed repeatedly and is left alone for a while")
        past = await self._guarded(target, current)
        self._keep(key, past)
        return past

    async def remember(self, target: ObjectRef, remediation: PastRemediation) -> None:
        """Nothing: DataStorage learns from those who execute."""

    def _keep(self, key: tuple[str, ...], past: Past) -> None:
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[key] = _Cached(past, self._monotonic() + self._cache_seconds)

    async def _guarded(self, target: ObjectRef, current: str) -> Past:
        try:
            async with asyncio.timeout(self._call_seconds):
                past = await self._patiently(target, current)
        except TimeoutError as error:
            self._failed(None)
            raise HistoryUnavailable(f"DataStorage gave no answer within {self._call_seconds:g} s") from error
        except _FailedError as error:
            self._failed(error.after)
            raise HistoryUnavailable(f"DataStorage: {error}") from error
        self._failures = 0
        return past

    def _failed(self, after: float | None) -> None:
        self._failures += 1
        if after is not None or self._failures >= FAILURES_TO_OPEN:
            seconds = min(OPEN_SECONDS if after is None else after, LONGEST_OPEN_SECONDS)
            self._closed_until = self._monotonic() + seconds

    async def _patiently(self, target: ObjectRef, current: str) -> Past:
        left = ATTEMPTS
        while True:
            left -= 1
            try:
                return await self._ask(target, current)
            except _FailedError as error:
                wait = PAUSE_SECONDS if error.after is None else error.after
                if not left or not error.again or wait > LONGEST_WAIT_SECONDS:
                    raise
            await self._sleep(wait)

    async def _ask(self, target: ObjectRef, current: str) -> Past:
        asked = {
            "targetKind": target.kind,
            "targetName": target.name,
            "targetNamespace": target.namespace,
            "currentSpecHash": current,
            **WINDOWS,
        }
        if self._cluster_id:
            asked["clusterId"] = self._cluster_id
        try:
            async with self._http.stream("GET", self._url, params=asked) as answer:
                if answer.status_code != 200:
                    raise _refused(answer.status_code, answer.headers.get("Retry-After", ""))
                return _past(await _body(answer))
        except httpx.TimeoutException as error:
            raise _FailedError("no answer in time", again=True) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _FailedError(f"it cannot be reached ({type(error).__name__})", again=True) from error


def _refused(status: int, retry_after: str) -> _FailedError:
    after = float(retry_after) if retry_after.isdecimal() and len(retry_after) < 8 else None
    hint = {
        401: ": the token is not taken",
        403: ": the worker may not read it",
        404: ": no such API at this address",
    }
    return _FailedError(f"it answered {status}{hint.get(status, '')}", again=status in TRANSIENT, after=after)


async def _body(answer: httpx.Response) -> Any:
    body = bytearray()
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise _FailedError("the answer is too long")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _FailedError("the answer is not JSON") from error


def _past(document: Any) -> Past:
    recent, older = dig(document, "tier1", "chain"), dig(document, "tier2", "chain")
    if not isinstance(dig(document, "tier1"), dict) or not isinstance(recent, list | None):
        raise _FailedError("the answer is not a remediation history")
    found: dict[str, PastRemediation] = {}
    for entry in [
        *mappings(recent),
        *mappings(older),
    ]:  # a recent one stands in both, with details in the first
        made = _remediation(entry)
        found.setdefault(made.id, made)
    return Past(
        tuple(found.values())[:MAX_ENTRIES], regression=mapping(document).get("regressionDetected") is True
    )


def _remediation(entry: dict[str, Any]) -> PastRemediation:
    outcome, match = text(entry.get("outcome")).strip(), text(entry.get("hashMatch"))
    return PastRemediation(
        id=text(entry.get("remediationUID")),
        at=moment(entry.get("completedAt")),
        action_type=text(entry.get("actionType")) or text(entry.get("workflowType")),
        signal_type=text(entry.get("signalType")),
        outcome=OUTCOMES.get(outcome.casefold().replace("_", ""), outcome),
        score=_score(entry.get("effectivenessScore")),
        resolved=_flag(entry.get("signalResolved")),
        drifted=text(entry.get("assessmentReason")).replace("_", "").casefold() == SPEC_DRIFT,
        pre_hash=text(entry.get("preRemediationSpecHash")),
        post_hash=text(entry.get("postRemediationSpecHash")),
        match=SpecMatch(match) if match in set(SpecMatch) else None,
        side_effects=tuple(text(effect) for effect in sequence(entry.get("sideEffects"))[:10]),
    )


def _score(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 <= value <= 1 else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
