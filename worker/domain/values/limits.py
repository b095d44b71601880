"""The limits of one request: its budget, with the costs so far, and the least confidence of an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from schemas.usage import Usage
from worker.domain.values.conversation import CallUsage

WRAP_UP_SHARE = 0.8
"""From this share of any limit on, the model must answer without further tool calls."""
ENRICHMENT_SECONDS = 3.0
"""How long facts are gathered before the first call of the model."""
MIN_CONFIDENCE = 0.7
"""An answer with a lower confidence is escalated to a human."""
CONFIDENCE_THRESHOLD = 0.8
"""Below this confidence the shipped policy requires approval."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds of one request. Money in US dollars; None means no bound.

    `input_tokens` counts cached tokens at their price. `window_tokens` is the most input that one call may
    have; with None, the provider decides.
    """

    llm_calls: int = 20
    tool_calls: int = 40
    input_tokens: int = 150_000
    cost_usd: float | None = None
    wall_seconds: float = 300.0
    attempts: int = 3
    call_seconds: float = 120.0
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """The costs of a request so far, including journaled calls.

    `wall_seconds` is the time that runs were at work, `last_cost_usd` the cost of the last call,
    `discount_tokens` how many new input tokens the savings by the provider's cache would pay for.
    """

    llm_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    wall_seconds: float = 0.0
    last_cost_usd: float = 0.0
    discount_tokens: int = 0

    @property
    def charged_tokens(self) -> int:
        """Input tokens, with cached ones counted at their price."""
        return self.input_tokens - self.discount_tokens

    def plus(self, usage: CallUsage, *, wall_seconds: float) -> Spent:
        """The costs after one more call of the model."""
        cost = self.cost_usd if usage.cost_usd is None else (self.cost_usd or 0.0) + usage.cost_usd
        discount = round((1 - usage.cached_price) * usage.cached_tokens)
        return replace(
            self,
            llm_calls=self.llm_calls + 1,
            input_tokens=self.input_tokens + usage.input_tokens,
            cached_tokens=self.cached_tokens + usage.cached_tokens,
            output_tokens=self.output_tokens + usage.output_tokens,
            cost_usd=cost,
            wall_seconds=wall_seconds,
            last_cost_usd=usage.cost_usd or 0.0,
            discount_tokens=self.discount_tokens + discount,
        )


def exhausted(spent: Spent, limits: Limits, expected_tokens: int = 0) -> str:
    """The exhausted limit as text for the result; empty while a call with this much input fits."""
    for name, used, limit, next_call in _budgets(spent, limits, expected_tokens):
        if used >= limit or used + next_call > limit:
            more = f", and the next call may need {next_call:g}" if used < limit else ""
            return f"{name} used up ({used:g} of {limit:g}{more})"
    return ""


def must_wrap_up(spent: Spent, limits: Limits, expected_tokens: int = 0) -> bool:
    """True if the next reply must be the final answer: the rest of the budget is reserved for answers."""
    if spent.llm_calls >= limits.llm_calls - limits.attempts or spent.tool_calls >= limits.tool_calls:
        return True
    return any(
        used >= WRAP_UP_SHARE * limit or (next_call > 0 and used + 2 * next_call > limit)
        for name, used, limit, next_call in _budgets(spent, limits, expected_tokens)
        if name != "LLM calls"
    )


def seconds_for_call(spent: Spent, limits: Limits) -> float:
    """Seconds that the next call may take."""
    return max(1.0, min(limits.call_seconds, limits.wall_seconds - spent.wall_seconds))


def _budgets(spent: Spent, limits: Limits, expected_tokens: int) -> list[tuple[str, float, float, float]]:
    """Each budget by its name: the used part, the limit, and the most that the next call may take."""
    budgets: list[tuple[str, float, float, float]] = [
        ("LLM calls", spent.llm_calls, limits.llm_calls, 0),
        ("input tokens", spent.charged_tokens, limits.input_tokens, expected_tokens),
        ("seconds", spent.wall_seconds, limits.wall_seconds, 0),
    ]
    if limits.cost_usd is not None:
        next_cost = spent.last_cost_usd if expected_tokens else 0.0
        budgets.append(("US dollars", spent.cost_usd or 0.0, limits.cost_usd, next_cost))
    return budgets


def usage_of(spent: Spent) -> Usage:
    """The costs, in the form of the contract. Without a call of a model they are known: nothing."""
    same: dict[str, Any] = {name: getattr(spent, name) for name in Usage.model_fields}
    cost = spent.cost_usd if spent.llm_calls else 0.0
    return Usage(**same | {"cost_usd": cost, "wall_seconds": round(spent.wall_seconds, 3)})
