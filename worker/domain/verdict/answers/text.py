"""Finding JSON in the text of a model: between prose, fences, tags and thoughts.

Only thoughts at the start, between tags, are taken for thoughts: anywhere else the tags may be quoted. An
object is found by its braces; fences and tags around it are neither needed nor trusted. A broken object is
skipped as a whole, so that no part of it is taken for an answer. An answer may be split into sections, with
the name of a field as a heading or tag and the value below it:

    # root_cause_analysis
    {"summary": ...}

    # selected_workflow
    null
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from worker.domain.verdict.answers.json_text import JsonFault, JsonFaultKind, read_value

MAX_VALUES = 200
MAX_LABEL_CHARS = 2_000
MAX_WASTE = 2
"""How many characters failed attempts to read may cover together, as a multiple of the text."""
MAX_FAILED = 50_000
MAX_LABEL_LINES = 6
MAX_LINE_CHARS = 4_000
SECTIONS = frozenset({
    "rootcauseanalysis", "selectedworkflow", "alternativeworkflows", "investigationoutcome", "recoveryanalysis",
    "recoverystrategy", "confidence", "rationale", "warnings", "contextused", "needshumanreview", "humanreviewreason",
})  # fmt: skip
"""Fields of an answer that may be sections of a text, without case, spaces and underscores."""

_TAG_NAME = r"(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflections?|scratch_?pad|inner_?monologue)"
_THOUGHT = re.compile(
    rf"\s*(?:<{_TAG_NAME}(?:\s[^<>]{{0,100}})?>|\[THINK\]|\u25c1think\u25b7|<\|channel\|>\s*analysis<\|message\|>)",
    re.IGNORECASE,
)
_THOUGHT_END = re.compile(
    rf"</{_TAG_NAME}\s*>|\[/THINK\]|\u25c1/think\u25b7|<\|channel\|>\s*final[^<>]{{0,40}}<\|message\|>",
    re.IGNORECASE,
)
_MARK = re.compile(
    # A brace counts before a key or a comment, a bracket before another one, a quote before escaped JSON.
    r"(?P<value>\{(?=[\s\u00ad\u200b-\u200d\u2060\ufeff]*+[\"'\uff02\u2018\u2019\u201c\u201d\w$/#])|\[(?=\s*+[\[{])|\"(?=[\s\[{]*+(?<=[\[{\s])\\[\"nrt]))"
    r"|(?P<text>\A\s*+\")",
    re.IGNORECASE,
)
# Enough to tell that an object is about an answer, however it is spelled or escaped.
_ANSWER_KEY = re.compile(
    r"root[\\_ -]*cause|(?<![a-z])rca|(?:selected|recommended|chosen)[\\_ -]*workflow|workflow[\\_ -]*id"
    r"|recommendations|strategies|analysis[\\_ -]*summary|human[\\_ -]*review|approval",
    re.IGNORECASE,
)
_FENCE_LINE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
_BRACKETS = re.compile(r'"(?>(?:[^"\\\n]|\\.)*)"?|[{}\[\]]')
_BEFORE_JSON = re.compile(
    r"(?:(?:(?<=\n)|^)[ \t]*(?:`{3,}|~{3,})[^\n`]*\n\s*|<\w{1,40}>\s*)?(?:[A-Za-z_][\w.]{0,60}\s?[=(]\s*)?$"
)
_HEADING = re.compile(r"[\s#>*_`0-9.)-]*([A-Za-z][A-Za-z_ -]{2,60})[*_`\s]*(?:[:=]|\Z)[*_`\s]*")
_TAG = re.compile(r"<(?:parameter\s+name=)?[\"']?([A-Za-z_]{3,60})[\"']?>\s*")
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})")
_PLAIN_TEXT_SECTIONS = frozenset(
    {"investigationoutcome", "rationale", "needshumanreview", "humanreviewreason"}
)
_NULL_WORDS = frozenset({"null", "none", "n/a", "nil"})
_CORRECTION = re.compile(
    r"(?:^|[.!?]\s)[\s#*_]*(?:(?:my|the)\s)?corrected\sanswer[\s*_]*+(?::[\s*_]*+)?$", re.IGNORECASE
)
_AFTER_JSON = re.compile(r"[ \t]*\)?;?(?:\s*(?:`{3,}|~{3,})[ \t]*(?=\n|$)|\s*</\w{1,40}>)?")


@dataclass(frozen=True, slots=True)
class JsonInText:
    """A value in the text, from `start` to `end`.

    `label` is the text since the value before it, or the end of that text.
    """

    value: Any
    start: int
    end: int
    label: str

    @property
    def lines(self) -> list[str]:
        """The last lines of the label, without fences and blank lines."""
        lines = [line for line in self.label.splitlines() if line.strip() and not _FENCE.match(line)]
        return lines[-MAX_LABEL_LINES:]

    @property
    def section(self) -> str:
        """The field whose heading is the nearest above the value; empty without one."""
        for line in reversed(self.lines):
            name, _ = _heading(line)
            if name or line.lstrip().startswith("#"):
                return name
        return ""

    @property
    def is_correction(self) -> bool:
        """True if the line above is, or ends with, "Corrected answer:"."""
        return any(_CORRECTION.search(line[-MAX_LINE_CHARS:]) for line in self.lines[-1:])


@dataclass(frozen=True, slots=True)
class BrokenJson:
    """An object about an answer that could not be read."""

    start: int
    kind: JsonFaultKind
    message: str


@dataclass(slots=True)
class Scan:
    """The findings in a text: values that are about an answer, and broken ones.

    `over_limit`: the text holds more values than are read.
    """

    found: list[JsonInText] = field(default_factory=list)
    broken: list[BrokenJson] = field(default_factory=list)
    other_json: int = 0
    over_limit: bool = False


def split_thoughts(text: str) -> tuple[str, str]:
    """The thoughts at the start of a text, each on lines of its own, and the rest of it.

    A thinking tag that is never closed makes all of the text a thought.
    """
    thoughts, position = "", 0
    while start := _THOUGHT.match(text, position):
        end = _THOUGHT_END.search(text, start.end())
        position = end.end() if end else len(text)
        thoughts += f"\n{text[start.end() : end.start() if end else position]}\n"
    return thoughts, text[position:]


def scan(text: str) -> Scan:
    """Find all values about an answer, in order. Linear in the length of any text."""
    scanner = _Scanner(text)
    scanner.run()
    return scanner.seen


def outside(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text without `spans` (and the fences or tags around them), stripped.

    Nor does it hold what comes before the end of a thought that the prompt had opened.
    """
    kept: list[str] = []
    position = 0
    for start, end in sorted(_with_wrapping(text, *span) for span in spans):
        kept.append(text[position : max(start, position)])
        position = max(position, end)
    prose = "\n".join(part for part in (piece.strip() for piece in (*kept, text[position:])) if part)
    return _THOUGHT_END.split(prose)[-1].strip()


