"""Tells, by the distinct words and lines of a text, which rules it can fall under at all.

Logs and manifests repeat themselves: with every digit read as 0, their distinct words are a tenth of the
text. A rule whose words do not occur there costs nothing; any other is applied to the lines in which they
occur. A word ends at white space, a double quote or a comma: a secret contains none of these, unless its key
precedes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

READ_AS = ('123456789",', "000000000  ")
TABLE, BYTES_TABLE = str.maketrans(*READ_AS), bytes.maketrans(*(side.encode() for side in READ_AS))
Span = tuple[int, int]


def distinct_words(text: str) -> str:
    """The distinct words of a text, each between two line ends, with every digit as 0."""
    return "\n".join(("", *set(with_zeros(text).split()), ""))


def with_zeros(text: str) -> str:
    """The text with every digit as 0 and blanks at the ends of words, of the same length."""
    if text.isascii():
        return text.translate(TABLE)
    return text.encode("utf-8", "surrogatepass").translate(BYTES_TABLE).decode("utf-8", "surrogatepass")


def folded(text: str) -> str:
    """The text in lower case, of the same length, as far as patterns that ignore case see it."""
    if not text.isascii():
        text = text.replace("\u0130", "i").replace("\u0131", "i").replace("\u017f", "s")
    return text.lower()


def lines_with(text: str, needles: Iterable[str | re.Pattern[str]]) -> list[Span]:
    """Start and end of the lines in which one of the needles occurs, in order."""
    found: set[Span] = set()
    for needle in needles:
        at = _find(text, needle, 0)
        while at != -1:
            found.add(line := line_at(text, at))
            at = _find(text, needle, line[1])
    return sorted(found)


def ends_of(text: str, words: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Each of the words, with every digit as 0, and where it ends in the text, as often as it occurs there."""
    read = with_zeros(text)
    for word in words:
        at = read.find(word)
        while at != -1:
            yield word, at + len(word)
            at = read.find(word, at + len(word))


def _find(text: str, needle: str | re.Pattern[str], start: int) -> int:
    if isinstance(needle, str):
        return text.find(needle, start)
    match = needle.search(text, start)
    return match.start() if match else -1


def line_at(text: str, at: int) -> Span:
    """Start and end of the line around a position."""
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


def with_group(match: re.Match[str], group: str | int, mark: str) -> str:
    """The text of a match with one of its groups replaced."""
    start, end = (at - match.start() for at in match.span(group))
    return f"{match[0][:start]}{mark}{match[0][end:]}"
