from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.analysis import Approval, RiskFactor
from worker.domain.verdict.approval.policy_answer import (
    NoDecision,
    approval_decision,
    fail_closed,
    safety_decision,
    strictest,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["require_approval", "reasons", "reason", "risk_factors", "score", "x"]), inner
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_only_a_decision_lets_anything_run(document):
    """Whatever a policy or a server answers: nothing runs without `require_approval: false`, and nothing else is raised."""
    with contextlib.suppress(NoDecision, ValueError):
        decided = approval_decision(document, "data.x")
        assert document["require_approval"] is decided.required
        assert bool(decided.reasons) == decided.required


@given(
    st.dictionaries(
        st.sampled_from(["validate_action", "requires_approval", "reasons", "risk_factors"]), JSON
    )
)
def test_only_true_validates_an_action(values):
    with contextlib.suppress(NoDecision, ValueError):
        decided = safety_decision(values, "scale_up")
        free = values.get("validate_action") is True and values.get("requires_approval", False) is False
        assert free is not decided.required
        assert bool(decided.reasons) == decided.required


def test_scores_are_whole_numbers_up_to_100_and_the_highest_stand_first():
    factors = [{"score": score, "reason": f"r{score}"} for score in (7.6, 250, -3)]
    decided = approval_decision({"require_approval": False, "risk_factors": factors}, "data.x")
    assert [(100, "r250"), (8, "r7.6"), (0, "r-3")] == [(f.score, f.reason) for f in decided.risk_factors]


def test_factors_and_reasons_are_bounded():
    factors = [{"score": n % 100, "reason": f"{n} {'x' * 600}"} for n in range(5000)]
    document = {
        "require_approval": True,
        "reasons": [f"{n}\n{'y ' * 600}" for n in range(5000)],
        "risk_factors": factors,
    }
    decided = approval_decision(document, "data.x")
    assert (32, 32) == (len(decided.reasons), len(decided.risk_factors))
    assert {99} == {factor.score for factor in decided.risk_factors}
    assert max(map(len, decided.reasons)) <= 500
    assert not any("\n" in reason for reason in decided.reasons)


def test_a_single_reason_will_do():
    assert ("why",) == approval_decision({"require_approval": True, "reason": "why"}, "data.x").reasons


def test_of_several_the_strictest_decides():
    low, high = RiskFactor(score=10, reason="low"), RiskFactor(score=90, reason="high")
    free = Approval(required=False, risk_factors=(low, high))
    bound = Approval(required=True, reasons=("a", "b"), risk_factors=(high,))
    assert Approval(required=True, reasons=("a", "b"), risk_factors=(high, low)) == strictest(
        [free, bound, bound]
    )
    assert free.model_copy(update={"risk_factors": (high, low)}) == strictest([free])
    with pytest.raises(NoDecision):
        strictest([])


def test_without_a_decision_approval_is_required():
    decided = fail_closed("it\nbroke " + "x" * 900)
    assert decided.required
    assert ["policy_failed"] == [found.code for found in decided.factors]
    assert decided.factors[0].detail.startswith("it broke xxx")
    assert len(decided.reasons[0]) < 500
