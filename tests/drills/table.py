"""One row of the table: what is tried, what must hold, what was measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.drills.accounts import Account
from tests.drills.stage import Ground

SHOWN = 5


@dataclass(frozen=True)
class Outcome:
    """What one drill found."""

    passed: bool
    measured: str


@dataclass(frozen=True)
class Drill:
    """One row. `run` plays it at full size. One that mostly waits is played `beside` the others."""

    name: str
    title: str
    wanted: str
    run: Callable[[Ground], Awaitable[Outcome]]
    beside: bool = False


def lost_and_twice(account: Account) -> str:
    """What every row says about its requests; with their keys where something is wrong."""
    calls = {
        "calls that no death explains": account.unexplained,
        "journaled steps paid again": account.repaid,
    }
    return _found({"lost": account.lost, "duplicates": account.duplicates, **calls}, account)


def results_and_letters(account: Account) -> str:
    """The same for a drill in which the model fails calls, so that they are made again."""
    return _found({"lost": account.lost, "duplicates": account.duplicates}, account)


def _found(found: Mapping[str, Sequence[str]], account: Account) -> str:
    always = {"lost", "duplicates"}
    return ", ".join(
        f"{what} {len(keys)}{f' ({chr(32).join(keys[:SHOWN])})' if keys else ''}"
        for what, keys in {**found, "dead letters": account.dead_letters}.items()
        if keys or what in always
    )
