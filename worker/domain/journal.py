"""What the steps of a request say: what was done already, who owns the next step, how earlier runs ended.

A run begins with a BEGIN step, which fences every older run: its next append meets a taken number. A CLAIM step
precedes each paid call, so that a run that was replaced while it was frozen finds out before it spends. A run that
ends in an orderly way writes END; a run without one was killed, or fenced while frozen, which looks the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from worker.domain.ports import JournalRun, Step

BEGIN, CLAIM, END = "begin", "claim", "end"
FAILED, RELEASED = "failed", "released"
"""How a run can end: with a handled failure, or because it was asked to stop."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Read from the steps, so a count can neither be lost nor raced.

    `failures`: runs that ended with a handled failure. `deaths`: runs without an end. `deaths_alone`: of these, the
    ones that ran alone; only they count towards poison. `suspect`: the last run has no end.
    """

    failures: int
    deaths: int
    deaths_alone: int
    suspect: bool


def count(steps: Sequence[Step]) -> Counts:
    """What the steps say about the runs so far. Ask before the own `begin`, or the own run counts as a death."""
    failures, last = 0, ""
    unfinished: dict[str, bool] = {}  # run -> whether it ran alone
    for step in steps:
        if step.kind == BEGIN:
            unfinished[step.run] = bool(step.notes.get("alone"))
            last = step.run
        elif step.kind == END:
            unfinished.pop(step.run, None)
            failures += step.notes.get("outcome") == FAILED
    return Counts(failures, len(unfinished), sum(unfinished.values()), last in unfinished)


def done(run: JournalRun, kind: str) -> list[Step]:
    """The earlier runs' steps of this kind, in order: to be used instead of doing them again."""
    return [step for step in run.past if step.kind == kind]


async def paid(run: JournalRun, kind: str, call: Callable[[], Awaitable[bytes]], **notes: Any) -> bytes:
    """Claim, call, record. The claim is the last moment to find out that this run has been replaced.

    Raises what `append` raises: LostClaim before the call when another run has begun, so nothing is spent.
    """
    await run.append(CLAIM, what=kind, **notes)
    data = await call()
    await run.append(kind, data, **notes)
    return data
