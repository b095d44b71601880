"""Reads the answer of a policy as an approval, in the same way for every evaluator.

A decision document has `require_approval` (a boolean), and optionally `reasons` (or one `reason`) and
`risk_factors` (`score` 0 to 100, `reason`), as in BR-AI-085. A safety policy (safety-aware investigation)
validates an action and may say that it requires approval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.analysis import Approval, RiskFactor
from worker.domain.untrusted.evidence import one_line
from worker.domain.verdict.approval.factors import FactorCode, factor, sentence

MAX_REASONS = 32
MAX_REASON_CHARS = 500


class NoDecision(ValueError):  # noqa: N818 - a state, not a fault of the caller
    """The answer of a policy is not a decision. The message says why."""


def fail_closed(detail: str) -> Approval:
    """The approval when the policy gave no decision: it is required."""
    failed = factor(FactorCode.POLICY_FAILED, detail)
    return Approval(required=True, reasons=(sentence(failed),), factors=(failed,))


def approval_decision(document: Any, name: str) -> Approval:
    """The decision in the document of the package `name`. Raises NoDecision."""
    if not isinstance(document, dict) or not isinstance(document.get("require_approval"), bool):
        raise NoDecision(f"{name}.require_approval is not a boolean")
    required = document["require_approval"]
    reasons = _reasons(document.get("reasons", document.get("reason"))) if required else ()
    if required and not reasons:
        reasons = ("The approval policy requires approval.",)
    return Approval(
        required=required, reasons=reasons, risk_factors=_risk_factors(document.get("risk_factors"))
    )


def safety_decision(values: Mapping[str, Any], action: str) -> Approval:
    """The decision of a safety policy.

    `values` are those of the rules that have one: `validate_action`, `requires_approval`, `reasons`,
    `risk_factors`. The action is valid only if `validate_action` is true; any `requires_approval` but false
    requires approval.
    """
    factors = _risk_factors(values.get("risk_factors"))
    demanded = values.get("requires_approval", False) is not False
    if values.get("validate_action") is True and not demanded:
        return Approval(required=False, risk_factors=factors)
    found = "requires approval for" if demanded else "does not validate"
    reasons = (_said(f"The safety policy {found} {action}."), *_reasons(values.get("reasons")))
    return Approval(required=True, reasons=reasons[:MAX_REASONS], risk_factors=factors)


def strictest(decisions: Sequence[Approval]) -> Approval:
    """All decisions as one: approval is required if one of them requires it.

    Raises NoDecision if there is none.
    """
    if not decisions:
        raise NoDecision("no rule of the policy was evaluated")
    factors = {factor for decision in decisions for factor in decision.risk_factors}
    reasons = dict.fromkeys(reason for decision in decisions for reason in decision.reasons)
    return Approval(
        required=any(decision.required for decision in decisions),
        reasons=tuple(reasons)[:MAX_REASONS],
        risk_factors=_highest(factors),
    )


def _said(text: str) -> str:
    return one_line(text, MAX_REASON_CHARS)


def _reasons(said: Any) -> tuple[str, ...]:
    listed = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    texts = {_said(text) for text in listed[: 10 * MAX_REASONS] if isinstance(text, str) and text.strip()}
    return tuple(sorted(texts))[:MAX_REASONS]


def _risk_factors(found: Any) -> tuple[RiskFactor, ...]:
    """The risk factors, highest first. Raises NoDecision if one is malformed."""
    if found is None:
        return ()
    if not isinstance(found, list):
        raise NoDecision("risk_factors is not a list or set")
    worst = sorted({_weighed(factor) for factor in found}, key=lambda pair: (-pair[0], pair[1]))[:MAX_REASONS]
    return _highest({RiskFactor(score=score, reason=_said(reason)) for score, reason in worst})


def _weighed(found: Any) -> tuple[int, str]:
    fields = found if isinstance(found, dict) else {}
    score, reason = fields.get("score"), fields.get("reason")
    number = None if isinstance(score, bool) or not isinstance(score, int | float) else score
    if number is None or not isinstance(reason, str) or not reason.strip():
        raise NoDecision("a risk factor is not {score: number, reason: text}")
    return round(min(max(number, 0), 100)), reason


def _highest(factors: set[RiskFactor]) -> tuple[RiskFactor, ...]:
    return tuple(sorted(factors, key=lambda factor: (-factor.score, factor.reason))[:MAX_REASONS])
