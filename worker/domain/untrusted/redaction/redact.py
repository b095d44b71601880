"""Replaces secrets by `[REDACTED:kind]`.

This happens before text is put into a prompt, a log line, an audit event or a dead letter.

Four rules, each linear in the length of the text:

1. shapes: secrets that are recognised anywhere (`shapes`);
2. pairs: the value of a key that names a secret (`pairs`, `names`);
3. the data of Secret objects, in YAML and JSON;
4. base64 whose plain text falls under the other rules, or is `user:password`.

Names survive: a rule that turns `disk-cleaner` into `di[REDACTED]` takes the evidence away. Where the value
of a secret key cannot be told from a name, the key decides, and the value goes.
"""

from __future__ import annotations

import base64
import json
import re
from functools import lru_cache
from typing import Any

from worker.domain.untrusted.redaction import shapes
from worker.domain.untrusted.redaction.names import is_no_secret, mark_of, secret_kind
from worker.domain.untrusted.redaction.pairs import mask_pairs
from worker.domain.untrusted.redaction.words import distinct_words

MAX_DEPTH = 96
MAX_PASSES = 4
DECODED = 2
"""How many times base64 within base64 is decoded."""
BASE64 = re.compile(r"(?<![A-Za-z0-9+/_.-])((?<=\\)[nrt])?([A-Za-z0-9+/]{12,}+={0,2})(?![A-Za-z0-9+/=_-])")
JSON_SECRET = re.compile(r"kind\\{0,15}\"\s{0,8}:\s{0,8}\\{0,15}\"Secret\\{0,15}\"")
DECODER = json.JSONDecoder()
MAX_BRACES = 64
MAX_READING = 256
"""At most how many times the length of the text is read in search of Secret objects."""
REMEMBERED_TEXTS, REMEMBERED_CHARS = 1_024, 4_096
"""How many redacted texts are cached, and how long one may be: at most 4 MB of logs."""
USER_AND_PASSWORD = re.compile(r"[\w.@+-]{1,64}:[!-~]{4,256}\s*")
KIND_SECRET = re.compile(r"kind:[ \t]*[\"']?Secret")
KIND = re.compile(r"(?P<lead>[ \t]*(?:- )?)kind:[ \t]*[\"']?Secret[\"']?[ \t]*")
DATA = re.compile(r"[\"']?(?:data|stringData)[\"']?:[ \t]*")
ENTRY = re.compile(r"(?P<key>[ \t]*[^\s:#][^:\n]{0,253}:)[ \t]*\S.*")

UNSEEN = r"[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]+"
INVISIBLE = re.compile(rf"(?<=[!-~]){UNSEEN}(?=[ -~])")
JOINED = re.compile(rf"[!-~]+(?:{UNSEEN}[!-~]+)+")

GAP = r"(?:\s|\\{1,15}n){1,64}"
FLAT_KIND = re.compile(r"kind: {1,4}Secret(?=\s|\\|\"|\Z)")
FLAT_DATA = re.compile(rf"(?:(?<![\w.-])|(?<=\\n))(?:data|stringData):(?={GAP})")
FLAT_ENTRY = re.compile(rf"{GAP}(?P<key>[\w.-]{{1,253}}):[ \t]{{1,8}}(?P<value>[^\s\\\"]+)")
BESIDE_DATA = frozenset({"apiVersion", "immutable", "kind", "metadata", "type"})


def redact(text: str) -> str:
    """The text with every recognised secret replaced by `[REDACTED:kind]`.

    Linear in the length of the text. Redacting twice changes nothing: the rules are applied until they find
    nothing.
    """
    if shapes.is_plain_name(text):
        return text
    return _remembered(text) if len(text) <= REMEMBERED_CHARS else _until_stable(text)


@lru_cache(maxsize=REMEMBERED_TEXTS)
def _remembered(text: str) -> str:
    """The redacted text, cached.

    Evidence is redacted when it is read, for the prompt, for the result and for the audit trail.
    """
    return _until_stable(text)


