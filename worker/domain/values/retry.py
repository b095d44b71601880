"""Decides when a failed run is retried, by attempt and age, and which HTTP requests may succeed later."""

from __future__ import annotations

import email.utils
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from worker.domain.values.delays import (
    LONGEST_PROBE,
    PROBE_GROWTH,
    REDELIVERY_CAP_SECONDS,
    REDELIVERY_FIRST_SECONDS,
)

TRANSIENT_STATUSES = frozenset({429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may succeed later (RFC 9110)."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter.

    A request is not tried again later than `max_age_seconds` after its first failed run.

    The time it waited in the queue before that does not count.
    """

    first_seconds: float = 2.0
    cap_seconds: float = 300.0
    max_age_seconds: float = 3_600.0


def next_delay(
    policy: RetryPolicy, *, attempt: int, age_seconds: float, after: float | None, jitter: float
) -> float | None:
    """Seconds until the next try, or None to stop.

    `attempt` counts from 1, `age_seconds` from the first failed run, `after` is what the server asked for
    (Retry-After, never undercut), `jitter` is in [0, 1).
    """
    ceiling = min(policy.cap_seconds, policy.first_seconds * 2.0 ** min(attempt - 1, 30))
    delay = ceiling * jitter
    if after is not None:
        delay += after
    return delay if age_seconds + delay <= policy.max_age_seconds else None


def broker_delay(deliveries: int) -> float:
    """Seconds until redelivery of a message whose outcome could not be stored, by number of deliveries."""
    return min(REDELIVERY_CAP_SECONDS, REDELIVERY_FIRST_SECONDS * 2.0 ** min(deliveries - 1, 30))


def probe_pause(first_seconds: float, tried: int) -> float:
    """Seconds until a model that refuses all calls is tried again, after so many tries in a row."""
    return first_seconds * min(PROBE_GROWTH ** min(tried - 1, 100), LONGEST_PROBE)


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
