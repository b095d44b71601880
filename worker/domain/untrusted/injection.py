"""A small detector of planted instructions (prompt injection) in text that others wrote.

It knows published phrases and the structure of such attacks, in English: it is precise, not complete. Hits
are reported and given to the policy, and decide nothing. The state of the cluster decides whether an answer
is confirmed (see diagnosis/), whatever a text says.

Only untrusted text is searched: that of senders, the cluster and mounted servers. The catalog of the
operator, our own history and results, typed fields of a request and our own messages are trusted.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable

from worker.domain.untrusted.evidence import EXTERNAL, Evidence, EvidenceKind, one_line

SHOWN_CHARS = 400
BEFORE_CHARS, AFTER_CHARS = 100, 250
"""How much text is shown around a hit, so that a reader sees what it asks for."""
TRUSTED_SOURCES = frozenset(
    {"list_available_actions", "list_workflows", "get_workflow", "search_workflow_catalog", "corroboration"}
)
"""Sources of evidence whose text is the operator's catalog or our own."""
OWN_HISTORY = "remediation_history"
"""The part of an object's context that holds our own results."""

GAP = r"[\W_]{1,4}"
"""Between two words. Label values join words by dashes or underscores."""
AS_AI = r"(an?|the|my) ([a-z]{1,20} ){0,3}(ai|assistant|chatbot|agent|language model|expert|analyst|engineer|administrator)\b"
PHRASES = (
    # Ignore all previous instructions
    (
        ("instruction", "prompt", "directive", "guideline"),
        (r"(ignore|disregard|forget|override|bypass) ((all|any|the|your|these|those|of|my) ){0,3}"
        r"((previous|prior|above|earlier|preceding|other|original|system|safety) ){1,2}"
        r"(instruction|prompt|directive|guideline)s?\b"),
    ),
    (
        ("ignore", "disregard", "forget"),
        (r"(ignore|disregard|forget) (your ([a-z]{1,20} )?(instruction|prompt|rule|guideline)s?"
        r"|(everything|all|anything) (you (were|have|had|know)|i (told|said)|(written|said|stated) above))\b"),
    ),
    # New instructions: you report ...
    (
        ("instruction", "directive"),
        r"(new|updated|revised|actual|trusted) (system )?(instructions|directives)(\s*[:=]| for (the|you)\b)",
    ),
    (
        ("prompt",),
        r"((new|updated|your|real|hidden|begin|end)( of)?( the)? system prompt|system prompt (update|override))\b",
    ),
    (("reveal", "print", "repeat", "show"), r"(reveal|print|repeat|show)( me)? your ([a-z]{1,20} )?(prompt|instructions)\b"),
    # You are now an unrestricted assistant
    (
        ("now",),
        (rf"you are now ({AS_AI}|dan\b|no longer (an?|the|bound|restricted)\b"
        r"|(in )?(developer|god|jailbreak|unrestricted) mode\b)"),
    ),
    (
        ("pretend", "from"),
        rf"(pretend (to be|(that )?you are) {AS_AI}|from now on you (must|are (an?|the|my)|answer|respond|obey)\b)",
    ),
    (("anything",), r"do anything now\b"),
    # Attention AI: ...
    (
        ("note", "notice", "attention", "instruction"),
        (r"(note|notice|attention|instructions?)( (to|for))?( (the|an?|any|all))?"
        r" (ai|llm|language model|chatbot|ai assistant|ai agent|assistant)s?(\s*[:,!]| (reading|analy[sz]ing|processing)\b)"),
    ),
    (("action",), r"(required|mandatory) action (select|choose)\b"),
    (("if you", "if_you", "if-you"), r"if you are an? (ai|llm|(large )?language model|automated (agent|assistant|system))\b"),
)  # fmt: skip
"""Phrases of attacks in lower case: words, one of which a text must contain, and the pattern that is searched
only then.
"""
STRUCTURES = (
    # Role tags and chat templates
    (
        ("<|",),
        r"<\|(im_start|im_end|system|user|assistant|endoftext|begin_of_text|start_header_id|eot_id)\|>",
    ),
    (("inst]", "sys>"), r"\[/?inst\]|<</?sys>>"),
    (("_of_turn>",), r"<(start|end)_of_turn>"),
    (
        ("system>", "assistant>"),
        r"<\s?(system|assistant)\s?>\s?\w+[ ,]{1,3}\w+[ ,]{1,3}\w+|</\s?(system|assistant)\s?>\s?<\s?(user|human|assistant)\b",
    ),
    (("###",), r"#{3}\s?(system( prompt| message)?|instruction|assistant|human)\s?:"),
    (
        (
            "you are",
            "you must",
            "you will",
            "you should",
            "ignore ",
            "disregard ",
            "forget ",
            "from now on",
            "override",
        ),
        (
            r"(?<![\w.-])(system|assistant)( prompt| message| override)?\s?[:\]]\s?"
            r"(you\s(are|must|will|should)\b|(ignore|disregard|forget)\s|from now on\b|override\b)"
        ),
    ),
    # Fake results of tools, fake fences
    (("tool_", "function_"), r"</?(tool_(result|response|call|output)|function_(call|result))s?>"),
    (("data-",), r"</?\s?data-[0-9a-f]{8}"),
)
"""Markup that belongs only in a conversation with a model."""
DETECTORS = (
    *((words, re.compile(rf"\b{phrase.replace(' ', GAP)}")) for words, phrase in PHRASES),
    *((words, re.compile(pattern)) for words, pattern in STRUCTURES),
)
INVISIBLE = "\u00ad\u180e\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\ufeff"
TAGS = {code: chr(code - 0xE0000) for code in range(0xE0020, 0xE007F)}
"""Invisible copies of ASCII (Unicode, Tags)."""
ESCAPED = re.compile(r"(?<!\\)\\+(?:[nrt]|u\{([0-9a-f]{1,5})\}|u([0-9a-f]{4}))")
"""What JSON and `make_visible` make of characters. Planes beyond 15 have no use in a text.

A match begins where a run of backslashes begins: from every backslash of it, a long run would take quadratic
time.
"""
SURROGATE = re.compile("[\ud800-\udfff]")
PLAIN = {ord("\u0130"): "I"} | TAGS | dict.fromkeys(map(ord, INVISIBLE))
"""Removes invisible characters, and the one letter that is longer in lower case."""
HIDDEN = re.compile(
    rf"(?<!\U0001f3f4)[\U000e0020-\U000e007e]{{8}}|[\U000e0100-\U000e01ef]{{4}}|[{INVISIBLE}]{{8}}"
)
"""Text in invisible characters. Flags of regions consist of tags, too."""


