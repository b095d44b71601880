"""Says in what a JSON Schema breaks what was released before.

What the worker receives may only become more tolerant: whoever wrote a message for the old schema still may send it. What
it publishes may only become more specific: whoever reads messages by the old schema still can. Unknown fields are ignored by
both sides, so new optional fields break nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RELEASED = Path(__file__).parent / "released" / "v1.json"
"""The schemas of the last release, by name, without descriptions. Replace it when a release is made."""
OPEN = frozenset({"EventType"})
"""Enumerations to which values may be added: readers skip what they do not know."""
LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
FIXED = ("pattern", "format", "not")

Schema = dict[str, Any]


def released() -> dict[str, Schema]:
    return json.loads(RELEASED.read_text("utf-8"))


def breaking(old: Schema, new: Schema, *, received: bool) -> list[str]:
    """Every change that breaks somebody, as `path: what`."""
    return list(_Comparison(old, new, received=received).differences(old, new, ""))


class _Comparison:
    def __init__(self, old: Schema, new: Schema, *, received: bool) -> None:
        self._old, self._new, self._received = old, new, received
        self._seen: set[tuple[str, str]] = set()

    def differences(self, old: Any, new: Any, path: str) -> Iterator[str]:
        if old == new and "$ref" not in json.dumps(old):
            return
        name = old.get("$ref", "").rpartition("/")[2]
        pair = (old.get("$ref", path), new.get("$ref", path))
        if pair in self._seen:
            return
        self._seen.add(pair)
        old, new = _resolved(old, self._old), _resolved(new, self._new)
        before, after = _branches(old, self._old), _branches(new, self._new)
        if len(before) > 1 or len(after) > 1:
            yield from self._alternatives(before, after, path)
            return
        (old,), (new,) = before, after
        yield from self._types(old, new, path)
        yield from self._values(old, new, path, is_open=name in OPEN or old.get("title") in OPEN)
        yield from self._bounds(old, new, path)
        yield from self._members(old, new, path)

    def _alternatives(self, before: list[Schema], after: list[Schema], path: str) -> Iterator[str]:
        """Each form that somebody relies on must have a form that fits it."""
        relied, offered = (before, after) if self._received else (after, before)
        known = {_kind(form) for form in before}
        for form in relied:
            if _kind(form) and _kind(form) not in known:
                continue
            pairs = [(form, other) if self._received else (other, form) for other in offered]
            if all(list(_fresh(self, one, two, path)) for one, two in pairs):
                what = "is no longer accepted" if self._received else "is new"
                yield f"{path}: the form {form.get('title') or form.get('type') or form} {what}"

    def _types(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        before, after = _types(old), _types(new)
        wide, narrow = (after, before) if self._received else (before, after)
        if wide and not (narrow and narrow <= wide):
            yield f"{path}: type {sorted(before)} became {sorted(after)}"

    def _values(self, old: Schema, new: Schema, path: str, *, is_open: bool) -> Iterator[str]:
        before, after = _values(old), _values(new)
        wide, narrow = (after, before) if self._received else (before, after)
        if wide is None or (is_open and not self._received):
            return
        if narrow is None or not narrow <= wide:
            yield f"{path}: values {before} became {after}"

    def _bounds(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        strict, loose = (new, old) if self._received else (old, new)
        for key in (*LOWER, *UPPER):
            if key in strict:
                limit, other = strict[key], loose.get(key)
                if other is None or (other < limit if key in LOWER else other > limit):
                    yield f"{path}: {key} {old.get(key)} became {new.get(key)}"
        for key in FIXED:
            if key in strict and strict[key] != loose.get(key) and "const" not in loose:
                yield f"{path}: {key} {old.get(key)} became {new.get(key)}"

    def _members(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        required = (set(old.get("required", [])), set(new.get("required", [])))
        demanded = required[1] - required[0] if self._received else required[0] - required[1]
        if demanded:
            yield f"{path}: {sorted(demanded)} {'became required' if self._received else 'may be missing now'}"
        for name, schema in before.items():
            where = f"{path}.{name}"
            if name not in after:
                yield f"{where}: is gone"
            else:
                yield from self.differences(schema, after[name], where)
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), dict) and isinstance(new.get(key), dict):
                yield from self.differences(old[key], new[key], f"{path}[]")
        if (
            self._received
            and new.get("additionalProperties") is False
            and old.get("additionalProperties") is not False
        ):
            yield f"{path}: unknown fields are no longer accepted"


def _fresh(comparison: _Comparison, old: Schema, new: Schema, path: str) -> Iterator[str]:
    """A comparison on trial: what it has seen must not count for the others."""
    trial = _Comparison(comparison._old, comparison._new, received=comparison._received)
    return trial.differences(old, new, path)


def _resolved(schema: Schema, root: Schema) -> Schema:
    while "$ref" in schema:
        found: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _branches(schema: Schema, root: Schema) -> list[Schema]:
    """The alternatives of a schema; itself when it has none. Alternatives that only say what is required are none."""
    for key in ("anyOf", "oneOf"):
        forms = schema.get(key, [])
        if forms and not all(set(form) <= {"required", "properties"} for form in forms):
            return [branch for form in forms for branch in _branches(_resolved(form, root), root)]
    types = schema.get("type")
    if isinstance(types, list):
        return [schema | {"type": one} for one in types]
    return [schema]


def _kind(form: Schema) -> str:
    """The value by which readers recognise a form of an open enumeration; empty for other forms."""
    return form.get("properties", {}).get("event_type", {}).get("const", "")


def _types(schema: Schema) -> set[str]:
    kind = schema.get("type")
    return set() if kind is None else {kind} | ({"integer"} if kind == "number" else set())


def _values(schema: Schema) -> set[str] | None:
    if "const" in schema:
        return {json.dumps(schema["const"])}
    return {json.dumps(value) for value in schema["enum"]} if "enum" in schema else None
