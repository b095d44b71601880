"""The incident in one sentence, its business impact, and the technical details (ADR-041, section 1)."""

from __future__ import annotations

from collections.abc import Callable

from schemas.incident import Signal
from schemas.taxonomy import Priority
from worker.domain.investigation.prompt.words import word

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
