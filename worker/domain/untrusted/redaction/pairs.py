"""Masks values of keys that name secrets, in any text: JSON, YAML, logfmt, environments, command lines.

The text is read from left to right once; a value extends as far as its quoting says, or, without quotes, as
its form says: to the end of the line for a YAML value, else to the next white space or separator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from worker.domain.untrusted.redaction import pair_forms as forms
from worker.domain.untrusted.redaction.names import (
    NOT_SET,
    SECRET_OBJECTS,
    is_no_secret,
    is_prose,
    is_statement,
    looks_random,
    mark_of,
    secret_kind,
)
from worker.domain.untrusted.redaction.pair_forms import Form
from worker.domain.untrusted.redaction.words import (
    Span,
    distinct_words,
    ends_of,
    folded,
    line_at,
    lines_with,
    mask_lines,
    with_group,
)

COUNT = re.compile(r"\d{1,9}(?:\.\d+)?%?(?![^\s,;/])")
"""How many tests pass, with what follows in the line: `pass: 12 fail: 3`."""
MAX_KEYS = 32
"""Up to this many keys are searched in the lines of a text; beyond, their hints are."""


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """The keys of one text that may name a secret: by hint, with every digit as 0.

    `leads` precede the keys that need one.
    """

    by_hint: Mapping[str, set[str]]
    leads: set[str]

    @classmethod
    def of(cls, words: str) -> SecretKeys:
        """The keys among the `distinct_words` of a text."""
        lowered = folded(words)
        found = _keys_by_hint(words, lowered)
        leads = (
            {f"{lead} " for lead in forms.LEADS if lead in lowered}
            if forms.NOT_ALONE & found.keys()
            else set()
        )
        return cls({hint: keys for hint, keys in found.items() if keys}, leads)

    def __bool__(self) -> bool:
        return bool(self.leads or self.by_hint)

    def lines(self, text: str) -> Mapping[Form, list[Span]]:
        """For each form the lines of the text in which a match with one of the keys may begin."""
        keys = set[str]().union(*self.by_hint.values())
        if len(keys) > MAX_KEYS:
            lines = lines_with(folded(text), {*self.leads, *self.by_hint})
            return {form: form.begins(text, lines) for form in forms.FORMS}
        leading = lines_with(folded(text), self.leads)
        found = {form: set(leading) for form in forms.FORMS}
        line = (0, -1)
        for key, end in ends_of(text, keys):
            if not line[0] <= end <= line[1]:
                line = line_at(text, end)
            for form in forms.FORMS:
                if form.after.match(text, end) is not None and form.key.search(key):
                    found[form].add(line)
        return {form: form.begins(text, sorted(lines)) for form, lines in found.items()}


def mask_pairs(text: str, words: str) -> str:
    """The text with the values of secret keys replaced by `[REDACTED:kind]`.

    `words` are its `distinct_words`.
    """
    if keys := SecretKeys.of(words):
        lines = keys.lines(text)
        for form in forms.FORMS:
            masked = mask_with(form, text, lines[form])
            if masked is not text:
                text, lines = masked, SecretKeys.of(distinct_words(masked)).lines(masked)
    return forms.XML.sub(_mask_element, text) if "</" in text else text


def _keys_by_hint(words: str, lowered: str) -> dict[str, set[str]]:
    """Keys that may name a secret, by their hint. A key that does so only after another word is left out."""
    found: dict[str, set[str]] = {}
    for hint in forms.HINTS:
        at = lowered.find(hint)
        while at != -1:
            start, end = lowered.rfind("\n", 0, at) + 1, lowered.find("\n", at)
            for key in forms.KEY.findall(words, start, end):
                last = key.lower()
                if last in forms.NOT_ALONE:
                    found.setdefault(last, set())
                elif _may_name_secret(key, last):
                    found.setdefault(hint, set()).add(key)
            at = lowered.find(hint, end)
    return found


def _may_name_secret(key: str, last: str) -> bool:
    """True if a key names a secret.

    It may be a list, or lack its first letter, which then belongs to an escaped line end.
    """
    if last.endswith(("tokens", "keys")) or secret_kind(key) is not None:
        return True
    return last[0] in "nrt" and (last[1:] in forms.NOT_ALONE or secret_kind(key[1:]) is not None)


def mask_with(form: Form, text: str, lines: Sequence[Span]) -> str:
    """The text with the secret values of a form replaced whose matches begin in these lines."""
    if form.pattern is forms.CELL:
        return mask_lines(text, lines, lambda line: forms.CELL.sub(_mask_cell, line))
    parts: list[str] = []
    done = 0
    for start, end, mark in _secrets(form, text, lines):
        parts += (text[done:start], mark)
        done = end
    return "".join((*parts, text[done:])) if parts else text


def _secrets(form: Form, text: str, lines: Sequence[Span]) -> Iterator[tuple[int, int, str]]:
    """Yield the places of the values of keys in these lines, and their replacements.

    Values may span lines.
    """
    position, search = 0, form.pattern.search
    for first, last in lines:
        position = max(position, first)
        while (match := search(text, position, last + form.reach)) is not None and match.start() < last:
            position = match.end()
            if (found := _secret(match, text)) is not None:
                yield found
                position = max(found[1], position)


def _secret(match: re.Match[str], text: str) -> tuple[int, int, str] | None:
    kind = _kind(match, text) or _kind_of_list(match, text)
    if kind is None or (match["open"] is None and NOT_SET.match(text, match.end())):
        return None
    start, end = _extent(match, text, kind)
    if not _is_secret(text[start:end], kind, match):
        return None
    mark = mark_of(kind)
    quoted = match["close"] is not None and match["open"] is None and match["close"] in {'"', "'"}
    return start, end, f"{match['close']}{mark}{match['close']}" if quoted else mark


def _kind(match: re.Match[str], text: str) -> str | None:
    key = match["key"]
    if match["close"] and "/" in key and ":" in match["sep"]:
        return None  # the end of a quoted URL or path, followed by an error
    if forms.HINT.search(folded(key), max(0, len(key) - 64)) is None:
        return None
    if key.lower() in forms.NOT_ALONE:
        lead = forms.LEAD_WORD.search(text[max(0, match.start() - 16) : match.start()])
        return secret_kind(f"{lead[1]}_{key}") if lead else None
    if text[match.start() - 1 : match.start()] == ":" and _in_arn(text, match.start()):
        return None
    if key.lower() == "secrets" and SECRET_OBJECTS.search(text[max(0, match.start() - 16) : match.start()]):
        return None
    tail = match.groupdict().get("tail")  # of an escaped line end: `\npass=`, if the key is not `\token=`
    return secret_kind(key) or (secret_kind(tail + key) if tail else None)


def _kind_of_list(match: re.Match[str], text: str) -> str | None:
    """`apiKeys:` with a list of random words below it. `tokens: 512 used` counts something."""
    key, start = match["key"], match.end()
    if not key.lower().endswith(("tokens", "keys")) or match["open"] is not None:
        return None
    block = forms.BLOCK.match(text, start)
    words = _items(text[slice(*_indented(text, match.start("key"), block.end()))]) if block else []
    if block is None and (listed := forms.LIST.match(text, start) or forms.QUOTED_LIST.match(text, start)):
        words = [word.strip(" \n\t\"'") for word in listed[1].split(",")]
    random = [len(word) >= 8 and word.isascii() and not (word.isalpha() or word.isdigit()) for word in words]
    return secret_kind(key[:-1]) if random and all(random) else None


def _items(block: str) -> list[str]:
    """The scalars of a YAML list; empty if an item is anything else."""
    items = [forms.SCALAR_ITEM.fullmatch(line.strip()) for line in block.splitlines() if line.strip()]
    return [item["scalar"].strip("\"'") for item in items if item] if all(items) else []


def _in_arn(text: str, position: int) -> bool:
    """True if the word at `position` belongs to an ARN, which names a thing and holds no secret."""
    before = text[max(0, position - 256) : position]
    return forms.ARN.search(before) is not None


def _extent(match: re.Match[str], text: str, kind: str) -> tuple[int, int]:
    """Start and end of the value that follows the match."""
    start = match.end()
    if match["open"] is not None:
        return _quoted(text, start, match["open"])
    if kind == "cookie" and (cookies := forms.HEADER_COOKIES.match(text, start)) is not None:
        return start, start + len(cookies.group().rstrip())
    if ":" in match["sep"] and (block := forms.BLOCK.match(text, start)) is not None:
        return _indented(text, match.start("key"), block.end())
    if not forms.MARKED.match(text, start) and (
        listed := forms.LIST.match(text, start) or forms.QUOTED_LIST.match(text, start)
    ):
        return listed.span(1)
    return start, _bare_end(match, text, kind)


def _bare_end(match: re.Match[str], text: str, kind: str) -> int:
    """The end of a value without quotes."""
    start = match.end()
    json_key = match["close"] is not None and match["sep"].strip() == ":"
    if json_key and (found := forms.JSON_VALUE.match(text, start)):
        return found.end("bare") if found["bare"] else start
    if ":" in match["sep"] and (block := forms.ESCAPED_BLOCK.match(text, start)) is not None:
        return block.end()
    if ":" in match["sep"] and (flat := forms.FLAT_BLOCK.match(text, start)) is not None:
        bare = forms.BARE.match(text, flat.end())
        return bare.end() if bare else flat.end()
    if (lead := _yaml_lead(match, text)) is not None:
        return _line_end(text, start, escaped=lead.startswith("\\"))
    scheme = forms.CREDENTIALS.match(text, start) if kind in {"authorization", "token"} else None
    bare = forms.BARE.match(text, scheme.end() if scheme else start)
    return bare.end() if bare else start


def _quoted(text: str, start: int, quote: str) -> tuple[int, int]:
    """Start and end of a quoted value. A string in three quotes (TOML, Python) may span lines."""
    if not text.startswith(quote * 2, start):
        return start, _closing(text, start, quote)
    inside = start + 2 * len(quote)
    end = text.find(quote * 3, inside, inside + forms.LONGEST_QUOTED)
    return (inside, end) if end != -1 else (start, start)


def _closing(text: str, start: int, quote: str) -> int:
    """The end of a quoted value: at the same quote, escaped no further; else at the end of its line.

    A quote right before a word opens another value: `token=" password="hunter2"` has lost one. On a later
    line the first quote decides, so that a line that was cut does not take the rest of the text along.
    """
    limit = start + forms.LONGEST_QUOTED
    position, line_end = start, text.find("\n", start, limit)
    while (found := text.find(quote, position, limit)) != -1:
        before = text[max(start, found - 16) : found]
        after = text[found + len(quote) : found + len(quote) + 1]
        doubled = quote == "'" and after == "'"
        if (len(before) - len(before.rstrip("\\"))) % 2 == 0 and not doubled:
            if not after or after in forms.AFTER_QUOTE:
                return found
            if -1 < line_end < found:
                return line_end
        position = found + (2 if doubled else 1)
    line_end = text.find("\n", start) if line_end == -1 else line_end
    return len(text) if line_end == -1 else line_end


def _indented(text: str, key_start: int, position: int) -> tuple[int, int]:
    """The lines that are indented deeper than the key: a YAML block, or a scalar on a line of its own.

    A key behind other words, as a log prints it, counts like its line.
    """
    line_start = text.rfind("\n", 0, key_start) + 1
    before = text[line_start:key_start]
    depth = len(before) - len(before.lstrip(" ")) if before.strip(" -\"'") else len(before)
    end = position
    while end < len(text):
        line_end = text.find("\n", end)
        line_end = len(text) if line_end == -1 else line_end
        line = text[end:line_end]
        indent = len(line) - len(line.lstrip(" "))
        item_of_key = indent == depth and forms.SCALAR_ITEM.match(line, indent) is not None
        if line.strip() and indent <= depth and not item_of_key:
            break
        end = min(line_end + 1, len(text))
    body = text[position:end]
    lead = len(body) - len(body.lstrip())
    return position + lead, position + len(body.rstrip()) if body.strip() else position + lead


def _yaml_lead(match: re.Match[str], text: str) -> str | None:
    """The line start and indentation before a YAML key, if nothing else precedes it.

    The line end may be escaped.
    """
    if match["sep"].strip() != ":" or match["sep"] == ":":
        return None
    key = match.start("key")
    lead = forms.LINE_LEAD.search(text[max(0, key - forms.LONGEST_LEAD) : key])
    return lead[0] if lead else None


def _line_end(text: str, start: int, *, escaped: bool) -> int:
    """The end of a plain YAML value: of its line or of the string its line stands in, without a comment."""
    end = len(text)
    for stop in ("\n", "\\n", '"', " #") if escaped else ("\n", " #"):
        found = text.find(stop, start, end)
        end = found if found != -1 else end
    return start + len(text[start:end].rstrip())


def _is_secret(value: str, kind: str, match: re.Match[str]) -> bool:
    if forms.MARKED.fullmatch(value) or is_no_secret(value, kind) or value == "|":  # a table
        return False
    if kind == "auth":
        return looks_random(value) or (len(value) >= 12 and value.endswith("="))
    if match["open"] is not None:
        return True
    if value.startswith("- "):
        return not all(is_no_secret(item, kind) for item in _items(value))
    if "\n" in value and forms.MAPPING.match(value):
        return False
    return not _states_something(value, kind, match)


def _states_something(value: str, kind: str, match: re.Match[str]) -> bool:
    """True if the word after the key belongs to a sentence or counts something, so that it is not a value.

    `token: signature is invalid`, `volume "creds" : references ...` and `Secret: secrets is forbidden` are
    sentences, `cannot fetch token: 400 Bad Request` gives a status, `unexpected token: u` a character.
    """
    sep, line = match["sep"], match.string[match.end() : match.end() + 160].partition("\n")[0]
    quoted_name = bool(match["close"]) and sep.startswith(" ") and value[0].isalpha()
    sentence = is_prose(value) or quoted_name or (kind != "password" and is_statement(line))
    count = match["key"].lower() == "pass" and COUNT.match(value) is not None
    status = kind in {"token", "key"} and value.isdigit() and len(value) <= 3
    return (sep != sep.strip() and sentence) or count or status or (kind == "token" and len(value) < 4)


def _mask_cell(match: re.Match[str]) -> str:
    """The masked cell beside one that names a secret, in a table.

    A plain word there is the head of a column.
    """
    value, kind = match["value"], secret_kind(match["key"])
    plain = value.isalpha() or " " in value
    if kind is None or plain or is_no_secret(value, kind) or is_prose(value) or forms.MARKED.fullmatch(value):
        return match.group()
    return with_group(match, "value", mark_of(kind))


def _mask_element(match: re.Match[str]) -> str:
    kind = secret_kind(match["key"])
    if kind is None or is_no_secret(match["value"], kind) or forms.MARKED.fullmatch(match["value"]):
        return match.group()
    return with_group(match, "value", mark_of(kind))
