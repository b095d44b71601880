"""JSON Schemas for models: complete, self-contained and short.

Every word of a schema is paid for in every call. Titles and string lengths are left out, and references are
resolved, because some servers do not follow them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

KEPT = (
    "type", "description", "enum", "const", "default", "minimum", "maximum", "maxItems", "anyOf", "items", "properties",
    "required", "additionalProperties",
)  # fmt: skip
UNSAID: tuple[Any, ...] = ("", [], {})
"""Defaults that say nothing."""


@cache
def compact_schema(model: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON Schema of a model with types, enums, limits, defaults and descriptions, and nothing else."""
    full = model.model_json_schema(by_alias=False)
    schema = {"type": "object", "properties": {}} | _short(full, full.get("$defs", {}))
    schema.pop("description", None)  # the docstring: for readers of the code
    return schema


def _short(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if reference := node.get("$ref"):
        target = {k: v for k, v in definitions[reference.rpartition("/")[2]].items() if k != "description"}
        node = {**target, **{k: v for k, v in node.items() if k != "$ref"}}
    kept = {key: node[key] for key in KEPT if key in node and not _is_noise(key, node[key])}
    if "properties" in kept:
        kept["properties"] = {k: _short(v, definitions) for k, v in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = _short(kept["items"], definitions)
    if isinstance(kept.get("additionalProperties"), Mapping):
        kept["additionalProperties"] = _short(kept["additionalProperties"], definitions)
    if "anyOf" in kept:
        kept["anyOf"] = [_short(option, definitions) for option in kept["anyOf"]]
    return kept


def _is_noise(key: str, value: Any) -> bool:
    """True for defaults without meaning, and for `additionalProperties: false`, which providers add."""
    return (key == "default" and (value is None or value in UNSAID)) or (
        key == "additionalProperties" and value is False
    )
