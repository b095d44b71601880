"""Real token counts, of the vocabulary that the budgets of the prompt are given in."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any


@cache
def _encoding() -> Any:
    with warnings.catch_warnings():  # it opens its data in a deprecated way
        warnings.simplefilter("ignore", DeprecationWarning)
        import bpe_openai

        return bpe_openai.get_encoding("o200k_base")


def real_tokens(text: str) -> int:
    """How many o200k tokens the text costs."""
    return len(_encoding().encode(text))
