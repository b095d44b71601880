"""Decides whether a failed call concerns one request, or every call of the model.

In the second case WatchedModel raises GiveUp with a reason of `errors.BLOCKING`; the app then pauses the intake
(worker/app/failed_runs.py, worker/app/admission.py). The adapters find the other reasons of that set.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from worker.domain.values.bounded import BoundedDict
from worker.domain.values.conversation import ModelRequest, Reply, UserTurn
from worker.domain.values.delays import OUTAGE_SILENCE_SECONDS, SILENCE_SECONDS
from worker.domain.values.errors import GiveUp, GiveUpReason, Retry, RetryReason
from worker.domain.values.ports import Model

VARIABLE = re.compile(r"[0-9a-f]{8}[0-9a-f-]*|req\S+|\d+", re.IGNORECASE)
"""The parts in which two messages of a provider with the same reason differ: ids, sizes, times."""
MAX_REASONS = 20


@dataclass(slots=True)
class ModelHealth:
    """Judges failures of calls. `left_alone` is True if the circuit breakers of all models are open.

    That is an outage once no call was answered for `silence_seconds`; `now` is a monotonic clock in seconds.
    A rate limit is an outage if it asks for a pause above `patience_seconds`. The same rejection of two
    different requests, without an answer in between, is not the fault of these requests.
    """

    left_alone: Callable[[], bool] = lambda: False
    now: Callable[[], float] = lambda: 0.0
    silence_seconds: float = OUTAGE_SILENCE_SECONDS
    patience_seconds: float = 60.0
    _answered_at: float = float("-inf")
    _rejected: BoundedDict[str, set[str]] = field(default_factory=lambda: BoundedDict(MAX_REASONS))
    _waiting: dict[object, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """A call waits for its answer while the context is open."""
        call = object()
        self._waiting[call] = self.now()
        try:
            yield
        finally:
            del self._waiting[call]

    def silent_seconds(self) -> float:
        """Return how long calls have waited while none was answered; 0 if no call waits."""
        return self.now() - max(self._answered_at, min(self._waiting.values())) if self._waiting else 0.0

    def silence(self) -> str:
        """Says that calls have waited for long and none was answered: the model is slow or hangs.

        Empty otherwise.
        """
        if (seconds := self.silent_seconds()) < SILENCE_SECONDS:
            return ""
        return f"no call was answered for {seconds:.0f} s; {len(self._waiting)} are waiting"

    def answered(self) -> None:
        """A model has answered: what it rejected before was the fault of the request."""
        self._answered_at = self.now()
        self._rejected.clear()

    def is_outage(self, failure: Retry) -> bool:
        """True if the call of any other request would fail, too."""
        silent = self.now() - self._answered_at >= self.silence_seconds
        limited = failure.reason is RetryReason.MODEL_RATE_LIMITED and not failure.tried
        return (silent and self.left_alone()) or (limited and (failure.after or 0.0) > self.patience_seconds)

    def rejects_every_request(self, opening: str, message: str) -> bool:
        """Record this rejection.

        True if another request was rejected for the same reason, and none was answered since.
        """
        reason = VARIABLE.sub("#", message)
        openings = self._rejected.setdefault(reason, set())
        if len(openings) < 2:
            openings.add(opening)
        return len(openings) > 1


class WatchedModel:
    """Implements Model by calling another Model, and translates failures that concern all requests."""

    def __init__(self, model: Model, health: ModelHealth) -> None:
        self.name, self._model, self._health = model.name, model, health

    async def ask(self, request: ModelRequest) -> Reply:
        """Ask the model.

        Raises GiveUp with a BLOCKING reason if the call of any other request would fail, too.
        """
        try:
            with self._health.waiting():
                reply = await self._model.ask(request)
        except Retry as e:
            if self._health.is_outage(e):
                raise GiveUp(GiveUpReason.MODEL_UNREACHABLE, e.message) from e
            raise
        except GiveUp as e:
            opening = next((turn.text for turn in request.turns if isinstance(turn, UserTurn)), "")
            rejected = e.reason is GiveUpReason.MODEL_REJECTED_REQUEST
            if rejected and self._health.rejects_every_request(opening, e.message):
                raise GiveUp(GiveUpReason.MODEL_REJECTS_ALL, e.message) from e
            raise
        self._health.answered()
        return reply
