"""The input of an approval policy, and how its decision is merged with the approval factors of the worker.

The field names of the input are those of the Rego input of ADR-055 and BR-AI-085; `action` has the form that
the safety-aware investigation passes to `validate_action(action)`.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from schemas import analysis
from schemas.enrichment import DETECTED_LABELS, DetectedLabels, camel_case
from schemas.incident import Signal
from schemas.taxonomy import UNKNOWN_ENVIRONMENT, Severity, normalize_risk
from worker.domain.cluster.detected_labels import UNKNOWN_LABELS
from worker.domain.intake.accepted import attempt_number, sent_enrichment, signal_resource
from worker.domain.untrusted.evidence import one_line
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.objects import ObjectRef
from worker.domain.values.ports import TrackRecords
from worker.domain.values.remediations import TrackRecord
from worker.domain.values.workflows import action_name
from worker.domain.verdict.approval.factors import FactorCode, factor, sentence, sentences
from worker.domain.verdict.verdict import Accepted, actionable

PRODUCTION = "production"
NOT_CORROBORATED = analysis.Corroboration(by=analysis.CorroborationSource.NONE)
MAX_TEXT_CHARS = 500
MAX_PARTS = 100
"""The most items of a list or map in the input; the rest is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """Everything that approval may depend on.

    `affected` is the resource with the root cause, `target` the resource of the signal, `acted_on` the one
    that the workflow changes. `approval_factors` are those of the verdict. `confidence` is 0 to 1, None when
    the answer gave none. `estimated_downtime_seconds` is None when it is unknown. `estimated_risk` is the
    model's estimate, `declared_risk` the catalog's declaration; each is empty if there is none. `unverified`
    says that the existence of `affected` could not be checked. `corroboration` says whether the state of the
    cluster confirms the answer, `parameter_origins` where the values of the workflow's parameters come from.
    """

    affected: ObjectRef
    target: ObjectRef
    acted_on: ObjectRef
    environment: str
    priority: str
    severity: str
    signal_type: str
    action_type: str
    confidence: float | None
    confidence_threshold: float
    detected_labels: DetectedLabels
    custom_labels: Mapping[str, Sequence[str]]
    warnings: Sequence[str] = ()
    approval_factors: Sequence[analysis.ApprovalFactor] = ()
    estimated_downtime_seconds: int | None = None
    estimated_risk: str = ""
    declared_risk: str = ""
    recovery_attempt: int | None = None
    injection_suspected: bool = False
    corroboration: analysis.Corroboration = NOT_CORROBORATED
    parameter_origins: Mapping[str, analysis.ParameterOrigin] = field(default_factory=dict)
    track_record: TrackRecord | None = None
    unverified: bool = False


def policy_facts(
    request: Signal,
    accepted: Accepted,
    *,
    labels: DetectedLabels | None,
    confidence_threshold: float,
    injection: bool,
    corroboration: analysis.Corroboration | None = None,
    origins: Mapping[str, analysis.ParameterOrigin] = MappingProxyType({}),
    records: TrackRecords | None = None,
) -> PolicyFacts:
    """The facts that approval may depend on. `labels` are those of the affected resource."""
    workflow, answered, sent = accepted.workflow, accepted.answer.selected_workflow, sent_enrichment(request)
    environment, action_type = decided_environment(request), workflow.action_type if workflow else ""
    downtime = workflow.estimated_downtime_seconds if workflow else None
    if downtime is None and answered is not None:
        downtime = answered.estimated_downtime_seconds
    return PolicyFacts(
        affected=actionable(accepted),
        target=signal_resource(request),
        acted_on=accepted.target or actionable(accepted),
        environment=environment,
        priority=request.priority,
        severity=accepted.severity,
        signal_type=accepted.signal_type,
        action_type=action_type,
        confidence=accepted.confidence,
        confidence_threshold=confidence_threshold,
        detected_labels=labels or UNKNOWN_LABELS,
        custom_labels=sent.custom_labels if sent else {},
        warnings=accepted.warnings,
        approval_factors=accepted.approval_factors,
        estimated_downtime_seconds=downtime,
        estimated_risk=answered.estimated_risk if answered else "",
        declared_risk=workflow.risk if workflow else "",
        recovery_attempt=attempt_number(request),
        injection_suspected=injection,
        corroboration=corroboration or NOT_CORROBORATED,
        parameter_origins=origins,
        track_record=records.of(action_type, environment) if records and action_type else None,
        unverified=accepted.unverified,
    )


