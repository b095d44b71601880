"""Decodes a message body into a request or an outcome, or a list of everything that is wrong with it.

Never raises.

The body comes from outside: its size, depth and numbers are bounded before they cost anything. It must be
I-JSON (RFC 7493): UTF-8 without a byte order mark, no key twice, no NaN, no unpaired surrogates; and integers
must fit in 64 bits, as in Go. The steps are size, text, JSON, schema, cluster; the result has all errors of
the first step that failed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from schemas import fields
from schemas.failure import FieldError, ValidationCode
from schemas.incident import IncidentRequest
from schemas.outcome import RemediationOutcome
from schemas.recovery import RecoveryRequest
from schemas.subjects import Subjects, request_key
from schemas.taxonomy import RequestKind

Request = IncidentRequest | RecoveryRequest
_T = TypeVar("_T")

MAX_LISTED: Final = 100
GOT_CHARS: Final = 80
NUMBER_CHARS: Final = 64
GZIP_MAGIC: Final = b"\x1f\x8b"
BOM: Final = "\ufeff"

# A string that is never closed is taken to the end of the text: the scan stays linear.
_STRING_OR_BRACKET: Final = re.compile(r'"(?>(?:[^"\\]++|\\.)*)"?|[\[\]{}]', re.DOTALL)
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ID_IN_TEXT: Final = MappingProxyType(
    {
        name: re.compile(rf'"{name}"\s{{0,8}}:\s{{0,8}}"([^"\\]{{1,128}})"')
        for name in ("remediation_id", "incident_id")
    }
)
_ID: Final = TypeAdapter[str](fields.Id)
_ATTEMPT: Final = TypeAdapter[int](fields.Positive)
_REQUEST_MODELS: Final[Mapping[RequestKind, type[Request]]] = MappingProxyType(
    {RequestKind.INCIDENT: IncidentRequest, RequestKind.RECOVERY: RecoveryRequest}
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A request, and the paths in the message that it does not contain (at most 100, then how many more).

    `notes` say which words of the sender were translated.
    """

    request: Request
    ignored_fields: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InvalidRequest:
    """Everything that is wrong with a message.

    The ids are for correlation only, and None if they cannot be read.

    Values in `errors` are short, but secrets are not removed from them yet.
    """

    code: ValidationCode
    errors: tuple[FieldError, ...]
    remediation_id: str | None = None
    incident_id: str | None = None
    request_key: str | None = None


def decode(
    body: bytes, kind: RequestKind, received_at: datetime, cluster_name: str = ""
) -> Decoded | InvalidRequest:
    """Read a message body.

    `received_at` (aware) is the time of the message, for a sender that does not give one.

    With `cluster_name`, requests that name another cluster are rejected.
    """
    data = _read_object(body, kind)
    return data if isinstance(data, InvalidRequest) else _validate(data, kind, received_at, cluster_name)


def decode_outcome(body: bytes, subject: str, subjects: Subjects) -> RemediationOutcome | InvalidRequest:
    """Read what an executor published on `subject` about a remediation."""
    data = _read_object(body, None)
    if isinstance(data, InvalidRequest):
        return data
    try:
        outcome = RemediationOutcome.model_validate(data)
    except ValidationError as e:
        details = e.errors(include_url=False)
        return _rejected(ValidationCode.SCHEMA, map(_field_error, details), data, None)
    if subject != (expected := subjects.outcome(outcome.request_key)):
        error = FieldError(
            path="remediation_id",
            expected=f"the ids of its subject {subject}: publish this one on {expected}",
            got=_got(outcome.remediation_id),
        )
        return _rejected(ValidationCode.SCHEMA, [error], data, None)
    return outcome


def _read_object(body: bytes, kind: RequestKind | None) -> dict[str, Any] | InvalidRequest:
    """The JSON object of a body. `kind` is that of the request; None when the message names it."""
    if len(body) > fields.MAX_BODY_BYTES:
        expected = f"at most {fields.MAX_BODY_BYTES} bytes: shorten error_message, description or labels"
        return _unreadable(ValidationCode.TOO_LARGE, expected, f"{len(body)} bytes", body)
    try:
        text = body.decode()
    except UnicodeDecodeError as e:
        hint = "UTF-8: this is gzip, send it uncompressed" if body.startswith(GZIP_MAGIC) else "UTF-8"
        got = f"byte 0x{body[e.start]:02x} at offset {e.start}"
        return _unreadable(ValidationCode.NOT_UTF8, hint, got, body)
    if _deeper_than(text, fields.MAX_DEPTH):
        expected = f"at most {fields.MAX_DEPTH} levels of nesting"
        return _unreadable(ValidationCode.TOO_DEEP, expected, "more", body)
    return _object_of(text, kind)


