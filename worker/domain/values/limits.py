"""The budget of one investigation, and what it has spent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from schemas.usage import Usage
from worker.domain.values.conversation import CallUsage

WRAP_UP_SHARE = 0.8
"""From this share of any limit on, the model must answer without further tool calls."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds of one request. Money in US dollars; None means no bound of its own."""

    llm_calls: int = 20
    tool_calls: int = 40
    input_tokens: int = 150_000
    cost_usd: float | None = None
    wall_seconds: float = 300.0
    attempts: int = 3
    call_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Spent:
    """What a request has cost so far, journaled calls included. `wall_seconds` is the time that runs were at work."""

    llm_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    wall_seconds: float = 0.0

    def plus(self, usage: CallUsage, *, wall_seconds: float) -> Spent:
        """After one more call to the model."""
        cost = self.cost_usd if usage.cost_usd is None else (self.cost_usd or 0.0) + usage.cost_usd
        return replace(
            self,
            llm_calls=self.llm_calls + 1,
            input_tokens=self.input_tokens + usage.input_tokens,
            cached_tokens=self.cached_tokens + usage.cached_tokens,
            output_tokens=self.output_tokens + usage.output_tokens,
            cost_usd=cost,
            wall_seconds=wall_seconds,
        )


def exhausted(spent: Spent, limits: Limits) -> str:
    """Which limit is used up, as text for the result; empty while something is left of each."""
    for name, used, limit in _pairs(spent, limits):
        if used >= limit:
            return f"{name} used up ({_number(used)} of {_number(limit)})"
    return ""


def must_wrap_up(spent: Spent, limits: Limits) -> bool:
    """Whether the next reply must be the final answer. One call is reserved for every attempt at it."""
    if spent.llm_calls >= limits.llm_calls - limits.attempts or spent.tool_calls >= limits.tool_calls:
        return True
    return any(
        used >= WRAP_UP_SHARE * limit for name, used, limit in _pairs(spent, limits) if name != "LLM calls"
    )


def seconds_for_call(spent: Spent, limits: Limits) -> float:
    """Seconds that the next call may take."""
    return max(1.0, min(limits.call_seconds, limits.wall_seconds - spent.wall_seconds))


def _pairs(spent: Spent, limits: Limits) -> list[tuple[str, float, float]]:
    pairs: list[tuple[str, float, float]] = [
        ("LLM calls", spent.llm_calls, limits.llm_calls),
        ("input tokens", spent.input_tokens, limits.input_tokens),
        ("seconds", spent.wall_seconds, limits.wall_seconds),
    ]
    if limits.cost_usd is not None:
        pairs.append(("US dollars", spent.cost_usd or 0.0, limits.cost_usd))
    return pairs


def _number(value: float) -> str:
    return f"{value:g}"


def usage_of(spent: Spent) -> Usage:
    """What was spent, in the form of the contract."""
    return Usage(
        llm_calls=spent.llm_calls,
        tool_calls=spent.tool_calls,
        input_tokens=spent.input_tokens,
        cached_tokens=spent.cached_tokens,
        output_tokens=spent.output_tokens,
        cost_usd=spent.cost_usd,
        wall_seconds=round(spent.wall_seconds, 3),
    )
