from __future__ import annotations

import pytest

from tests.fakes.memory_nats import MemoryJournal
from worker.domain.errors import LostClaim
from worker.domain.journal import BEGIN, CLAIM, END, FAILED, RELEASED, Counts, count, done, paid
from worker.domain.ports import Step


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
    steps = [*run_of(1, "a"), *run_of(3, "b", alone=True), *run_of(5, "c", alone=True, outcome=RELEASED)]
    assert count(steps) == Counts(failures=0, deaths=2, deaths_alone=1, suspect=False)


def test_an_old_death_is_no_suspicion_after_an_orderly_end():
    assert count([*run_of(1, "a"), *run_of(3, "b", outcome=FAILED)]).suspect is False
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


async def test_paid_claims_calls_and_records():
    journal, seen = MemoryJournal(), []
    run = await journal.open("key", "run")
    await run.append(BEGIN)

    async def call() -> bytes:
        seen.append([step.kind for step in journal.steps["key"] if step])
        return b"answer"

    assert await paid(run, "llm", call, model="m") == b"answer"
    assert seen == [[BEGIN, CLAIM]]
    claim, answer = journal.steps["key"][1:]
    assert (claim.kind, claim.notes) == (CLAIM, {"what": "llm", "model": "m"})
    assert (answer.kind, answer.data, answer.notes) == ("llm", b"answer", {"model": "m"})


async def test_a_replaced_run_does_not_pay():
    journal, calls = MemoryJournal(), []

    async def call() -> bytes:
        calls.append(1)
        return b""

    old = await journal.open("key", "old")
    await old.append(BEGIN)
    await (await journal.open("key", "new")).append(BEGIN)
    with pytest.raises(LostClaim):
        await paid(old, "llm", call)
    assert calls == []


async def test_a_failed_call_leaves_a_claim_and_no_step():
    journal = MemoryJournal()
    run = await journal.open("key", "run")

    async def call() -> bytes:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await paid(run, "llm", call)
    assert [step.kind for step in journal.steps["key"] if step] == [CLAIM]
