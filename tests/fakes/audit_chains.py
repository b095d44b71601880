"""Chains of audit events as workers publish them, and what is done to them by somebody who may write to the stream."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from schemas import audit
from schemas.analysis import Approval, Status
from schemas.audit import AuditEvent
from schemas.chain import UNSEALED, genesis
from schemas.failure import DeadLetterReason
from schemas.taxonomy import RequestKind
from tests.fakes.messages import NOON
from worker.domain.audit.check import AuditCheck
from worker.domain.audit.findings import AuditFacts, Report, StoredResult
from worker.domain.audit.record import finished, record_of
from worker.domain.values.ports import SignatureCheck, Signer

LATER = NOON + timedelta(days=3)
"""When the chains are checked: nothing is open any more."""


def result_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def accepted(*, replayed: bool = False) -> audit.Payload:
    return audit.RequestAccepted(
        kind=RequestKind.INCIDENT,
        subject="rca.request.incident",
        request_digest=result_of("?"),
        replayed=replayed,
    )


def resumed(continues: str | None = None) -> audit.Payload:
    return audit.RequestResumed(run="r", replayed_steps=1, deliveries=2, continues=continues)


def decided(number: int) -> audit.Payload:
    return audit.PolicyDecided(policy=f"p{number}", approval=Approval(required=False))


def complete(key: str) -> audit.Payload:
    return audit.ResponseComplete(status=Status.COMPLETED, confidence=0.92, result_sha256=result_of(key))


def failed(key: str) -> audit.Payload:
    return audit.ResponseFailed(
        reason=DeadLetterReason.INTERNAL_ERROR, error="boom", result_sha256=result_of(f"failed {key}")
    )


def chain(
    key: str,
    payloads: Sequence[audit.Payload],
    *,
    name: str = "run-1",
    signer: Signer | None = None,
    after: AuditEvent | None = None,
    start: datetime = NOON,
) -> list[AuditEvent]:
    """The events of one chain, a second apart; with `after` they go on with the chain of that event."""
    events = [after] if after else []
    for number, payload in enumerate(payloads, start=1):
        last = events[-1] if events else None
        event = AuditEvent(
            event_id=f"{key}.{name}.{(last.sequence if last else 0) + 1}",
            chain=last.chain if last else name,
            sequence=last.sequence + 1 if last else 1,
            prev=last.hash if last else genesis(key, name),
            hash=UNSEALED,
            event_type=payload.event_type,
            time=start + timedelta(seconds=number),
            correlation_id=key,
            request_key=key,
            incident_id="inc-1",
            payload=payload,
        )
        events.append(finished(event, signer))
    return events[1:] if after else events


def whole(key: str, length: int, **options: object) -> list[AuditEvent]:
    """A chain from its beginning to its end; at least two events."""
    middle = [decided(number) for number in range(length - 2)]
    return chain(key, [accepted(), *middle, complete(key)], **options)


def bodies(*chains: Sequence[AuditEvent]) -> list[bytes]:
    return [record_of(event).body for events in chains for event in events]


def facts(*keys: str, **more: object) -> AuditFacts:
    """There is a result for each of these."""
    results = {key: StoredResult(result_of(key), stored_at=LATER) for key in keys}
    return AuditFacts(**{"now": LATER, "results": results, **more})


def check(
    messages: Sequence[bytes], known: AuditFacts, keys: Sequence[SignatureCheck] = (), only: str = ""
) -> Report:
    reader = AuditCheck(keys, only=only)
    for position, message in enumerate(messages, start=1):
        reader.add(position, message)
    return reader.finish(known)
