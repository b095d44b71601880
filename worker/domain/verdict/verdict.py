"""What a check of an answer comes to: accepted with everything put right by code, or every problem at once."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.analysis import ApprovalFactor
from schemas.taxonomy import Severity
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import Workflow
from worker.domain.verdict.answers.answer import Answer, AnsweredAlternative
from worker.domain.verdict.problems import Problem


class InvestigationOutcome(enum.StrEnum):
    """What an investigation came to, in the model's own words. Flags are never taken from the model."""

    ACTIONABLE = "actionable"
    NOT_ACTIONABLE = "not_actionable"
    PROBLEM_RESOLVED = "problem_resolved"
    INCONCLUSIVE = "inconclusive"
    INSUFFICIENT_DATA = "insufficient_data"


NOTHING_TO_DO = frozenset({InvestigationOutcome.NOT_ACTIONABLE, InvestigationOutcome.PROBLEM_RESOLVED})


@dataclass(frozen=True, slots=True)
class Accepted:
    """An answer that holds, with what code made of it.

    `affected` is the resource as the model named it, in its true scope; `root_owner` what it belongs to in the end.
    `target` is what the workflow acts on. `unverified`: the cluster did not say whether the affected resource exists, who
    owns it, or how its pods are.
    `misaligned` says which planted instruction the answer follows, empty when none.
    """

    answer: Answer
    severity: Severity
    signal_type: str
    affected: ObjectRef
    root_owner: ObjectRef
    outcome: InvestigationOutcome | None = None
    workflow: Workflow | None = None
    target: ObjectRef | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    confidence: float | None = None
    alternatives: tuple[AnsweredAlternative, ...] = ()
    unverified: bool = False
    misaligned: str = ""
    approval_factors: tuple[ApprovalFactor, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """An answer that does not hold: every problem, in the order in which the answer is read."""

    problems: tuple[Problem, ...]


Verdict = Accepted | Rejected


@dataclass(frozen=True, slots=True)
class Attempt:
    """One final answer and what the judge said of it. `number` counts from 1."""

    number: int
    verdict: Verdict
    text: str
    workflow_id: str = ""


POD_LIKE = {"pod", "replicaset"}


def actionable(accepted: Accepted) -> ObjectRef:
    """The affected resource. A pod or ReplicaSet stands for what it belongs to: nobody can mend it for long."""
    if accepted.affected.kind.lower() in POD_LIKE:
        return accepted.root_owner
    return accepted.affected
