"""The committed samples as models. They belong together: a container that is killed for its memory use, a first
remediation that failed, and the recovery."""

from __future__ import annotations

from schemas.analysis import AnalysisResult
from schemas.audit import AuditEvent
from schemas.export import samples
from schemas.failure import ValidationFailure
from schemas.incident import IncidentRequest
from schemas.outcome import RemediationOutcome
from schemas.recovery import RecoveryRequest

ALL = samples()
INCIDENT = IncidentRequest.model_validate(ALL["incident-request"])
RECOVERY = RecoveryRequest.model_validate(ALL["recovery-request"])
COMPLETED = AnalysisResult.model_validate(ALL["analysis-result-completed"])
REVIEW = AnalysisResult.model_validate(ALL["analysis-result-review"])
REJECTED = ValidationFailure.model_validate(ALL["validation-failure-request"])
OUTCOME = RemediationOutcome.model_validate(ALL["remediation-outcome"])
EVENTS = {
    event.event_type.value: event
    for event in sorted(
        (found for found in ALL.values() if isinstance(found, AuditEvent)), key=lambda event: event.sequence
    )
}
"""The chain of an analysis, by the type of the event."""
