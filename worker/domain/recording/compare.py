"""Compares two results of the same incident, and two configurations over many incidents."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.analysis import AnalysisResult

RESAMPLES = 2_000
LOWEST, HIGHEST = 0.025, 0.975
"""The quantiles of the resampled differences that bound a 95 % confidence interval."""
COSTS = ("llm_calls", "tool_calls", "input_tokens", "output_tokens")
MEASURED = ("needs_human", "approval_required", *COSTS)
SAME = ("target", "workflow", "cause")


@dataclass(frozen=True, slots=True)
class ChangedFact:
    """One fact that differs in the replayed result."""

    fact: str
    recorded: Any
    replayed: Any


def facts_of(result: AnalysisResult) -> Mapping[str, Any]:
    """The facts that matter about a result, and its costs."""
    cause, workflow, usage = result.root_cause_analysis, result.selected_workflow, result.usage
    resource = result.affected_resource
    return {
        "status": str(result.status),
        "cause": cause.signal_type if cause else "",
        "summary": cause.summary if cause else "",
        "target": "/".join(filter(None, (resource.kind, resource.namespace, resource.name)))
        if resource
        else "",
        "workflow": workflow.workflow_id if workflow else "",
        "parameters": dict(workflow.parameters) if workflow else {},
        "needs_human": result.needs_human_review,
        "approval_required": result.approval.required,
        "approval_factors": sorted({str(factor.code) for factor in result.approval.factors}),
        **{name: getattr(usage, name) for name in (*COSTS, "cost_usd")},
    }


def differences(recorded: AnalysisResult, replayed: AnalysisResult) -> tuple[ChangedFact, ...]:
    """The facts in which two results differ."""
    before, after = facts_of(recorded), facts_of(replayed)
    return tuple(
        ChangedFact(fact, before[fact], after[fact]) for fact in before if before[fact] != after[fact]
    )


def changed_fields(recorded: Any, replayed: Any, path: str = "") -> Iterator[str]:
    """The paths at which two JSON values differ (`evidence.3.summary`)."""
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        pairs = [(key, recorded.get(key), replayed.get(key)) for key in recorded | replayed]
    elif isinstance(recorded, list) and isinstance(replayed, list) and len(recorded) == len(replayed):
        pairs = [(str(n), *both) for n, both in enumerate(zip(recorded, replayed, strict=True))]
    elif recorded == replayed:
        return
    else:
        yield path
        return
    for key, before, after in pairs:
        yield from changed_fields(before, after, f"{path}.{key}" if path else key)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The means of one figure, their difference, and its 95 % confidence interval.

    Shares are between 0 and 1.
    """

    figure: str
    recorded: float
    replayed: float
    difference: float
    low: float
    high: float


def compare(
    pairs: Sequence[tuple[AnalysisResult, AnalysisResult]], *, seed: int = 0
) -> tuple[Comparison, ...]:
    """Compare each recorded result with its replay.

    The figures whose names begin with `same_` are the share of pairs that agree, from 0 to 1. The intervals
    are bootstrapped over the pairs; the same seed gives the same intervals. The cost is left out unless every
    result states it.
    """
    facts = [(facts_of(before), facts_of(after)) for before, after in pairs]
    figures = {f"same_{name}": [(1.0, float(a[name] == b[name])) for a, b in facts] for name in SAME}
    figures |= {name: [(float(a[name]), float(b[name])) for a, b in facts] for name in MEASURED}
    if facts and all(None not in (a["cost_usd"], b["cost_usd"]) for a, b in facts):
        figures["cost_usd"] = [(a["cost_usd"], b["cost_usd"]) for a, b in facts]
    return tuple(_comparison(name, values, seed) for name, values in figures.items() if values)


def _comparison(figure: str, values: Sequence[tuple[float, float]], seed: int) -> Comparison:
    changes = [after - before for before, after in values]
    low, high = interval(changes, seed=seed)
    return Comparison(
        figure,
        statistics.fmean(before for before, _ in values),
        statistics.fmean(after for _, after in values),
        statistics.fmean(changes),
        low,
        high,
    )


def interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """The 95 % confidence interval of the mean of at least one value, by resampling with replacement."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    means = sorted(statistics.fmean(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(LOWEST * RESAMPLES)], means[int(HIGHEST * RESAMPLES) - 1]
