"""Computes when something that failed is tried again, and names the HTTP statuses after which that may help.

A failed run waits by `next_delay`, or by `error_delay` after an internal error; a model that refuses every
call is probed by `probe_pause`; a message whose outcome could not be stored comes back by `broker_delay`.
Settings change the values of RetryPolicy; the other values are in `delays.py`. A single call of a model is
retried within its run, by worker/domain/investigation/models/tries.py.
"""

from __future__ import annotations

import email.utils
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from worker.domain.values import delays

TRANSIENT_STATUSES = frozenset({429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may succeed later (RFC 9110)."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter, and how many internal errors a request may have.

    A request is not tried again later than `max_age_seconds` after its first failed run. The time it waited in
    the queue before that does not count.
    """

    first_seconds: float = 2.0
    cap_seconds: float = 300.0
    max_age_seconds: float = 3_600.0
    errors: int = 5


def next_delay(
    policy: RetryPolicy, *, attempt: int, age_seconds: float, after: float | None, jitter: float
) -> float | None:
    """Seconds until the next try, or None to stop.

    `attempt` counts from 1, `age_seconds` from the first failed run, `after` is what the server asked for
    (Retry-After, never undercut as far as it is believed: `errors.believed`), `jitter` is in [0, 1).
    """
    delay = _doubled(policy.first_seconds, attempt - 1, policy.cap_seconds) * jitter
    if after is not None:
        delay += after
    return delay if age_seconds + delay <= policy.max_age_seconds else None


def error_delay(policy: RetryPolicy, errors: int) -> float | None:
    """Seconds until the next try after so many internal errors, or None to write a dead letter."""
    return None if errors >= policy.errors else _doubled(1.0, errors, policy.cap_seconds)


def broker_delay(deliveries: int) -> float:
    """Seconds until redelivery of a message whose outcome could not be stored, by number of deliveries."""
    return _doubled(delays.REDELIVERY_FIRST_SECONDS, deliveries - 1, delays.REDELIVERY_CAP_SECONDS)


def probe_pause(first_seconds: float, tried: int, *, outage: bool = False) -> float:
    """Seconds until a model that refuses all calls is probed again, after so many probes without an answer.

    `outage`: it does not answer at all, so the first pauses are shorter, because an outage may end any second.
    """
    pause = first_seconds * min(delays.PROBE_GROWTH ** min(tried - 1, 100), delays.LONGEST_PROBE)
    return _doubled(delays.PROBE_OUTAGE_SECONDS, tried - 1, pause) if outage else pause


def _doubled(first: float, times: int, cap: float) -> float:
    """The first delay, doubled so many times, up to the cap."""
    return min(cap, first * 2.0 ** min(times, 30))


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The wait in seconds that an HTTP server asks for (RFC 9110, section 10.2.3), if it does.

    It may name a date, which is by the server's own clock if it sends its time, too.
    """
    said = headers.get("Retry-After", "").strip()
    if said.isdecimal() and len(said) < 8:
        return float(said)
    if (until := _date(said)) is None:
        return None
    return max(0.0, (until - (_date(headers.get("Date", "")) or now)).total_seconds())


def _date(said: str) -> datetime | None:
    try:
        found = email.utils.parsedate_to_datetime(said)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
