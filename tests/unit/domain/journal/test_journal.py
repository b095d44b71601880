from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.memory_nats import MemoryJournal
from worker.domain.journal.isolation import RunMode, run_mode
from worker.domain.journal.steps import (
    FAILED,
    INTERNAL_ERROR,
    RELEASED,
    Counts,
    Owner,
    count,
    done,
    flaw,
    owner,
    unconfirmed,
    usable,
)
from worker.domain.values.delivery import MessageId
from worker.domain.values.ports import AuditRecord, Step
from worker.domain.values.step_kinds import BEGIN, CLAIM, END, LLM, UNREADABLE


def run_of(number: int, run: str, *, alone: bool = False, outcome: str = "") -> list[Step]:
    steps = [Step(number, BEGIN, run, b"", {"alone": alone}), Step(number + 1, "llm", run, b"answer")]
    return [*steps, Step(number + 2, END, run, b"", {"outcome": outcome})] if outcome else steps


def test_nothing_counts_as_nothing():
    assert count([]) == Counts(failures=0, deaths=0, deaths_alone=0, suspect=False)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (FAILED, Counts(failures=1, deaths=0, deaths_alone=0, suspect=False)),
        (RELEASED, Counts(failures=0, deaths=0, deaths_alone=0, suspect=False)),
        ("", Counts(failures=0, deaths=1, deaths_alone=0, suspect=True)),
    ],
)
def test_one_run_counts_by_its_end(outcome, expected):
    assert expected == count(run_of(1, "a", outcome=outcome))


def test_only_deaths_alone_count_towards_poison():
    steps = [*run_of(1, "a"), *run_of(3, "c", alone=True, outcome=RELEASED), *run_of(6, "b", alone=True)]
    assert count(steps) == Counts(failures=0, deaths=2, deaths_alone=1, suspect=True)


def test_a_run_that_fails_in_an_orderly_way_clears_a_suspect_and_one_that_was_stopped_proves_nothing():
    assert count([*run_of(1, "a"), *run_of(3, "b", outcome=FAILED)]).suspect is False
    stopped = [*run_of(1, "a"), *run_of(3, "b", outcome=RELEASED), *run_of(6, "c", outcome=RELEASED)]
    assert count(stopped).suspect is True
    assert count([*stopped, *run_of(9, "d", outcome=FAILED)]).suspect is False
    again = [
        *run_of(1, "a"),
        Step(3, BEGIN, "a", b"", {"afresh": True}),
        *run_of(4, "a", outcome=RELEASED)[2:],
    ]
    assert count(again).suspect is False  # one run that began twice
    assert count([*run_of(1, "a", outcome=FAILED), *run_of(4, "b")]).suspect is True


async def test_done_gives_the_steps_of_earlier_runs_only():
    journal = MemoryJournal()
    first = await journal.open("key", "first")
    await first.append(BEGIN)
    await first.append("llm", b"one")
    await first.append("tools", b"two")
    await first.append("llm", b"three")
    assert done(first, "llm") == []
    second = await journal.open("key", "second")
    assert [step.data for step in done(second, "llm")] == [b"one", b"three"]


# -- Whose turn it is, and what can be gone on from


def begun(number, run, **notes):
    return Step(number, BEGIN, run, b"", notes)


def test_counts_are_those_of_one_message_and_say_since_when():
    steps = [
        begun(1, "a", message=7, alone=True, at="2026-06-04T15:34:00+00:00"),
        begun(2, "b", message=7, at="2026-06-04T16:00:00+00:00"),
        Step(3, END, "b", b"", {"outcome": FAILED, "reason": INTERNAL_ERROR}),
        begun(4, "c", message=8, alone=True, at="2026-06-04T17:00:00+00:00"),
        Step(5, END, "unknown", b"", {"outcome": FAILED}),
    ]
    since = datetime(2026, 6, 4, 16, 0, tzinfo=UTC)  # of the first run that failed
    alone = [datetime(2026, 6, 4, hour, minute, tzinfo=UTC) for hour, minute in ((15, 34), (17, 0))]
    first, second = count(steps, MessageId(7)), count(steps, MessageId(8))
    assert Counts(1, 1, 1, 1, suspect=False, since=since, died_alone_at=alone[0]) == first
    assert Counts(0, 0, 1, 1, suspect=True, died_alone_at=alone[1]) == second
    assert Counts() == count(steps, MessageId(9))
    assert 2 == count(steps).deaths


