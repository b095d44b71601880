"""The types of fields that several groups of settings share, and what every group has in common."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic_settings import NoDecode

from worker.domain.values.json_read import read_json


def _comma_list(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if isinstance(read_json(value), list):
        raise ValueError("must be text with commas, such as a,b, not JSON")  # noqa: TRY004 - what is wrong is the text
    return [part.strip() for part in value.split(",") if part.strip()]


def matching(pattern: str, expected: str) -> AfterValidator:
    """A text that matches the whole pattern; `expected` says in the error what it must be."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {expected}")
        return value

    return AfterValidator(check)


WebAddress = Annotated[
    str,
    # Credentials do not belong in an address, because messages show it.
    matching(
        r"(https?://[^\s/?#@]+(/[^\s?#@]*)?)?",
        "http://HOST:PORT or https://HOST/PATH, without credentials and query",
    ),
]
Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_list)]
Paths = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_comma_list)]
NamespacePattern = Annotated[
    str, matching(r"[a-z0-9*?-]{1,63}", "the name of a namespace, with * and ? as wildcards")
]
NamespacePatterns = Annotated[tuple[NamespacePattern, ...], NoDecode, BeforeValidator(_comma_list)]


class Group(BaseModel):
    """A frozen group of settings, with a docstring under each field."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )
