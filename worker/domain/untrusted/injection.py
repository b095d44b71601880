"""Text in the evidence that speaks to a language model: detected and reported, never obeyed, never decisive.

A few phrases that published prompt injections share and software does not write. A hit is a warning, an audit event and a fact
for the policy; it changes no outcome by itself. What the operator's catalog, our own history and our own checks say is not
searched: nobody hostile writes there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from worker.domain.untrusted.evidence import EXTERNAL, Evidence, EvidenceKind, one_line

SHOWN_CHARS = 400
BEFORE_CHARS, AFTER_CHARS = 100, 250
"""How much is shown around a hit: enough to see what it orders."""
TRUSTED_SOURCES = frozenset(
    {"get_workflow", "list_available_actions", "list_workflows", "search_workflow_catalog", "corroboration"}
)
"""What the operator or the worker itself has written."""
PHRASES = re.compile(
    r"""
      (?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+)?(?:of\s+)?(?:the\s+|your\s+|my\s+)?
        (?:previous|prior|above|earlier|preceding|other)\s+(?:instructions?|prompts?|rules?|directives?|guidance|messages?)
    | \b(?:ignore|disregard|forget)\s+(?:your|the\s+system)\s+(?:instructions?|prompt|rules)
    | \b(?:new|updated)\s+system\s+(?:instructions?|prompt)\b
    | \byou\s+are\s+now\s+(?:an?\s+|the\s+)?(?:\w+\s+)?(?:assistant|agent|model|ai|analyst|executor|system)\b
    | \bas\s+an?\s+(?:ai|large\s+language)\s+(?:model|assistant|agent)\b
    | \b(?:reveal|print|repeat)\s+(?:your|the)\s+system\s+prompt\b
    | \b(?:attention|note|message|instructions?)[\s,:]+(?:to|for)\s+(?:the\s+|any\s+)?(?:ai|llm|language\s+model)s?\b
    | <\|\s*(?:im_start|im_end|system|user|assistant|endoftext)\b
    | \[/?INST\] | </\s*(?:system|assistant)\s*>\s*<
    | (?:^|\n)\s*\#{2,}\s*system\s*:
    """,
    re.IGNORECASE | re.VERBOSE,
)
INVISIBLE = {"Cf", "Mn"}


def suspicious_lines(text: str) -> list[str]:
    """The phrases that the text holds, with their surroundings, each at most 400 characters. Linear in its length."""
    plain = text if text.isascii() else _plain(text)
    shown, shown_to = [], 0
    for match in PHRASES.finditer(plain):
        if match.end() > shown_to:  # not shown with the one before
            shown_to = match.end() + AFTER_CHARS
            shown.append(one_line(plain[max(0, match.start() - BEFORE_CHARS) : shown_to], SHOWN_CHARS))
    return list(dict.fromkeys(shown))


def _plain(text: str) -> str:
    """The text in its plainest letters, without what is invisible."""
    folded = unicodedata.normalize("NFKC", text)
    return "".join(c for c in folded if unicodedata.category(c) not in INVISIBLE)


def instructions(evidence: Iterable[Evidence]) -> dict[str, tuple[str, ...]]:
    """Suspicious texts by the id of the evidence they stand in. Only items with a hit are in the result.

    Errors are words of our own, unless they come from a mounted server.
    """
    read = (item for item in evidence if item.ok or item.source.startswith(EXTERNAL))
    hostile = (i for i in read if i.source not in TRUSTED_SOURCES and i.kind is not EvidenceKind.OWNERS)
    found = ((item.id, tuple(suspicious_lines(item.body))) for item in hostile)
    return {id_: lines for id_, lines in found if lines}
