"""A journal run whose audit events are part of its steps.

An event is recorded first, kept with the next step, and published when that step is stored. So every event that was
published is in the journal, byte for byte, and a successor publishes it again as it is, should that have been
missed; an event of which nothing is in the journal was never published, and its step is told anew. No step is written
for events alone: they cost no write.

That is also why their chain cannot fork: a run that was fenced cannot store its step, so its events are never published,
and the run that fenced it goes on from the last event in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worker.domain.journal.steps import flaw, unconfirmed, usable
from worker.domain.values.ports import AuditRecord, Events, JournalRun, Step
from worker.domain.values.step_kinds import BEGIN, END, UNREADABLE


class RecordedRun:
    """Implements JournalRun on another one. `name` is the name of the run, and part of the ids of its events."""

    def __init__(self, run: JournalRun, events: Events, name: str) -> None:
        self._run, self._events, self._name = run, events, name
        self.steps: list[Step] = list(run.past)
        """Everything in the journal: what cannot be gone on from, too, and what this run has done."""
        self.begun = False
        """It may have fenced the others: it has to end in an orderly way, or it counts as dead."""
        self.flaw = flaw(self.steps)
        """Why this run cannot go on from what is there, and starts afresh; empty when it can."""
        self._past = usable(self.steps)
        self._recorded: list[AuditRecord] = []
        self._tail, self.lost_tail = _last_event(self.steps)

    @property
    def name(self) -> str:
        """The name of the run."""
        return self._name

    @property
    def past(self) -> Sequence[Step]:
        """The steps that this run goes on from."""
        return self._past

    @property
    def tail(self) -> AuditRecord | None:
        """The event that the next one follows; None when it begins a chain."""
        return self._recorded[-1] if self._recorded else self._tail

    def record(self, record: AuditRecord) -> None:
        """Keep an event for the next step."""
        self._recorded.append(record)

    async def republish(self) -> None:
        """Publish what earlier runs have kept and may not have come to publish. Before the own `begin`."""
        for record in unconfirmed(self.steps):
            await self._events.audit(record)

    async def begin(self, *, alone: bool, digest: str, message: int, at: str) -> None:
        """Fence every older run, and start afresh where one left what cannot be read."""
        self.begun = True
        await self.append(BEGIN, alone=alone, digest=digest, message=message, at=at, afresh=bool(self.flaw))

    async def begin_afresh(self, why: str) -> None:
        """Begin once more, from nothing: a step that could be read has turned out to make no sense."""
        first = next(step for step in reversed(self.steps) if step.kind == BEGIN)
        self.flaw, self._past, self._recorded = why, (), []
        await self.append(BEGIN, **{**first.notes, "afresh": True})

    async def append(
        self, kind: str, data: bytes = b"", *, events: Sequence[AuditRecord] = (), **notes: Any
    ) -> None:
        """Store a step with the events recorded since the one before, then publish these."""
        told = (*self._recorded, *events)
        self._recorded = []
        await self._run.append(kind, data, events=told, **notes)
        self.steps.append(Step(len(self.steps) + 1, kind, self.name, data, notes, told))
        self._tail = told[-1] if told else self._tail
        for record in told:
            await self._events.audit(record)

    async def end(self, outcome: str, **notes: Any) -> None:
        """Say how this run ended: it did not die."""
        await self.append(END, outcome=outcome, **notes)


def _last_event(steps: Sequence[Step]) -> tuple[AuditRecord | None, AuditRecord | None]:
    """The last event, or the last one that can be read where one may have come after it, which is lost."""
    lost = False
    for step in reversed(steps):
        lost = lost or step.kind == UNREADABLE
        if step.events:
            last = step.events[-1]
            return (None, last) if lost or not last.hash else (last, None)
    return None, None
