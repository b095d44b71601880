"""Where the signal comes from, and the business context of the workflow search (ADR-041; handoff, section 4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas.enrichment import DETECTED_LABELS, DetectedLabels
from schemas.incident import Signal
from worker.domain.investigation.prompt.impact import NOT_SPECIFIED
from worker.domain.investigation.prompt.words import word

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
    """The cluster's name and the signal's labels and annotations; empty when nothing was said."""
    lines = []
    if request.cluster_name:
        lines.append(f"- Cluster: {word(request.cluster_name)}")
    if request.signal_labels:
        lines.append(f"- Signal Labels:\n{sender('signal_labels', pairs(request.signal_labels))}")
    if request.signal_annotations:
        lines.append(
            f"- Signal Annotations:\n{sender('signal_annotations', pairs(request.signal_annotations))}"
        )
    return "\n".join(["## Cluster Context", *lines]) if lines else ""


def business(request: Signal) -> str:
    """Values that code passes to the workflow search as they are; they are no input to the root cause."""
    return "\n".join(
        [
            "## Business Context (for the workflow search, not for the root cause)",
            f"- Environment: {word(request.environment)}",
            f"- Priority: {request.priority}",
            f"- Business Category: {word(request.business_category or NOT_SPECIFIED)}",
            f"- Risk Tolerance: {word(request.risk_tolerance or NOT_SPECIFIED)}",
        ]
    )


def environment(
    labels: DetectedLabels | None, custom: Mapping[str, Sequence[str]], shown: Callable[[str, str], str]
) -> str:
    """Detected characteristics in words, and the filters of the workflow search as JSON (handoff, section 4)."""
    lines = ["## Cluster Environment Characteristics (auto-detected for the signal's resource)"]
    lines += characteristics(labels)
    parts = []
    if known := known_filters(labels):
        parts.append(f'"filters": {_json(known)}')
    if custom:
        parts.append(f'"custom_labels": {shown("custom_labels", custom_filters(custom))}')
    if parts:
        lines.append(f"Arguments of a workflow search (code applies them anyway): {{{', '.join(parts)}}}")
    return "\n".join(lines)


def known_filters(labels: DetectedLabels | None) -> dict[str, bool | str]:
    """Detected labels by their names in filters. What is unknown or has no value is left out: it filters nothing."""
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
