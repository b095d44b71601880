"""The base model of all messages, and the field types that several of them use.

Types are strict about JSON types (no boolean as a number, no number as a text, no 1.0 as an integer) and
bounded. `null` in an optional field means the same as leaving it out: Go writes nil pointers and maps that
way.
"""

from __future__ import annotations

import json
import re
import typing
import unicodedata
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo
from pydantic.functional_validators import model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

MAX_BODY_BYTES: Final = 512 * 1024
MAX_DEPTH: Final = 64
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
ID_BYTES: Final = 128
KEY_CHARS: Final = 64
WORD_CHARS: Final = 253

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_RFC3339: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})", re.ASCII
)


class NullIsAbsent(BaseModel):
    """Base of models in which a null counts as an absent field."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if value is not None}


class Message(NullIsAbsent):
    """Base of everything that is published. Unknown fields are ignored: producers may add fields first."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
        validate_by_alias=True,
        validate_by_name=True,
    )


def _identifier(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("id_blank", "1 to {limit} bytes, not blank", {"limit": ID_BYTES})
    if len(value.encode("utf-8", "surrogatepass")) > ID_BYTES:
        raise PydanticCustomError("id_too_long", "1 to {limit} bytes of UTF-8", {"limit": ID_BYTES})
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in value):
        raise PydanticCustomError("id_control_character", "no control characters")
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("blank", "text that is not blank")
    return value


def _timestamp(value: Any) -> datetime:
    """RFC 3339 with an offset, as Go and the Kubernetes API write it; more than 6 decimals are cut."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    wrong = PydanticCustomError("timestamp", "an RFC 3339 time with an offset, such as 2026-05-11T21:42:10Z")
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise wrong
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise wrong from None


Id = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=ID_BYTES), AfterValidator(_identifier)
]
"""An id of the sender: 1 to 128 bytes without control characters. Encoded before it is routed."""

Timestamp = Annotated[
    datetime, BeforeValidator(_timestamp), WithJsonSchema({"type": "string", "format": "date-time"})
]
"""A moment. RFC 3339 with an offset in JSON, aware and in UTC in Python."""

Text = Annotated[str, StringConstraints(strict=True)]
"""Text of the worker, which bounds it itself."""

Needed = Annotated[str, StringConstraints(strict=True, min_length=1)]
"""Non-empty text of the worker."""

LongText = Annotated[str, StringConstraints(strict=True, max_length=MAX_BODY_BYTES)]
"""Free text, bounded only by the size of a message."""

ShortText = Annotated[str, StringConstraints(strict=True, max_length=1024)]
"""Free text for one line."""

Word = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, max_length=WORD_CHARS)]
"""An open value such as a name of a cluster; blank means not given."""

NonBlank = Annotated[ShortText, AfterValidator(_not_blank)]
"""Short, non-empty text."""

Count = Annotated[int, Field(strict=True, ge=0, le=INT64_MAX)]
"""A number of things."""

Positive = Annotated[int, Field(strict=True, ge=1, le=INT64_MAX)]
"""A number of things, at least one; or a position, counted from one."""

Flag = Annotated[bool, Field(strict=True)]
"""true or false, nothing that merely looks like it."""

Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]
"""A share or a confidence, 0 to 1."""

Seconds = Annotated[float, Field(strict=True, ge=0)]
"""A duration in seconds."""

MAX_ITEMS: Final = 1000
"""Most items in an array, and members in an open map."""

Sha256 = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hexadecimal."""

Namespace = Annotated[
    str, StringConstraints(strict=True, pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$", max_length=63)
]
"""A namespace (DNS label, Kubernetes API), or empty."""

Kind = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=63)]
"""A kind of the Kubernetes API, built in or custom."""

ApiVersion = Annotated[
    str,
    StringConstraints(
        strict=True,
        pattern=r"^(([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/)?[a-z][a-z0-9-]*)?$",
        max_length=317,
    ),
]
"""`v1`, or `<group>/<version>`; empty if unknown."""


@dataclass(frozen=True, slots=True)
class Removed:
    """Marks a field that is rejected wherever it appears.

    The error and the JSON Schema name its replacement.
    """

    replacement: str

    def _refuse(self, _: Any) -> None:
        raise PydanticCustomError(
            "removed_field", "no such field any more: use {replacement}", {"replacement": self.replacement}
        )

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._refuse, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"not": {}, "description": f"Removed. Use {self.replacement}."}


@dataclass(frozen=True, slots=True)
class AtMost:
    """Bounds an array or an object before its items are read.

    A long one thus costs nothing and gives a single error.
    """

    limit: int

    def _check(self, value: Any) -> Any:
        if isinstance(value, Sized) and not isinstance(value, str) and len(value) > self.limit:
            raise PydanticCustomError("too_many", "at most {limit} items", {"limit": self.limit})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        described = handler(schema)
        return described | {"maxItems" if described["type"] == "array" else "maxProperties": self.limit}


@dataclass(frozen=True, slots=True)
class Unused:
    """Marks a field that is not used: `ignored_fields` lists it if a sender gives it."""


def accepted_names(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Every spelling of a field that is read."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return (name, *(str(choice) for choice in alias.choices))
    return (name, alias) if isinstance(alias, str) else (name,)


def _models_in(annotation: Any) -> Iterator[type[Message]]:
    """The message types an annotation may hold: `X`, `X | None`, `tuple[X, ...]`."""
    if isinstance(annotation, type):
        if issubclass(annotation, Message):
            yield annotation
        return
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def member(path: str, key: str | int) -> str:
    """Path of a member or an item, such as `a.b[3]`; an unusual or long key stands in brackets, shortened."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key[:KEY_CHARS])}{'' if len(key) <= KEY_CHARS else '...'}]"


def _is_unused(field: FieldInfo) -> bool:
    return any(isinstance(mark, Unused) for mark in field.metadata)


def ignored_fields(model: type[Message], data: Any, path: str = "") -> Iterator[str]:
    """Paths in `data` (decoded JSON) that `model` does not read, in the order of the message.

    A whole unknown or unused subtree is one path; members of open maps such as `signal_labels` are never
    ignored.
    """
    if not isinstance(data, Mapping):
        return
    known = {
        alias: field for name, field in model.model_fields.items() for alias in accepted_names(name, field)
    }
    for key, value in data.items():
        where = member(path, key)
        if key not in known or (value is not None and _is_unused(known[key])):
            yield where
            continue
        for inner in _models_in(known[key].annotation):
            for number, item in enumerate(value) if isinstance(value, (list, tuple)) else [(None, value)]:
                yield from ignored_fields(inner, item, where if number is None else member(where, number))
