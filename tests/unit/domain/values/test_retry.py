from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.values.delays import LONGEST_RETRY_AFTER_SECONDS
from worker.domain.values.errors import Retry, RetryReason
from worker.domain.values.retry import RetryPolicy, error_delay, next_delay, probe_pause, retry_after

POLICY = RetryPolicy(first_seconds=2.0, cap_seconds=300.0, max_age_seconds=3_600.0)


def delay(*, attempt=1, age=0.0, after=None, jitter=0.5):
    return next_delay(POLICY, attempt=attempt, age_seconds=age, after=after, jitter=jitter)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (8, 128.0), (9, 150.0)])
def test_the_delay_doubles_up_to_its_cap(attempt, seconds):
    assert seconds == delay(attempt=attempt)


def test_jitter_is_full():
    assert delay(attempt=5, jitter=0.0) == 0.0
    assert delay(attempt=5, jitter=1.0) == 32.0


def test_a_count_of_attempts_gone_mad_is_capped_too():
    assert delay(attempt=10**9) == 150.0


def test_what_the_server_asked_for_is_never_undercut():
    assert delay(after=30.0, jitter=0.0) == 30.0
    assert delay(after=1_000.0, jitter=0.5) == 1_001.0


@pytest.mark.parametrize(
    ("age", "stops"), [(3_598.0, False), (3_599.0, False), (3_599.5, True), (9_999.0, True)]
)
def test_a_request_is_not_tried_again_after_its_age(age, stops):
    assert stops is (delay(age=age) is None)


def test_a_long_wait_that_the_server_asks_for_can_end_the_request():
    assert delay(after=3_601.0) is None


@given(
    attempt=st.integers(1, 10**6),
    age=st.floats(-(10**6), 10**6),
    after=st.none() | st.floats(0, 10**5),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_any_delay_is_bounded_and_within_the_age(attempt, age, after, jitter):
    seconds = delay(attempt=attempt, age=age, after=after, jitter=jitter)
    if seconds is not None:
        assert (after or 0.0) <= seconds <= (after or 0.0) + POLICY.cap_seconds
        assert age + seconds <= POLICY.max_age_seconds


def test_a_model_that_refuses_all_calls_is_tried_less_and_less_up_to_a_fifth_as_often():
    assert [60.0, 66.0] == [probe_pause(60.0, 1), pytest.approx(probe_pause(60.0, 2))]
    assert [300.0, 300.0] == [probe_pause(60.0, 18), probe_pause(60.0, 10**9)]
    weekend, tries, passed = 60 * 3_600.0, 0, 0.0
    while passed < weekend:
        tries += 1
        passed += probe_pause(60.0, tries)
    assert tries < 750


def test_a_model_that_is_down_is_tried_often_at_first_and_then_like_one_that_refuses():
    assert [2.0, 4.0, 32.0] == [probe_pause(60.0, tried, outage=True) for tried in (1, 2, 5)]
    assert probe_pause(60.0, 7) == probe_pause(60.0, 7, outage=True)
    assert [1.0, 300.0] == [probe_pause(1.0, 1, outage=True), probe_pause(60.0, 10**9, outage=True)]


def test_internal_errors_are_tried_again_with_growing_delays_up_to_their_number():
    assert [2.0, 16.0, None, None] == [error_delay(POLICY, errors) for errors in (1, 4, 5, 10**9)]
    endless = replace(POLICY, errors=10**10)
    assert [300.0, 300.0] == [error_delay(endless, errors) for errors in (9, 10**9)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (-1.0, 0.0),
        (30.0, 30.0),
        (1e9, LONGEST_RETRY_AFTER_SECONDS),
        (float("nan"), LONGEST_RETRY_AFTER_SECONDS),
    ],
)
def test_a_request_outlives_what_an_odd_server_asks_it_to_wait(asked, expected):
    error = Retry(RetryReason.MODEL_RATE_LIMITED, "429", asked)
    delay = next_delay(POLICY, attempt=1, age_seconds=0.0, after=error.after, jitter=0.0)
    assert expected == error.after == delay


LATER, EARLIER = "Thu, 04 Jun 2026 15:34:30 GMT", "Thu, 04 Jun 2026 15:34:00 -0000"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "123456789"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": LATER, "Date": EARLIER}, 30.0),
        ({"Retry-After": EARLIER, "Date": LATER}, 0.0),
        ({"Retry-After": LATER}, 10.0),
    ],
)
def test_the_wait_that_a_server_asks_for(headers, seconds):
    assert seconds == retry_after(headers, datetime(2026, 6, 4, 15, 34, 20, tzinfo=UTC))
