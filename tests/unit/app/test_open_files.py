"""A process with few file descriptors runs fewer requests, and blames none for it."""

from __future__ import annotations

import errno
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.fixed_clock import FixedClock
from worker.app.admission import Admission
from worker.app.open_files import (
    BASE,
    ENOUGH,
    FEWEST,
    FILES,
    LOW,
    FileBudget,
    FileWatch,
    files_left,
    raise_limit,
)
from worker.domain.values.errors import is_resource_fault

LANES = {"p0": 8, "p1": 4, "p2": 4, "p3": 4}


@given(
    st.integers(FEWEST, 5_000),
    st.fixed_dictionaries({lane: st.integers(1, 200) for lane in LANES}),
)
def test_every_lane_keeps_a_slot_and_together_they_stay_within_the_limit(limit, slots):
    budget = FileBudget(limit)
    fitted = budget.fit(slots)
    assert all(1 <= fitted[lane] <= slots[lane] for lane in slots)
    assert sum(fitted.values()) <= budget.share
    assert BASE + 2 * budget.share <= limit
    assert bool(budget.notice(slots)) == (fitted != slots)


def test_a_usual_limit_allows_everything_and_a_tiny_one_no_worker():
    assert (LANES, "", "") == (
        FileBudget(1_024).fit(LANES), FileBudget(1_024).notice(LANES), FileBudget(1_024).too_low
    )  # fmt: skip
    assert "ulimit" in FileBudget(FEWEST - 1).too_low


def test_the_limit_of_this_process_is_raised_and_its_open_files_are_counted():
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == raise_limit()
    before = files_left()
    with open(__file__, "rb"), open(__file__, "rb"):  # noqa: PTH123 - what is counted is that they are open
        assert before - 2 == files_left()


def test_while_few_are_left_the_intake_is_paused():
    admission, left = Admission(FixedClock()), [0]
    watch = FileWatch(admission, lambda: left[0])
    seen = []
    for number in (LOW, LOW - 1, ENOUGH - 1, ENOUGH, 0, 1_000):
        left[0] = number
        watch.look()
        seen.append((bool(watch.problem), admission.is_paused_by(FILES)))
    assert [(False,) * 2, (True,) * 2, (True,) * 2, (False,) * 2, (True,) * 2, (False,) * 2] == seen


def chained(error, inner):
    error.__cause__ = inner
    return error


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN])
def test_a_lack_of_files_is_found_wherever_it_hides(number):
    lack = OSError(number, "none left")
    grouped = ExceptionGroup("all attempts failed", [ValueError(), lack])
    assert is_resource_fault(lack)
    assert is_resource_fault(chained(ConnectionError("cannot connect"), chained(OSError("all"), grouped)))


def test_other_failures_are_no_lack_of_files():
    circle = ValueError()
    circle.__cause__ = circle
    assert not any(
        map(is_resource_fault, (circle, ConnectionRefusedError(errno.ECONNREFUSED, "no"), TimeoutError()))
    )
