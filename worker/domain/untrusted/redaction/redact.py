"""Secrets become `[REDACTED:kind]` before anything is put into a prompt, a log line, an audit event or a dead letter.

Four rules, each linear in the length of the text:

1. shapes: what is a secret wherever it stands (`secret_shapes`);
2. pairs: the value of a key that names a secret (`secret_pairs`, `secret_names`);
3. the data of Secret objects, in YAML and JSON (`secret_objects`);
4. base64 whose plain text falls under the others, or is `user:password`.

Names survive: a rule that turns `disk-cleaner` into `di[REDACTED]` takes the evidence away. Where the value of a
secret key cannot be told from a name, the key decides, and the value goes.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from worker.domain.untrusted.redaction.names import is_no_secret, secret_kind
from worker.domain.untrusted.redaction.objects import mask_secret_documents
from worker.domain.untrusted.redaction.pairs import mask_pairs
from worker.domain.untrusted.redaction.shapes import SHAPES, mask_pem_tails, mask_prose, mask_url_credentials

MAX_DEPTH = 96
MAX_PASSES = 4
BASE64 = re.compile(r"(?<![A-Za-z0-9+/_.-])((?<=\\)[nrt])?([A-Za-z0-9+/]{12,}+={0,2})(?![A-Za-z0-9+/=_-])")
JSON_SECRET = re.compile(r"kind\\{0,15}\"\s{0,8}:\s{0,8}\\{0,15}\"Secret\\{0,15}\"")
MAX_JSON_PARTS = 16
USER_AND_PASSWORD = re.compile(r"[\w.@+-]{1,64}:[!-~]{4,256}\s*")


def redact(text: str) -> str:
    """The text with every secret that is recognised replaced by `[REDACTED:kind]`.

    Linear in the length of the text. Redacting twice changes nothing: the rules are applied until they find nothing.
    """
    return _until_stable(text, decode=2)


def redact_json(value: Any, *, depth: int = 0) -> Any:
    """A JSON value with every secret replaced: by key, by the `name` beside a `value`, and inside every string.

    Deeper than 96 levels nothing is shown. Numbers under a secret key go too; true, false and null stay.
    """
    if depth > MAX_DEPTH:
        return "[REDACTED:depth]"
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list | tuple):
        return [redact_json(item, depth=depth + 1) for item in value]
    if isinstance(value, dict):
        return _redact_object(value, depth)
    return value


def _redact_object(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    named = secret_kind(str(value.get("name") or value.get("key") or "")) if "value" in value else None
    all_secret = str(value.get("kind")) == "Secret"
    result: dict[str, Any] = {}
    for key, item in value.items():
        kind = named if key == "value" else secret_kind(str(key))
        if all_secret and key in {"data", "stringData"} and isinstance(item, dict):
            result[str(key)] = {redact(str(name)): "[REDACTED:secret]" for name in item}
        else:
            result[redact(str(key))] = (
                redact_json(item, depth=depth + 1) if kind is None else _masked(item, kind, depth)
            )
    return result


def _masked(item: Any, kind: str, depth: int) -> Any:
    """The value of a secret key: scalars go, structures are looked into."""
    if isinstance(item, list | tuple):
        return [_masked(part, kind, depth + 1) if depth < MAX_DEPTH else "[REDACTED:depth]" for part in item]
    if item is None or isinstance(item, bool | dict):
        return redact_json(item, depth=depth + 1)
    text = str(item)
    if is_no_secret(text, kind) or (kind == "auth" and len(text) < 12):
        return item
    return f"[REDACTED:{'secret' if kind == 'object' else kind}]"


def _until_stable(text: str, decode: int) -> str:
    for _ in range(MAX_PASSES):
        before = text
        text = _mask(text, decode)
        if text == before:
            break
    return text


def _mask(text: str, decode: int) -> str:
    if JSON_SECRET.search(text):
        text = _mask_json(text)
    text = mask_secret_documents(text)
    for shape in SHAPES:
        text = shape.mask(text)
    text = mask_pem_tails(text)
    text = mask_prose(mask_pairs(mask_url_credentials(text)))
    if decode:
        text = BASE64.sub(lambda match: (match[1] or "") + _mask_base64(match[2], decode - 1), text)
    return text


def _mask_base64(blob: str, decode: int) -> str:
    if blob.isdigit() or blob.islower():
        return blob
    body = blob.rstrip("=")
    body = body[: len(body) - (len(body) % 4 == 1)]
    try:
        plain = base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8")
    except ValueError:
        return blob
    if not plain.replace("\n", "").replace("\r", "").replace("\t", "").isprintable():
        return blob
    if USER_AND_PASSWORD.fullmatch(plain) or _mask(plain, decode) != plain:
        return "[REDACTED:base64]"
    return blob


def _mask_json(text: str) -> str:
    """JSON in the text that holds a Secret object, redacted as JSON and written compactly."""
    decoder = json.JSONDecoder()
    parts: list[str] = []
    done = position = 0
    for _ in range(MAX_JSON_PARTS):
        start = text.find("{", position)
        if start == -1:
            break
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            line_end = text.find("\n", start)
            position = len(text) if line_end == -1 else line_end
            continue
        masked = redact_json(value)
        parts += (
            text[done:start],
            text[start:end] if masked == value else json.dumps(masked, separators=(",", ":")),
        )
        done = position = end
    return "".join((*parts, text[done:]))
