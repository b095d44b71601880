"""A text as a model may read it: whatever a model decodes by itself must be read by the checks as well."""

from __future__ import annotations

import base64
import codecs
import re
import unicodedata
import urllib.parse
from collections.abc import Iterator

ESCAPES = re.compile(r"(?<!\\)\\++(?:u\{([0-9a-f]{1,6})\}|u([0-9a-fA-F]{4})|([nrt]))")
"""What JSON and this worker make of characters: `\\n`, `\\u0041`, `\\u{200b}`."""
SPELT_OUT = re.compile(r"(?<!\w)\w(?:[ .]{1,4}\w(?!\w)){4,}")
"""Words whose letters stand apart."""
BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{20,}={0,2}(?![A-Za-z0-9+/=_-])")
URL_SAFE = str.maketrans("-_", "+/")
PERCENT = re.compile(r"(?:%[2-7][0-9a-fA-F]){3,}|(?<![\w%+])\w++(?:(?:%20|\+)\w++){2,}")
LEET_WORD = r"(?=\w*[a-z])(?=\w*[013457])\w++"
LEET_RUN = re.compile(rf"(?<!\w){LEET_WORD}(?: ++{LEET_WORD})+", re.IGNORECASE)
LEET = str.maketrans("013457", "oieast")
"""Digits that stand for letters, in two words or more that follow each other."""
ENGLISH = re.compile(r"\b(?:the|and|you|your|not|all|this|that|with|for|is|to|of|at)\b")
ROTATED_WORDS = 3
FILLERS = re.compile("[\u115f\u1160\u2800\u3164\uffa0]")
"""Letters and symbols by their category, blank to the eye (Unicode, Default_Ignorable_Code_Point; braille blank)."""
UNSEEN = frozenset({"Cf", "Mn"})
TAGS = {code: chr(code - 0xE0000) for code in range(0xE0020, 0xE007F)}
"""Unseen copies of ASCII (Unicode, Tags)."""
LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u0410\u0412\u0415\u041a\u041c\u041d"
    "\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405\u03bf\u03b1\u03b9\u03bd\u03c1\u03c5\u03ba\u0391\u0392\u0395\u0396"
    "\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u0131\u0261\u2010\u2011\u2012\u2013\u2014\u2212",
    "aeopcyxijsdhqwABEKMHOPCTYXIJSoaivpukABEZHIKMNOPTYXig------",
)
"""Cyrillic and Greek letters that look like Latin ones (Unicode, confusables), and dashes."""


def readings(text: str) -> Iterator[str]:
    """Without escapes, with plain letters, with and without what is invisible, and everything that is encoded in it."""
    text = ESCAPES.sub(_unescaped, text)
    if not text.isascii():
        text = FILLERS.sub(" ", unicodedata.normalize("NFKC", text.translate(TAGS)))
        yield text
        text = text.translate(LOOKALIKES)
        unseen = [c for c in set(text) if not c.isascii() and unicodedata.category(c) in UNSEEN]
        if unseen:
            yield text.translate({ord(c): " " for c in unseen})
        text = text.translate({ord(c): None for c in unseen})
    yield text
    yield from _decoded(text)


def _decoded(text: str) -> Iterator[str]:
    if SPELT_OUT.search(text):
        yield SPELT_OUT.sub(_joined, text)
    if LEET_RUN.search(text):
        yield LEET_RUN.sub(lambda words: words[0].translate(LEET), text)
    if PERCENT.search(text):
        yield PERCENT.sub(lambda run: urllib.parse.unquote_plus(run[0], errors="replace"), text)
    yield from (plain for match in BASE64.finditer(text) if (plain := _of_base64(match[0])))
    rotated = codecs.encode(text, "rot13")
    yield from (line for line in rotated.splitlines() if len(ENGLISH.findall(line)) >= ROTATED_WORDS)


def _joined(spelt: re.Match[str]) -> str:
    """Letters in words: a wider gap parts words, an even one does not."""
    gap = r" {2,}" if re.search(r"\w [^ ]", spelt[0]) else r"(?!)"
    return " ".join(re.sub(r"[ .]", "", word) for word in re.split(gap, spelt[0]))


def _of_base64(run: str) -> str:
    """What a run of base64 says, empty when it is no text."""
    body = run.rstrip("=").translate(URL_SAFE)
    try:
        plain = base64.b64decode(body + "=" * (-len(body) % 4), validate=True).decode("utf-8")
    except ValueError:
        return ""
    return plain if " " in plain or "_" in plain or "-" in plain else ""


def _unescaped(match: re.Match[str]) -> str:
    if match[3]:
        return "\n"
    if match[2]:
        return chr(int(match[2], 16))
    return TAGS.get(int(match[1], 16), "")