def _object_of(text: str, kind: RequestKind | None) -> dict[str, Any] | InvalidRequest:
    if text.startswith(BOM):
        return _unreadable(ValidationCode.NOT_JSON, "no byte order mark", "U+FEFF", text.encode())
    try:
        data = json.loads(
            text,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_no_constant,
            object_pairs_hook=_unique_keys,
        )
    except json.JSONDecodeError as e:
        expected = f"JSON: {e.msg.lower()} at line {e.lineno} column {e.colno}"
        return _unreadable(ValidationCode.NOT_JSON, expected, _got(text[e.pos : e.pos + 20]), text.encode())
    if not isinstance(data, dict):
        flaw = data if isinstance(data, _Flaw) else _Flaw(ValidationCode.SCHEMA, "", _got(data))
        return InvalidRequest(flaw.code, (FieldError(path="", expected="a JSON object", got=flaw.got),))
    flaws = list(_flaws(data, "", look_into_strings=bool(_SURROGATE_ESCAPE.search(text))))
    if flaws:
        return _rejected(
            flaws[0][1].code,
            (FieldError(path=p, expected=f.expected, got=f.got) for p, f in flaws),
            data,
            kind,
        )
    return data


def _validate(
    data: dict[str, Any], kind: RequestKind, received_at: datetime, cluster_name: str
) -> Decoded | InvalidRequest:
    model = _REQUEST_MODELS[kind]
    timed = data if data.get("received_time") is not None else data | {"received_time": received_at}
    try:
        request = model.model_validate(timed)
    except ValidationError as e:
        details = e.errors(include_url=False)
        return _rejected(ValidationCode.SCHEMA, (_field_error(detail) for detail in details), data, kind)
    if cluster_name and request.cluster_name not in {"", cluster_name}:
        expected = (
            f"{cluster_name}, the cluster this worker serves: publish to the worker of the other cluster"
        )
        error = FieldError(path="cluster_name", expected=expected, got=_got(request.cluster_name))
        return _rejected(ValidationCode.WRONG_CLUSTER, [error], data, kind)
    ignored = _bounded(fields.ignored_fields(model, data), lambda more: f"(and {more} more)")
    return Decoded(request, ignored, tuple(_mapped(data, request)))


def _mapped(data: Mapping[str, Any], request: Request) -> Iterator[str]:
    """Yield a note for each value that was translated, for the reader of the result."""
    if data.get("signal_type") is None:
        yield "signal_name of the request was read as signal_type"
    if (word := data["severity"].strip().lower()) != request.severity:
        yield f"the severity {word} of the request was read as {request.severity}"


# -- JSON: a value that json.loads accepts and we do not becomes a flaw in its place, so that every error has
# a path


@dataclass(frozen=True, slots=True)
class _Flaw:
    code: ValidationCode
    expected: str
    got: str


def _integer(digits: str) -> int | _Flaw:
    """Read an integer. The length is checked first, because the conversion takes more than linear time."""
    if (
        len(digits) <= len(str(fields.INT64_MIN))
        and fields.INT64_MIN <= (value := int(digits)) <= fields.INT64_MAX
    ):
        return value
    return _Flaw(ValidationCode.SCHEMA, "an integer of at most 64 bits", _got_number(digits))


def _number(digits: str) -> float | _Flaw:
    if len(digits) > NUMBER_CHARS or (value := float(digits)) in {float("inf"), float("-inf")}:
        return _Flaw(ValidationCode.SCHEMA, "a number that fits in a double", _got_number(digits))
    return value


def _no_constant(word: str) -> _Flaw:
    return _Flaw(ValidationCode.NOT_JSON, "a number: JSON has no NaN and no Infinity", word)


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                unique[key] = _Flaw(ValidationCode.NOT_JSON, "each key once", "the key more than once")
            seen.add(key)
    return unique


