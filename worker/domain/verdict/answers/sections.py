"""Answers written as sections: a heading or a tag for each field, and its value below or behind it.

# root_cause_analysis
{"summary": ...}

# selected_workflow
null
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from worker.domain.verdict.answers.json_text import JsonFault, read_value

# The fields that may stand as a section, without case, spaces and underscores.
SECTIONS = frozenset({
    "rootcauseanalysis", "selectedworkflow", "alternativeworkflows", "investigationoutcome", "recoveryanalysis",
    "recoverystrategy", "confidence", "rationale", "warnings", "contextused",
})  # fmt: skip
_WORDS = frozenset({"investigationoutcome", "rationale"})
_HEADING = re.compile(r"[\s#>*_`0-9.)-]*([A-Za-z][A-Za-z_ -]{2,60})[*_`\s]*(?:[:=]|\Z)[*_`\s]*")
_TAG = re.compile(r"<(?:parameter\s+name=)?[\"']?([A-Za-z_]{3,60})[\"']?>\s*")
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})")
_NOTHING = frozenset({"null", "none", "n/a", "nil"})
_LINES_OF_LABEL = 6
_LINE_CHARS = 4_000


def section_of(label: str) -> str:
    """The field whose heading stands at the end of `label`, or an empty string."""
    lines = [line for line in label.splitlines() if line.strip() and not _FENCE.match(line)]
    for line in reversed(lines[-_LINES_OF_LABEL:]):
        name, _ = _heading(line)
        if name or line.lstrip().startswith("#"):
            return name
    return ""


def stated_in_lines(gaps: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Fields with a value of one line between the objects: `(field, value)`."""
    for gap in gaps:
        lines = [line for line in gap.splitlines() if line.strip() and not _FENCE.match(line)]
        for line, following in pairwise([*lines, ""]):
            name, rest = _heading(line)
            if name:
                yield from _line_value(name, rest or following.strip())


def _heading(line: str) -> tuple[str, str]:
    """The field a heading names and what stands behind it on the line."""
    line = line[:_LINE_CHARS]
    match = _HEADING.match(line) or _TAG.match(line.lstrip())
    if match is None:
        return "", ""
    name = re.sub(r"[^a-z]", "", match.group(1).lower())
    rest = match.string[match.end() :].strip()
    return (name, rest) if name in SECTIONS else ("", "")


def _line_value(name: str, text: str) -> Iterator[tuple[str, Any]]:
    if text.strip(" .*_`").lower() in _NOTHING:
        yield name, None
        return
    try:
        value = read_value(text, 0).value
    except JsonFault:
        if name in _WORDS and text:
            yield name, text
        return
    yield name, value
