"""How a run begins: what earlier runs left is published, then the journal says whose turn it is, and for what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from schemas import audit
from worker.domain.audit.trail import AuditTrail, Subject
from worker.domain.journal.recorded import RecordedRun
from worker.domain.journal.steps import done
from worker.domain.values.ports import Step
from worker.domain.values.step_kinds import BEGIN, BURIED, CLAIM, END, RESULT, TRIED

NOT_REPLAYED = frozenset({BEGIN, CLAIM, END, TRIED})
"""Steps that say something about a run and hold nothing that was read or paid for."""


async def start(
    run: RecordedRun,
    trail: AuditTrail,
    subject: Subject,
    digest: str,
    *,
    alone: bool,
    at: datetime,
    ignored_fields: Sequence[str] = (),
    replayed: bool = False,
) -> None:
    """Begin. Every older run loses its claim by that. Raises LostClaim when another one was faster, Unavailable.

    A run that only has to publish what is finished tells nothing: the chain of events has its end already.
    """
    await run.republish()
    message = subject.delivery.sequence
    if done(run, RESULT) or buried(run.steps, message):
        pass
    elif run.steps:
        kept = sum(step.kind not in NOT_REPLAYED for step in run.past)
        resumed = audit.RequestResumed(
            run=run.name,
            replayed_steps=kept,
            deliveries=subject.delivery.deliveries,
            continues=(run.lost_tail.hash or None) if run.lost_tail else None,
        )
        trail.record(resumed)
    else:
        accepted = audit.RequestAccepted(
            kind=subject.kind,
            subject=subject.delivery.subject,
            request_digest=digest,
            ignored_fields=tuple(ignored_fields),
            replayed=replayed,
        )
        trail.record(accepted)
    await run.begin(alone=alone, digest=digest, message=message, at=at.isoformat())


def buried(steps: Sequence[Step], message: int) -> Step | None:
    """The step that made a message a dead letter."""
    ours = (s for s in reversed(steps) if s.kind == BURIED and s.notes.get("message") == message)
    return next(ours, None)
