"""Failed calls of the model are made again, a bounded number of times for one reply, whoever makes them.

Each failed try is a step of the journal, so that a successor counts on. Short pauses are waited out here; for a long
one the run is handed back, and the request waits in the queue. What was never sent (a model that is left alone) and a
rate limit are no tries: the provider said when to come back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from worker.domain.investigation.steps import Asked, Judged, Ran, Steps
from worker.domain.values.errors import GiveUp, GiveUpReason, Retry, RetryReason
from worker.domain.values.ports import Clock, JournalRun
from worker.domain.values.step_kinds import LLM, TRIED


@dataclass(frozen=True, slots=True)
class TryRule:
    """How often one call is made, and the pause after the first failure, which grows fourfold with each.

    More than `patience_seconds` for one reply are spent in the queue.
    """

    tries: int = 5
    first_pause_seconds: float = 2.0
    patience_seconds: float = 20.0

    def pause(self, tries: int, after: float | None, jitter: float) -> float:
        """Seconds after the n-th failed try. `after` is Retry-After, never undercut; `jitter` is in [0, 1)."""
        seconds = self.first_pause_seconds * 4.0 ** (max(tries, 1) - 1) * (0.5 + jitter / 2)
        return seconds if after is None else after + self.first_pause_seconds * jitter


class TriedSteps:
    """`investigate.Steps` around the journaled ones. `jitter` gives a number in [0, 1)."""

    def __init__(
        self,
        inner: Steps,
        run: JournalRun,
        rule: TryRule,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        self._inner, self._run, self._rule = inner, run, rule
        self._clock, self._jitter = clock, jitter
        self._tries, self._replayed, self._waited = 0, 0, 0.0
        for step in run.past:
            if step.kind == LLM:
                self._tries, self._replayed = 0, self._replayed + 1
            elif step.kind == TRIED:
                self._tries += 1

    async def reply(
        self, announce: Callable[[], Awaitable[None]], ask: Callable[[], Awaitable[Asked]]
    ) -> Asked:
        """The next reply. Raises Retry for a long pause, GiveUp when all tries are used up."""
        if self._replayed:
            self._replayed -= 1
            return await self._inner.reply(announce, ask)
        if self._tries >= self._rule.tries:
            raise self._used_up("as an earlier run found")
        while True:
            try:
                asked = await self._inner.reply(announce, ask)
            except Retry as e:
                await self._after_failure(e)
            else:
                self._tries, self._waited = 0, 0.0
                return asked

    async def _after_failure(self, error: Retry) -> None:
        if error.tried and error.reason is not RetryReason.MODEL_RATE_LIMITED:
            self._tries += 1
            await self._run.append(TRIED, reason=error.reason)
            if self._tries >= self._rule.tries:
                raise self._used_up(error.message) from error
        pause = self._rule.pause(self._tries, error.after, self._jitter())
        self._waited += pause
        if self._waited > self._rule.patience_seconds:
            raise Retry(error.reason, error.message, pause, tried=error.tried) from error
        await self._clock.sleep(pause)

    async def tools(self, run: Callable[[], Awaitable[Ran]]) -> Ran:
        """The next turn of tool results."""
        return await self._inner.tools(run)

    async def verdict(self, judge: Callable[[], Awaitable[Judged]]) -> Judged:
        """The verdict on a final answer."""
        return await self._inner.verdict(judge)

    def _used_up(self, why: str) -> GiveUp:
        message = f"no answer in {self._rule.tries} tries: {why}"
        return GiveUp(GiveUpReason.MODEL_TRIES_USED_UP, message)
