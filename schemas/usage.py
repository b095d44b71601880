"""What an analysis cost, and what the model says it took into account."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.fields import Count, Message, Seconds, Text


class Usage(Message):
    """Calls, tokens, cost and time."""

    llm_calls: Count = 0
    """Answered calls of a model; failed tries are not counted."""
    tool_calls: Count = 0
    """Tool calls that were run."""
    input_tokens: Count = 0
    """Tokens sent, including those served from the provider's cache."""
    cached_tokens: Count = 0
    """Of these, the tokens served from the provider's cache."""
    output_tokens: Count = 0
    """Tokens received."""
    cost_usd: Annotated[float, Field(strict=True, ge=0)] | None = None
    """Cost in US dollars; null if the price is not known."""
    wall_seconds: Seconds = 0.0
    """Time from the start to the result, over all runs."""


class ContextUsed(Message):
    """What the model says it took into account (ADR-041)."""

    cluster_state: Text = ""
    """Health of the cluster."""
    resource_availability: Text = ""
    """Availability of resources."""
    blast_radius: Text = ""
    """Potential impact."""
