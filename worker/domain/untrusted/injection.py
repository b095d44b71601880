"""Text in the evidence that talks to its reader: detected, reported, never obeyed.

The phrases are those of `orders.py`, looked for in everything that a model may read a text as. A hit costs autonomy (a
person approves), never evidence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from worker.domain.untrusted.evidence import EXTERNAL, Evidence, EvidenceKind, one_line
from worker.domain.untrusted.orders import CHOICES, ORDERS
from worker.domain.untrusted.readings import readings

SHOWN_CHARS = 400
BEFORE_CHARS, AFTER_CHARS = 100, 250
"""How much is shown around a hit: enough to see what it orders."""
CATALOG_SOURCES = frozenset({"get_workflow", "list_available_actions", "list_workflows"})
"""Documents of many short texts, each read by itself: across them, words meet that nobody wrote together."""
WORD_CHAIN = re.compile(r"(?<![A-Za-z])[A-Za-z]++(?>(?:[ -][A-Za-z]++){2,})")
"""Three words or more: shorter ones are names and flags."""


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
    for text in texts_of(item):
        yield from suspicious_lines(text, of_catalog=True)


def texts_of(item: Evidence, *, beside: str = "") -> Iterator[str]:
    """The texts of a document of the catalog, one by one; not those of the workflow with the id `beside`."""
    try:
        document = json.loads(item.body)
    except (ValueError, RecursionError):  # cut to its budget: nobody knows whose text is whose
        if not beside:
            yield item.body
    else:
        yield from _strings(document, beside)


def without_history(item: Evidence) -> str:
    """The body without past remediations: what was executed is named there by its office."""
    if item.kind is not EvidenceKind.OWNERS:
        return item.body
    try:
        shown = json.loads(item.body)
    except (ValueError, RecursionError):  # cut to its budget
        return item.body
    return (
        json.dumps({k: v for k, v in shown.items() if k != "remediation_history"})
        if isinstance(shown, dict)
        else item.body
    )


def _strings(value: Any, beside: str) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part, beside)
    elif isinstance(value, dict) and not (beside and value.get("workflow_id") == beside):
        for part in value.values():
            yield from _strings(part, beside)
