"""Who may be in a process together with a request that may kill it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from worker.domain.journal.isolation import (
    ProcessLoad,
    StartDecision,
    may_overtake,
    must_yield,
    pause_after_death,
    start_decision,
)
from worker.domain.journal.steps import Counts
from worker.domain.values.delays import DEATH_PAUSES_SECONDS

P0, P1, P2, P3 = range(4)


def test_without_suspects_everybody_starts():
    assert [StartDecision.NOW] * 4 == [
        start_decision(ProcessLoad(urgent=1, others=3), urgency, suspect=False) for urgency in range(4)
    ]


def test_a_suspect_starts_when_nobody_else_runs():
    assert StartDecision.NOW is start_decision(ProcessLoad(suspects=(P3,)), P3, suspect=True)
    for load in (ProcessLoad(urgent=1, suspects=(P3,)), ProcessLoad(others=1, suspects=(P3,))):
        assert StartDecision.WAIT is start_decision(load, P3, suspect=True)
    assert StartDecision.WAIT is start_decision(ProcessLoad(suspects=(P3, P3), alone=True), P3, suspect=True)


def test_of_several_suspects_the_most_urgent_goes_first():
    load = ProcessLoad(suspects=(P3, P1, P2))
    assert [StartDecision.WAIT, StartDecision.NOW, StartDecision.WAIT] == [
        start_decision(load, u, suspect=True) for u in (P3, P1, P2)
    ]


def test_beside_a_suspect_nothing_starts_and_only_the_most_urgent_wait_in_hand():
    load = ProcessLoad(suspects=(P3,), alone=True)
    assert [StartDecision.WAIT, StartDecision.RETURN, StartDecision.RETURN] == [
        start_decision(load, u, suspect=False) for u in (P0, P1, P3)
    ]


def test_before_a_suspect_that_waits_the_most_urgent_start():
    load = ProcessLoad(others=1, suspects=(P3,))
    assert [StartDecision.NOW, StartDecision.RETURN] == [
        start_decision(load, u, suspect=False) for u in (P0, P1)
    ]


def test_while_urgent_ones_keep_a_suspect_waiting_everybody_starts():
    load = ProcessLoad(urgent=1, others=1, suspects=(P3,))
    assert [StartDecision.NOW] * 4 == [start_decision(load, urgency, suspect=False) for urgency in range(4)]


def test_for_a_suspect_that_is_due_the_others_end_first_and_then_the_urgent_ones():
    load = ProcessLoad(urgent=1, others=1, suspects=(P3,), due=True)
    assert [StartDecision.NOW, StartDecision.RETURN] == [
        start_decision(load, u, suspect=False) for u in (P0, P1)
    ]
    load = ProcessLoad(urgent=1, suspects=(P3,), waiting=1, due=True)
    assert [StartDecision.WAIT, StartDecision.RETURN] == [
        start_decision(load, u, suspect=False) for u in (P0, P1)
    ]


def test_a_suspect_yields_while_urgent_ones_wait_and_starts_when_none_does():
    assert must_yield(ProcessLoad(suspects=(P3,), alone=True, waiting=1), P3) is True
    assert must_yield(ProcessLoad(suspects=(P3,), alone=True), P3) is False
    assert StartDecision.WAIT is start_decision(ProcessLoad(suspects=(P3,), waiting=1), P3, suspect=True)


def test_a_p0_suspect_yields_to_a_p0_request_and_not_to_another_suspect():
    assert must_yield(ProcessLoad(suspects=(P0,), alone=True, waiting=1), P0) is True
    assert must_yield(ProcessLoad(suspects=(P0, P0), alone=True), P0) is False
    assert StartDecision.WAIT is start_decision(
        ProcessLoad(suspects=(P0,), alone=True, waiting=1), P0, suspect=False
    )


def test_a_suspect_of_another_lane_yields_to_a_p0_suspect():
    assert must_yield(ProcessLoad(suspects=(P3, P0), alone=True), P3) is True


def test_a_suspect_that_is_due_goes_before_the_most_urgent():
    load = ProcessLoad(suspects=(P3,), waiting=2, due=True)
    assert StartDecision.NOW is start_decision(load, P3, suspect=True)
    assert [StartDecision.WAIT, StartDecision.RETURN] == [
        start_decision(load, u, suspect=False) for u in (P0, P1)
    ]
    assert StartDecision.WAIT is start_decision(
        ProcessLoad(urgent=1, suspects=(P3,), due=True), P3, suspect=True
    )


loads = st.builds(
    ProcessLoad,
    urgent=st.integers(0, 2),
    others=st.integers(0, 2),
    suspects=st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    alone=st.booleans(),
    waiting=st.integers(0, 2),
    due=st.booleans(),
)


@given(loads, st.integers(0, 3))
def test_nothing_ever_starts_beside_a_suspect_nor_a_suspect_beside_others(load, urgency):
    if load.alone:
        assert StartDecision.NOW is not start_decision(load, urgency, suspect=False)
    if load.alone or load.urgent or load.others:
        assert StartDecision.NOW is not start_decision(load, min(load.suspects), suspect=True)


@given(loads, st.integers(0, 3))
def test_a_message_is_asked_for_only_if_it_could_start_here(load, urgency):
    assert may_overtake(load, urgency) is (
        StartDecision.RETURN is not start_decision(load, urgency, suspect=False)
    )


@given(loads)
def test_somebody_can_always_continue(load):
    """Runs end by themselves; when none is left, a suspect or an urgent request has its turn."""
    idle = ProcessLoad(suspects=load.suspects, waiting=load.waiting, due=load.due)
    suspect_starts = StartDecision.NOW is start_decision(idle, min(idle.suspects), suspect=True)
    urgent_starts = idle.waiting > 0 and StartDecision.NOW is start_decision(idle, P0, suspect=False)
    assert suspect_starts or urgent_starts


@given(st.integers(1, 10), st.floats(-1e6, 1e6))
def test_the_pause_after_a_death_alone_grows_and_is_bounded_whatever_the_clocks_say(deaths, later):
    at = datetime(2026, 6, 4, tzinfo=UTC)
    pause = pause_after_death(Counts(deaths_alone=deaths, died_alone_at=at), at + timedelta(seconds=later))
    longest = DEATH_PAUSES_SECONDS[0 if deaths == 1 else 1]
    assert 0.0 <= pause <= longest
    assert (pause == 0.0) == (later >= longest)
    assert 0.0 == pause_after_death(Counts(deaths=deaths), at)
