"""Reads the steps of a request: what is done already, which run owns the next step, how earlier runs ended.

A run begins with a BEGIN step, which fences every older run: the next append of an older run finds its number
taken. A CLAIM step precedes each paid call, so that a run that was replaced while frozen finds out before it
spends. A run that ends in an orderly way writes END; a run without END was killed, or fenced while frozen,
which looks the same.

BEGIN names the message and the digest of the request that the run is for. With the note `afresh`, runs do not
continue from the steps before it, because one of these could not be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from worker.domain.values.delivery import Delivery, MessageId
from worker.domain.values.ports import AuditRecord, JournalRun, Step
from worker.domain.values.step_kinds import BEGIN, END, FINISHED, LLM, UNREADABLE

FAILED, RELEASED = "failed", "released"
"""How a run can end: by a handled failure, or because it was asked to stop."""

INTERNAL_ERROR = "internal_error"
"""The reason of a failure that is a bug, ours or a library's."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How earlier runs ended. Read from the steps, so that no count can be lost or raced.

    `failures`: runs that ended with a handled failure; `errors`: failures by an internal error. `deaths`:
    runs without an end. `deaths_alone`: deaths in isolation since the last reply of the model. Only these
    count towards the limit, because a request that kills its process does so again at the same place, whereas
    one whose process was killed from outside gets further. `died_alone_at`: when the last run that died in
    isolation began. `suspect`: the last run has no end, leaving out runs that were asked to stop, which
    proves nothing. `since`: when the first failed run began; an outage of the model does not count as a
    failure.
    """

    failures: int = 0
    errors: int = 0
    deaths: int = 0
    deaths_alone: int = 0
    suspect: bool = False
    since: datetime | None = None
    died_alone_at: datetime | None = None


def count(steps: Sequence[Step], message: MessageId | None = None) -> Counts:
    """Count the runs so far; with `message`, only the runs for that message.

    Count before the caller's own run begins, or it counts as a death.
    """
    ends: list[Step] = []
    last, since, suspect = "", "", False
    unfinished: dict[str, bool] = {}  # run -> whether it ran alone
    began: dict[str, str] = {}
    survived: set[str] = set()  # deaths that the request has survived since
    for step in steps:
        if step.kind == BEGIN and _is_for(step, message):
            suspect = suspect or (last in unfinished and last != step.run)
            unfinished[step.run] = bool(step.notes.get("alone"))
            began[step.run] = str(step.notes.get("at", ""))
            last = step.run
        elif step.kind == LLM and step.run in began:
            survived |= unfinished.keys() - {step.run}
        elif step.kind == END and step.run in began:
            unfinished.pop(step.run, None)
            ends.append(step)
            suspect = suspect and step.notes.get("outcome") == RELEASED
            if step.notes.get("outcome") == FAILED:
                since = since or began[step.run]
    alone = [run for run, was_alone in unfinished.items() if was_alone and run not in survived]
    return Counts(
        failures=sum(step.notes.get("outcome") == FAILED for step in ends),
        errors=sum(step.notes.get("reason") == INTERNAL_ERROR for step in ends),
        deaths=len(unfinished),
        deaths_alone=len(alone),
        died_alone_at=_time(began[alone[-1]]) if alone else None,
        suspect=suspect or last in unfinished,
        since=_time(since),
    )


@dataclass(frozen=True, slots=True)
class Owner:
    """The last run: its name, the digest of its request, and the message it was begun for.

    `deliveries`: how often that message had been delivered by then; 0 if unknown.
    """

    run: str
    digest: str
    message: MessageId
    deliveries: int = 0


def finished(steps: Sequence[Step]) -> bool:
    """True if the result is stored, and the other steps are or may be deleted."""
    return bool(steps) and steps[-1].kind == FINISHED


def since_finished(steps: Sequence[Step]) -> Sequence[Step]:
    """The steps from the last FINISHED step on; earlier steps may have been deleted."""
    ends = [n for n, step in enumerate(steps) if step.kind == FINISHED]
    return steps[ends[-1] :] if ends else steps


def owner(steps: Sequence[Step]) -> Owner | None:
    """The last run that names its message; None before the first."""
    for step in reversed(steps):
        if step.kind in {BEGIN, FINISHED} and (message := MessageId.from_notes(step.notes)):
            deliveries = step.notes.get("deliveries", 0)
            return Owner(step.run, str(step.notes.get("digest", "")), message, deliveries)
    return None


def is_overtaken(steps: Sequence[Step], delivery: Delivery) -> bool:
    """True if a run that may be alive serves the same or a later delivery of the message.

    The worker of this delivery was then frozen for longer than ack_wait before its run began, or the consumer
    was recreated and counts from 1 again. Heartbeats keep the message with a run that is alive.
    """
    last = owner(steps)
    if last is None or last.deliveries < delivery.deliveries or not last.message.matches(delivery.message):
        return False
    return not any(step.kind == END and step.run == last.run for step in steps)


def usable(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps to continue from: those since the last fresh start; none if one of them is unreadable."""
    since = _since_fresh_start(steps)
    return () if any(step.kind == UNREADABLE for step in since) else since


def flaw(steps: Sequence[Step]) -> str:
    """Return why a successor cannot continue from these steps; empty if it can."""
    since = _since_fresh_start(steps)
    return next((str(step.notes.get("why", "")) for step in since if step.kind == UNREADABLE), "")


def unconfirmed(steps: Sequence[Step]) -> Iterator[AuditRecord]:
    """The events that may not have been published, in order.

    A run publishes what earlier runs left before it begins, and the events of each step before it takes the
    next one. So every event before the last step that is neither a BEGIN nor an END is published.
    """
    working = [n for n, step in enumerate(steps) if step.kind not in {BEGIN, END, UNREADABLE}]
    for step in steps[working[-1] if working else 0 :]:
        yield from step.events


def done(run: JournalRun, kind: str) -> list[Step]:
    """The steps of this kind that earlier runs took, in order: use them instead of doing them again."""
    return [step for step in run.past if step.kind == kind]


def _is_for(step: Step, message: MessageId | None) -> bool:
    noted = MessageId.from_notes(step.notes)
    return message is None or noted is None or noted.matches(message)


def _since_fresh_start(steps: Sequence[Step]) -> tuple[Step, ...]:
    starts = [n for n, step in enumerate(steps) if step.kind == BEGIN and step.notes.get("afresh")]
    return tuple(steps[starts[-1] :] if starts else steps)


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
