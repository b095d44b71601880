"""Tokens as the o200k vocabulary counts them."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any


@cache
def _encoding() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the package reads its data by an old API
        import bpe_openai

        return bpe_openai.get_encoding("o200k_base")


def real_tokens(text: str) -> int:
    """How many tokens the text has."""
    return len(_encoding().encode(text))
