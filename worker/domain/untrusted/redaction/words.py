"""What tells from the distinct words of a text, and from its lines, which rules it can fall under at all.

Logs and manifests repeat themselves: with every digit read as 0, their distinct words are a tenth of the text. A rule
whose words do not occur there costs nothing, and any other is applied to the lines in which they occur.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

DIGITS = str.maketrans("123456789", "000000000")
ZEROS = bytes.maketrans(b"123456789", b"000000000")
Span = tuple[int, int]


def distinct_words(text: str) -> str:
    """The distinct words of a text, each between two line ends, with every digit as 0."""
    words = zeroed("\n".join(set(text.split())))
    return "\n".join(("", *set(words.split("\n")), ""))


def zeroed(text: str) -> str:
    """The text with every digit as 0, of the same length."""
    if text.isascii():
        return text.translate(DIGITS)
    return text.encode("utf-8", "surrogatepass").translate(ZEROS).decode("utf-8", "surrogatepass")


def folded(text: str) -> str:
    """The text in lower case, of the same length, as far as patterns that ignore case see it."""
    if not text.isascii():
        text = text.replace("\u0130", "i").replace("\u0131", "i").replace("\u017f", "s")
    return text.lower()


def lines_with(text: str, needles: Iterable[str | re.Pattern[str]]) -> list[Span]:
    """Where the lines begin and end in which one of the needles occurs, in order."""
    found: set[Span] = set()
    for needle in needles:
        at = _find(text, needle, 0)
        while at != -1:
            found.add(line := _line(text, at))
            at = _find(text, needle, line[1])
    return sorted(found)


def lines_with_words(text: str, words: Iterable[str], after: re.Pattern[str]) -> set[Span]:
    """The lines in which one of the words, with every digit as 0, occurs before what `after` matches."""
    found: set[Span] = set()
    read = zeroed(text)
    for word in words:
        at = read.find(word)
        while at != -1:
            end = at + len(word)
            if after.match(text, end) is not None:
                found.add(line := _line(text, at))
                end = line[1]
            at = read.find(word, end)
    return found


def _find(text: str, needle: str | re.Pattern[str], start: int) -> int:
    if isinstance(needle, str):
        return text.find(needle, start)
    match = needle.search(text, start)
    return match.start() if match else -1


def _line(text: str, at: int) -> Span:
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, len(text) if end == -1 else end


def mask_lines(text: str, lines: Iterable[Span], mask: Callable[[str], str]) -> str:
    """The text with some of its lines, given in order, masked."""
    parts: list[str] = []
    done = 0
    for start, end in lines:
        parts += (text[done:start], mask(text[start:end]))
        done = end
    return "".join((*parts, text[done:])) if parts else text
