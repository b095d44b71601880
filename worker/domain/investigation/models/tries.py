"""Decides when a failed call of the model is retried: one that raised Retry. GiveUp is never retried here.

The settings `max_tries` and `retry_seconds` change the values of TryRule. The tries for one reply are limited
over all runs.

Each failed try is a step of the journal, so that a successor continues to count. Short pauses are waited out;
for a long one the run ends, and the request runs again after it. A call that was never sent (to a model whose
breaker is open) and a rate limit are not counted as tries: the provider said when to come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.domain.values.delays import RATE_LIMIT_FLOOR_SECONDS
from worker.domain.values.errors import GiveUp, GiveUpReason, PreemptReason, Retry, RetryReason
from worker.domain.values.ports import Step
from worker.domain.values.step_kinds import END, LLM, MODEL_OUTAGE, TRIED

NOT_COUNTED = frozenset({MODEL_OUTAGE, PreemptReason.OPEN_FILES})
"""Reasons of END steps by which every call failed, whichever request made it."""


@dataclass(frozen=True, slots=True)
class TryRule:
    """How often one call is tried, and the first pause, which grows fourfold with each further failure.

    Pauses of more than `patience_seconds` in total for one reply end the run, and the request runs again
    after the pause.
    """

    tries: int = 5
    first_pause_seconds: float = 2.0
    patience_seconds: float = 20.0

    def pause(self, tries: int, error: Retry, jitter: float) -> float:
        """Seconds after the n-th failed try. Retry-After is never undercut, as far as it is believed.

        `jitter` is in [0, 1).

        A provider that names no time with a rate limit is asked again after RATE_LIMIT_FLOOR_SECONDS at the
        earliest.
        """
        after = error.after
        if after is None and error.reason is RetryReason.MODEL_RATE_LIMITED:
            after = RATE_LIMIT_FLOOR_SECONDS
        seconds = self.first_pause_seconds * 4.0 ** (max(tries, 1) - 1) * (0.5 + jitter / 2)
        return seconds if after is None else after + self.first_pause_seconds * jitter

    def check(self, tries: int, why: str) -> None:
        """Raise GiveUp if the tries are used up."""
        if tries >= self.tries:
            message = f"no answer in {self.tries} tries: {why}"
            raise GiveUp(GiveUpReason.MODEL_TRIES_USED_UP, message)

    def check_patience(self, waited: float, pause: float, error: Retry) -> None:
        """Raise Retry, which ends the run, if the pause is too long to wait it out.

        `waited`: the pauses for this reply so far.
        """
        if waited + pause > self.patience_seconds:
            raise Retry(error.reason, error.message, pause, tried=error.tried) from error


def is_try(error: Retry) -> bool:
    """True if a failed call counts as a try."""
    return error.tried and error.reason is not RetryReason.MODEL_RATE_LIMITED


def failed_tries(past: Sequence[Step], call: int) -> int:
    """The number of failed tries of this call (counted from 1) in earlier runs.

    A run that ended by an outage of the model, or because its worker had no free file descriptors, says
    nothing about the call: the count starts again after it.
    """
    replies = tries = 0
    for step in past:
        replies += step.kind == LLM
        tries += step.kind == TRIED and replies == call - 1
        if step.kind == END and step.notes.get("reason") in NOT_COUNTED:
            tries = 0
    return tries
