"""What a policy is asked, by the rules it has, and what its answers mean together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from schemas.analysis import Approval
from worker.adapters.rego_policy.unusable import PolicyUnusable
from worker.domain.policy_answer import approval_decision, safety_decision, strictest

APPROVAL_PACKAGES = ("rca.approval", "aianalysis.approval")
SAFETY_PACKAGE = "safety"
VALIDATE, REQUIRES = "validate_action", "requires_approval"
WANTED = (
    f"a policy has a rule require_approval in package {' or '.join(APPROVAL_PACKAGES)}, "
    f"or {VALIDATE}(action) in package {SAFETY_PACKAGE}"
)

Rules = Mapping[str, int | None]
"""Full names of rules, and how many arguments each takes; None for one that is no function."""


def questions(rules: Rules) -> dict[str, str]:
    """Queries by name for a policy with these rules. Raises PolicyUnusable when none of them decides."""
    found = {name: f"data.{name}" for name in APPROVAL_PACKAGES if f"{name}.require_approval" in rules}
    found |= dict(_safety(rules))
    if not found:
        there = ", ".join(sorted(rules)[:10]) or "none"
        raise PolicyUnusable(f"no rule that decides: {WANTED}; the rules here are {there}")
    return found


def _safety(rules: Rules) -> Iterator[tuple[str, str]]:
    """The rules of a safety policy, as functions of the action or without arguments."""
    if f"{SAFETY_PACKAGE}.{VALIDATE}" not in rules:
        return
    for rule in (VALIDATE, REQUIRES, "reasons", "risk_factors"):
        name = f"{SAFETY_PACKAGE}.{rule}"
        arguments = rules.get(name, 0) if name in rules else -1
        if arguments is None:
            yield name, f"data.{name}"
        elif arguments == 1:
            yield name, f"data.{name}(input.action)"
        elif arguments >= 0:
            raise PolicyUnusable(
                f"data.{name} takes {arguments} arguments; it is called with the action only"
            )


def decision(values: Mapping[str, Any], asked: Mapping[str, str], action: str) -> Approval:
    """The decision in the values of the queries `asked`. Raises NoDecision for one that is no decision."""
    decisions = [
        approval_decision(values.get(name), f"data.{name}") for name in APPROVAL_PACKAGES if name in asked
    ]
    if f"{SAFETY_PACKAGE}.{VALIDATE}" in asked:
        said = {name.removeprefix(f"{SAFETY_PACKAGE}."): value for name, value in values.items()}
        decisions.append(safety_decision(said, action))
    return strictest(decisions)
