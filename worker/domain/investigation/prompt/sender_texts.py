"""The free text of the sender that the prompt shows: hostile, so it is searched for planted instructions.

Typed fields (identifiers, names, levels, labels that were detected) and what the sender repeats of our own
earlier results are not part of it.
"""

from __future__ import annotations

from schemas.incident import Signal
from schemas.recovery import RecoveryRequest
from worker.domain.investigation.prompt.sections import pairs
from worker.domain.untrusted.evidence import Evidence
from worker.domain.untrusted.redaction.redact import redact

SENDER = "sender"


def free_texts(request: Signal) -> tuple[Evidence, ...]:
    """Each free text of the request, redacted; its id is the path of the field. Empty fields are left out."""
    fields = {
        "signal_type": request.signal_type,
        "error_message": request.error_message,
        "description": request.description,
        "signal_labels": pairs(request.signal_labels),
        "signal_annotations": pairs(request.signal_annotations),
    }
    if isinstance(request, RecoveryRequest):
        fields["previous_execution.failure.message"] = request.previous_execution.failure.message
    return tuple(Evidence(SENDER, name, redact(text), id=name) for name, text in fields.items() if text)
