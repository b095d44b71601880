"""The outcome of a remediation, published by its executor and read as remediation history."""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import StringConstraints

from schemas.analysis import AffectedResource
from schemas.fields import Flag, Fraction, Id, Message, NonBlank, Positive, ShortText, Timestamp
from schemas.subjects import request_key
from schemas.taxonomy import RequestKind

SpecHash = Annotated[str, StringConstraints(strict=True, pattern=r"^sha256:[0-9a-f]{64}$")]
"""Hash of the spec of a resource (DD-EM-002)."""


class ExecutionOutcome(enum.StrEnum):
    """How an execution can end."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RemediationOutcome(Message):
    """`rca.outcome.<request key>`: what the executed workflow did."""

    kind: RequestKind
    """The kind of the request that was analysed."""
    incident_id: Id
    """As in the request."""
    remediation_id: Id
    """As in the request."""
    recovery_attempt_number: Positive | None = None
    """As in the request; only for a recovery."""
    target: AffectedResource
    """The object on which the workflow acted."""
    signal_type: ShortText = ""
    """The signal type of the analysis."""
    workflow_id: NonBlank
    """Id of the workflow that was executed."""
    action_type: ShortText = ""
    """Action type of the workflow."""
    outcome: ExecutionOutcome
    """How the execution ended."""
    effectiveness_score: Fraction | None = None
    """How well the workflow helped, 0 to 1; null if not assessed."""
    signal_resolved: Flag | None = None
    """Whether the signal went away; null if not assessed."""
    pre_remediation_spec_hash: SpecHash | None = None
    """Hash of the target's spec before the execution."""
    post_remediation_spec_hash: SpecHash | None = None
    """Hash of the target's spec after the execution."""
    side_effects: tuple[ShortText, ...] = ()
    """Side effects that were observed."""
    assessment_reason: ShortText = ""
    """How the assessment ended, such as `Full`, `Partial` or `SpecDrift`."""
    completed_at: Timestamp
    """When the execution ended."""
    assessed_at: Timestamp | None = None
    """When the effect was assessed."""

    @property
    def request_key(self) -> str:
        """Key of the request in subjects."""
        return request_key(self.remediation_id, self.recovery_attempt_number)
