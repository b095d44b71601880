"""The lines of the evidence that matter: those that a human would look up first.

Evidence is text from outside: these lines are chosen by their form, and show what somebody wrote there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from schemas.analysis import AnalysisResult
from schemas.evidence import EvidenceItem
from worker.app.verdict_line import cause_text

TROUBLE = re.compile(
    r"^\S+ Warning |\b(?:error|fatal|panic|critical|exception|traceback|oomkilled)\b", re.IGNORECASE
)
CHANGE = re.compile(r"(\s*\S+: )(.*?) -> (.*)")
QUOTED_CHARS = 24
"""A shorter line may occur in the text of a root cause by chance."""
FORM_OF = {
    "enrichment:changes": "changed",
    "get_resource_context": "changed",
    "enrichment:pods": "state",
    "list_resources": "state",
    "enrichment:logs": "log",
    "get_pod_logs": "log",
    "enrichment:events": "event",
    "get_events": "event",
}
"""The form of the lines that a source of evidence may tell, by its name."""
WEIGHTS = {"quoted": 2, "bad": 1, "": 0}
SHOWN = 3
FORMS = ("changed", "state", "log", "event")
"""The forms of lines, the most telling ones first; one of each is shown."""


@dataclass(frozen=True, slots=True)
class Line:
    """`tone` is `quoted` for what the root cause says word by word, `bad` for trouble.

    A change has `old` and `new`.
    """

    text: str
    tone: str = ""
    old: str = ""
    new: str = ""


@dataclass(frozen=True, slots=True)
class Telling:
    """A line of a piece of evidence, and what it is: one of FORMS."""

    form: str
    text: str
    evidence: str


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


def telling(result: AnalysisResult) -> list[Telling]:
    """What shows the trouble of the affected object, or else of the object that the signal names."""
    affected, told = result.affected_resource, result.signal
    ours, theirs = _about(affected.name if affected else ""), _about(told.resource_name if told else "")
    cause, best = cause_text(result), dict[str, tuple[tuple[bool, int], Telling]]()
    for item in result.evidence:
        form = FORM_OF.get(item.source, "")
        for line, where, weight in _candidates(item, cause):
            is_ours, is_theirs = bool(ours.search(where)), bool(theirs.search(where)) and form != "changed"
            score = (is_ours, weight)
            if weight and (is_ours or is_theirs) and (form not in best or score > best[form][0]):
                best[form] = score, Telling(form, line.strip(), item.id)
    return [best[form][1] for form in FORMS if form in best][:SHOWN]


def _about(name: str) -> re.Pattern[str]:
    """Finds the name of an object, and the names of its pods; nothing for no name."""
    return re.compile(
        rf"(?<![\w.-]){re.escape(name)}(?:-[a-z0-9]{{1,10}}){{0,2}}(?![\w.-])" if name else r"(?!)"
    )


def _candidates(item: EvidenceItem, cause: str) -> Iterator[tuple[str, str, int]]:
    """The lines that may be shown, where each names its object, and how telling it is (0: not at all).

    Of equally telling ones, the first is shown.
    """
    text = item.excerpt
    match FORM_OF.get(item.source):
        case "state":
            yield from ((f"{name}: {reason}", name, 1) for name, reason in _states(text))
        case "changed":
            with suppress(ValueError, AttributeError, TypeError, RecursionError):
                text = "\n".join(json.loads(text).get("recent_changes", ()))
            for line in lines(text):
                weight = (2 if line.new and line.new in cause else 1) if line.old or line.new else 0
                yield f"{line.text}{line.old} -> {line.new}", item.summary, weight
        case "log" | "event" as form if not text.startswith("error: "):
            for line in reversed(list(lines(text, cause))):
                yield line.text, item.summary if form == "log" else line.text, WEIGHTS[line.tone]


def _states(table: str) -> Iterator[tuple[str, str]]:
    """Names and reasons in the rows of a table, as far as they have a reason."""
    header, *rows = [line.split(" | ") for line in table.splitlines()] or [[]]
    if {"NAME", "REASON"} <= set(header):
        name, reason = header.index("NAME"), header.index("REASON")
        whole = (row for row in rows if len(row) > max(name, reason))
        yield from ((row[name], row[reason]) for row in whole if row[reason] != "-")
