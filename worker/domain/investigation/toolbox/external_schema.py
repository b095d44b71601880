"""JSON Schemas of other servers, reduced to what every model provider takes: types, lists of values, descriptions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from worker.domain.untrusted.evidence import one_line

TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array"})
PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Names of properties that the providers' APIs take."""
MAX_PROPERTIES, MAX_VALUES = 20, 20
MAX_WORDS, MAX_VALUE = 120, 60  # characters
MAX_NUMBER = 2**53
"""Beyond it JSON readers no longer agree on a number (RFC 8259, section 6)."""
REFERENCE = "#/$defs/"
DEEPEST = 32


def depth_of(value: Any) -> int:
    """How deep objects and lists are nested; at most 33 is counted."""
    level, depth = [value], 0
    while depth <= DEEPEST:
        inner = [child for item in level for child in _children(item)]
        if not inner and not any(isinstance(item, Mapping | list | tuple) for item in level):
            return depth
        level, depth = inner, depth + 1
    return depth


def _children(value: Any) -> Sequence[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list | tuple) else ()


def plain_schema(schema: Mapping[str, Any], depth: int, *, described: bool) -> dict[str, Any]:
    """The schema of an object, `depth` levels of it. What is left out is free: the server checks what it gets."""
    definitions = schema.get("$defs")
    known = definitions if isinstance(definitions, Mapping) else {}
    plain = _plain({**schema, "type": "object"}, known, depth, described=described)
    return {**plain, "properties": plain.get("properties", {})}


def _plain(schema: Any, known: Mapping[str, Any], depth: int, *, described: bool) -> dict[str, Any]:
    full = _resolved(schema, known)
    kind = _type(full.get("type"))
    plain: dict[str, Any] = {"type": kind} if kind else {}
    if described and isinstance(said := full.get("description"), str) and said.strip():
        plain["description"] = one_line(said[: 4 * MAX_WORDS], MAX_WORDS)
    if values := _values(full.get("enum")):
        plain["enum"] = values
    if (
        depth
        and kind == "array"
        and (item := _plain(full.get("items"), known, depth - 1, described=described))
    ):
        plain["items"] = item
    if depth and kind == "object" and isinstance(properties := full.get("properties"), Mapping):
        plain["properties"] = {
            name: _plain(value, known, depth - 1, described=described)
            for name, value in islice(properties.items(), MAX_PROPERTIES)
            if isinstance(name, str) and PROPERTY.fullmatch(name)
        }
        if required := _required(full.get("required"), plain["properties"]):
            plain["required"] = required
    return plain


def _resolved(schema: Any, known: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind one reference and one choice: of several forms the first that is not null."""
    if not isinstance(schema, Mapping):
        return {}
    found = _referenced(schema, known)
    for word in ("anyOf", "oneOf"):
        forms = found.get(word)
        if isinstance(forms, list):
            chosen = next((f for f in forms if isinstance(f, Mapping) and f.get("type") != "null"), {})
            found = {**_referenced(chosen, known), **found}
    return found


def _referenced(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    name = schema.get("$ref")
    if not isinstance(name, str):
        return schema
    target = known.get(name.removeprefix(REFERENCE))
    return {**target, **schema} if isinstance(target, Mapping) else schema


def _type(stated: Any) -> str:
    words = stated if isinstance(stated, list) else [stated]
    return next((word for word in words if isinstance(word, str) and word in TYPES), "")


def _values(stated: Any) -> list[Any]:
    """The values if they are short and few: a part of a list would be wrong."""
    values = stated if isinstance(stated, list) and len(stated) <= MAX_VALUES else []
    return values if all(map(_sendable, values)) else []


def _sendable(value: Any) -> bool:
    """Whether a value is short, and every JSON writer can write it."""
    if isinstance(value, int):
        return abs(value) < MAX_NUMBER
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) and len(value) <= MAX_VALUE and one_line(value, MAX_VALUE) == value


def _required(stated: Any, properties: Mapping[str, Any]) -> list[str]:
    names = stated[: 5 * MAX_PROPERTIES] if isinstance(stated, list) else []
    return [name for name in properties if name in names]
