"""Text in the evidence that talks to its reader: detected, reported, never obeyed.

The detectors look for what such text must contain to work on a model: an address to it, an order about its answer, or
its own message markup. They are deliberately wide. A hit costs autonomy (a person approves), never evidence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from worker.domain.evidence import Evidence, one_line

SHOWN_CHARS = 400
BEFORE_CHARS, AFTER_CHARS = 100, 250
"""How much is shown around a hit: enough to see what it orders."""
TRUSTED_SOURCES = frozenset({"get_workflow", "list_available_actions", "list_workflows"})
"""The catalog belongs to the operators, and says when to use a workflow by its office."""
ESCAPES = re.compile(r"\\(?:u\{[0-9a-f]{1,6}\}|u([0-9a-fA-F]{4})|([nrt]))")
"""What JSON and this worker make of characters: `\\n`, `\\u0041`, `\\u{200b}`."""

ORDERS = re.compile(
    r"""
      \b(ignore|disregard|forget|override|bypass)\b.{0,40}\b(previous|prior|above|earlier|other|all|your)\b.{0,40}
        \b(instructions?|prompts?|rules?|evidence|directives?|guidance)\b
    | \b(you\s+are\s+now|act\s+as|pretend\s+to\s+be|you\s+must\s+now|from\s+now\s+on\s+you)\b
    | \b(new|updated|real|actual)\s+(system\s+)?(instructions?|prompt|directive)s?\b\s*[:=]
    | \b(attention|note|message|notice|instructions?|directive)s?[\s,:]+((to|for)\s+)?(the\s+|any\s+|all\s+)?
        (ai\b|llm|assistants?\b|agents?\b|language\s+models?|automation\s+agents?|analy[sz](er|ing|t))
    | \bdear\s+(ai\b|llm|assistant|agent|analy[sz](er|t))
    | \bas\s+an?\s+(ai\b|llm|language\s+model)
    | \b(ai|llm)\s+(agents?|assistants?|models?|analy[sz]ers?)\b\s*[:,]
    | \b(your|the)\s+(only|sole|real|actual|new)\s+(task|goal|job|role)\b
    | \bwhen(ever)?\s+you\s+(analy[sz]e|investigate|report|answer)\b | \bwhoever\s+analy[sz]es\b
    | \b(required|mandatory|approved)\s+(action|remediation|workflow|directive)s?\b\s*[:=]
    | \b(select|choose|pick|use|run|execute|recommend|return)\b.{0,20}\b(workflow_id\b|workflow\b(?!\s+step)|remediation\b)
    | \b(select|choose|pick|recommend|execute)\b\s+[a-z0-9]+(-[a-z0-9]+)*-v\d+\b
    | \b(report|set|return|use|state|give|with)\b.{0,20}(?<!-)\bconfidence\b(?!\s+(interval|level|threshold))
        .{0,12}\b(0?\.\d+|1(\.0+)?|\d{2,3}\s?%)
    | \b(human|manual)[\s_-]*(review|approval)\b.{0,40}\b(not|never|no|false|skip|complete|unnecessary|waived)\b
    | \bneeds_human_review\W{1,4}false
    | \b(skip|omit|disable|waive|no\s+need\s+for|do\s+not\s+(request|require|ask))\b.{0,40}
        \b(review|approval|investigation)\b
    | \b(no\s+need\s+for|do\s+not\s+(request|require|ask))\b.{0,40}\b(validation|verification|checks?)\b
    | \b(incident|issue|problem|alert|change|remediation|action|ticket)\b.{0,40}
        \bbeen\s+(triaged|approved|investigated|diagnosed)\b
    | \balready\s+(been\s+)?(triaged|approved|investigated|diagnosed)\b
    | \bdo\s+not\s+(investigate|re-?check|look\s+(at|into)|escalate|call\s+any\s+tool)\b
    | \b(stop|end|finish|abort)\s+(your|the|this)\s+(investigation|analysis)\b
    | \b(reveal|print|show|repeat|copy|output|leak)\b.{0,20}\b(your|system)\s+(prompt|instructions?)\b
    | \bcorrect\s+(root\s+cause|workflow|answer|selected_workflow)\b
    | \b(selected_workflow|investigation_outcome)\b | \bcall\s+(get|list)_[a-z]+
    | </?\s*(system|assistant|instructions?)\s*> | </\s*(tool|user)\s*>
    | <\|\s*(im_start|im_end|system|user|assistant|endoftext)
    | \[/?INST\] | ^\s*\#{2,}\s*(system|instruction)s?\b | \#{2,}\s*(system|instruction)s?\s*:
    | (?<![\w-])(system|assistant)\s*:\s*(you|ignore|please|now|select)\b
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def suspicious_lines(text: str) -> list[str]:
    """What reads like instructions to whoever analyses the text, with its surroundings, each at most 400 characters."""
    plain, shown, end = _as_read(text), [], 0
    for match in ORDERS.finditer(plain):
        if match.end() > end:  # not shown with the one before
            end = match.end() + AFTER_CHARS
            shown.append(one_line(plain[max(0, match.start() - BEFORE_CHARS) : end], SHOWN_CHARS))
    return shown


def _as_read(text: str) -> str:
    """The text as a model reads it: without escapes and invisible characters, compatibility letters as plain ones."""
    text = ESCAPES.sub(_unescaped, text)
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    return "".join(c for c in text if unicodedata.category(c) != "Cf")


def _unescaped(match: re.Match[str]) -> str:
    if match[2]:
        return "\n"
    return chr(int(match[1], 16)) if match[1] else ""


def instructions(evidence: Iterable[Evidence]) -> dict[str, tuple[str, ...]]:
    """Suspicious texts by the id of the evidence they stand in. Only items with a hit are in the result."""
    read = (item for item in evidence if item.ok and item.source not in TRUSTED_SOURCES)
    found = ((item.id, tuple(suspicious_lines(item.body))) for item in read)
    return {id_: lines for id_, lines in found if lines}