def policy_input(facts: PolicyFacts) -> dict[str, Any]:
    """The `input` document of a policy evaluation, plain JSON.

    An unknown environment becomes `production`, so that policies which compare with that word fail closed. A
    confidence that was not given is 0. Labels whose detection failed are left out and named in
    `failed_detections`; an unknown downtime is left out too, since in Rego `null` is smaller than any number.

    Texts are redacted and bounded, because a server may evaluate the policy. If a list or map is cut, an
    approval factor says so: an item behind the cut could have required approval. `risk_factors` are the
    approval factors as sentences.
    """
    environment = facts.environment.strip().lower()
    seconds = facts.estimated_downtime_seconds
    downtime = {} if seconds is None else {"estimated_downtime_seconds": seconds}
    lists = (facts.warnings, facts.approval_factors, facts.custom_labels, *facts.custom_labels.values())
    cut = [factor(FactorCode.POLICY_INPUT_CUT)] if any(len(found) > MAX_PARTS for found in lists) else []
    factors = [*cut, *facts.approval_factors]
    declared, estimated = normalize_risk(facts.declared_risk), normalize_risk(facts.estimated_risk)
    whole = {
        "affected_resource": _resource(facts.affected),
        "remediation_target": _resource(facts.acted_on),
        "target_resource": _resource(facts.target),
        "environment": PRODUCTION if environment in {"", UNKNOWN_ENVIRONMENT} else environment,
        "priority": facts.priority,
        "business_priority": facts.priority,
        "severity": facts.severity,
        "signal_type": facts.signal_type,
        "confidence": facts.confidence or 0.0,
        "confidence_threshold": facts.confidence_threshold,
        "warnings": list(facts.warnings),
        "failed_detections": list(facts.detected_labels.failed_detections),
        "detected_labels": _known_labels(facts.detected_labels),
        "custom_labels": {name: list(values) for name, values in facts.custom_labels.items()},
        "approval_factors": [{"code": found.code, "detail": found.detail} for found in factors],
        "risk_factors": list(sentences(factors)),
        "action_type": facts.action_type,
        "action": {"action": action_name(facts.action_type), "risk_level": _risk_level(declared, estimated)}
        | downtime,
        "declared_risk": declared,
        "estimated_risk": estimated,
        "is_recovery_attempt": facts.recovery_attempt is not None,
        "recovery_attempt_number": facts.recovery_attempt or 0,
        "injection_detected": facts.injection_suspected,
        "injection_suspected": facts.injection_suspected,
        "corroboration": _corroboration(facts.corroboration),
        "track_record": asdict(facts.track_record) if facts.track_record else None,
        "parameter_origins": {name: str(origin) for name, origin in facts.parameter_origins.items()},
        "unverified": facts.unverified,
    }
    return {name: _bounded(value) for name, value in (whole | downtime).items()}


def _risk_level(declared: str, estimated: str) -> str:
    """The higher of both.

    A low estimate of the model alone does not count, because it would let a workflow pass by the model's
    word.
    """
    if not declared and estimated == "low":
        return ""
    return max(declared, estimated, key=("", "low", "medium", "high").index)


def _bounded(value: Any) -> Any:
    """The value with its texts redacted, each on one bounded line."""
    if isinstance(value, str):
        return one_line(redact(value), MAX_TEXT_CHARS)
    if isinstance(value, list):
        return [_bounded(part) for part in value[:MAX_PARTS]]
    if isinstance(value, dict):
        parts = itertools.islice(value.items(), MAX_PARTS)
        return {_bounded(name): _bounded(part) for name, part in parts}
    return value


def merge_approval(
    policy: analysis.Approval, factors: Sequence[analysis.ApprovalFactor]
) -> analysis.Approval:
    """The policy's decision and the approval factors of the worker, each of which requires approval.

    A reason of the policy becomes a factor too, unless it is the sentence of a factor that it was given.
    """
    own = sentences(factors)
    told = [factor(FactorCode.POLICY_DECISION, reason) for reason in policy.reasons if reason not in own]
    return analysis.Approval(
        required=policy.required or bool(factors),
        reasons=tuple(dict.fromkeys((*policy.reasons, *own))),
        factors=tuple(dict.fromkeys((*(policy.factors or told), *factors))),
        risk_factors=policy.risk_factors,
    )


def _corroboration(found: analysis.Corroboration) -> dict[str, Any]:
    return {**found.model_dump(mode="json"), "object": _resource(found.object or ObjectRef("", ""))}