def _flaws(value: Any, path: str, *, look_into_strings: bool) -> Iterator[tuple[str, _Flaw]]:
    """Yield the flaws in a value. Recursion is safe, because the depth of the text has been checked."""
    if isinstance(value, _Flaw):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            where = fields.member(path, key)
            if look_into_strings and not _encodable(key):
                yield where, _Flaw(ValidationCode.NOT_JSON, "a key without unpaired surrogates", "")
            yield from _flaws(item, where, look_into_strings=look_into_strings)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _flaws(item, fields.member(path, number), look_into_strings=look_into_strings)
    elif look_into_strings and isinstance(value, str) and not _encodable(value):
        yield path, _Flaw(ValidationCode.NOT_JSON, "text without unpaired surrogates", _got(value))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _deeper_than(text: str, limit: int) -> bool:
    if text.count("{") + text.count("[") <= limit:
        return False
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        first = match[0][0]
        if first in "[{":
            depth += 1
            if depth > limit:
                return True
        elif first in "]}":
            depth -= 1
    return False


# -- Errors: the place, the expected value, and the start of the actual one

_EXPECTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "missing": "a value: the field is required",
        "string_type": "a string",
        "string_unicode": "text without unpaired surrogates",
        "string_too_long": "at most {max_length} characters",
        "string_too_short": "at least {min_length} character(s)",
        "string_pattern_mismatch": "text that matches {pattern}",
        "int_type": "an integer, without quotes and without decimals",
        "float_type": "a number, without quotes",
        "bool_type": "true or false, without quotes",
        "dict_type": "an object",
        "model_type": "an object",
        "tuple_type": "an array",
        "enum": "one of {expected}",
        "greater_than_equal": "at least {ge}",
        "less_than_equal": "at most {le}",
        "too_long": "at most {max_length} items",
        "extra_forbidden": "no such field: unknown fields are not allowed here",
    }
)


def _field_error(detail: ErrorDetails) -> FieldError:
    path = ""
    for key in detail["loc"]:
        path = fields.member(path, key)
    template = _EXPECTED.get(detail["type"])
    expected = template.format_map(detail.get("ctx", {})) if template else detail["msg"]
    return FieldError(
        path=path, expected=expected, got="" if detail["type"] == "missing" else _got(detail["input"])
    )


def _got(value: Any) -> str:
    """The actual value: the start of a text or number, or only the type of a larger value."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return f"an array of {len(value)}"
    text = json.dumps(value[:GOT_CHARS] if isinstance(value, str) else value, default=str)
    return text if len(text) <= GOT_CHARS else f"{text[:GOT_CHARS]}..."


def _got_number(digits: str) -> str:
    return digits if len(digits) <= NUMBER_CHARS else f"{digits[:NUMBER_CHARS]}... ({len(digits)} characters)"


def _bounded(items: Iterable[Any], more: Callable[[int], Any]) -> tuple[Any, ...]:
    """The first items, and a last one that says how many are left out."""
    rest = iter(items)
    listed = tuple(islice(rest, MAX_LISTED))
    left = sum(1 for _ in rest)
    return (*listed, more(left)) if left else listed


def _rejected(
    code: ValidationCode, errors: Iterable[FieldError], data: Mapping[str, Any], kind: RequestKind | None
) -> InvalidRequest:
    kind = kind or (
        RequestKind.RECOVERY if data.get("kind") == RequestKind.RECOVERY else RequestKind.INCIDENT
    )
    listed = _bounded(
        errors, lambda more: FieldError(path="", expected=f"no errors: {more} more are not listed")
    )
    remediation_id, incident_id = (
        _readable(_ID, data.get(name)) for name in ("remediation_id", "incident_id")
    )
    attempt = (
        _readable(_ATTEMPT, data.get("recovery_attempt_number")) if kind is RequestKind.RECOVERY else None
    )
    has_key = remediation_id and (attempt or kind is RequestKind.INCIDENT)
    key = request_key(remediation_id, attempt) if remediation_id and has_key else None
    return InvalidRequest(code, listed, remediation_id, incident_id, key)


def _unreadable(code: ValidationCode, expected: str, got: str, body: bytes) -> InvalidRequest:
    """A message that is not an object. The ids are searched in its text."""
    text = body[: fields.MAX_BODY_BYTES].decode("utf-8", "replace")
    ids = {
        name: _readable(_ID, found[1]) if (found := p.search(text)) else None
        for name, p in _ID_IN_TEXT.items()
    }
    return InvalidRequest(code, (FieldError(path="", expected=expected, got=got),), **ids)


def _readable(adapter: TypeAdapter[_T], value: Any) -> _T | None:
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None
