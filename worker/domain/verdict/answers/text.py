"""Where JSON stands in the text of a model: between prose, fences, tags and thoughts.

Text between thinking tags is never read: it holds drafts. A fence or tag around JSON is not needed and not trusted; an
object is found by its braces, and a broken one is skipped as a whole, so that a part of it is never taken for an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from worker.domain.verdict.answers.json_text import Fault, JsonFault, read_value
from worker.domain.verdict.answers.sections import section_of

MAX_VALUES = 200
MAX_LABEL_CHARS = 2_000
# How many characters failed readings may cover together, as a multiple of the text.
MAX_WASTE = 2
MAX_FAILED = 50_000

_THOUGHT = r"(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflections?|scratch_?pad|inner_?monologue)"
_MARK = re.compile(
    rf"(?P<thought><{_THOUGHT}(?:\s[^<>]{{0,100}})?>|\[THINK\]|\u25c1think\u25b7)"
    rf"|(?P<thought_end></{_THOUGHT}\s*>|\[/THINK\]|\u25c1/think\u25b7|<\|channel\|>\s*final[^<>]{{0,40}}<\|message\|>)"
    # A brace counts before a key or a comment, a bracket before another one, a quote before escaped JSON.
    r"|(?P<value>\{(?=[\s\u00ad\u200b-\u200d\u2060\ufeff]*+[\"'\uff02\u2018\u2019\u201c\u201d\w$/#])|\[(?=\s*+[\[{])|\"(?=[\s\[{]*+(?<=[\[{\s])\\[\"nrt]))"
    r"|(?P<text>\A\s*+\")",
    re.IGNORECASE,
)
# Enough to tell that an object is about an answer, however it is spelled or escaped.
_ANSWER_KEY = re.compile(
    r"root[\\_ -]*cause|(?<![a-z])rca|(?:selected|recommended|chosen)[\\_ -]*workflow|workflow[\\_ -]*id"
    r"|recommendations|strategies|analysis[\\_ -]*summary",
    re.IGNORECASE,
)
_FENCE_LINE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
_BRACKETS = re.compile(r'"(?>(?:[^"\\\n]|\\.)*)"?|[{}\[\]]')
_BEFORE_JSON = re.compile(
    r"(?:(?:(?<=\n)|^)[ \t]*(?:`{3,}|~{3,})[^\n`]*\n\s*|<\w{1,40}>\s*)?(?:[A-Za-z_][\w.]{0,60}\s?[=(]\s*)?$"
)
_AFTER_JSON = re.compile(r"[ \t]*\)?;?(?:\s*(?:`{3,}|~{3,})[ \t]*(?=\n|$)|\s*</\w{1,40}>)?")


@dataclass(frozen=True, slots=True)
class Found:
    """A value in the text, from `start` to `end`. `label` is the end of the prose before it."""

    value: Any
    start: int
    end: int
    label: str
    loose: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Broken:
    """An object about an answer that could not be read."""

    start: int
    fault: Fault
    message: str


@dataclass(slots=True)
class Scan:
    """What stands in a text: readable values that are about an answer, broken ones, thoughts as (start, end).

    `open_thought`: a thinking tag was never closed. `tangled`: there was more than may be read.
    """

    found: list[Found] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    thoughts: list[tuple[int, int]] = field(default_factory=list)
    other_json: int = 0
    open_thought: bool = False
    tangled: bool = False


def scan(text: str) -> Scan:
    """All values about an answer outside of thoughts, in order. Linear in the text, whatever it holds."""
    scanner = _Scanner(text)
    scanner.run()
    return scanner.seen


def outside(text: str, spans: Iterable[tuple[int, int]], thoughts: Iterable[tuple[int, int]]) -> str:
    """The text without `spans` (and the fences or tags around them) and without thoughts, stripped."""
    holes = sorted([*(_with_wrapping(text, *span) for span in spans), *thoughts])
    kept: list[str] = []
    position = 0
    for start, end in holes:
        kept.append(text[position : max(start, position)])
        position = max(position, end)
    kept.append(text[position:])
    return "\n".join(part for part in (piece.strip() for piece in kept) if part)


def _with_wrapping(text: str, start: int, end: int) -> tuple[int, int]:
    window = max(0, start - 200)
    before = _BEFORE_JSON.search(text[window:start])
    if before is None or not before.group():
        return start, end
    after = _AFTER_JSON.match(text, end)
    return window + before.start(), after.end() if after else end


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
        while not self.seen.tangled and (mark := _MARK.search(self.text, position)):
            if mark.lastgroup == "thought":
                position = self._skip_thought(mark)
            elif mark.lastgroup == "thought_end":
                position = self._drop_unopened_thought(mark)
            else:
                position = self._read(mark)

    def _skip_thought(self, mark: re.Match[str]) -> int:
        """To the end of the thought: a thinking tag that never closes makes the rest of the text a thought."""
        position = mark.end()
        while (end := _MARK.search(self.text, position)) and end.lastgroup != "thought_end":
            position = end.end()
        stop = end.end() if end else len(self.text)
        self.seen.open_thought = end is None
        self.seen.thoughts.append((mark.start(), stop))
        self.label_start = stop
        return stop

    def _drop_unopened_thought(self, mark: re.Match[str]) -> int:
        """A closing tag without an opening one: some servers put the opening tag into the prompt."""
        self.seen.found.clear()
        self.seen.broken.clear()
        self.seen.thoughts[:] = [(0, mark.end())]
        self.label_start = mark.end()
        return mark.end()

    def _read(self, mark: re.Match[str]) -> int:
        start = mark.start()
        try:
            value = read_value(self.text, start)
        except JsonFault as fault:
            return mark.end() if mark.lastgroup == "text" else self._skip_broken(start, fault)
        label = self.text[max(self.label_start, start - MAX_LABEL_CHARS) : start]
        about_answer = _ANSWER_KEY.search(self.text, start, value.end) or section_of(label)
        if mark.lastgroup == "text" and not (about_answer and "{" in value.value):
            return mark.end()
        if about_answer:
            self.seen.found.append(Found(value.value, start, value.end, label, value.loose))
            self.seen.tangled = len(self.seen.found) > MAX_VALUES
        else:
            self.seen.other_json += 1
        self.label_start = value.end
        return value.end

    def _skip_broken(self, start: int, fault: JsonFault) -> int:
        """Behind the broken object if it was meant as JSON, else behind its brace (`{{ .Values }}`, `${NAME}`)."""
        self.failed += 1
        self.waste -= fault.position - start
        self.seen.tangled = self.waste < 0 or self.failed > MAX_FAILED
        is_string = self.text[start] == '"'
        if not (fault.quoted_key or is_string or any(map(_ANSWER_KEY.search, fault.keys))):
            return start + 1 if self.text[start] == "{" else max(start + 1, fault.position)
        stop = self._end_of_broken(start)
        if _ANSWER_KEY.search(self.text, start, stop):
            self.seen.broken.append(Broken(start, fault.fault, fault.message))
        self.label_start = stop
        return stop

    def _end_of_broken(self, start: int) -> int:
        """Where its brackets close, but not beyond the next fence line; else the end of the text."""
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
