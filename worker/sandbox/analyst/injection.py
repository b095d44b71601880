"""Text in data that speaks to its reader: named in a warning, never followed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from worker.sandbox.analyst.transcript import Seen

INSTRUCTION = re.compile(
    r"ignore (?:all |any |the )?(?:previous|prior|above|earlier) (?:instructions|prompts?)"
    r"|(?:required|mandatory) action: "
    r"|(?:select|choose|use|pick|run|execute|call) (?:the )?(?:workflow|tool)\b"
    r"|(?:select|choose) [a-z0-9]+(?:-[a-z0-9]+)+"
    r"|(?:report|set|use|return) confidence"
    r"|human review (?:is|must|should|not)|needs_human_review"
    r"|do not (?:re-?check|investigate|question|verify|touch|call|escalate)"
    r"|you (?:are|must|should) (?:now |an? )?(?:assistant|ai|llm|model|not|select|respond|answer|output|ignore|follow)"
    r"|system prompt|as an ai\b|<\s*/?\s*system\s*>|\bassistant:",
    re.IGNORECASE,
)


def planted(seen: Iterable[Seen]) -> list[str]:
    """Where such text stands: ids of evidence, or its source and scope."""
    places = [
        item.evidence_id or f"{item.source} {item.scope}".strip()
        for item in seen
        if INSTRUCTION.search(item.body) and not item.source.startswith(("list_", "get_workflow", "search_"))
    ]
    return list(dict.fromkeys(places))