def _with_wrapping(text: str, start: int, end: int) -> tuple[int, int]:
    window = max(0, start - 200)
    before = _BEFORE_JSON.search(text[window:start])
    if before is None or not before.group():
        return start, end
    after = _AFTER_JSON.match(text, end)
    return window + before.start(), after.end() if after else end


def stated_in_lines(text: str, seen: Scan) -> Iterator[tuple[str, Any]]:
    """Sections whose value is one line of text outside of the JSON: `(field, value)`."""
    position = 0
    for start, end in [*((found.start, found.end) for found in seen.found), (len(text), len(text))]:
        lines = text[position : max(start, position)].splitlines()
        lines = [line for line in lines if line.strip() and not _FENCE.match(line)]
        for line, following in pairwise([*lines, ""]):
            name, rest = _heading(line)
            if name:
                yield from _line_value(name, rest or following.strip())
        position = max(position, end)


def _heading(line: str) -> tuple[str, str]:
    """The field that a heading names, and the text behind it on the line; empty when the line is no heading."""
    line = line[:MAX_LINE_CHARS]
    match = _HEADING.match(line) or _TAG.match(line.lstrip())
    if match is None:
        return "", ""
    name = re.sub(r"[^a-z]", "", match.group(1).lower())
    rest = match.string[match.end() :].strip()
    return (name, rest) if name in SECTIONS else ("", "")


def _line_value(name: str, text: str) -> Iterator[tuple[str, Any]]:
    if text.strip(" .*_`").lower() in _NULL_WORDS:
        yield name, None
        return
    try:
        value = read_value(text, 0).value
    except JsonFault:
        if name in _PLAIN_TEXT_SECTIONS and text:
            yield name, text
        return
    yield name, value


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.seen = Scan()
        self.label_start = 0
        self.next_fence = -1
        self.failed = 0
        self.waste = MAX_WASTE * max(len(text), 1_000)

    def run(self) -> None:
        position = 0
        while not self.seen.over_limit and (mark := _MARK.search(self.text, position)):
            position = self._read(mark)

    def _read(self, mark: re.Match[str]) -> int:
        start = mark.start()
        try:
            value = read_value(self.text, start)
        except JsonFault as fault:
            return mark.end() if mark.lastgroup == "text" else self._skip_broken(start, fault)
        label = self.text[max(self.label_start, start - MAX_LABEL_CHARS) : start]
        found = JsonInText(value.value, start, value.end, label)
        about_answer = _ANSWER_KEY.search(self.text, start, value.end) or found.section
        if mark.lastgroup == "text" and not (about_answer and "{" in value.value):
            return mark.end()
        if about_answer:
            self.seen.found.append(found)
            self.seen.over_limit = len(self.seen.found) > MAX_VALUES
        else:
            self.seen.other_json += 1
        self.label_start = value.end
        return value.end

    def _skip_broken(self, start: int, fault: JsonFault) -> int:
        """Skip the broken object if it was meant as JSON, else only its brace.

        `{{ .Values }}` and `${NAME}` are not meant as JSON.
        """
        self.failed += 1
        self.waste -= fault.position - start
        self.seen.over_limit = self.waste < 0 or self.failed > MAX_FAILED
        is_string = self.text[start] == '"'
        if not (fault.quoted_key or is_string or any(map(_ANSWER_KEY.search, fault.keys))):
            return start + 1 if self.text[start] == "{" else max(start + 1, fault.position)
        stop = self._end_of_broken(start)
        if _ANSWER_KEY.search(self.text, start, stop):
            self.seen.broken.append(BrokenJson(start, fault.kind, fault.message))
        self.label_start = stop
        return stop

    def _end_of_broken(self, start: int) -> int:
        """The offset where its brackets close, at most the next fence line or the end of the text."""
        if self.next_fence < start:
            fence = _FENCE_LINE.search(self.text, start)
            self.next_fence = fence.start() if fence else len(self.text)
        limit = self.next_fence
        depth = 0
        for token in _BRACKETS.finditer(self.text, start, limit):
            mark = token.group()
            depth += (mark in "{[") - (mark in "}]")
            if depth <= 0 and mark in "}]":
                return token.end()
        return limit