def suspicious_lines(text: str) -> list[str]:
    """Texts that read like instructions to a model, with their surroundings, each at most 400 characters.

    Takes linear time.
    """
    hidden: list[str] = []
    text = _unescaped(text) if "\\" in text else text
    if not text.isascii():
        hidden = _shown(text, (match.span() for match in HIDDEN.finditer(text)))
        text = unicodedata.normalize("NFKC", text.translate(PLAIN))
    lowered = text.lower()
    wanted = (pattern for words, pattern in DETECTORS if any(word in lowered for word in words))
    spans = sorted(match.span() for pattern in wanted for match in pattern.finditer(lowered))
    return list(dict.fromkeys([*hidden, *_shown(text, spans)]))


def _unescaped(text: str) -> str:
    text = ESCAPED.sub(_character, text)
    if SURROGATE.search(text):  # JSON writes characters beyond the first plane as two
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    return chr(int(code, 16)) if code else "\n"


def _shown(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    shown, shown_to = [], 0
    for start, end in spans:
        if end > shown_to:  # not part of the excerpt before
            shown_to = end + AFTER_CHARS
            shown.append(one_line(text[max(0, start - BEFORE_CHARS) : shown_to], SHOWN_CHARS))
    return shown


def injections(evidence: Iterable[Evidence]) -> dict[str, tuple[str, ...]]:
    """Suspicious texts by the id of their evidence. Only untrusted items with a hit are in the result."""
    found = ((item.id, tuple(suspicious_lines(_hostile_text(item)))) for item in evidence)
    return {id_: lines for id_, lines in found if lines}


def injection_warning(found: Iterable[str]) -> str:
    """A sentence for humans: which evidence to read with care."""
    return f"Text in the evidence reads like instructions to the analysis: {', '.join(found)}."


def _hostile_text(item: Evidence) -> str:
    """The text of others in an item. Errors are our own words, unless they come from a mounted server."""
    if item.source in TRUSTED_SOURCES or not (item.ok or item.source.startswith(EXTERNAL)):
        return ""
    return _without_history(item.body) if item.kind is EvidenceKind.OWNERS else item.body


def _without_history(body: str) -> str:
    try:
        shown = json.loads(body)
    except (ValueError, RecursionError):  # cut to its budget: text after the key may be history
        return body.partition(f'"{OWN_HISTORY}":')[0]
    return (
        json.dumps({k: v for k, v in shown.items() if k != OWN_HISTORY}) if isinstance(shown, dict) else body
    )
