"""Scores of results against expected answers: what `rca eval` prints. Pure.

`expected.json`: `affected_resource` is the best answer, `acceptable_affected_resources` are right as well (namespace
empty for cluster scope); `workflows.acceptable` may hold `(none)`: choosing nothing is right; an empty list means the
same; `workflows.wrong` must never be chosen.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from schemas.analysis import AnalysisResult

NONE = "(none)"


@dataclass(frozen=True, slots=True)
class Score:
    """One case. `workflow_required`: choosing none is not acceptable here. Times in seconds."""

    case: str
    status: str
    affected_resource: str
    target_right: bool
    target_best: bool
    signal_type: str
    signal_type_right: bool
    workflow: str
    workflow_acceptable: bool
    workflow_required: bool
    workflow_wrong: bool
    workflow_none: bool
    human_review: bool
    llm_calls: int
    tool_calls: int
    input_tokens: int
    wall_seconds: float


def score(case: str, expected: Mapping[str, Any], result: AnalysisResult | None) -> Score:
    """Compare one result; None (no result at all) is right about nothing."""
    workflows = expected.get("workflows") or {}
    acceptable = set(workflows.get("acceptable") or [NONE])
    chosen = result.selected_workflow if result else None
    named = chosen.workflow_id if chosen else NONE
    resource = result.affected_resource if result else None
    target = (resource.kind.lower(), resource.namespace, resource.name) if resource else None
    best = _key(expected["affected_resource"])
    right = {best, *map(_key, expected.get("acceptable_affected_resources") or [])}
    signal_type = result.root_cause_analysis.signal_type if result and result.root_cause_analysis else ""
    usage = result.usage if result else None
    return Score(
        case=case,
        status=result.status if result else "no result",
        affected_resource="/".join(p for p in (resource.kind, resource.namespace, resource.name) if p)
        if resource
        else "",
        target_right=target in right,
        target_best=target == best,
        signal_type=signal_type,
        signal_type_right=signal_type == expected.get("signal_type"),
        workflow="" if chosen is None else named,
        workflow_acceptable=result is not None and named in acceptable,
        workflow_required=NONE not in acceptable,
        workflow_wrong=named in set(workflows.get("wrong") or []),
        workflow_none=chosen is None,
        human_review=result is None or result.needs_human_review or result.approval.required,
        llm_calls=usage.llm_calls if usage else 0,
        tool_calls=usage.tool_calls if usage else 0,
        input_tokens=usage.input_tokens if usage else 0,
        wall_seconds=usage.wall_seconds if usage else 0.0,
    )


def total(scores: Sequence[Score]) -> dict[str, float]:
    """Counts over all cases, and medians of what they cost."""

    def count(name: str) -> int:
        return sum(bool(getattr(s, name)) for s in scores)

    def median(name: str) -> float:
        return round(float(statistics.median(getattr(s, name) for s in scores)), 3) if scores else 0.0

    return {
        "cases": len(scores),
        "target_right": count("target_right"),
        "target_best": count("target_best"),
        "signal_type_right": count("signal_type_right"),
        "workflow_acceptable": count("workflow_acceptable"),
        "workflow_required": count("workflow_required"),
        "workflow_required_right": sum(s.workflow_required and s.workflow_acceptable for s in scores),
        "workflow_wrong": count("workflow_wrong"),
        "workflow_none": count("workflow_none"),
        "human_review": count("human_review"),
        "llm_calls_median": median("llm_calls"),
        "input_tokens_median": median("input_tokens"),
        "wall_seconds_median": median("wall_seconds"),
    }


def as_json(scores: Sequence[Score]) -> dict[str, Any]:
    """The document for scripts."""
    return {"total": total(scores), "cases": [asdict(s) for s in scores]}


def _key(resource: Mapping[str, Any]) -> tuple[str, str, str]:
    return (
        str(resource.get("kind", "")).lower(),
        str(resource.get("namespace") or ""),
        str(resource.get("name", "")),
    )