def redact_json(value: Any, *, depth: int = 0) -> Any:
    """A JSON value with every secret replaced.

    Secrets are found by key, by the `name` beside a `value`, and inside every string.

    Values deeper than 96 levels are not shown. Numbers under a secret key are replaced, too; true, false and
    null stay.
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
    """The masked value of a secret key: scalars are replaced, structures are searched."""
    if isinstance(item, list | tuple):
        return [_masked(part, kind, depth + 1) if depth < MAX_DEPTH else "[REDACTED:depth]" for part in item]
    if item is None or isinstance(item, bool | dict):
        return redact_json(item, depth=depth + 1)
    text = str(item)
    if is_no_secret(text, kind) or (kind == "auth" and len(text) < 12):
        return item
    return mark_of(kind)


def _until_stable(text: str) -> str:
    """The text with the rules applied until they find nothing.

    Invisible characters between others are dropped if the text has secrets without them.
    """
    shown = _passes(text)
    if text.isascii() or (bare := INVISIBLE.sub("", text)) == text or (joined := _passes(bare)) == bare:
        return shown
    if shown == text:
        return joined
    return _passes(INVISIBLE.sub("", JOINED.sub(_mask_parts, text)))


def _mask_parts(word: re.Match[str]) -> str:
    """The masked parts of a word that are secrets by themselves, without the other parts; else the word.

    Joined to the other parts, such a part might not look like a secret any more.
    """
    masked = [shown for part in INVISIBLE.split(word.group()) if (shown := _passes(part)) != part]
    return "".join(masked) or word.group()


def _passes(text: str) -> str:
    for _ in range(MAX_PASSES):
        before = text
        text = _mask(text, DECODED)
        if text == before:
            break
    return text


def _mask(text: str, decode: int) -> str:
    if JSON_SECRET.search(text):
        text = _mask_json(text)
    text = mask_secret_documents(text)
    words = distinct_words(text)
    masked = shapes.mask_url_credentials(shapes.mask_pem_tails(shapes.mask_shapes(text, words)))
    if masked != text:
        text, words = masked, distinct_words(masked)
    text = shapes.mask_prose(mask_pairs(text, words), words)
    return _mask_encoded(text, words, decode - 1) if decode else text


def _mask_encoded(text: str, words: str, decode: int) -> str:
    if all(blob.isdigit() or blob.islower() for _, blob in BASE64.findall(words)):
        return text
    marks = {blob: _mask_base64(blob, decode) for blob in {found[1] for found in BASE64.findall(text)}}
    if all(blob is mark for blob, mark in marks.items()):
        return text
    return BASE64.sub(lambda match: (match[1] or "") + marks[match[2]], text)


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
    """Every JSON object of the kind Secret in the text, redacted as JSON and written compactly.

    If reading would cost too much, the rest of the text is not shown.
    """
    parts: list[str] = []
    done, allowed = 0, MAX_READING * len(text)
    while (kind := JSON_SECRET.search(text, done)) is not None:
        value, start, end, cost = _object_around(text, kind, done)
        parts += (text[done:start], json.dumps(redact_json(value), separators=(",", ":")) if end else "")
        done = end or kind.end()
        allowed -= cost
        if allowed < 0 and JSON_SECRET.search(text, done):
            return "".join((*parts, "[REDACTED:secret]"))
    return "".join((*parts, text[done:]))


def _object_around(text: str, kind: re.Match[str], first: int) -> tuple[Any, int, int, int]:
    """The innermost JSON object around the match, its start and end, and the number of characters read.

    It begins at `first` or later. The end is 0 if there is none, because the text was cut or is not JSON.
    """
    cost, before = 0, kind.start()
    for _ in range(MAX_BRACES):
        before = text.rfind("{", first, before)
        if before == -1:
            break
        try:
            value, end = DECODER.raw_decode(text, before)
        except (ValueError, RecursionError) as error:
            cost += getattr(error, "pos", len(text))  # the error counts the lines up to there
            continue
        cost += end - before
        if end > kind.start():
            return value, before, end, cost
    return None, kind.end(), 0, cost


def mask_secret_documents(text: str) -> str:
    """The text with every value under `data` and `stringData` of a YAML Secret replaced; keys stay."""
    if KIND_SECRET.search(text) is None:
        return text
    lines = [_masked_flat(line) if "Secret" in line else line for line in text.split("\n")]
    result: list[str] = []
    seen = 0
    for number, line in enumerate(lines):
        match = KIND.fullmatch(line) if "Secret" in line else None
        if match is None or number < seen:
            continue
        column = len(match["lead"])
        first, last = _document(lines, number, column, seen)
        result += (*lines[seen:first], *_masked_document(lines[first:last], column))
        seen = last
    return "\n".join((*result, *lines[seen:]))


def _document(lines: list[str], number: int, column: int, floor: int) -> tuple[int, int]:
    """The lines of the mapping that the `kind` line belongs to."""
    first = number
    while first > floor and not _starts_item(lines[first], column) and _belongs(lines[first - 1], column):
        first -= 1
    last = number + 1
    while last < len(lines) and _belongs(lines[last], column) and not _starts_item(lines[last], column):
        last += 1
    return first, last


def _belongs(line: str, column: int) -> bool:
    return (
        not line.strip() or (_indent(line) >= column and line.strip() != "---") or _starts_item(line, column)
    )


def _starts_item(line: str, column: int) -> bool:
    return column >= 2 and line[column - 2 : column] == "- " and not line[: column - 2].strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _masked_document(lines: list[str], column: int) -> list[str]:
    result: list[str] = []
    inside = False
    depth = 0
    for line in lines:
        if line.strip() and (_indent(line) <= column or _starts_item(line, column)):
            inside, depth = DATA.fullmatch(line[column:]) is not None, 0
            result.append(line)
            continue
        if not inside or not line.strip():
            result.append(line)
            continue
        depth = depth or _indent(line)
        if _indent(line) == depth and (entry := ENTRY.fullmatch(line)):
            result.append(f"{entry['key']} [REDACTED:secret]")
    return result


def _masked_flat(line: str) -> str:
    """Mask a document on one line, whose line ends were escaped (a string of JSON) or replaced by spaces."""
    if FLAT_KIND.search(line) is None:
        return line
    parts: list[str] = []
    done = 0
    for data in FLAT_DATA.finditer(line):
        position = max(done, data.end())
        while (entry := FLAT_ENTRY.match(line, position)) and entry["key"] not in BESIDE_DATA:
            parts += (line[done : entry.start("value")], "[REDACTED:secret]")
            done = position = entry.end()
    return "".join((*parts, line[done:]))
