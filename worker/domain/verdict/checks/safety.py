"""What the sender's safety context says about a workflow (safety-aware investigation): forbidden, or for approval."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.analysis import ApprovalFactor
from schemas.safety import SafetyContext
from worker.domain.values.workflows import Workflow, action_name
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.problems import Problem, ProblemKind

PRODUCTION = "production"


@dataclass(frozen=True, slots=True)
class SafetyFinding:
    """Problems forbid the workflow, factors ask for a person's approval."""

    problems: tuple[Problem, ...] = ()
    factors: tuple[ApprovalFactor, ...] = ()


def names_action(patterns: Iterable[str], action_type: str) -> bool:
    """Whether a pattern is the action type in any spelling, its first word (`scale`), or a glob for it (`delete_*`)."""
    action = action_name(action_type)
    wanted = [action_name(p) for p in patterns if p.strip()]
    return any(p == action.partition("_")[0] or _covers(p, action) for p in wanted)


def forbids(patterns: Iterable[str], workflow: Workflow) -> bool:
    """Whether a pattern names the workflow, its action type, or any words in the action type: `delete` of `force_delete_pod`.

    Wider than what allows an action: a prohibition that is missed costs more than one that reaches too far.
    """
    words = action_name(workflow.action_type).split("_")
    numbers = range(len(words))
    runs = ["_".join(words[start : end + 1]) for start in numbers for end in numbers[start:]]
    meant = [action_name(workflow.workflow_id), *runs]
    wanted = [action_name(p) for p in patterns if p.strip()]
    return any(_covers(p, name) for p in wanted for name in meant)


def _covers(pattern: str, name: str) -> bool:
    """Whether both are the same or the glob matches, whatever separates the words, in singular or plural."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(_squeezed(name), _squeezed(pattern))


def _squeezed(name: str) -> str:
    return name.replace("_", "").removesuffix("s")


def stricter_environment(environment: str, safety: SafetyContext | None) -> str:
    """The environment a policy is asked about: production where the request and its safety context disagree."""
    other = safety.environment.strip() if safety else ""
    return environment if not other or other.lower() == environment.strip().lower() else PRODUCTION


def check_safety(
    workflow: Workflow, safety: SafetyContext | None, answered_downtime_seconds: int | None
) -> SafetyFinding:
    """The workflow against the constraints. The model's downtime can only make the check stricter."""
    if safety is None:
        return SafetyFinding()
    limits = safety.safety_constraints
    action = action_name(workflow.action_type)
    problems, factors = _check_downtime(workflow, limits.max_downtime_seconds, answered_downtime_seconds)
    if forbids(limits.forbidden_actions, workflow):
        problems.append(
            _forbidden(f"{action} is forbidden for this incident: choose another kind of action, or null")
        )
    elif limits.allowed_actions is not None and not names_action(
        limits.allowed_actions, workflow.action_type
    ):
        factors.append(factor(FactorCode.ACTION_NOT_ALLOWED, action))
    if limits.requires_approval:
        factors.append(factor(FactorCode.SAFETY_REQUIRES_APPROVAL))
    if safety.rego_policy.dry_run:
        factors.append(factor(FactorCode.SAFETY_DRY_RUN))
    return SafetyFinding(tuple(problems), tuple(factors))


def _check_downtime(
    workflow: Workflow, limit: int | None, answered: int | None
) -> tuple[list[Problem], list[ApprovalFactor]]:
    if limit is None:
        return [], []
    declared = workflow.estimated_downtime_seconds
    worst = max((seconds for seconds in (declared, answered) if seconds is not None), default=0)
    if worst > limit:
        return [
            _forbidden(f"takes {worst} s of downtime, at most {limit} s are acceptable: choose another")
        ], []
    if declared is None:
        return [], [factor(FactorCode.DOWNTIME_UNKNOWN, f"at most {limit} s")]
    return [], []


def _forbidden(message: str) -> Problem:
    return Problem(ProblemKind.FORBIDDEN, "selected_workflow.workflow_id", message)
