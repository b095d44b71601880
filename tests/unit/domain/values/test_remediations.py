"""When an executed remediation is known to have helped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.outcome import ExecutionOutcome
from worker.domain.values.remediations import PastRemediation


@pytest.mark.parametrize(
    ("known", "successful", "unsuccessful"),
    [
        ({"resolved": True}, True, False),
        ({"score": 0.7}, True, False),
        ({"score": 0.5, "resolved": True}, True, False),
        ({"score": 0.5}, False, False),
        ({}, False, False),
        ({"score": 0.39}, False, True),
        ({"score": 0.2, "resolved": True}, False, True),
        ({"score": 0.9, "resolved": False}, False, True),
        ({"score": 0.9, "resolved": True, "drifted": True}, False, False),
        ({"score": 0.9, "resolved": True, "outcome": "cancelled"}, False, False),
        ({"score": 0.9, "resolved": True, "outcome": ""}, False, False),
        ({"score": 0.9, "resolved": True, "outcome": "failed"}, False, True),
    ],
)
def test_success_must_be_known(known, successful, unsuccessful):
    past = PastRemediation("rr-1", **{"outcome": "completed", **known})
    assert (successful, unsuccessful) == (past.successful, past.unsuccessful)


@given(
    st.builds(
        PastRemediation,
        id=st.just("rr-1"),
        outcome=st.sampled_from(["", *ExecutionOutcome]),
        score=st.none() | st.floats(0, 1),
        resolved=st.none() | st.booleans(),
        drifted=st.booleans(),
    )
)
def test_nothing_is_a_success_and_a_failure(past):
    assert not (past.successful and past.unsuccessful)
