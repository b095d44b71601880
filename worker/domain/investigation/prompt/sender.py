"""The sender's texts that the prompt shows, by field, so that they can be searched for instructions to the model."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.enrichment import EnrichmentResults
from schemas.incident import Signal
from schemas.recovery import RecoveryRequest
from worker.domain.intake.context import sent_enrichment
from worker.domain.investigation.prompt.incident import shown_safety_context
from worker.domain.investigation.prompt.recovery import first_factors, first_parameters
from worker.domain.investigation.prompt.sections import (
    custom_filters,
    known_filters,
    pairs,
    resource_path,
    storm_resources,
)
from worker.domain.untrusted.evidence import Evidence
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.tokens import cut_middle

SENDER_TOKENS = 800
"""For each text: more than the prompt ever shows of it."""


def sender_texts(request: Signal) -> tuple[Evidence, ...]:
    """At least what the model is shown of each text of the sender; the id is the path of the field.

    Texts are redacted before they are cut, as in the prompt: otherwise the two would not hold the same part.
    """
    return tuple(
        Evidence("sender", name, cut_middle(redact(text), SENDER_TOKENS).text, id=name)
        for name, text in sender_fields(request, sent_enrichment(request)).items()
    )


def sender_fields(request: Signal, sent: EnrichmentResults | None) -> Mapping[str, str]:
    """Uncut texts by the path of their field. `sent` is the enrichment of the sender. Empty fields are left out."""
    fields = {
        "signal_type": request.signal_type,
        "signal_source": request.signal_source,
        "resource": f"{resource_path(request)} {request.resource_api_version}",
        "error_message": request.error_message,
        "description": request.description,
        "environment": request.environment,
        "risk_tolerance": request.risk_tolerance or "",
        "business_category": request.business_category or "",
        "cluster_name": request.cluster_name,
        "storm_window": request.storm_window,
        "affected_resources": storm_resources(request),
        "signal_labels": pairs(request.signal_labels),
        "signal_annotations": pairs(request.signal_annotations),
        "safety_context": shown_safety_context(request.safety_context) if request.safety_context else "",
        **_enrichment(sent),
        **(_previous(request) if isinstance(request, RecoveryRequest) else {}),
    }
    return {name: text for name, text in fields.items() if text}


def _enrichment(sent: EnrichmentResults | None) -> dict[str, str]:
    if sent is None:
        return {}
    detected = known_filters(sent.detected_labels).values()
    return {
        "enrichment_results.custom_labels": custom_filters(sent.custom_labels) if sent.custom_labels else "",
        "enrichment_results.detected_labels": "\n".join(v for v in detected if isinstance(v, str)),
    }


def _previous(request: RecoveryRequest) -> dict[str, str]:
    previous = request.previous_execution
    rca, workflow, failure = previous.original_rca, previous.selected_workflow, previous.failure
    fields = {
        "original_rca.signal_type": rca.signal_type,
        "original_rca.summary": rca.summary,
        "original_rca.contributing_factors": first_factors(request),
        "selected_workflow.workflow_id": workflow.workflow_id,
        "selected_workflow.version": workflow.version,
        "selected_workflow.container_image": workflow.container_image,
        "selected_workflow.rationale": workflow.rationale,
        "selected_workflow.parameters": first_parameters(request),
        "failure.failed_step_name": failure.failed_step_name,
        "failure.reason": failure.reason,
        "failure.message": failure.message,
        "failure.execution_time": failure.execution_time,
    }
    return {f"previous_execution.{name}": text for name, text in fields.items()}