def test_a_death_that_the_request_got_past_does_not_count_against_it():
    """A process that is killed from outside dies at another place each time."""
    steps = [begun(1, "a", alone=True), begun(2, "b", alone=True), begun(3, "c", alone=True)]
    assert (3, 3) == (count(steps).deaths, count(steps).deaths_alone)
    further = [*steps, Step(4, LLM, "c", b"reply")]
    assert (3, 1) == (count(further).deaths, count(further).deaths_alone)  # of "c", after its reply
    again = count([*further, begun(5, "d", alone=True, at="2026-06-04T16:00:00+00:00")])
    assert (2, datetime(2026, 6, 4, 16, 0, tzinfo=UTC)) == (again.deaths_alone, again.died_alone_at)


def test_the_owner_is_the_last_that_says_for_what_it_runs():
    steps = [begun(1, "a", message=7, digest="x"), begun(2, "b", message=8, digest="y"), begun(3, "c")]
    assert (None, Owner("b", "y", MessageId(8))) == (owner([]), owner(steps))


GONE = Step(2, UNREADABLE, "", b"", {"why": "it is gone"})


def test_a_journal_with_a_gap_is_not_continued():
    steps = [begun(1, "a"), GONE, Step(3, "llm", "a", b"answer")]
    assert ((), "it is gone") == (usable(steps), flaw(steps))
    assert (tuple(steps[::2]), "") == (usable(steps[::2]), flaw(steps[::2]))


def test_after_a_fresh_start_what_was_before_it_does_not_matter():
    fresh = [begun(3, "b", afresh=True), Step(4, "llm", "b", b"answer")]
    steps = [begun(1, "a"), GONE, *fresh]
    assert (tuple(fresh), "") == (usable(steps), flaw(steps))
    assert ((), "it is gone") == (usable([*steps, GONE]), flaw([*steps, GONE]))


def test_what_a_run_published_before_its_last_step_is_confirmed():
    def told(number, kind, run):
        return Step(number, kind, run, b"", {}, (AuditRecord(str(number), "", "", number, b""),))

    kinds = [BEGIN, "opening", CLAIM, "llm", END, BEGIN, BEGIN, CLAIM, END]
    steps = [told(n, kind, "r") for n, kind in enumerate(kinds, 1)]

    def left(count):
        return [record.sequence for record in unconfirmed(steps[:count])]

    assert [[], [1], [2], [3], [4], [4, 5], [4, 5, 6], [4, 5, 6, 7], [8], [8, 9]] == [
        left(count) for count in range(10)
    ]


@pytest.mark.parametrize(
    ("counts", "finished", "expected"),
    [
        (Counts(), False, RunMode.SHARED),
        (Counts(deaths=9, deaths_alone=2), False, RunMode.SHARED),
        (Counts(deaths=1, suspect=True), False, RunMode.ISOLATED),
        (Counts(deaths=9, deaths_alone=2, suspect=True), False, RunMode.ISOLATED),
        (Counts(deaths=3, deaths_alone=3, suspect=True), False, RunMode.REFUSED),
        (Counts(deaths=3, deaths_alone=3), False, RunMode.REFUSED),
        (Counts(deaths=9, deaths_alone=9, suspect=True), True, RunMode.SHARED),
    ],
)
def test_only_deaths_alone_end_in_never(counts, finished, expected):
    assert expected is run_mode(counts, max_deaths=3, finished=finished)


RUNS = st.lists(st.tuples(st.booleans(), st.sampled_from(["", FAILED, RELEASED])), max_size=12)


@given(RUNS)
def test_a_request_that_never_died_alone_is_never_given_up(runs):
    steps = []
    for number, (alone, outcome) in enumerate(runs):
        steps.append(begun(len(steps) + 1, f"r{number}", alone=alone, message=7))
        if outcome:
            steps.append(Step(len(steps) + 1, END, f"r{number}", b"", {"outcome": outcome}))
    died_alone = sum(alone and not outcome for alone, outcome in runs)
    how = run_mode(count(steps, MessageId(7)), max_deaths=3, finished=False)
    assert (how is RunMode.REFUSED) is (died_alone >= 3)
