"""How a run begins: what earlier runs left is published, then the journal says whose turn it is, and for what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from schemas import audit
from worker.domain.audit_trail import AuditTrail, Subject
from worker.domain.journal import BEGIN, CLAIM, END
from worker.domain.recorded import RecordedRun
from worker.domain.tries import TRIED

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
) -> None:
    """Begin. Every older run loses its claim by that. Raises LostClaim when another one was faster, Unavailable."""
    await run.republish()
    if run.steps:
        replayed = sum(step.kind not in NOT_REPLAYED for step in run.past)
        resumed = audit.RequestResumed(
            run=run.name, replayed_steps=replayed, deliveries=subject.delivery.deliveries
        )
        trail.record(resumed)
    else:
        accepted = audit.RequestAccepted(
            kind=subject.kind,
            subject=subject.delivery.subject,
            request_digest=digest,
            ignored_fields=tuple(ignored_fields),
        )
        trail.record(accepted)
    await run.begin(alone=alone, digest=digest, message=subject.delivery.sequence, at=at.isoformat())
