"""One row of the table: what is tried, what must hold, what was measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
    """The words every row has in common; with the requests concerned where something is wrong."""
    found = {
        "lost": account.lost,
        "duplicates": account.duplicates,
        "calls that no death explains": account.unexplained,
        "dead letters": account.dead_letters,
    }
    always = {"lost", "duplicates"}
    return ", ".join(
        f"{what} {len(keys)}{f' ({chr(32).join(keys[:SHOWN])})' if keys else ''}"
        for what, keys in found.items()
        if keys or what in always
    )
