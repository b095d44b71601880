"""Removes secrets from all free text of a message, so that new fields are covered automatically.

Free text is every string whose type does not fix its form, such as by an enum or a pattern. Names of a map
are free text as well, and a value may be a secret because of its name.
"""

from __future__ import annotations

import enum
import functools
import typing
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from pydantic import StringConstraints

from schemas.fields import Message
from worker.domain.untrusted.evidence import one_line
from worker.domain.untrusted.redaction.redact import redact, redact_json

TEXT_CHARS, NAME_CHARS, MAX_ITEMS = 2_000, 64, 1_000
"""Bounds for texts whose type has none, for names in a map, and for the items of a list or map."""
READ_CHARS = 8_000
"""How much of a text is read: a secret that is cut by its end is neither recognised nor shown."""

M = TypeVar("M", bound=Message)


def redacted(message: M) -> M:
    """The message without secrets in its free text, each cut to the limit of its type or 2,000 characters."""
    limits = _limits(type(message))
    cleaned = {name: _clean(getattr(message, name), limit) for name, limit in limits.items()}
    return message.model_copy(update=cleaned)


def preview(text: str, limit: int) -> str:
    """The start of a text without secrets."""
    return redact(text[:READ_CHARS])[:limit]


def _clean(value: Any, limit: int) -> Any:
    if isinstance(value, Message):
        return redacted(value)
    if isinstance(value, enum.Enum):
        return value
    if isinstance(value, str):
        return preview(value, limit)
    if isinstance(value, Mapping):
        shown = redact_json(dict(islice(value.items(), MAX_ITEMS))).items()
        return {one_line(preview(str(name), limit), NAME_CHARS): _clean(item, limit) for name, item in shown}
    if isinstance(value, list | tuple):
        return type(value)(_clean(item, limit) for item in value[:MAX_ITEMS])
    return value


@functools.cache
def _limits(model: type[Message]) -> Mapping[str, int]:
    """The fields that may hold free text, each with the longest text it may hold."""
    limits = {}
    for name, annotation in typing.get_type_hints(model, include_extras=True).items():
        found = list(_constraints(annotation)) if name in model.model_fields else None
        if found is not None and not any(constraint.pattern for constraint in found):
            lengths = [c.max_length for c in found if c.max_length is not None]
            limits[name] = min([*lengths, TEXT_CHARS])
    return limits


def _constraints(annotation: Any) -> Iterator[StringConstraints]:
    """The constraints on strings in a type: of the string itself, of items, of names and values."""
    yield from (one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, StringConstraints))
    for argument in typing.get_args(annotation):
        yield from _constraints(argument)
