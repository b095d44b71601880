"""What the sender's safety context says about a workflow (safety-aware investigation): forbidden, or for approval."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.safety import SafetyContext
from worker.domain.problems import Problem, ProblemKind
from worker.domain.workflow import Workflow

WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class SafetyFinding:
    """Problems forbid the workflow, factors ask for a person's approval."""

    problems: tuple[Problem, ...] = ()
    factors: tuple[str, ...] = ()


def action_name(action_type: str) -> str:
    """`RollbackDeployment` and `rollback-deployment` as `rollback_deployment`, `PatchHPA` as `patch_hpa`."""
    return WORD_BORDER.sub("_", action_type.strip()).replace("-", "_").replace(" ", "_").lower()


def names_action(patterns: Iterable[str], action_type: str) -> bool:
    """Whether a pattern is the action type, its first word (`scale`), or a glob for it (`delete_*`)."""
    action = action_name(action_type)
    wanted = [action_name(p) for p in patterns if p.strip()]
    return any(p == action.partition("_")[0] or fnmatch.fnmatchcase(action, p) for p in wanted)


def check_safety(
    workflow: Workflow, safety: SafetyContext | None, answered_downtime_seconds: int | None
) -> SafetyFinding:
    """The workflow against the constraints. The catalog's downtime counts, the model's only when there is none."""
    if safety is None:
        return SafetyFinding()
    limits = safety.safety_constraints
    action = action_name(workflow.action_type)
    problems, factors = _check_downtime(workflow, limits.max_downtime_seconds, answered_downtime_seconds)
    if names_action(limits.forbidden_actions, workflow.action_type):
        problems.append(
            _forbidden(f"{action} is forbidden for this incident: choose another kind of action, or null")
        )
    elif limits.allowed_actions is not None and not names_action(
        limits.allowed_actions, workflow.action_type
    ):
        factors.append(f"{action} is not among the actions the safety context allows")
    if limits.requires_approval:
        factors.append("the safety context requires approval")
    if safety.rego_policy.dry_run:
        factors.append("the safety policy is in dry run")
    return SafetyFinding(tuple(problems), tuple(factors))


def _check_downtime(
    workflow: Workflow, limit: int | None, answered: int | None
) -> tuple[list[Problem], list[str]]:
    if limit is None:
        return [], []
    expected = workflow.estimated_downtime_seconds
    expected = answered if expected is None else expected
    if expected is None:
        return [], [f"the downtime is not known, at most {limit} s are acceptable"]
    if expected > limit:
        return [
            _forbidden(f"takes {expected} s of downtime, at most {limit} s are acceptable: choose another")
        ], []
    return [], []


def _forbidden(message: str) -> Problem:
    return Problem(ProblemKind.FORBIDDEN, "selected_workflow.workflow_id", message)
