"""What a piece of evidence said, line by line, with the lines marked that matter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

TROUBLE = re.compile(
    r"^\S+ Warning |\b(?:error|fatal|panic|critical|exception|traceback|oomkilled)\b", re.IGNORECASE
)
CHANGE = re.compile(r"(\s*\S+: )(.*?) -> (.*)")
QUOTED_CHARS = 24
"""A shorter line stands in the text of a root cause by chance."""


@dataclass(frozen=True, slots=True)
class Line:
    """`tone` is `quoted` for what the root cause says word by word, `bad` for trouble. A change has `old` and `new`."""

    text: str
    tone: str = ""
    old: str = ""
    new: str = ""


def lines(excerpt: str, cause: str = "") -> Iterator[Line]:
    """The lines of an excerpt; `cause` is the text of the root cause."""
    for text in excerpt.splitlines():
        change = CHANGE.fullmatch(text)
        if change and not text.startswith(("{", "[")):
            yield Line(change[1], old=change[2], new=change[3])
        elif len(text) >= QUOTED_CHARS and text.strip() in cause:
            yield Line(text, "quoted")
        else:
            yield Line(text, "bad" if not text.startswith("{") and TROUBLE.search(text) else "")
