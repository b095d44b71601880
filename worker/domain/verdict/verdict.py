"""The verdict on an answer: accepted, perhaps with corrections by code, or rejected with every problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from schemas.analysis import AffectedResource, ApprovalFactor
from schemas.evidence import CausalClaim
from schemas.taxonomy import Severity
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import Workflow
from worker.domain.verdict.answers.answer import Answer, AnsweredAlternative, InvestigationOutcome, Problem

NOTHING_TO_DO = frozenset({InvestigationOutcome.NOT_ACTIONABLE, InvestigationOutcome.PROBLEM_RESOLVED})


NO_OBJECT = ObjectRef("", "")


@dataclass(frozen=True, slots=True)
class Accepted:
    """An answer that passed every check, with the additions of code.

    `affected` is the resource as the model named it, in its true scope; `root_owner` is its topmost owner.
    `target` is what the workflow acts on. `unverified`: the cluster did not say whether the affected resource
    exists, what owns it, or in which state its pods are. `misaligned` says why the
    answer may follow planted text; empty otherwise.
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
    claims: tuple[CausalClaim, ...] = ()
    unverified: bool = False
    misaligned: str = ""
    approval_factors: tuple[ApprovalFactor, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """An answer that failed a check: every problem, in the order in which the answer is read.

    `partial` is its valid part: the same answer without a workflow, and without the signal type and the
    affected resource (NO_OBJECT) if they did not pass. The severity is then unknown, the summary empty. None
    if no answer could be read.
    """

    problems: tuple[Problem, ...]
    partial: Accepted | None = None


Verdict = Accepted | Rejected


@dataclass(frozen=True, slots=True)
class Attempt:
    """One final answer and the verdict on it. `number` counts from 1, `at` is when it was checked."""

    number: int
    verdict: Verdict
    text: str
    workflow_id: str = ""
    at: datetime | None = None


POD_LIKE = {"pod", "replicaset"}


def named(ref: ObjectRef) -> AffectedResource:
    """The object in the form of the result."""
    return AffectedResource(
        kind=ref.kind, name=ref.name, namespace=ref.namespace, api_version=ref.api_version
    )


def fuller(later: Accepted | None, earlier: Accepted | None) -> Accepted | None:
    """The later of two answers, unless the earlier one is more complete (root cause, affected resource)."""
    found = [finding for finding in (later, earlier) if finding is not None]
    return max(found, key=lambda f: bool(f.answer.summary.strip()) + bool(f.affected.name), default=None)


def actionable(accepted: Accepted) -> ObjectRef:
    """The affected resource. For a pod or ReplicaSet, the topmost owner, which would recreate it."""
    if accepted.affected.kind.lower() in POD_LIKE:
        return accepted.root_owner
    return accepted.affected
