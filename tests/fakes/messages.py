"""Small valid messages of the contract, to be varied by the tests."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime
from typing import Any

from schemas.analysis import AnalysisResult, Approval, HumanReviewReason, Status
from schemas.audit import AuditEvent, EventType, RequestResumed
from schemas.chain import UNSEALED, genesis, sealed
from schemas.failure import DeadLetter, DeadLetterReason, FieldError, ValidationCode, ValidationFailure
from schemas.subjects import request_key
from schemas.taxonomy import RequestKind

NOON = datetime(2026, 6, 4, 12, 0, tzinfo=UTC)


def new_id() -> str:
    return uuid.uuid4().hex


def review_result(remediation_id: str, attempt: int | None = None, **fields: Any) -> AnalysisResult:
    """A result that wants a person to look; of a recovery when there is an attempt."""
    recovery = attempt is not None
    only_recovery = {"recovery_attempt_number": attempt, "can_recover": False, "analysis_confidence": 0.0}
    values = {
        "kind": RequestKind.RECOVERY if recovery else RequestKind.INCIDENT,
        "incident_id": "inc-1",
        "remediation_id": remediation_id,
        "status": Status.NEEDS_HUMAN_REVIEW,
        "needs_human_review": True,
        "human_review_reason": HumanReviewReason.INVESTIGATION_INCONCLUSIVE,
        "approval": Approval(required=True),
        "request_digest": hashlib.sha256(b"request").hexdigest(),
        "completed_at": NOON,
        "is_recovery_attempt": recovery,
        **(only_recovery if recovery else {}),
    }
    return AnalysisResult(**{**values, **fields})


def resumed_event(remediation_id: str, event_id: str, sequence: int = 1) -> AuditEvent:
    event = AuditEvent(
        event_id=event_id,
        chain="r",
        sequence=sequence,
        prev=genesis(request_key(remediation_id), "r"),
        hash=UNSEALED,
        event_type=EventType.REQUEST_RESUMED,
        time=NOON,
        correlation_id=remediation_id,
        request_key=request_key(remediation_id),
        incident_id="inc-1",
        payload=RequestResumed(run="r", replayed_steps=0, deliveries=1),
    )
    return sealed(event)


def refused(origin_sequence: int, **fields: Any) -> ValidationFailure:
    values = {
        "code": ValidationCode.SCHEMA,
        "errors": (FieldError(path="severity", expected="critical, high, medium, low, unknown"),),
        "origin_stream": "RCA_REQUESTS",
        "origin_sequence": origin_sequence,
        "origin_subject": "rca.request.incident",
        "failed_at": NOON,
    }
    return ValidationFailure(**{**values, **fields})


def dead(origin_sequence: int, error: str = "boom") -> DeadLetter:
    return DeadLetter(
        reason=DeadLetterReason.INTERNAL_ERROR,
        origin_stream="RCA_REQUESTS",
        origin_sequence=origin_sequence,
        origin_subject="rca.request.incident",
        deliveries=3,
        error=error,
    )
