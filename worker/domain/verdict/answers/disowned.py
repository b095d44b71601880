"""Words beside an object that say it is not the writer's own answer: an example, something quoted, something ignored.

They are looked for right beside the object only. What is doubtful is asked for again; nothing is executed on a guess.
"""

from __future__ import annotations

import re

NEAR_CHARS = 300

_OBJECT = r"(?:json|answer|object|reply|response|output|result|block|one)"
_THIS = rf"(?:this|that|it|the following|the {_OBJECT}(?: below| above)?)(?: {_OBJECT})?(?: below| above)?"
_DROPPED = r"(?:ignored?|disregard(?:ed)?|discard(?:ed)?|reject(?:ed)?|dismiss(?:ed)?|refused?|declined?)"
_DISOWNED = re.compile(
    rf"\b(?:do not|don['\u2019]t|never|must not|should not) (?:ever )?(?:use|execute|run|apply|act on|trust|follow|take) {_THIS}"
    r"(?=\W*$|\W*[.:;,!)\n]| because\b| as\b| since\b| yet\b)"
    r"|\bexamples? of (?:the|a|an|my|how|what) (?:\w+ )?(?:form|format|shape|structure|schema|answer|output|response|reply)\b"
    rf"|\bfor illustration\b|\bhypothetical {_OBJECT}\b|\b{_DROPPED} (?:this|the following) {_OBJECT}\b"
    r"|\bnot (?:my|the|an|a) (?:real|actual|own|final) (?:answer|conclusion|decision|result)\b"
    r"|\bnot (?:my|an?) (?:answer|conclusion|decision)\b",
    re.IGNORECASE,
)
_NOT_MEANT = re.compile(
    rf"\b(?:which|that|this|it|{_OBJECT})\b[^.;\n]{{0,30}}\b{_DROPPED}\b"
    r"|\b(?:did|do|does|would|will|should|must|can|could)(?: not|n['\u2019]t) (?:use|follow|take|give|accept|adopt|apply|believe|trust)\b"
    r"|\bnot (?:the|my|a|an) (?:correct|revis|updat|amend|final)"
    # Somebody else's words: a log, an annotation, whoever wrote them.
    r"|\b(?:logs?|texts?|annotations?|labels?|configmaps?|events?|notes?|messages?|evidence|instructions?|somebody|someone|attackers?)\b"
    r"[^.;\n]{0,60}\b(?:sa(?:ys?|id)|t(?:ell|old)s?|ask(?:s|ed)?|want(?:s|ed)?|demand(?:s|ed)?|instruct(?:s|ed)?|claim(?:s|ed)?|planted|injected)\b"
    r"[^.;\n]{0,60}\b(?:answer|json|result|report|respond|reply|output)",
    re.IGNORECASE,
)
_FENCE_LINE = re.compile(r"^[ \t]*(?:`{3,}|~{3,}).*$", re.MULTILINE)


def is_disowned(before: str, after: str) -> bool:
    """Whether the last lines before an object, or the first line after it, take it back."""
    lines = _lines(before[-NEAR_CHARS:])[-2:]
    return any(_DISOWNED.search(line) for line in (*lines, *_lines(after[:NEAR_CHARS])[:1]))


def is_not_meant(before: str) -> bool:
    """Whether words that would announce a correction say that it is not one."""
    return bool(_NOT_MEANT.search(before) or _DISOWNED.search(before))


def _lines(text: str) -> list[str]:
    return [line for line in _FENCE_LINE.sub("", text).splitlines() if line.strip()]