def observed(approval: analysis.Approval) -> analysis.Approval:
    """The approval that observe mode publishes.

    It is required, and says what the policy would have decided otherwise.
    """
    mode = factor(FactorCode.OBSERVE_MODE)
    return analysis.Approval(
        required=True,
        reasons=(sentence(mode), *approval.reasons),
        factors=(mode, *approval.factors),
        risk_factors=approval.risk_factors,
        would_require=approval.required,
        would_reasons=approval.reasons,
    )


def _resource(ref: ObjectRef | analysis.AffectedResource) -> dict[str, str]:
    return {name: getattr(ref, name) for name in analysis.AffectedResource.model_fields}


def _known_labels(labels: DetectedLabels) -> dict[str, Any]:
    """Labels that are known, in both spellings: policies exist in either."""
    known = {name: getattr(labels, name) for name in DETECTED_LABELS if not labels.is_unknown(name)}
    return known | {camel_case(name): value for name, value in known.items()}


def decided_environment(request: Signal) -> str:
    """The environment a policy is asked about, in lower case.

    It is production if the request and its safety context disagree.
    """
    environment, safety = request.environment.strip().lower(), request.safety_context
    other = safety.environment.strip().lower() if safety else ""
    return environment if other in {"", environment} else PRODUCTION


EXAMPLE = PolicyFacts(
    affected=ObjectRef("Deployment", "api", "shop", "apps/v1"),
    target=ObjectRef("Pod", "api-7d9f8b6c5-x2x4z", "shop", "v1"),
    acted_on=ObjectRef("Deployment", "api", "shop", "apps/v1"),
    environment="production",
    priority="P1",
    severity=Severity.HIGH,
    signal_type="OOMKilled",
    action_type="RestartDeployment",
    confidence=0.93,
    confidence_threshold=0.8,
    detected_labels=DetectedLabels(pdb_protected=True, failed_detections=("hpaEnabled",)),
    custom_labels={"team": ("payments",)},
    warnings=("the memory limit was raised an hour ago",),
    estimated_downtime_seconds=10,
    estimated_risk="low",
    declared_risk="low",
    corroboration=analysis.Corroboration(
        by=analysis.CorroborationSource.RULES,
        object=analysis.AffectedResource(
            kind="Deployment", name="api", namespace="shop", api_version="apps/v1"
        ),
        finding="stale_configuration",
        reason="The containers of Deployment shop/api started before ConfigMap shop/api changed.",
    ),
    parameter_origins={"TARGET_RESOURCE_NAME": analysis.ParameterOrigin.CODE},
    track_record=TrackRecord(proposed=14, succeeded=12, failed=1),
)
RECORD = frozenset(f"track_record.{name}" for name in ("proposed", "succeeded", "failed"))
SOMETIMES = RECORD | {"estimated_downtime_seconds", "action.estimated_downtime_seconds"}
"""Left out when unknown; the whole `track_record` is then null."""
OPEN_MAPS = frozenset({"custom_labels", "parameter_origins"})
"""May have any key."""
LABELS = "detected_labels"
"""Has only the labels that are known, each in both spellings."""


def example_input() -> dict[str, Any]:
    """The `input` for a restart in production."""
    return policy_input(EXAMPLE)


def unknown_fields(document: Mapping[str, Any]) -> list[str]:
    """Fields that no input has, each with the field that may have been meant."""
    spellings = (f"{LABELS}.{spelt}" for name in DETECTED_LABELS for spelt in (name, camel_case(name)))
    known = [*_paths(example_input()), *spellings]
    return [_suspected(path, known) for path in _paths(document) if path not in known]


def missing_fields(document: Mapping[str, Any]) -> list[str]:
    """Fields that every input has and the document lacks; of a missing object, only the object itself."""
    there = set(_paths(document))
    wanted = (path for path in _paths(example_input()) if not path.startswith(f"{LABELS}."))
    missing = [path for path in wanted if path not in there | SOMETIMES]
    return [path for path in missing if path.rpartition(".")[0] not in missing]


def _paths(document: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in document.items():
        path = f"{above}{name}"
        yield path
        if isinstance(value, dict) and path not in OPEN_MAPS:
            yield from _paths(value, f"{path}.")


def _suspected(path: str, known: list[str]) -> str:
    near = difflib.get_close_matches(path, known, n=1)
    return f"{path} (did you mean {near[0]}?)" if near else path
