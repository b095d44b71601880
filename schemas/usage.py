"""What an analysis has cost, and what the model says it took into account."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.fields import Count, Message, Seconds, Text


class Usage(Message):
    """What calls of models and tools cost."""

    llm_calls: Count = 0
    """Calls of a model."""
    tool_calls: Count = 0
    """Tool calls that were run."""
    input_tokens: Count = 0
    """Tokens sent, cached ones included."""
    cached_tokens: Count = 0
    """Of these, tokens served from the provider's cache."""
    output_tokens: Count = 0
    """Tokens received."""
    cost_usd: Annotated[float, Field(strict=True, ge=0)] | None = None
    """Cost in US dollars; None when the price is not known."""
    wall_seconds: Seconds = 0.0
    """Time from the start to the result, over all runs."""


class ContextUsed(Message):
    """What the model says it took into account (ADR-041)."""

    cluster_state: Text = ""
    """Health of the cluster."""
    resource_availability: Text = ""
    """Resources."""
    blast_radius: Text = ""
    """Potential impact."""
