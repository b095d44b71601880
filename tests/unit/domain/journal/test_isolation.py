"""Who may be in a process together with a request that may kill it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.domain.journal.isolation import Crowd, Turn, goes_first, steps_aside, turn

P0, P1, P2, P3 = range(4)


def test_without_suspects_everybody_starts():
    assert [Turn.NOW] * 4 == [turn(Crowd(urgent=1, others=3), urgency, suspect=False) for urgency in range(4)]


def test_a_suspect_starts_when_nobody_else_runs():
    assert Turn.NOW is turn(Crowd(suspects=(P3,)), P3, suspect=True)
    for crowd in (Crowd(urgent=1, suspects=(P3,)), Crowd(others=1, suspects=(P3,))):
        assert Turn.SOON is turn(crowd, P3, suspect=True)
    assert Turn.SOON is turn(Crowd(suspects=(P3, P3), alone=True), P3, suspect=True)


def test_of_several_suspects_the_most_urgent_goes_first():
    crowd = Crowd(suspects=(P3, P1, P2))
    assert [Turn.SOON, Turn.NOW, Turn.SOON] == [turn(crowd, u, suspect=True) for u in (P3, P1, P2)]


def test_beside_a_suspect_nothing_starts_and_only_the_most_urgent_wait_in_hand():
    crowd = Crowd(suspects=(P3,), alone=True)
    assert [Turn.SOON, Turn.LATER, Turn.LATER] == [turn(crowd, u, suspect=False) for u in (P0, P1, P3)]


def test_before_a_suspect_that_waits_the_most_urgent_start():
    crowd = Crowd(others=1, suspects=(P3,))
    assert [Turn.NOW, Turn.LATER] == [turn(crowd, u, suspect=False) for u in (P0, P1)]


def test_while_urgent_ones_keep_a_suspect_waiting_everybody_starts():
    crowd = Crowd(urgent=1, others=1, suspects=(P3,))
    assert [Turn.NOW] * 4 == [turn(crowd, urgency, suspect=False) for urgency in range(4)]


def test_for_a_suspect_that_is_due_the_others_end_first_and_then_the_urgent_ones():
    crowd = Crowd(urgent=1, others=1, suspects=(P3,), due=True)
    assert [Turn.NOW, Turn.LATER] == [turn(crowd, u, suspect=False) for u in (P0, P1)]
    crowd = Crowd(urgent=1, suspects=(P3,), waiting=1, due=True)
    assert [Turn.SOON, Turn.LATER] == [turn(crowd, u, suspect=False) for u in (P0, P1)]


def test_a_suspect_steps_aside_while_urgent_ones_wait_and_starts_when_none_does():
    assert steps_aside(Crowd(suspects=(P3,), alone=True, waiting=1), P3) is True
    assert steps_aside(Crowd(suspects=(P3,), alone=True), P3) is False
    assert Turn.SOON is turn(Crowd(suspects=(P3,), waiting=1), P3, suspect=True)


def test_a_suspect_that_is_as_urgent_as_any_steps_aside_for_nobody():
    crowd = Crowd(suspects=(P0,), alone=True, waiting=1)
    assert steps_aside(crowd, P0) is False
    assert Turn.LATER is turn(crowd, P0, suspect=False)
    assert goes_first(crowd, P0) is False


def test_a_suspect_that_is_due_goes_before_the_most_urgent():
    crowd = Crowd(suspects=(P3,), waiting=2, due=True)
    assert Turn.NOW is turn(crowd, P3, suspect=True)
    assert [Turn.SOON, Turn.LATER] == [turn(crowd, u, suspect=False) for u in (P0, P1)]
    assert Turn.SOON is turn(Crowd(urgent=1, suspects=(P3,), due=True), P3, suspect=True)


crowds = st.builds(
    Crowd,
    urgent=st.integers(0, 2),
    others=st.integers(0, 2),
    suspects=st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    alone=st.booleans(),
    waiting=st.integers(0, 2),
    due=st.booleans(),
)


@given(crowds, st.integers(0, 3))
def test_nothing_ever_starts_beside_a_suspect_nor_a_suspect_beside_others(crowd, urgency):
    if crowd.alone:
        assert Turn.NOW is not turn(crowd, urgency, suspect=False)
    if crowd.alone or crowd.urgent or crowd.others:
        assert Turn.NOW is not turn(crowd, min(crowd.suspects), suspect=True)


@given(crowds, st.integers(0, 3))
def test_a_message_is_asked_for_only_if_it_could_start_here(crowd, urgency):
    assert goes_first(crowd, urgency) is (Turn.LATER is not turn(crowd, urgency, suspect=False))


@given(crowds)
def test_somebody_can_always_go_on(crowd):
    """Runs end by themselves; when none is left, a suspect or an urgent request has its turn."""
    idle = Crowd(suspects=crowd.suspects, waiting=crowd.waiting, due=crowd.due)
    suspect_starts = Turn.NOW is turn(idle, min(idle.suspects), suspect=True)
    urgent_starts = idle.waiting > 0 and Turn.NOW is turn(idle, P0, suspect=False)
    assert suspect_starts or urgent_starts
