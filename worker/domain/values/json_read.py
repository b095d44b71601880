"""Reads JSON of others that need not be JSON."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str | bytes, otherwise: Any = None) -> Any:
    """The value of a JSON text; `otherwise` if the text is not JSON, or is nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise
