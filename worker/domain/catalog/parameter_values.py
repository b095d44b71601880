"""Checks values of workflow parameters against their declarations (ADR-043), and gives their canonical form."""

from __future__ import annotations

import difflib
import functools
import math
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import SchemaError, SchemaValidator, core_schema

from schemas.fields import INT64_MAX, INT64_MIN
from worker.domain.untrusted.evidence import HIDDEN_CATEGORIES, one_line
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.workflows import Parameter, ParameterType

MAX_VALUE_CHARS = 4096
MAX_ITEMS = 256
MAX_NUMBER_CHARS = 64
SHOWN_CHARS = 80
SHOWN_CHOICES = 12
UNSEEN_CATEGORIES = HIDDEN_CATEGORIES | {"Zl", "Zp"}
REDACTION_MARK = "[REDACTED:"


class BadValueError(ValueError):
    """The value does not fit the declaration of the parameter. The text says what it must be."""


def pattern_error(pattern: str) -> str:
    """Return why the regex engine rejects a pattern; empty when it accepts it."""
    try:
        _matcher(pattern)
    except SchemaError as error:
        return one_line(str(error), 300)
    return ""


def check_value(parameter: Parameter, value: Any) -> Any:
    """The value, converted to the declared type. Raises BadValueError."""
    converted = _CONVERT[parameter.type](parameter, value)
    if parameter.enum and converted not in parameter.enum:
        raise BadValueError(f"must be one of {listed(parameter.enum)}{_nearest(value, parameter.enum)}")
    return converted


def _string(parameter: Parameter, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if INT64_MIN <= value <= INT64_MAX else ""
    if not isinstance(value, str):
        raise BadValueError(f"must be a string, not {_json_type(value)}")
    if len(value) > MAX_VALUE_CHARS:
        raise BadValueError(f"must be at most {MAX_VALUE_CHARS} characters long")
    _check_characters(value)
    if parameter.min_length is not None and len(value) < parameter.min_length:
        raise BadValueError(f"must be at least {parameter.min_length} characters long")
    if parameter.max_length is not None and len(value) > parameter.max_length:
        raise BadValueError(f"must be at most {parameter.max_length} characters long")
    if parameter.pattern and not _matches(parameter.pattern, value):
        raise BadValueError(f"{brief(value)} does not match the pattern {one_line(parameter.pattern, 200)}")
    return value


def _check_characters(value: str) -> None:
    if any(unicodedata.category(c) in UNSEEN_CATEGORIES for c in value):
        raise BadValueError("must not hold line ends, control characters or invisible characters")
    if REDACTION_MARK in value:
        raise BadValueError(
            f"must not hold a hidden secret ({REDACTION_MARK}...]): leave it out, or choose no workflow"
        )
    if redact(value) != value:
        raise BadValueError("must not hold a secret: leave it out, or choose no workflow")


def _integer(parameter: Parameter, value: Any) -> int:
    number = _number_of(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int) or not INT64_MIN <= number <= INT64_MAX:
        raise BadValueError(f"must be an integer, not {brief(value)}")
    _check_range(parameter, number)
    return number


def _number(parameter: Parameter, value: Any) -> float:
    number = _number_of(value)
    if number is None:
        raise BadValueError(f"must be a number, not {brief(value)}")
    _check_range(parameter, number)
    return number


def _boolean(_: Parameter, value: Any) -> bool:
    word = value.strip().lower() if isinstance(value, str) else value
    if word is True or word == "true":
        return True
    if word is False or word == "false":
        return False
    raise BadValueError(f"must be true or false, not {brief(value)}")


def _array(parameter: Parameter, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise BadValueError(f"must be an array, not {_json_type(value)}")
    if len(value) > MAX_ITEMS:
        raise BadValueError(f"must have at most {MAX_ITEMS} items")
    if parameter.min_length is not None and len(value) < parameter.min_length:
        raise BadValueError(f"must have at least {parameter.min_length} items")
    if parameter.max_length is not None and len(value) > parameter.max_length:
        raise BadValueError(f"must have at most {parameter.max_length} items")
    items = parameter.items or Parameter(name="", type=ParameterType.STRING)
    found = []
    for number, item in enumerate(value):
        try:
            found.append(check_value(items, item))
        except BadValueError as error:
            raise BadValueError(f"item {number} {error}") from None
    return found


_CONVERT = {
    ParameterType.STRING: _string,
    ParameterType.INTEGER: _integer,
    ParameterType.NUMBER: _number,
    ParameterType.BOOLEAN: _boolean,
    ParameterType.ARRAY: _array,
}


def _number_of(value: Any) -> int | float | None:
    """The number that a value is, or spells in decimal; None for anything else, NaN and infinity included."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _spelt_number(value.strip())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) and INT64_MIN <= value <= INT64_MAX else None


def _spelt_number(text: str) -> int | float | None:
    if len(text) > MAX_NUMBER_CHARS or not text.isascii() or "_" in text:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _check_range(parameter: Parameter, number: float) -> None:
    if parameter.minimum is not None and number < parameter.minimum:
        raise BadValueError(f"must be at least {parameter.minimum:g}, not {number}")
    if parameter.maximum is not None and number > parameter.maximum:
        raise BadValueError(f"must be at most {parameter.maximum:g}, not {number}")


@functools.lru_cache(maxsize=4096)
def _matcher(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))


def _matches(pattern: str, value: str) -> bool:
    try:
        _matcher(pattern).validate_python(value, strict=True)
    except (ValidationError, SchemaError):
        return False
    return True


def listed(values: Collection[Any]) -> str:
    """The first values, on one line."""
    shown = [brief(v) for v in list(values)[:SHOWN_CHOICES]]
    return ", ".join(shown) + (", ..." if len(values) > SHOWN_CHOICES else "")


def _nearest(value: Any, choices: Collection[Any]) -> str:
    folded = {str(c).casefold(): c for c in choices}
    close = difflib.get_close_matches(brief(value).casefold(), folded, n=1, cutoff=0.7)
    return f" (did you mean {brief(folded[close[0]])}?)" if close else f", not {brief(value)}"


def brief(value: Any) -> str:
    """The value on one bounded line; only its type if it is a structure or too large a number."""
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        return "a number of more than 64 bits"
    return one_line(str(value), SHOWN_CHARS) if isinstance(value, (str, int, float)) else _json_type(value)


def _json_type(value: Any) -> str:
    names = {bool: "a boolean", str: "a string", int: "a number", float: "a number", type(None): "null"}
    if isinstance(value, Mapping):
        return "an object"
    return names.get(
        type(value), "an array" if isinstance(value, (list, tuple)) else "a value of another type"
    )
