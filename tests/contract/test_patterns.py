"""Regular expressions do the same on every Python that is supported."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
SOURCES = [path for package in ("worker", "schemas") for path in (TOP / package).rglob("*.py")]
POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\}{1,2})\+")


def test_no_group_is_repeated_possessively():
    """Before Python 3.11.5 such a repeat matches wrongly where the group backtracks; an atomic group does not."""
    assert POSSESSIVE_GROUP.search("(?:a|ab)++")
    assert POSSESSIVE_GROUP.search("(?:a|ab){2,}+")
    found = [
        f"{path}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if POSSESSIVE_GROUP.search(line)
    ]
    assert [] == found
