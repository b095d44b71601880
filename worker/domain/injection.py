"""Text in the evidence that talks to its reader: detected, reported, never obeyed.

The detectors look for what such text must contain to work on a model: an address to it, an order about its answer, or
its own message markup. They are deliberately wide. A hit costs autonomy (a person approves), never evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from worker.domain.evidence import Evidence, one_line

SHOWN_CHARS = 400
MAX_LINE_CHARS = 2_000
CONTEXT_LINES = 2

ORDERS = re.compile(
    r"""
      \b(ignore|disregard|forget|override|bypass)\b.{0,40}\b(previous|prior|above|earlier|other|all)\b.{0,40}
        \b(instructions?|prompts?|rules?|evidence|context|directives?|guidance)\b
    | \b(you\ are\ now|act\ as|pretend\ to\ be|you\ must\ now|from\ now\ on\ you)\b
    | \b(new|updated|real|actual)\s+(system\s+)?(instructions?|prompt|directive)s?\b\s*[:=]
    | \b(attention|note|message|notice|instructions?|directive)s?\s+(to|for)\s+(the\s+|any\s+|all\s+)?
        (ai\b|llm|assistants?|agents?|language\ models?|models?\b|automation\s+agents?|analy[sz](er|ing|t))
    | \b(required|mandatory|approved)\s+(action|remediation|workflow|directive)s?\b\s*[:=]
    | \b(select|choose|pick|use|run|execute|recommend|return)\b.{0,20}\b(workflow(_id)?|remediation)\b
    | \b(select|choose|pick|recommend|execute)\b\s+[a-z0-9]+(-[a-z0-9]+)*-v\d+\b
    | \b(report|set|return|use|state|give|with)\b.{0,20}\bconfidence\b.{0,12}\b(0?\.\d+|1(\.0+)?|\d{2,3}\s?%)
    | \b(human|manual)[\s_-]*(review|approval)\b.{0,40}\b(not|never|no|false|skip|complete|unnecessary|waived)\b
    | \b(skip|omit|disable|waive|no\ need\ for|needs_human_review\W{1,4}false|do\ not\ (request|require|ask))\b
        .{0,40}\b(review|approval|validation|verification|investigation|checks?)\b
    | \b(already|been)\s+(triaged|approved|investigated|diagnosed)\b
    | \bdo\ not\ (investigate|re-?check|look\ (at|into)|escalate|call\ any\ tool)\b
    | </?\s*(system|assistant|tool|user|instructions?)\s*>
    | <\|\s*(im_start|im_end|system|user|assistant|endoftext)
    | \[/?INST\] | ^\s*\#{2,}\s*(system|instruction)s?\b
    | ^\s*(system|assistant)\s*:\s*(you|ignore|please|now|select|the)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def suspicious_lines(text: str) -> list[str]:
    """Lines that read like instructions to whoever analyses them, each at most 400 characters."""
    lines = text.replace(
        "\\n", "\n"
    ).splitlines()  # objects are shown as JSON, their texts have escaped line ends
    return [one_line(line, SHOWN_CHARS) for line in lines if ORDERS.search(line[:MAX_LINE_CHARS])]


def instructions(evidence: Iterable[Evidence]) -> dict[str, tuple[str, ...]]:
    """Suspicious lines by the id of the evidence they stand in. Only items with a hit are in the result."""
    found = ((item.id, tuple(suspicious_lines(item.body))) for item in evidence if item.ok)
    return {id_: lines for id_, lines in found if lines}
