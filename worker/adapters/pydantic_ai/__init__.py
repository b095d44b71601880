"""The Model port on pydantic-ai, which is used as a provider adapter only."""

from worker.adapters.pydantic_ai.model import ModelUnusable, PydanticAIModel

__all__ = ["ModelUnusable", "PydanticAIModel"]
