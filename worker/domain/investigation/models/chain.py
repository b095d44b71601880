"""Several models as one: the first that answers. Decisions are pure functions.

The operator sets the order. A model whose breaker is open is skipped, a request that one model refuses is
sent to the next, and all of them share the deadline of the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from worker.domain.investigation.models.gate import ModelGate
from worker.domain.values.breaker import Breaker, BreakerRule, abandoned, answered, failed, pause, started
from worker.domain.values.conversation import ModelRequest, Reply
from worker.domain.values.errors import BLOCKING, GiveUp, GiveUpReason, Retry, RetryReason
from worker.domain.values.ports import Clock, Model

FAIR_SECONDS = 5.0
"""A model that got less time than this and did not answer does not count as down."""

ERROR_CHARS = 300


@dataclass(frozen=True, slots=True)
class ModelNotice:
    """The breaker of a model opened for so many seconds, or (0) closed again. `why` is the error, as text."""

    model: str
    pause_seconds: float
    why: str = ""


class ModelChain:
    """Implements Model.

    `max_concurrent` bounds the concurrent calls of one provider, which is the part before the colon.
    """

    def __init__(
        self,
        models: Sequence[Model],
        clock: Clock,
        *,
        rule: BreakerRule | None = None,
        max_concurrent: int | None = None,
        notice: Callable[[ModelNotice], None] = lambda _: None,
    ) -> None:
        if not models:
            raise ValueError("a chain needs a model")
        self.name = models[0].name
        """The model that is asked first."""
        self._models, self._clock, self._notice = tuple(models), clock, notice
        self._rule = rule or BreakerRule()
        self._breakers = [Breaker() for _ in models]
        self._gates = {
            provider_of(model.name): ModelGate(max_concurrent)
            for model in models
            if max_concurrent is not None
        }

    def problem(self) -> str:
        """Return why no model can be reached, as of the last calls; empty if one of them may answer.

        Rate limits do not count.
        """
        whys = [breaker.why for breaker in self._breakers]
        if any(why is None or why.reason is RetryReason.MODEL_RATE_LIMITED for why in whys):
            return ""
        pairs = zip(self._models, whys, strict=True)
        return "; ".join(f"{model.name}: {why.message[:ERROR_CHARS]}" for model, why in pairs if why)

    def down(self) -> bool:
        """True if all models have failed so often in a row that they are not called, or only probed."""
        return all(breaker.opened and breaker.why for breaker in self._breakers)

    async def ask(self, request: ModelRequest) -> Reply:
        """The first answer, within the deadline of the request. Raises the `outcome` of the failures."""
        end = self._clock.monotonic() + request.deadline_seconds
        errors: list[Retry | GiveUp] = []
        for position in range(len(self._models)):
            if wait := pause(self._breakers[position], self._clock.monotonic()):
                errors.append(_paused(self._models[position], self._breakers[position], wait))
                continue
            try:
                return await self._ask_one(position, request, end)
            except (Retry, GiveUp) as e:
                errors.append(e)
        raise outcome(errors)

    async def _ask_one(self, position: int, request: ModelRequest, end: float) -> Reply:
        model = self._models[position]
        async with AsyncExitStack() as stack:
            if gate := self._gates.get(provider_of(model.name)):
                try:
                    async with asyncio.timeout(max(0.0, end - self._clock.monotonic())):
                        await stack.enter_async_context(gate.slot(request.urgency))
                except TimeoutError:
                    message = f"{model.name}: no free slot in time"
                    raise Retry(RetryReason.MODEL_UNAVAILABLE, message, tried=False) from None
            return await self._call(position, replace(request, deadline_seconds=self._share(position, end)))

    def _share(self, position: int, end: float) -> float:
        """Seconds for this model: an equal share, with the models after it, of the time that is left."""
        now = self._clock.monotonic()
        others = sum(not pause(breaker, now) for breaker in self._breakers[position + 1 :])
        return max(0.0, end - now) / (1 + others)

    async def _call(self, position: int, request: ModelRequest) -> Reply:
        before, began = self._breakers[position], self._clock.monotonic()
        if wait := pause(before, began):  # it was paused while this call waited for its slot
            raise _paused(self._models[position], before, wait)
        self._breakers[position] = started(before)
        try:
            reply = await self._models[position].ask(request)
        except (Retry, GiveUp) as e:
            now = self._clock.monotonic()
            if request.deadline_seconds < FAIR_SECONDS and now - began >= request.deadline_seconds:
                self._breakers[position] = abandoned(self._breakers[position])
            else:
                self._note(position, failed(self._breakers[position], e, now, self._rule, request.turns[:1]))
            raise
        except BaseException:
            self._breakers[position] = abandoned(self._breakers[position])
            raise
        self._note(position, answered())
        return reply

    def _note(self, position: int, after: Breaker) -> None:
        before, self._breakers[position] = self._breakers[position], after
        name, now = self._models[position].name, self._clock.monotonic()
        if after.paused_until > max(now, before.paused_until):
            why = after.why.message if after.why else ""
            self._notice(ModelNotice(name, after.paused_until - now, why[:ERROR_CHARS]))
        elif before.why is not None and after.why is None:
            self._notice(ModelNotice(name, 0.0))


def provider_of(name: str) -> str:
    """The part of a model's name before the colon."""
    return name.partition(":")[0]


def _paused(model: Model, breaker: Breaker, wait: float) -> Retry | GiveUp:
    """The error of a model whose breaker is open. Nothing was sent, so it does not count as a try."""
    if isinstance(breaker.why, GiveUp):
        return GiveUp(breaker.why.reason, breaker.why.message)
    reason, message = RetryReason.MODEL_UNAVAILABLE, "another call is probing whether it answers again"
    if breaker.why is not None:
        reason, message = breaker.why.reason, breaker.why.message
    return Retry(reason, f"{model.name}: not called for {wait:.0f} s, because {message}", wait, tried=False)


def outcome(errors: Sequence[Retry | GiveUp]) -> Retry | GiveUp:
    """The meaning of the failures of all models for the call.

    A conversation that is too long comes first, because the caller can shorten it; then failures that may
    pass; then those that an operator must resolve. The longest Retry-After is kept.
    """
    message = "; ".join(e.message for e in errors)[:ERROR_CHARS]
    refusals = [e for e in errors if isinstance(e, GiveUp)]
    retries = [e for e in errors if isinstance(e, Retry)]
    if any(e.reason is GiveUpReason.CONTEXT_OVERFLOW for e in refusals):
        return GiveUp(GiveUpReason.CONTEXT_OVERFLOW, message)
    if not retries:
        first = min(refusals, key=lambda e: e.reason in BLOCKING)
        return GiveUp(first.reason, message)
    limited = all(e.reason is RetryReason.MODEL_RATE_LIMITED for e in retries)
    return Retry(
        RetryReason.MODEL_RATE_LIMITED if limited else RetryReason.MODEL_UNAVAILABLE,
        message,
        max((e.after for e in retries if e.after is not None), default=None),
        tried=any(e.tried and e.reason is not RetryReason.MODEL_RATE_LIMITED for e in retries),
    )
