"""A circuit breaker for a model or another server, as a pure state machine.

Closed: calls go through. After `failures` unavailable answers in a row it opens, and no call is made for
`open_seconds`, doubled each time it opens again. Then it is half open: one call at a time goes through; a
success closes it, a failure opens it again. Unreadable answers to a single request do not open it, because
that request may be at fault. A provider's own words count at once and for all callers: no call is made before
its Retry-After has passed (`errors.believed`; after the longest one a single call looks first), nor for a
while after it has refused the credentials or the spending.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from worker.domain.values.delays import LONGEST_RETRY_AFTER_SECONDS
from worker.domain.values.errors import BLOCKING, GiveUp, Retry, RetryReason, UnreadableReply, believed

PROBE_SECONDS = 1.0
"""How long a call waits while another one probes the server."""


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """When a breaker opens, for how many seconds at first, and for how many at most.

    `refused_seconds`: how long a model is not called after it refused the credentials or the spending, which
    an operator must resolve.
    """

    failures: int = 5
    open_seconds: float = 15.0
    longest_seconds: float = 120.0
    refused_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of one server.

    Times are of a monotonic clock; `why` is the error of a model that paused it. `only` is the request whose
    answers could not be read, if nothing else has failed since the last answer; empty if something has.
    """

    failed: int = 0
    opened: int = 0
    paused_until: float = 0.0
    probing: bool = False
    why: Retry | GiveUp | None = None
    only: object = None


def pause(breaker: Breaker, now: float) -> float:
    """Seconds until a call may be made; 0 if it may be made now."""
    if now < breaker.paused_until:
        return breaker.paused_until - now
    return PROBE_SECONDS if breaker.probing else 0.0


def started(breaker: Breaker) -> Breaker:
    """The state while a call is on its way; after an opening it is the only one."""
    return replace(breaker, probing=breaker.opened > 0)


def abandoned(breaker: Breaker) -> Breaker:
    """The state after a cancelled call: nothing is known, and the next one may try."""
    return replace(breaker, probing=False)


def answered() -> Breaker:
    """The state after an answer: earlier failures are forgotten."""
    return Breaker()


def failed(
    breaker: Breaker, error: Retry | GiveUp, now: float, rule: BreakerRule, request: object = ""
) -> Breaker:
    """The state after a failed call. `request` is any value that differs between requests.

    A provider that refuses a request works, so only its Retry-After is kept.
    """
    if isinstance(error, GiveUp):
        if error.reason not in BLOCKING:
            return answered()
        refused = GiveUp(error.reason, error.message)  # not the raised error, which keeps its frames alive
        return replace(breaker, probing=False, paused_until=now + rule.refused_seconds, why=refused)
    why = Retry(error.reason, error.message)
    if error.reason is RetryReason.MODEL_RATE_LIMITED:  # it works, and says when to come back
        return replace(_asked(breaker, now, error.after), why=why)
    only = request if isinstance(error, UnreadableReply) and breaker.only in (None, request) else ""
    return replace(unavailable(replace(breaker, only=only), now, rule, error.after), why=why)


def unavailable(breaker: Breaker, now: float, rule: BreakerRule, after: float | None = None) -> Breaker:
    """The state after an unanswered call. `after` is the requested wait (Retry-After), in seconds."""
    noted = replace(_asked(breaker, now, after), failed=breaker.failed + 1)
    if noted.failed < rule.failures or noted.only or now < breaker.paused_until:
        return noted  # calls that were on their way when it opened do not prolong it
    seconds = min(rule.longest_seconds, rule.open_seconds * 2.0**breaker.opened)
    return replace(noted, opened=breaker.opened + 1, paused_until=max(noted.paused_until, now + seconds))


def _asked(breaker: Breaker, now: float, after: float | None) -> Breaker:
    """The state during a pause that the server asks for.

    The longest pause may be too short, so one call goes first.
    """
    seconds = believed(after or 0.0)
    opened = max(breaker.opened, 1) if seconds >= LONGEST_RETRY_AFTER_SECONDS else breaker.opened
    until = max(breaker.paused_until, now + seconds)
    return replace(breaker, probing=False, opened=opened, paused_until=until)
