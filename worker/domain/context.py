"""What a request says, in the terms of the checks: labels of the search, names it mentions, what failed before."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.enrichment import EnrichmentResults
from schemas.incident import IncidentRequest, Signal
from schemas.recovery import RecoveryRequest
from schemas.taxonomy import UNKNOWN_ENVIRONMENT
from worker.domain.budget import cut_middle
from worker.domain.evidence import Evidence
from worker.domain.objects import ObjectRef
from worker.domain.repetition import FailedExecution
from worker.domain.workflow import SelectionContext

SENDER_TOKENS = 250
"""The most that the prompt shows of one text of the sender."""


def base_context(request: Signal) -> SelectionContext:
    """Labels that come from the request and that the model cannot override. What was not given constrains nothing."""
    sent = sent_enrichment(request)
    return SelectionContext(
        environment="" if request.environment == UNKNOWN_ENVIRONMENT else request.environment,
        priority=request.priority,
        risk_tolerance=request.risk_tolerance or "",
        business_category=request.business_category or "",
        cluster=request.cluster_name,
        custom_labels=sent.custom_labels if sent else {},
    )


def sent_enrichment(request: Signal) -> EnrichmentResults | None:
    """What the sender found out, if it sent anything."""
    return request.enrichment_results if isinstance(request, IncidentRequest | RecoveryRequest) else None


def signal_resource(request: Signal) -> ObjectRef:
    """The resource the signal is about."""
    namespace = "" if request.is_cluster_scoped else request.resource_namespace
    return ObjectRef(request.resource_kind, request.resource_name, namespace, request.resource_api_version)


def requested_names(request: Signal) -> frozenset[str]:
    """Names of objects the request itself mentions: as resource, or as a word of its texts."""
    words = {request.resource_name, request.resource_namespace}
    for text in (request.error_message, request.description, *request.signal_labels.values()):
        words.update(word.strip(".,:;()[]{}\"'`") for word in text.replace("/", " ").split())
    return frozenset(words - {""})


def sender_texts(request: Signal) -> tuple[Evidence, ...]:
    """What the sender wrote freely, as far as the model is shown it; the id is the field's name."""
    texts = {
        "signal_type": request.signal_type,
        "error_message": request.error_message,
        "description": request.description,
        "signal_labels": _lines(request.signal_labels),
        "signal_annotations": _lines(request.signal_annotations),
    }
    if isinstance(request, RecoveryRequest):
        texts["previous_execution.failure.message"] = request.previous_execution.failure.message
    return tuple(
        Evidence("sender", name, cut_middle(text, SENDER_TOKENS).text, id=name)
        for name, text in texts.items()
        if text
    )


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={value}" for name, value in values.items())


def failed_execution(request: Signal) -> FailedExecution | None:
    """The workflow that failed before, for a recovery."""
    if not isinstance(request, RecoveryRequest):
        return None
    failed = request.previous_execution.selected_workflow
    return FailedExecution(failed.workflow_id, failed.parameters)


def attempt_number(request: Signal) -> int | None:
    """Which recovery attempt this is; None for an incident."""
    return request.recovery_attempt_number if isinstance(request, RecoveryRequest) else None
