"""JSON that was cut to a budget: what can still be read of it.

A tool result that is too long keeps its head and its tail. The head is a JSON object that stops somewhere; closing
what is open gives every complete value in it. Nothing is invented: a value that is cut in the middle is dropped.
"""

from __future__ import annotations

import json
from typing import Any

OPENERS = {"{": "}", "[": "]"}
MAX_TRIES = 40


def read_object(text: str) -> tuple[dict[str, Any] | None, bool]:
    """The JSON object in `text` and whether it is whole. None when there is no object at all."""
    start = text.find("{")
    if start < 0:
        return None, False
    try:
        value, _end = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return _read_head(text[start:]), False
    return (value, True) if isinstance(value, dict) else (None, False)


def _read_head(text: str) -> dict[str, Any] | None:
    cut, closers = _last_complete(text)
    for _ in range(MAX_TRIES):
        if cut <= 0:
            return None
        try:
            value = json.loads(text[:cut] + closers)
        except (ValueError, RecursionError):
            cut, closers = _last_complete(text[: cut - 1])
            continue
        return value if isinstance(value, dict) else None
    return None


def _last_complete(text: str) -> tuple[int, str]:
    """The longest prefix that ends before a comma outside of strings, and the brackets that close it."""
    stack: list[str] = []
    best, best_closers = 0, ""
    in_string = False
    for index, char in enumerate(text):
        if in_string:
            in_string = char != '"' or _was_escaped(text, index)
            continue
        if char == '"':
            in_string = True
        elif char in OPENERS:
            stack.append(OPENERS[char])
            best, best_closers = index + 1, "".join(reversed(stack))
        elif char in "}]":
            if not stack or stack.pop() != char:
                break
            best, best_closers = index + 1, "".join(reversed(stack))
        elif char == ",":
            best, best_closers = index, "".join(reversed(stack))
    return best, best_closers


def _was_escaped(text: str, index: int) -> bool:
    slashes = 0
    while index - slashes - 1 >= 0 and text[index - slashes - 1] == "\\":
        slashes += 1
    return slashes % 2 == 1
