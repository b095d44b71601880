"""The sections about the incident: summary, impact, the signal, and its origin.

Sources: ADR-041, and section 4 of the handoff.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas.enrichment import DETECTED_LABELS, DetectedLabels
from schemas.incident import Signal
from schemas.taxonomy import Priority
from worker.domain.cluster.fields import stamp
from worker.domain.untrusted.evidence import one_line
from worker.domain.untrusted.redaction.redact import redact

SHOWN_LABELS, SHOWN_CUSTOM = 30, 10

FLAG_TEXT = {
    "pdb_protected": "A PodDisruptionBudget protects this workload. Workflows must respect it.",
    "hpa_enabled": (
        "A HorizontalPodAutoscaler is active. Manual scaling may conflict with it - prefer HPA-aware workflows."
    ),
    "stateful": "This is a STATEFUL workload (StatefulSet or with claims). Use stateful-aware workflows.",
    "helm_managed": "This resource is managed by Helm. Consider Helm-compatible workflows.",
    "network_isolated": "A NetworkPolicy restricts its traffic. Workflows may need network exceptions.",
    "resource_quota_constrained": (
        "A ResourceQuota limits its namespace. More replicas or larger requests may be refused."
    ),
}
LEVEL_TEXT = {
    "restricted": "Pod Security Standard is RESTRICTED. Workflows must not require privileged access.",
    "baseline": "Pod Security Standard is baseline. Workflows must not require privileged access.",
    "privileged": "Pod Security Standard is privileged: pod security restricts nothing here.",
}


def cluster(request: Signal, sender: Callable[[str, str], str]) -> str:
    """The name of the cluster, labels and annotations of the signal; empty if there are none.

    Labels that the summary states are left out.
    """
    lines = []
    if request.cluster_name:
        lines.append(f"- Cluster: {word(request.cluster_name)}")
    stated = stated_labels(request)
    if labels := {name: v for name, v in request.signal_labels.items() if stated.get(name) != v}:
        lines.append(f"- Signal Labels:\n{sender('signal_labels', pairs(labels))}")
    if request.signal_annotations:
        lines.append(
            f"- Signal Annotations:\n{sender('signal_annotations', pairs(request.signal_annotations))}"
        )
    return "\n".join(["## Cluster Context", *lines]) if lines else ""


def stated_labels(request: Signal) -> dict[str, str]:
    """Labels as alerts use them for what the incident summary states."""
    return {
        "alertname": request.signal_type,
        "severity": request.severity,
        "environment": request.environment,
        "priority": request.priority,
        "namespace": request.resource_namespace,
        request.resource_kind.lower(): request.resource_name,
    }


def business(request: Signal) -> str:
    """Values that code passes to the workflow search as they are; they are no input to the root cause."""
    return "\n".join(
        [
            "## Business Context (for the workflow search, not for the root cause)",
            f"- Business Category: {word(request.business_category or NOT_SPECIFIED)}",
        ]
    )


def environment(
    labels: DetectedLabels | None,
    custom: Mapping[str, Sequence[str]],
    shown: Callable[[str, str], str],
    *,
    told: bool,
) -> str:
    """Detected characteristics in words.

    If `told`, also the labels of a workflow search as JSON (handoff, section 4).
    """
    lines = ["## Cluster Environment Characteristics (auto-detected for the signal's resource)"]
    lines += characteristics(labels)
    parts: list[str] = []
    if not told:
        return "\n".join(lines)
    if known := known_filters(labels):
        parts.append(f'"filters": {_json(known)}')
    if custom:
        parts.append(f'"custom_labels": {shown("custom_labels", custom_filters(custom))}')
    if parts:
        lines.append(
            f"Arguments of a workflow search by tools of other servers, to give unchanged: {{{', '.join(parts)}}}"
        )
    return "\n".join(lines)


def known_filters(labels: DetectedLabels | None) -> dict[str, bool | str]:
    """Detected labels by their names in filters.

    What is unknown or has no value is left out: it filters nothing.
    """
    if labels is None:
        return {}
    values = {name: getattr(labels, name) for name in DETECTED_LABELS if not labels.is_unknown(name)}
    return {
        name: value if isinstance(value, bool) else word(value)
        for name, value in values.items()
        if value != ""
    }


def custom_filters(custom: Mapping[str, Sequence[str]]) -> str:
    """The first labels of the customer as JSON."""
    first = list(custom.items())[:SHOWN_CUSTOM]
    return _json({word(name): [word(value) for value in values] for name, values in first})


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def characteristics(labels: DetectedLabels | None) -> list[str]:
    """One sentence a label that is set; then what could not be detected, as unknown."""
    if labels is None:
        return [
            "Nothing was detected yet: all characteristics are unknown. get_resource_context detects them."
        ]
    lines = []
    if labels.flag("gitops_managed"):
        tool = labels.text("gitops_tool") or "tool unknown"
        lines.append(
            f"This resource is managed by GitOps ({word(tool)}). DO NOT make direct changes - recommend "
            "GitOps-aware workflows."
        )
    lines += [text for label, text in FLAG_TEXT.items() if labels.flag(label)]
    level = (labels.text("pod_security_level") or "").lower()
    if level in LEVEL_TEXT:
        lines.append(LEVEL_TEXT[level])
    if mesh := labels.text("service_mesh"):
        lines.append(f"Service mesh ({word(mesh)}) is present. Consider service mesh-aware workflows.")
    unknown = [label for label in DETECTED_LABELS if labels.is_unknown(label)]
    if not lines and not unknown:
        return ["No special cluster characteristics detected."]
    if unknown:
        lines.append(f"Could not be detected, so unknown (not absent): {', '.join(unknown)}.")
    return lines


def pairs(values: Mapping[str, str]) -> str:
    """The first labels or annotations, one a line."""
    shown = [f"{key}={value}" for key, value in list(values.items())[:SHOWN_LABELS]]
    more = len(values) - len(shown)
    return "\n".join(shown) + (f"\n({more} more)" if more else "")


NOT_SPECIFIED = "not specified"

RISK_GUIDANCE = {
    "low": "conservative remediation required - avoid aggressive restarts or scaling",
    "medium": "balanced approach - standard remediation actions permitted",
    "high": "aggressive remediation permitted - prioritize recovery speed",
}


def resource_path(request: Signal) -> str:
    """`namespace/Kind/name`, or `Kind/name` for cluster scope."""
    namespace = "" if request.is_cluster_scoped else request.resource_namespace
    parts = (namespace, request.resource_kind, request.resource_name)
    return "/".join(part for part in parts if part)


def summary(request: Signal, sender: Callable[[str, str], str]) -> str:
    """The opening: one sentence, the error in the sender's words, business impact, technical details.

    `sender(field, text)` fences text of the sender.
    """
    signal = word(request.signal_type)
    source = f" from **{word(request.signal_source)}**" if request.signal_source else ""
    lines = [
        "## Incident Summary",
        f"A **{request.severity} {signal} event**{source} has occurred in **{resource_path(request)}**.",
        "",
        "**Business Impact Assessment**:",
        f"- Priority: {priority_text(request.priority, request.business_category)}",
        f"- Environment: {word(request.environment)}",
        f"- Risk Tolerance: {risk_text(request.risk_tolerance)}",
        "",
        "**Technical Details**:",
        f"- Signal Type: {signal}",
        f"- Severity: {request.severity}",
        f"- Resource: {resource_path(request)}",
    ]
    if request.resource_api_version:
        lines.append(f"- API Version: {word(request.resource_api_version)}")
    if request.error_message:
        lines.append(f"- Error:\n{sender('error_message', request.error_message)}")
    return "\n".join(lines)


def priority_text(priority: Priority, business_category: str | None) -> str:
    """The priority with what it asks for (ADR-041, "Priority Descriptions")."""
    service = f"a {word(business_category)} service" if business_category else "a service"
    meaning = {
        Priority.P0: f"(highest priority) - This is {service} requiring immediate attention",
        Priority.P1: "(high priority) - This service requires prompt attention",
        Priority.P2: "(medium priority) - This service requires timely resolution",
        Priority.P3: "(low priority) - This service can be addressed during normal operations",
    }
    return f"{priority} {meaning[priority]}"


def risk_text(risk_tolerance: str | None) -> str:
    """The risk tolerance with its guidance (ADR-041, "Risk Tolerance Guidance"); other words stand alone."""
    if not risk_tolerance:
        return NOT_SPECIFIED
    shown = word(risk_tolerance)
    guidance = RISK_GUIDANCE.get(shown.lower())
    return f"{shown} ({guidance})" if guidance else shown


CONTINUOUSLY_PRESENT = (
    "The same alert fired again while its condition lasted: the condition has been continuously present since it was "
    "first seen. It does not mean that a remediation was tried and failed."
)
SHOWN_RESOURCES = 10


def details(request: Signal, sender: Callable[[str, str], str]) -> str:
    """Return what the sender said about the error, and when."""
    lines = ["## Error Details"]
    if request.description:
        lines.append(f"- Description:\n{sender('description', request.description)}")
    if request.firing_time:
        lines.append(f"- Firing Time: {stamp(request.firing_time)}")
    lines.append(f"- Received Time: {stamp(request.received_time)} (all ages below are relative to it)")
    return "\n".join(lines)


def deduplication(request: Signal) -> str:
    """Return how often the same signal came, and what that means.

    Empty if it came once and the request says no more.
    """
    repeated = request.is_duplicate or request.occurrence_count > 1
    if not (repeated or request.first_seen or request.last_seen):
        return ""
    lines = [
        "## Deduplication",
        f"- Is Duplicate: {'yes' if request.is_duplicate else 'no'}",
        f"- First Seen: {stamp(request.first_seen)}" if request.first_seen else "",
        f"- Last Seen: {stamp(request.last_seen)}" if request.last_seen else "",
        f"- Occurrence Count: {request.occurrence_count}",
        CONTINUOUSLY_PRESENT if repeated else "",
    ]
    return "\n".join(line for line in lines if line)


def storm(request: Signal, shown: Callable[[str, str], str]) -> str:
    """Facts about an alert storm; empty when there is none."""
    if not request.is_storm:
        return ""
    lines = ["## Alert Storm", "This signal is part of an alert storm: one cause may explain many alerts."]
    if request.storm_type:
        meaning = {"rate": "many alerts in a short time", "pattern": "similar alerts on several resources"}
        lines.append(f"- Storm Type: {request.storm_type} ({meaning[request.storm_type]})")
    if request.storm_window:
        lines.append(f"- Storm Window: {word(request.storm_window)}")
    if request.storm_alert_count is not None:
        lines.append(f"- Alert Count: {request.storm_alert_count}")
    if request.affected_resources:
        more = len(request.affected_resources) - SHOWN_RESOURCES
        names = shown("affected_resources", storm_resources(request))
        lines.append(f"- Affected Resources: {names}" + (f" and {more} more" if more > 0 else ""))
    return "\n".join(lines)


def storm_resources(request: Signal) -> str:
    """The first resources of a storm."""
    return ", ".join(word(name) for name in request.affected_resources[:SHOWN_RESOURCES])


WORD = 128
"""Characters of a free word that are shown."""


def word(text: str, limit: int = WORD) -> str:
    """The text as it may stand in a line of the prompt.

    What is far longer is cut before it is searched for secrets.
    """
    return one_line(redact(text[: 16 * WORD]), limit)
