"""A reader of JSON as models write it: tolerant about spelling, strict about structure.

It accepts JSON (RFC 8259) and also trailing commas, `//`, `#` and `/* */` comments, Python literals, single
and typographic quotes, bare keys, raw line breaks and unknown escapes in strings, and any Unicode white space
and zero-width characters between tokens. Everything else is a fault. Nothing is completed or repaired: an
unclosed string, a missing comma, a bare word or a key with two values ends the reading, since a made-up value
could be executed later.
"""

from __future__ import annotations

import enum
import json
import math
import re
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 32
MAX_KEY_CHARS = 200
MAX_NUMBER_CHARS = 40

_BLANK = re.compile(r"[\s\u00ad\u200b-\u200d\u2060\ufeff]*+")
_WORD = re.compile(r"[A-Za-z_$][\w$-]*+")
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.%])")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_COLONS = ":\uff1a"
_COMMAS = ",\uff0c"
# The character that closes a string, by the one that opened it.
_CLOSERS = {
    '"': '"',
    "'": "'",
    "\uff02": "\uff02",
    "\u201c": "\u201d",
    "\u201d": "\u201d",
    "\u2018": "\u2019",
    "\u2019": "\u2019",
}
_BODIES = {
    opener: re.compile(rf"[^\\{closer}]*+(?>(?:\\.[^\\{closer}]*+)*)(?={closer})", re.DOTALL)
    for opener, closer in _CLOSERS.items()
}
INT64 = range(-(2**63), 2**63)


class JsonFaultKind(enum.StrEnum):
    """Why no value could be read. END: the text stopped inside it."""

    END = "end"
    SYNTAX = "syntax"
    DUPLICATE = "duplicate"


class JsonFault(Exception):  # noqa: N818 - a state of the text
    """No value begins at `start`. `position` is where reading stopped, `keys` the keys seen before it.

    `quoted_key`: at least one key was in quotes, so the text was meant as JSON.
    """

    def __init__(self, kind: JsonFaultKind, message: str, reader: _Reader) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message
        self.position, self.keys, self.quoted_key = reader.position, tuple(reader.keys), reader.quoted_key


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value, and the offset after it."""

    value: Any
    end: int


def read_value(text: str, start: int) -> JsonValue:
    """The value that starts at `start`.

    Raises:
        JsonFault: when there is none, or it does not end.

    """
    reader = _Reader(text, start)
    return JsonValue(reader.value(1), reader.position)


def same_value(one: Any, other: Any) -> bool:
    """True if two values read from JSON are equal; 1, 1.0 and true are three different ones."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


class _Reader:
    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.position = start
        self.keys: list[str] = []
        self.quoted_key = False

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._fault(JsonFaultKind.SYNTAX, f"objects and lists are nested deeper than {MAX_DEPTH}")
        head = self._peek()
        if head == "{":
            return self._object(depth)
        if head == "[":
            return self._list(depth)
        if head in _CLOSERS:
            return self._string()
        return self._scalar()

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self.position += 1
        while self._peek() != "}":
            key = self._key()
            if self._peek() not in _COLONS:
                raise self._fault(JsonFaultKind.SYNTAX, f"a colon is missing after the key {key[:40]!r}")
            self.position += 1
            self.keys.append(key)
            value = self.value(depth + 1)
            if key in members and not same_value(members[key], value):
                raise self._fault(
                    JsonFaultKind.DUPLICATE, f"the key {key[:40]!r} occurs twice with different values"
                )
            members[key] = value
            self._next_or("}", f"a comma or a closing brace is missing after the value of {key[:40]!r}")
        self.position += 1
        return members

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self.position += 1
        while self._peek() != "]":
            items.append(self.value(depth + 1))
            self._next_or("]", "a comma or a closing bracket is missing in a list")
        self.position += 1
        return items

    def _next_or(self, closer: str, complaint: str) -> None:
        """Step over the comma after an item; a closer right after it is a trailing comma."""
        mark = self._peek()
        if mark == closer:
            return
        if mark not in _COMMAS:
            raise self._fault(JsonFaultKind.SYNTAX, complaint)
        self.position += 1

    def _key(self) -> str:
        if self._peek() in _CLOSERS:
            key = self._string()
            if len(key) > MAX_KEY_CHARS:
                raise self._fault(JsonFaultKind.SYNTAX, f"a key is longer than {MAX_KEY_CHARS} characters")
            self.quoted_key = True
            return key
        word = _WORD.match(self.text, self.position)
        if word is None or len(word.group()) > MAX_KEY_CHARS:
            raise self._fault(JsonFaultKind.SYNTAX, "a key in double quotes is missing")
        self.position = word.end()
        return word.group()

    def _string(self) -> str:
        opener = self.text[self.position]
        body = _BODIES[opener].match(self.text, self.position + 1)
        if body is None:
            self.position = len(self.text)
            raise self._fault(JsonFaultKind.END, "a string is not closed")
        self.position = body.end() + 1
        content = body.group()
        if "\\" in content:
            content = _ESCAPE.sub(self._unescape, content)
        if _SURROGATE.search(content):
            content = content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return content

    def _unescape(self, match: re.Match[str]) -> str:
        """Replace one escape.

        An unknown escape keeps its backslash before a letter or digit, and loses it before a mark.
        """
        code = match.group(1)
        if len(code) > 1:
            point = int(code[1:], 16)
            return chr(point) if point <= 0x10FFFF else "\ufffd"
        if code in _ESCAPED:
            return _ESCAPED[code]
        return f"\\{code}" if code.isalnum() else code

    def _scalar(self) -> Any:
        word = _WORD.match(self.text, self.position)
        if word is not None:
            return self._literal(word)
        number = _NUMBER.match(self.text, self.position)
        if number is None or len(number.group()) > MAX_NUMBER_CHARS:
            raise self._fault(JsonFaultKind.SYNTAX, "a value is missing or not quoted")
        token = number.group()
        value = float(token) if re.search(r"[.eE]", token) else int(token)
        if (isinstance(value, int) and value not in INT64) or not math.isfinite(value):
            raise self._fault(JsonFaultKind.SYNTAX, "a number is too large")
        self.position = number.end()
        return value

    def _literal(self, word: re.Match[str]) -> bool | None:
        name = word.group()
        if name not in _LITERALS:
            at_end = word.end() == len(self.text)
            kind = JsonFaultKind.END if at_end else JsonFaultKind.SYNTAX
            raise self._fault(kind, f"the value {name[:40]!r} is not quoted")
        self.position = word.end()
        return _LITERALS[name]

    def _peek(self) -> str:
        """The next character that means something; comments and white space are stepped over."""
        text = self.text
        while True:
            blank = _BLANK.match(text, self.position)
            self.position = blank.end() if blank else self.position
            if text.startswith(("//", "#"), self.position):
                line_end = text.find("\n", self.position)
                self.position = len(text) if line_end < 0 else line_end
            elif text.startswith("/*", self.position):
                closed = text.find("*/", self.position + 2)
                self.position = len(text) if closed < 0 else closed + 2
            elif self.position < len(text):
                return text[self.position]
            else:
                raise self._fault(JsonFaultKind.END, "the text stops inside an object or a list")

    def _fault(self, kind: JsonFaultKind, message: str) -> JsonFault:
        return JsonFault(kind, message, self)
