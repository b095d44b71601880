"""Text in the evidence that talks to its reader: detected, reported, never obeyed.

The detectors look for what such text must contain to work on a model: an address to it, an order about its answer, or
its own message markup. They are deliberately wide. A hit costs autonomy (a person approves), never evidence.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from worker.domain.evidence import EXTERNAL, Evidence, one_line

SHOWN_CHARS = 400
BEFORE_CHARS, AFTER_CHARS = 100, 250
"""How much is shown around a hit: enough to see what it orders."""
CATALOG_SOURCES = frozenset({"get_workflow", "list_available_actions", "list_workflows"})
"""Documents of many short texts, each read by itself: across them, words meet that nobody wrote together."""
ESCAPES = re.compile(r"\\+(?:u\{[0-9a-f]{1,6}\}|u([0-9a-fA-F]{4})|([nrt]))")
"""What JSON and this worker make of characters: `\\n`, `\\u0041`, `\\u{200b}`."""
WORD_CHAIN = re.compile(r"(?<![A-Za-z])[A-Za-z]++(?:[ -][A-Za-z]++){2,}+")
"""Three words or more: shorter ones are names and flags."""
BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{20,}={0,2}(?![A-Za-z0-9+/=_-])")
URL_SAFE = str.maketrans("-_", "+/")
FILLERS = re.compile("[\u115f\u1160\u2800\u3164\uffa0]")
"""Letters and symbols by their category, blank to the eye (Unicode, Default_Ignorable_Code_Point; braille blank)."""
UNSEEN = frozenset({"Cf", "Mn"})
LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u0410\u0412\u0415\u041a\u041c\u041d"
    "\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405\u03bf\u03b1\u03b9\u03bd\u03c1\u03c5\u03ba\u0391\u0392\u0395\u0396"
    "\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u0131\u0261\u2010\u2011\u2012\u2013\u2014\u2212",
    "aeopcyxijsdhqwABEKMHOPCTYXIJSoaivpukABEZHIKMNOPTYXig------",
)
"""Cyrillic and Greek letters that look like Latin ones (Unicode, confusables), and dashes."""

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
    | \b(your|the)\s+(only|sole|real|actual|new)\s+(task|goal|role)\b | \byour\s+(only|sole|real|actual|new)\s+job\b
    | \bthe\s+(only|sole|real|actual)\s+job\b
    | \bwhen(ever)?\s+you\s+(analy[sz]e|investigate|report|answer)\b | \bwhoever\s+analy[sz]es\b
    | \b(required|mandatory|approved)\s+(action|remediation|workflow|directive)s?\b\s*[:=]
    | \balways\s+(select|choose|pick|use|run|recommend)\b.{0,30}\b(workflow|remediation|[a-z0-9-]+-v\d+)\b
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
    | \b(selected_workflow|recommended_workflow|investigation_outcome|root_cause_analysis|human_review_reason)\b
    | \b(problem_resolved|not_actionable|get_pod_logs|get_resource_context|list_available_actions)\b
    | \b(search_workflow_catalog|affectedResource|needs_human_review|approval\.required)\b
    | \bcall\s+(get|list)_[a-z]+
    | (^|[.!?>/*\#]\s*)(ai|llm|gpt|chatgpt|claude|copilot)\s*,\s | \b(hey|hi|dear|hello)\s+(ai|llm|gpt|chatgpt|claude|copilot)\b
    | (//|\#|<!--|/\*)\s*(ai|llm|model|assistant)\s*:
    | @(ai|llm|gpt|claude|assistant)\b
    | \bwho(so)?ever\s+(reads|sees|processes)\b | \bif\s+you\s+are\s+(an?\s+)?(ai|llm|automat\w+|bot|agent|model)\b
    | \b(assistants?|models?|agents?|bots?|analysts?|automation)\s+(must|should|shall|needs?\s+to|has\s+to)\s+
        (answer|output|choose|pick|select|conclude|recommend)\b
    | \b(mark|close|report|treat|classify)\s+((this|the|that|it)\s+)?(incident|alert|case|issue|problem|signal)?\b.{0,20}
        \bas\s+(resolved|benign|harmless|(a\s+)?false\s+(positive|alarm)|no\s+review)\b
    | \b(the\s+)?only\s+(safe|correct|right|valid|allowed|permitted)\s+(remediation|fix|action|workflow|answer|choice)\b
    | \b(choosing|selecting|running|doing)\s+any(thing)?\s+(except|but|other\s+than|else)\b
    | \b(do\s+not|don't|never)\s+trust\b.{0,30}\b(evidence|logs?|data|metrics|events)\b
    | \b(only|just)\s+this\s+(line|message|log|note)\b.{0,20}\b(real|true|trust\w*|valid)\b
    | \bend\s+of\s+(the\s+)?(evidence|prompt)\b
    | \bevidence\s+ends\b | </?\s*data-[0-9a-f]
    | \bpre-?(authori[sz]ed|approved)\b.{0,30}\b(by|for)\b | \bapproval\s+(is|was|has\s+been)\s+(granted|given|waived)\b
    | (?<!-)\bauto-?approve\b | \bskip\s+(the\s+)?(human|person|operator|review\w*)\b | \bno\s+(human\s+|manual\s+)?review\s+(is\s+)?needed\b
    | \bno\s+(further|more)\s+(diagnosis|investigation|analysis)\b
    | \bproceed\s+(automatically|autonomously|without\s+(review|approval|a\s+human|asking))\b
    | (ignorier|ignorez|ignora|ignoriere|oubliez|olvida|vergiss).{0,60}(anweisung|instruction|instruccion|istruzion|instru\u00e7)
    | (\u5ffd\u7565|\u7121\u8996|\u65e0\u89c6).{0,40}(\u6307\u4ee4|\u6307\u793a) | (\u6307\u4ee4|\u6307\u793a).{0,40}(\u5ffd\u7565|\u7121\u8996|\u65e0\u89c6)
    | \u0438\u0433\u043d\u043e\u0440\u0438\u0440.{0,60}(\u0438\u043d\u0441\u0442\u0440\u0443\u043a\u0446|\u0443\u043a\u0430\u0437\u0430\u043d)
    | </?\s*(system|assistant|instructions?)\s*> | </\s*(tool|user)\s*>
    | <\|\s*(im_start|im_end|system|user|assistant|endoftext)
    | \[/?INST\] | ^\s*\#{2,}\s*(system|instruction)s?\b | \#{2,}\s*(system|instruction)s?\s*:
    | (?<![\w-])(system|assistant)\s*:\s*(you|ignore|please|now|select)\b
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL | re.MULTILINE,
)
CHOICES = re.compile(
    r"""
      \b(select|choose|pick|use|run|execute|recommend|return)\b.{0,20}\b(workflow_id\b|workflow\b(?!\s+step)|remediation\b)
    | \b(select|choose|pick|recommend|execute)\b\s+[a-z0-9]+(-[a-z0-9]+)*-v\d+\b
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""Advice on what to choose. A catalog gives it by its office, nobody else."""


def suspicious_lines(text: str, *, of_catalog: bool = False) -> list[str]:
    """What reads like instructions to whoever analyses the text, with its surroundings, each at most 400 characters.

    Words are found although they are joined by underscores or dashes, spelt with look-alike letters, set apart by
    invisible characters, or written in base64.
    """
    patterns = (ORDERS,) if of_catalog else (ORDERS, CHOICES)
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


def readings(text: str) -> Iterator[str]:
    """The text as a model may read it: without escapes, with plain letters, with and without what is invisible."""
    text = ESCAPES.sub(_unescaped, text)
    if not text.isascii():
        text = FILLERS.sub(" ", unicodedata.normalize("NFKC", text))
        yield text
        text = text.translate(LOOKALIKES)
        unseen = [c for c in set(text) if not c.isascii() and unicodedata.category(c) in UNSEEN]
        if unseen:
            yield text.translate({ord(c): " " for c in unseen})
        text = text.translate({ord(c): None for c in unseen})
    yield text
    yield from (plain for match in BASE64.finditer(text) if (plain := _decoded(match[0])))


def _decoded(run: str) -> str:
    """What a run of base64 says, empty when it is no text."""
    body = run.rstrip("=").translate(URL_SAFE)
    try:
        plain = base64.b64decode(body + "=" * (-len(body) % 4), validate=True).decode("utf-8")
    except ValueError:
        return ""
    return plain if " " in plain or "_" in plain or "-" in plain else ""


def _unescaped(match: re.Match[str]) -> str:
    if match[2]:
        return "\n"
    return chr(int(match[1], 16)) if match[1] else ""


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
    for text in _texts(item.body):
        yield from suspicious_lines(text, of_catalog=True)


def _texts(body: str) -> Iterator[str]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):  # cut to its budget
        yield body
    else:
        yield from _strings(document)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
