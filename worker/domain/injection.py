"""Text in the evidence that talks to its reader: detected, reported, never obeyed.

The phrases are those of `orders.py`, looked for in everything that a model may read a text as. A hit costs autonomy (a
person approves), never evidence.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from worker.domain.evidence import EXTERNAL, Evidence, one_line
from worker.domain.orders import CHOICES, ORDERS

SHOWN_CHARS = 400
BEFORE_CHARS, AFTER_CHARS = 100, 250
"""How much is shown around a hit: enough to see what it orders."""
CATALOG_SOURCES = frozenset({"get_workflow", "list_available_actions", "list_workflows"})
"""Documents of many short texts, each read by itself: across them, words meet that nobody wrote together."""
ESCAPES = re.compile(r"\\+(?:u\{[0-9a-f]{1,6}\}|u([0-9a-fA-F]{4})|([nrt]))")
"""What JSON and this worker make of characters: `\\n`, `\\u0041`, `\\u{200b}`."""
WORD_CHAIN = re.compile(r"(?<![A-Za-z])[A-Za-z]++(?:[ -][A-Za-z]++){2,}+")
"""Three words or more: shorter ones are names and flags."""
SPELT_OUT = re.compile(r"(?<!\w)\w(?:[ .]\w(?!\w)){4,}")
"""A word whose letters stand apart."""
BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{20,}={0,2}(?![A-Za-z0-9+/=_-])")
URL_SAFE = str.maketrans("-_", "+/")
FILLERS = re.compile("[\u115f\u1160\u2800\u3164\uffa0]")
"""Letters and symbols by their category, blank to the eye (Unicode, Default_Ignorable_Code_Point; braille blank)."""
UNSEEN = frozenset({"Cf", "Mn"})
LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u0410\u0412\u0415\u041a\u041c\u041d"
    "\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405\u03bf\u03b1\u03b9\u03bd\u03c1\u03c5\u03ba\u0391\u0392\u0395\u0396"
    "\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u0131\u0261\u2010\u2011\u2012\u2013\u2014\u2212",
    "aeopcyxijsdhqwABEKMHOPCTYXIJSoaivpukABEZHIKMNOPTYXig------",
)
"""Cyrillic and Greek letters that look like Latin ones (Unicode, confusables), and dashes."""


def suspicious_lines(text: str, *, of_catalog: bool = False) -> list[str]:
    """What reads like instructions to whoever analyses the text, with its surroundings, each at most 400 characters.

    Words are found although they are joined by underscores or dashes, spelt with look-alike letters, set apart by
    invisible characters, or written in base64.
    """
    patterns = ORDERS if of_catalog else (*ORDERS, CHOICES)
    found = [part for reading in readings(text) for part in _orders(reading, patterns)]
    return list(dict.fromkeys(found))


def _orders(text: str, patterns: Sequence[re.Pattern[str]]) -> list[str]:
    parted = WORD_CHAIN.sub(lambda chain: chain[0].replace("-", " "), text.replace("_", " "))
    spans = {
        match.span() for read in {text, parted} for pattern in patterns for match in pattern.finditer(read)
    }
    shown, shown_to = [], 0
    for start, end in sorted(spans):
        if end > shown_to:  # not shown with the one before
            shown_to = end + AFTER_CHARS
            shown.append(one_line(text[max(0, start - BEFORE_CHARS) : shown_to], SHOWN_CHARS))
    return shown


def readings(text: str) -> Iterator[str]:
    """The text as a model may read it: without escapes, with plain letters, with and without what is invisible."""
    text = ESCAPES.sub(_unescaped, text)
    if not text.isascii():
        text = FILLERS.sub(" ", unicodedata.normalize("NFKC", text))
        yield text
        text = text.translate(LOOKALIKES)
        unseen = [c for c in set(text) if not c.isascii() and unicodedata.category(c) in UNSEEN]
        if unseen:
            yield text.translate({ord(c): " " for c in unseen})
        text = text.translate({ord(c): None for c in unseen})
    yield text
    if SPELT_OUT.search(text):
        yield SPELT_OUT.sub(lambda word: word[0].replace(" ", "").replace(".", ""), text)
    yield from (plain for match in BASE64.finditer(text) if (plain := _decoded(match[0])))


def _decoded(run: str) -> str:
    """What a run of base64 says, empty when it is no text."""
    body = run.rstrip("=").translate(URL_SAFE)
    try:
        plain = base64.b64decode(body + "=" * (-len(body) % 4), validate=True).decode("utf-8")
    except ValueError:
        return ""
    return plain if " " in plain or "_" in plain or "-" in plain else ""


def _unescaped(match: re.Match[str]) -> str:
    if match[2]:
        return "\n"
    return chr(int(match[1], 16)) if match[1] else ""


def instructions(evidence: Iterable[Evidence]) -> dict[str, tuple[str, ...]]:
    """Suspicious texts by the id of the evidence they stand in. Only items with a hit are in the result.

    Errors are words of our own, unless they come from a mounted server.
    """
    found = (
        (item.id, tuple(_suspicious(item)))
        for item in evidence
        if item.ok or item.source.startswith(EXTERNAL)
    )
    return {id_: lines for id_, lines in found if lines}


def _suspicious(item: Evidence) -> Iterator[str]:
    if item.source not in CATALOG_SOURCES:
        yield from suspicious_lines(item.body)
        return
    for text in _texts(item.body):
        yield from suspicious_lines(text, of_catalog=True)


def _texts(body: str) -> Iterator[str]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):  # cut to its budget
        yield body
    else:
        yield from _strings(document)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
