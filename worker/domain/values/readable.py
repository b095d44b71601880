"""Reads messages that need not be of this version."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)


def readable(model: type[M], body: bytes) -> M | None:
    """A stored message; None if this version cannot read it."""
    try:
        return model.model_validate_json(body)
    except ValidationError:
        return None
