"""The clock of the NATS server decides what has expired, not that of the machine."""

from __future__ import annotations

from datetime import timedelta

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.fixed_clock import START, FixedClock
from worker.app.server_clock import ServerClock


class WrongClock(FixedClock):
    """A machine whose wall clock is `ahead` seconds ahead."""

    def __init__(self, ahead):
        super().__init__()
        self.ahead = ahead

    def now(self):
        return super().now() + timedelta(seconds=self.ahead)


@pytest.fixture(autouse=True)
def logged():
    """What is logged: event names and fields."""
    with structlog.testing.capture_logs() as entries:
        yield entries


def looked(ahead=0.0, *, takes=0.2, servers=(0.1,)):
    """A clock after one look, in which servers answered so many seconds after it began by their clocks."""
    machine = WrongClock(ahead)
    clock, asked = ServerClock(machine), machine.monotonic()
    times = [START + timedelta(seconds=after) for after in servers]
    machine.advance(takes)
    clock.compare(times, asked)
    return clock, machine


def passed(seconds):
    """A moment that lies so many seconds before the end of the look, by the true time."""
    return START + timedelta(seconds=0.2 - seconds)


@pytest.mark.parametrize("ahead", [7_200.0, -7_200.0, 0.0])
def test_a_wrong_machine_is_corrected(ahead):
    clock, machine = looked(ahead)
    assert abs(clock.now() - START - timedelta(seconds=0.2)) <= timedelta(seconds=0.1)
    assert (True, False) == (clock.has_passed(passed(1.0)), clock.has_passed(passed(-1.0)))
    machine.advance(3_600.0)
    assert clock.has_passed(passed(-3_599.0))
    assert bool(clock.notice()) == bool(ahead)
    assert clock.skew_seconds == pytest.approx(ahead, abs=0.2)


def test_without_a_look_the_time_is_that_of_the_machine_and_nothing_expires():
    clock = ServerClock(WrongClock(7_200.0))
    clock.compare([], 0.0)
    assert (START + timedelta(hours=2), False) == (clock.now(), clock.has_passed(START))
    assert (0.0, "") == (clock.skew_seconds, clock.notice())


def test_what_is_not_certain_does_not_expire():
    slow, _ = looked(takes=30.0)
    torn, _ = looked(servers=(0.1, 60.0))
    assert not slow.has_passed(passed(1.0))
    assert not torn.has_passed(passed(100.0))
    assert "differ by 60 s" in torn.notice()


@pytest.mark.parametrize("moved", [60.0, -60.0])
def test_a_machine_that_was_suspended_or_set_is_not_certain_before_the_next_look(moved):
    clock, machine = looked()
    machine.ahead += moved
    assert not clock.has_passed(passed(10.0))
    asked = machine.monotonic()
    clock.compare([passed(0.0)], asked)
    assert clock.has_passed(passed(10.0))


def test_a_skew_is_logged_once_and_when_it_is_gone(logged):
    clock, machine = looked(7_200.0)
    clock.compare([passed(0.0)], machine.monotonic())
    machine.ahead = 0.0
    clock.compare([passed(0.0)], machine.monotonic())
    assert ["clock_skew", "clock_in_sync"] == [entry["event"] for entry in logged]


@given(
    st.floats(-1e6, 1e6),
    st.floats(0.0, 4.0),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5),
    st.floats(0.001, 1e6),
)
def test_nothing_expires_before_its_time(ahead, takes, parts, early):
    clock, _ = looked(ahead, takes=takes, servers=[takes * part for part in parts])
    true_now = START + timedelta(seconds=takes)
    assert not clock.has_passed(true_now + timedelta(seconds=early))
    assert abs(clock.now() - true_now) <= timedelta(seconds=takes + 0.001)
