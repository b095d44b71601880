from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.values.breaker import (
    PROBE_SECONDS,
    Breaker,
    BreakerRule,
    abandoned,
    answered,
    failed,
    pause,
    started,
    unavailable,
)
from worker.domain.values.delays import LONGEST_RETRY_AFTER_SECONDS
from worker.domain.values.errors import GiveUp, GiveUpReason, Retry, RetryReason, UnreadableReply

RULE = BreakerRule(failures=3, open_seconds=10.0, longest_seconds=40.0)
DOWN = Retry(RetryReason.MODEL_UNAVAILABLE, "529")
UNREADABLE = UnreadableReply(RetryReason.MODEL_UNAVAILABLE, "choices: []")
LIMITED = Retry(RetryReason.MODEL_RATE_LIMITED, "429", 30.0)


def after(errors, now=0.0, breaker=None):
    breaker = breaker or Breaker()
    for error in errors:
        breaker = failed(started(breaker), error, now, RULE)
    return breaker


def test_a_new_breaker_lets_everything_through():
    assert pause(Breaker(), 0.0) == 0.0
    assert pause(started(Breaker()), 0.0) == 0.0


def test_failures_in_a_row_open_it_and_fewer_do_not():
    assert pause(after([DOWN] * 2), 0.0) == 0.0
    opened = after([DOWN] * 3)
    assert [10.0, 4.0, 0.0] == [pause(opened, now) for now in (0.0, 6.0, 10.0)]


def test_a_success_between_them_starts_the_count_again():
    assert answered() == Breaker()
    assert pause(after([DOWN] * 2, breaker=answered()), 0.0) == 0.0


def test_unreadable_answers_open_it_only_if_another_request_fails_too():
    breaker = Breaker()
    for _ in range(9):
        breaker = failed(started(breaker), UNREADABLE, 0.0, RULE, "one")
    assert pause(breaker, 0.0) == 0.0
    assert pause(failed(breaker, UNREADABLE, 0.0, RULE, "another"), 0.0) == 10.0
    assert pause(failed(breaker, DOWN, 0.0, RULE, "one"), 0.0) == 10.0


def test_half_open_lets_one_call_through_at_a_time():
    opened = after([DOWN] * 3)
    probing = started(opened)
    assert pause(opened, 10.0) == 0.0
    assert pause(probing, 10.0) == PROBE_SECONDS
    assert pause(abandoned(probing), 10.0) == 0.0


def test_each_opening_lasts_twice_as_long_up_to_a_limit():
    breaker, now, lasted = after([DOWN] * 3), 0.0, []
    for _ in range(5):
        lasted.append(pause(breaker, now))
        now += lasted[-1]
        breaker = failed(started(breaker), DOWN, now, RULE)
    assert [10.0, 20.0, 40.0, 40.0, 40.0] == lasted


def test_calls_that_were_on_their_way_do_not_open_it_further():
    assert pause(after([DOWN] * 16), 0.0) == 10.0


def test_a_rate_limit_stops_every_caller_for_as_long_as_was_asked_and_counts_as_no_failure():
    breaker = after([LIMITED] * 10)
    assert (30.0, 0, 0) == (pause(breaker, 0.0), breaker.failed, breaker.opened)
    assert pause(started(after([LIMITED])), 30.0) == 0.0  # no probe: it was never open


def test_retry_after_of_an_overloaded_model_holds_before_it_opens():
    breaker = after([Retry(RetryReason.MODEL_UNAVAILABLE, "503", 7.0)])
    assert (7.0, 0) == (pause(breaker, 0.0), breaker.opened)


@pytest.mark.parametrize(
    "reason", [GiveUpReason.MODEL_REFUSED_CREDENTIALS, GiveUpReason.MODEL_SPEND_CAP], ids=str
)
def test_refused_credentials_or_spending_pause_a_model_at_once(reason):
    breaker = after([GiveUp(reason, "no")])
    assert RULE.refused_seconds == pause(breaker, 0.0)
    assert (reason, "no") == (breaker.why.reason, breaker.why.message)


@pytest.mark.parametrize("reason", [GiveUpReason.CONTEXT_OVERFLOW, GiveUpReason.MODEL_REJECTED_REQUEST])
def test_a_refused_request_says_that_the_model_works(reason):
    assert after([DOWN, DOWN, GiveUp(reason, "no")]) == Breaker()


ERRORS = st.sampled_from(
    [DOWN, LIMITED, *(GiveUp(reason, "no") for reason in GiveUpReason)],
)


@given(st.lists(st.tuples(ERRORS | st.none(), st.floats(0, 100)), max_size=30))
def test_whatever_happens_a_model_is_asked_again_and_nobody_waits_longer_than_the_rules_say(history):
    breaker, now = Breaker(), 0.0
    for error, seconds in history:
        now += seconds
        wait = pause(breaker, now)
        assert 0.0 <= wait <= max(RULE.longest_seconds, RULE.refused_seconds, 30.0) + 1e-6  # sums of floats
        if wait:
            continue
        breaker = started(breaker)
        breaker = answered() if error is None else failed(breaker, error, now, RULE)
        assert not breaker.probing
    assert pause(breaker, now + 100.0) == 0.0


def test_a_server_of_any_kind_opens_it_and_may_ask_for_a_longer_pause():
    breaker = Breaker()
    for _ in range(2):
        breaker = unavailable(started(breaker), 0.0, RULE)
    assert (0.0, None) == (pause(breaker, 0.0), breaker.why)
    assert 10.0 == pause(unavailable(breaker, 0.0, RULE), 0.0)
    assert 25.0 == pause(unavailable(breaker, 0.0, RULE, after=25.0), 0.0)
    assert 3.0 == pause(unavailable(Breaker(), 0.0, RULE, after=3.0), 0.0)


ODD = [1_764_305_000.0, float("inf"), float("nan")]


@pytest.mark.parametrize("asked", ODD)
@pytest.mark.parametrize("reason", [RetryReason.MODEL_RATE_LIMITED, RetryReason.MODEL_UNAVAILABLE])
def test_an_odd_wish_for_a_pause_ends_and_then_one_call_looks(reason, asked):
    breaker = after([Retry(reason, "odd", asked)])
    assert LONGEST_RETRY_AFTER_SECONDS == pause(breaker, 0.0)
    assert 0.0 == pause(breaker, LONGEST_RETRY_AFTER_SECONDS)
    assert PROBE_SECONDS == pause(started(breaker), LONGEST_RETRY_AFTER_SECONDS)


@pytest.mark.parametrize("asked", ODD)
def test_a_server_that_is_no_model_cannot_pause_itself_for_ever(asked):
    assert LONGEST_RETRY_AFTER_SECONDS == pause(unavailable(Breaker(), 0.0, RULE, asked), 0.0)
