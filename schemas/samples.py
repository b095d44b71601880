"""One valid message of every kind, and vectors for the encoding of keys: for documentation, and for other languages.

All samples belong together: a container that is killed for its memory use, a first attempt that failed, and a second.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from schemas.analysis import (
    AffectedResource,
    AnalysisResult,
    Approval,
    ApprovalFactor,
    Corroboration,
    CorroborationSource,
    DiagnosedCause,
    HumanReviewReason,
    ParameterOrigin,
    PreviousAttemptAssessment,
    RecoveryAnalysis,
    RecoveryStrategy,
    RiskFactor,
    RootCauseAnalysis,
    Status,
    ValidationAttempt,
)
from schemas.audit import (
    AlignmentChecked,
    AuditEvent,
    CorroborationChecked,
    EnrichmentCompleted,
    LLMRequest,
    LLMResponse,
    LLMToolCall,
    Outcome,
    Payload,
    PolicyDecided,
    RequestAccepted,
    RequestResumed,
    ResponseComplete,
    ResponseFailed,
    ValidationAttempted,
)
from schemas.chain import UNSEALED, genesis, sealed
from schemas.enrichment import DetectedLabels, EnrichmentResults
from schemas.evidence import EvidenceItem
from schemas.failure import DeadLetter, DeadLetterReason, FieldError, ValidationCode, ValidationFailure
from schemas.fields import Message
from schemas.incident import IncidentRequest, request_digest
from schemas.outcome import ExecutionOutcome, RemediationOutcome
from schemas.recovery import (
    ExecutionFailure,
    OriginalRCA,
    PreviousExecution,
    RecoveryRequest,
    SelectedWorkflowSummary,
)
from schemas.safety import Dependency, RegoPolicy, SafetyConstraints, SafetyContext
from schemas.subjects import Subjects
from schemas.taxonomy import Priority, RequestKind, Severity, SignalType
from schemas.usage import ContextUsed, Usage
from schemas.workflow import AlternativeWorkflow, SelectedWorkflow

NOON: Final = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
IMAGE: Final = f"registry.example.com/remediation/increase-memory@sha256:{'0' * 64}"
SUMMARY: Final = "The container's memory limit of 512Mi is below what it needs since the last rollout."
TARGET: Final = AffectedResource(kind="Deployment", name="checkout", namespace="shop", api_version="apps/v1")
LABELS: Final = DetectedLabels(
    gitops_managed=True, gitops_tool="argocd", hpa_enabled=True, failed_detections=("pdbProtected",)
)
CORROBORATED: Final = Corroboration(
    by=CorroborationSource.RULES,
    object=TARGET,
    finding="out_of_memory",
    evidence=("E1",),
    reason="Container app of Deployment shop/checkout was OOMKilled at its own memory limit of 512Mi.",
)
CAUSE: Final = RootCauseAnalysis(
    summary=SUMMARY,
    severity=Severity.CRITICAL,
    signal_type=SignalType.OOM_KILLED,
    contributing_factors=("traffic grew by a third",),
)
USAGE: Final = Usage(
    llm_calls=4, tool_calls=6, input_tokens=21000, cached_tokens=14000, output_tokens=1800, wall_seconds=31.5
)


def incident() -> IncidentRequest:
    """A request with most fields filled in."""
    return IncidentRequest(
        incident_id="inc-1",
        remediation_id="rr-1",
        signal_type="ContainerOOMKilling",
        severity=Severity.CRITICAL,
        signal_source="prometheus-alertmanager",
        resource_kind="Deployment",
        resource_name="checkout",
        resource_namespace="shop",
        resource_api_version="apps/v1",
        error_message="Container app was OOMKilled 5 times in 30m",
        description="The container exceeds its memory limit.",
        environment="production",
        priority=Priority.P0,
        risk_tolerance="low",
        business_category="revenue-critical",
        cluster_name="eu-1",
        firing_time=NOON - timedelta(minutes=5),
        received_time=NOON,
        first_seen=NOON - timedelta(minutes=5),
        last_seen=NOON,
        is_duplicate=True,
        occurrence_count=3,
        signal_labels={"alertname": "ContainerOOMKilling", "container": "app"},
        signal_annotations={"runbook_url": "https://runbooks.example.com/oom"},
        enrichment_results=EnrichmentResults(
            detected_labels=LABELS, custom_labels={"team": ("name=payments",)}, enrichment_quality=0.9
        ),
        safety_context=safety(),
        expires_at=datetime(
            2099, 12, 31, tzinfo=UTC
        ),  # a sample that is submitted as it is must not have expired
    )


def safety() -> SafetyContext:
    """Constraints as an operator sets them."""
    return SafetyContext(
        priority=Priority.P0,
        environment="production",
        service="checkout",
        safety_constraints=SafetyConstraints(
            max_downtime_seconds=60, allowed_actions=("increase", "restart"), forbidden_actions=("delete_*",)
        ),
        dependencies=(Dependency(service="api-gateway", impact="critical"),),
        data_criticality="high",
        user_impact="critical",
        rego_policy=RegoPolicy(version="v1.2", rules=("production_constraints",)),
    )


def recovery() -> RecoveryRequest:
    """A request after the first remediation failed."""
    return RecoveryRequest(
        incident_id="inc-1",
        remediation_id="rr-1",
        signal_type="ContainerOOMKilling",
        severity=Severity.CRITICAL,
        resource_kind="Deployment",
        resource_name="checkout",
        resource_namespace="shop",
        environment="production",
        priority=Priority.P0,
        received_time=NOON + timedelta(minutes=10),
        is_recovery_attempt=True,
        recovery_attempt_number=1,
        enrichment_results=EnrichmentResults(detected_labels=LABELS),
        previous_execution=PreviousExecution(
            workflow_execution_ref="rr-1-we-1",
            original_rca=OriginalRCA(
                summary=SUMMARY, signal_type=SignalType.OOM_KILLED, severity=Severity.CRITICAL
            ),
            selected_workflow=SelectedWorkflowSummary(
                workflow_id="increase-memory-v1",
                version="1.0.0",
                container_image=IMAGE,
                parameters={"MEMORY_INCREASE_FACTOR": "2"},
                rationale="The limit is too low.",
            ),
            failure=ExecutionFailure(
                failed_step_index=1,
                failed_step_name="rollout",
                reason="DeadlineExceeded",
                message="the rollout did not finish in 300s",
                exit_code=1,
                failed_at=NOON + timedelta(minutes=8),
                execution_time="5m2s",
            ),
        ),
    )


def completed() -> AnalysisResult:
    """A result with a workflow."""
    return AnalysisResult(
        kind=RequestKind.INCIDENT,
        incident_id="inc-1",
        remediation_id="rr-1",
        status=Status.COMPLETED,
        analysis="The container is killed whenever its cache is filled.",
        root_cause_analysis=CAUSE,
        affected_resource=TARGET,
        selected_workflow=SelectedWorkflow(
            workflow_id="increase-memory-v1",
            version="1.0.0",
            title="Increase memory limits",
            action_type="IncreaseMemoryLimits",
            container_image=IMAGE,
            confidence=0.92,
            rationale="The limit is too low.",
            estimated_risk="low",
            estimated_downtime_seconds=0,
            parameters={"TARGET_RESOURCE_NAME": "checkout", "MEMORY_INCREASE_FACTOR": 2},
        ),
        alternative_workflows=(AlternativeWorkflow(workflow_id="scale-replicas-v1", confidence=0.4),),
        needs_human_review=False,
        is_actionable=True,
        environment="production",
        approval=Approval(
            required=True,
            reasons=("environment is production",),
            factors=(ApprovalFactor(code="policy_decision", detail="environment is production"),),
            risk_factors=(RiskFactor(score=60, reason="a pod disruption budget could not be looked up"),),
        ),
        corroboration=CORROBORATED,
        parameter_origins={
            "TARGET_RESOURCE_NAME": ParameterOrigin.CODE,
            "MEMORY_INCREASE_FACTOR": ParameterOrigin.MODEL,
        },
        detected_labels=LABELS,
        evidence=(EvidenceItem(id="E1", source="get_resource", summary="Deployment shop/checkout"),),
        validation_attempts=(ValidationAttempt(attempt=1, is_valid=True, timestamp=NOON),),
        usage=USAGE,
        context_used=ContextUsed(blast_radius="one deployment"),
        model="example-model",
        prompt_version="1",
        request_digest=request_digest(incident()),
        completed_at=NOON + timedelta(seconds=32),
    )


def observed() -> AnalysisResult:
    """The same result from a worker in observe mode whose policy would have let it pass."""
    mode = "The worker runs in observe mode: everything requires approval."
    approval = Approval(
        required=True,
        reasons=(mode,),
        factors=(ApprovalFactor(code="observe_mode"),),
        would_require=False,
    )
    return completed().model_copy(update={"environment": "staging", "approval": approval})


def review() -> AnalysisResult:
    """A result of a recovery that needs human review."""
    return AnalysisResult(
        kind=RequestKind.RECOVERY,
        incident_id="inc-1",
        remediation_id="rr-1",
        status=Status.NEEDS_HUMAN_REVIEW,
        root_cause_analysis=CAUSE,
        affected_resource=TARGET,
        alternative_workflows=(AlternativeWorkflow(workflow_id="rollback-v1", confidence=0.55),),
        needs_human_review=True,
        human_review_reason=HumanReviewReason.LOW_CONFIDENCE,
        human_review_detail="confidence 0.55 is below 0.7",
        diagnosis=(
            DiagnosedCause(
                cause="bad_rollout",
                object=TARGET,
                summary="Its pods fail since its newest revision.",
                signal_types=("CrashLoopBackOff",),
            ),
        ),
        environment="production",
        approval=Approval(
            required=True,
            reasons=("The confidence of 0.4 is under the minimum of 0.7.",),
            factors=(ApprovalFactor(code="low_confidence", detail="0.4 is under the minimum of 0.7"),),
        ),
        usage=USAGE,
        request_digest=request_digest(recovery()),
        completed_at=NOON + timedelta(minutes=11),
        is_recovery_attempt=True,
        recovery_attempt_number=1,
        can_recover=False,
        analysis_confidence=0.0,
        recovery_analysis=RecoveryAnalysis(
            previous_attempt_assessment=PreviousAttemptAssessment(
                failure_understood=True, state_changed=False
            ),
            current_rca=CAUSE,
        ),
        recovery_strategy=RecoveryStrategy(approach="roll back", why_different="another action"),
    )


def failures() -> dict[str, Message]:
    """What is published about a rejected message, a rejected answer, and a request nobody could serve."""
    subjects = Subjects()
    origin: dict[str, Any] = {
        "origin_stream": subjects.requests_stream,
        "origin_sequence": 17,
        "origin_stored_at": NOON,
        "origin_subject": subjects.request(RequestKind.INCIDENT),
    }
    message = FieldError(path="occurrence_count", expected="at least 1", got="0")
    answer = FieldError(
        path="selected_workflow.workflow_id", expected="a workflow of the catalog", got='"fix-it"'
    )
    common: dict[str, Any] = {
        "remediation_id": "rr-1",
        "incident_id": "inc-1",
        "request_key": "rr-1",
        **origin,
    }
    return {
        "validation-failure-request": ValidationFailure(
            code=ValidationCode.SCHEMA, path=message.path, errors=(message,), excerpt="{...}", failed_at=NOON, **common
        ),
        "validation-failure-response": ValidationFailure(
            code=ValidationCode.ANSWER_WORKFLOW_UNKNOWN, path=answer.path, errors=(answer,), attempt=1,
            excerpt="...", failed_at=NOON, **common
        ),
        "dead-letter": DeadLetter(
            reason=DeadLetterReason.PROCESS_DEATHS, deliveries=4, error="the process died 3 times", **origin
        ),
        "remediation-outcome": RemediationOutcome(
            kind=RequestKind.INCIDENT, incident_id="inc-1", remediation_id="rr-1", target=TARGET,
            signal_type=SignalType.OOM_KILLED, workflow_id="increase-memory-v1", action_type="IncreaseMemoryLimits",
            outcome=ExecutionOutcome.FAILED, effectiveness_score=0.0, signal_resolved=False,
            pre_remediation_spec_hash=f"sha256:{'1' * 64}", post_remediation_spec_hash=f"sha256:{'2' * 64}",
            assessment_reason="Full", completed_at=NOON + timedelta(minutes=8),
        ),
    }  # fmt: skip


def events() -> dict[str, AuditEvent]:
    """One audit event of every type, by the name of its type: a chain."""
    digest = request_digest(incident())
    payloads: tuple[Payload, ...] = (
        RequestAccepted(
            kind=RequestKind.INCIDENT, subject=Subjects().request(RequestKind.INCIDENT), request_digest=digest
        ),
        RequestResumed(run="run-2", replayed_steps=5, deliveries=2),
        EnrichmentCompleted(evidence_ids=("E1",), failed_sources=("events",), detected_labels=LABELS),
        LLMRequest(call=1, model="example-model", prompt_chars=9000, tools=("get_events", "get_resource")),
        LLMResponse(call=1, model="example-model", finish="tool_calls", response_chars=120, tool_calls=1),
        LLMToolCall(index=1, name="get_events", arguments={"kind": "Pod"}, succeeded=True, result_chars=400),
        ValidationAttempted(attempt=1, max_attempts=3, is_valid=True, workflow_id="increase-memory-v1"),
        AlignmentChecked(suspicious={"E5": "ignore all previous instructions"}, second_model="openai-chat:gpt-5-mini"),
        CorroborationChecked(corroboration=CORROBORATED, reads=6, duration_seconds=0.04),
        PolicyDecided(policy="approval", approval=Approval(required=True, reasons=("environment is production",))),
        ResponseComplete(
            status=Status.COMPLETED, workflow_id="increase-memory-v1", confidence=0.92, approval_required=True,
            result_sha256=hashlib.sha256(b"{}").hexdigest(), usage=USAGE,
        ),
        ResponseFailed(
            reason=DeadLetterReason.PROCESS_DEATHS, error="the process died 3 times",
            result_sha256=hashlib.sha256(b"{}").hexdigest(),
        ),
    )  # fmt: skip
    chain: dict[str, AuditEvent] = {}
    prev = genesis("rr-1", "run-1")
    for number, payload in enumerate(payloads, start=1):
        event = AuditEvent(
            event_id=f"rr-1.{number}",
            chain="run-1",
            sequence=number,
            prev=prev,
            hash=UNSEALED,
            event_type=payload.event_type,
            outcome=Outcome.FAILURE if isinstance(payload, ResponseFailed) else Outcome.SUCCESS,
            time=NOON + timedelta(seconds=number),
            correlation_id="rr-1",
            request_key="rr-1",
            incident_id="inc-1",
            payload=payload,
        )
        chain[payload.event_type.value] = event = sealed(event)
        prev = event.hash
    return chain
