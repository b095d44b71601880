"""What a policy is asked, by the rules it has, and what its answers mean together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from schemas.analysis import Approval
from worker.adapters.rego_policy.unusable import PolicyUnusable
from worker.domain.verdict.approval.policy_answer import approval_decision, safety_decision, strictest

APPROVAL_PACKAGES = ("rca.approval", "aianalysis.approval")
SAFETY_PACKAGE = "safety"
DECIDING = dict.fromkeys(APPROVAL_PACKAGES, "require_approval") | {SAFETY_PACKAGE: "validate_action"}
"""The packages that decide, and the rule each must have."""
SAFETY_RULES = ("validate_action", "requires_approval", "reasons", "risk_factors")
WANTED = (
    f"a policy has a rule require_approval in package {' or '.join(APPROVAL_PACKAGES)}, "
    f"or validate_action(action) in package {SAFETY_PACKAGE}"
)
SHOWN_RULES = 10

Rules = Mapping[str, int | None]
"""Full names of rules, and how many arguments each takes; None for one that is no function."""


def questions(rules: Rules) -> dict[str, str]:
    """Queries by name for a policy with these rules.

    Raises PolicyUnusable when none of them decides, or when one was probably meant to and does not: a misspelt name
    among several must not go unnoticed.
    """
    _no_near_misses({rule.rpartition(".")[0] for rule in rules})
    found: dict[str, str] = {}
    for package, rule in DECIDING.items():
        if f"{package}.{rule}" in rules:
            found |= dict(_safety(rules)) if package == SAFETY_PACKAGE else {package: f"data.{package}"}
        elif own := _shown(name for name in rules if name.rpartition(".")[0] == package):
            raise PolicyUnusable(f"package {package} has no rule {rule}; its rules are {own}")
    if not found:
        raise PolicyUnusable(f"no rule that decides: {WANTED}; the rules here are {_shown(rules) or 'none'}")
    return found


def _no_near_misses(packages: Iterable[str]) -> None:
    for package in packages:
        inside = any(f"{package}.".startswith(f"{name}.") for name in DECIDING)
        near = [] if inside else difflib.get_close_matches(package, DECIDING, n=1, cutoff=0.8)
        if near:
            raise PolicyUnusable(f"package {package} is not asked; {near[0]} would be: give it another name")


def _shown(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)[:SHOWN_RULES])


def _safety(rules: Rules) -> Iterator[tuple[str, str]]:
    """The rules of a safety policy, as functions of the action or without arguments."""
    for name in (f"{SAFETY_PACKAGE}.{rule}" for rule in SAFETY_RULES):
        if name not in rules:
            continue
        arguments = rules[name]
        if arguments not in {None, 1}:
            raise PolicyUnusable(f"data.{name} takes {arguments} arguments; it is given the action only")
        yield name, f"data.{name}(input.action)" if arguments else f"data.{name}"


def decision(values: Mapping[str, Any], asked: Mapping[str, str], action: str) -> Approval:
    """The decision in the values of the queries `asked`. Raises NoDecision for one that is no decision."""
    decisions = [
        approval_decision(values.get(name), f"data.{name}") for name in APPROVAL_PACKAGES if name in asked
    ]
    if f"{SAFETY_PACKAGE}.validate_action" in asked:
        said = {name.removeprefix(f"{SAFETY_PACKAGE}."): value for name, value in values.items()}
        decisions.append(safety_decision(said, action))
    return strictest(decisions)
