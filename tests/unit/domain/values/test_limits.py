from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.values.conversation import CallUsage
from worker.domain.values.limits import Limits, Spent, exhausted, must_wrap_up, seconds_for_call, usage_of

LIMITS = Limits(llm_calls=10, tool_calls=8, input_tokens=1_000, cost_usd=1.0, wall_seconds=100.0)


def test_nothing_spent_is_nothing_used_up():
    assert exhausted(Spent(), LIMITS) == ""
    assert must_wrap_up(Spent(), LIMITS) is False


@pytest.mark.parametrize(
    ("spent", "said"),
    [
        (Spent(llm_calls=10), "LLM calls used up (10 of 10)"),
        (Spent(input_tokens=1_234), "input tokens used up (1234 of 1000)"),
        (Spent(wall_seconds=100.5), "seconds used up (100.5 of 100)"),
        (Spent(cost_usd=1.25), "US dollars used up (1.25 of 1)"),
    ],
)
def test_each_limit_ends_the_investigation_and_names_itself(spent, said):
    assert said == exhausted(spent, LIMITS)


@pytest.mark.parametrize(
    "spent",
    [
        Spent(llm_calls=7),  # three are kept back for three attempts
        Spent(tool_calls=8),
        Spent(input_tokens=800),
        Spent(wall_seconds=80.0),
        Spent(cost_usd=0.8),
    ],
)
def test_near_a_limit_the_next_answer_must_be_the_final_one(spent):
    assert must_wrap_up(spent, LIMITS) is True
    assert exhausted(spent, LIMITS) == ""


@pytest.mark.parametrize(
    "spent",
    [
        Spent(llm_calls=6, tool_calls=7, input_tokens=799, wall_seconds=79.9, cost_usd=0.79),
        Spent(cost_usd=None),
    ],
)
def test_below_that_the_investigation_goes_on(spent):
    assert must_wrap_up(spent, LIMITS) is False


@pytest.mark.parametrize(
    ("spent", "expected", "wraps_up", "ends"),
    [
        (Spent(input_tokens=100), 450, False, False),
        (Spent(input_tokens=100), 451, True, False),  # another call after this one would not fit
        (Spent(input_tokens=100), 900, True, False),
        (Spent(input_tokens=100), 901, True, True),
        (Spent(cost_usd=0.4, last_cost_usd=0.3), 1, False, False),
        (Spent(cost_usd=0.5, last_cost_usd=0.3), 1, True, False),
        (Spent(cost_usd=0.75, last_cost_usd=0.3), 1, True, True),
    ],
)
def test_no_call_is_made_that_a_limit_has_no_room_for(spent, expected, wraps_up, ends):
    assert wraps_up is must_wrap_up(spent, LIMITS, expected)
    assert ends is bool(exhausted(spent, LIMITS, expected))


def test_cached_tokens_count_at_their_price():
    spent = Spent().plus(CallUsage(input_tokens=2_000, cached_tokens=1_500), wall_seconds=0.0)
    assert (spent.input_tokens, spent.charged_tokens) == (2_000, 650)
    assert exhausted(spent, LIMITS) == ""
    dearer = CallUsage(input_tokens=2_000, cached_tokens=1_500, cached_price=0.5)
    assert spent.plus(dearer, wall_seconds=0.0).charged_tokens == 650 + 1_250


def test_without_a_limit_on_money_any_price_is_paid():
    free = Limits(cost_usd=None)
    assert exhausted(Spent(cost_usd=1e9), free) == ""
    assert must_wrap_up(Spent(cost_usd=1e9), free) is False


@pytest.mark.parametrize(
    ("spent", "seconds"),
    [(0.0, 40.0), (70.0, 30.0), (99.5, 1.0), (200.0, 1.0)],
)
def test_a_call_never_outlasts_the_investigation(spent, seconds):
    limits = Limits(wall_seconds=100.0, call_seconds=40.0)
    assert seconds == seconds_for_call(Spent(wall_seconds=spent), limits)


USAGES = st.lists(
    st.builds(
        CallUsage,
        input_tokens=st.integers(0, 10_000),
        cached_tokens=st.integers(0, 10_000),
        output_tokens=st.integers(0, 10_000),
        cost_usd=st.none() | st.floats(0, 1),
    ),
    max_size=8,
)


@given(USAGES)
def test_spending_adds_up(usages):
    spent = Spent()
    for number, usage in enumerate(usages):
        spent = spent.plus(usage, wall_seconds=float(number))
    assert len(usages) == spent.llm_calls
    assert sum(u.input_tokens for u in usages) == spent.input_tokens
    assert sum(u.cached_tokens for u in usages) == spent.cached_tokens
    assert sum(u.output_tokens for u in usages) == spent.output_tokens
    priced = [u.cost_usd for u in usages if u.cost_usd is not None]
    assert (pytest.approx(sum(priced)) if priced else None) == spent.cost_usd


@pytest.mark.parametrize(
    ("spent", "cost_usd"), [(Spent(), 0.0), (Spent(llm_calls=1), None), (Spent(1, cost_usd=0.5), 0.5)]
)
def test_a_request_without_a_call_costs_nothing(spent, cost_usd):
    assert cost_usd == usage_of(spent).cost_usd
