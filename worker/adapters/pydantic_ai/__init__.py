"""The Model port on pydantic-ai, which is used as a provider adapter only."""

from worker.adapters.pydantic_ai.model import PydanticAIModel
from worker.adapters.pydantic_ai.providers import ModelUnusable

__all__ = ["ModelUnusable", "PydanticAIModel"]
