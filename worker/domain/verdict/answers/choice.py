"""Which of the objects in a text is the answer.

The last complete answer counts, when all complete ones are equal, when it says that it corrects the others, or when the
others are called drafts, and unless the words beside it disown it. Otherwise two different answers are no answer: nothing is picked by position alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from worker.domain.verdict.answers.disowned import is_disowned, is_not_meant
from worker.domain.verdict.answers.fields import plain
from worker.domain.verdict.answers.json_text import same_value
from worker.domain.verdict.answers.sections import section_of, stated_in_lines
from worker.domain.verdict.answers.shapes import Shape, shape_of
from worker.domain.verdict.answers.text import Found, Scan, outside, scan

MAX_WRAPPERS = 3
MAX_AFTER_CHARS = 1_000

_LATER = re.compile(
    r"\bfinal|\bcorrect|\brevis|\bupdated?\b|\binstead\b|\bactually\b|\bwait\b|\bamend|\bsupersed|\breplac"
    r"|\bon (?:second|further) thought|\breconsider|\bre-?check|\bre-?evaluat|\bdouble-?check|\bscratch that"
    r"|\b(?:ignore|disregard|discard)\b|\bafter (?:further|checking|review|looking|verif|more)|\boops\b|\bsorry\b"
    r"|\bmistake|\bwrong\b|\bfix(?:ed|ing)?\b|\blet me\b|\bhowever\b|\bhmm\b|\bon reflection\b|\brethink|\brevisit"
    r"|\bbetter\b|\bkorrig|\bcorrig|\bendg\u00fcltig|\u6700\u7ec8|\u6700\u7d42|\u66f4\u6b63|\u4fee\u6b63|\u8a02\u6b63",
    re.IGNORECASE,
)
_DRAFT = re.compile(
    r"\bnot (?:yet )?(?:the |my )?final|\bdraft|\bfirst (?:thought|guess|attempt|pass|idea|impression|try|take)"
    r"|\binitial|\bpreliminar|\btentative|\bprovisional|\bexample\b|\brejected\b|\bformat\b|\btemplate\b|\bschema\b",
    re.IGNORECASE,
)
_NO_ANSWER = re.compile(r"\bnot (?:yet )?(?:the |my )?final|\bdraft|\bexample\b|\brejected\b", re.IGNORECASE)
_OPTION = re.compile(
    r"\boption|\balternativ|\bcandidate|\beither\b|\bvariant|\bpossibilit|\banother\b|\bsecond\b(?! thought)|^\W*or\b"
    r"|\bfallback|\bbackup|\bif (?:that|this|the first)\b|\bin case\b|\bless likely\b|\bplan b\b|\bscenario",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\b(?:answer|result|conclusion|decision|response|output)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")
_FENCE_LINE = re.compile(r"^[ \t]*(?:`{3,}|~{3,}).*$", re.MULTILINE)


class Undecided(Exception):  # noqa: N818 - a state of the text
    """More than one answer is there, and nothing says which one counts."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object that may be the answer: where it stands, what was written before it, prose found in its wrapper."""

    value: Mapping[str, Any]
    shape: Shape
    label: str
    spans: tuple[tuple[int, int], ...]
    inner_prose: str = ""
    loose: frozenset[str] = frozenset()


def choose(text: str, seen: Scan) -> Candidate | None:
    """The answer among what was found in `text`, None when there is none.

    Raises:
        Undecided: when two different ones are there and nothing says which one counts.

    """
    candidates = [candidate for found in seen.found for candidate in _unwrapped(found)]
    fragments = [candidate for candidate in candidates if candidate.shape is Shape.FRAGMENT]
    causes = [candidate for candidate in candidates if candidate.shape is not Shape.FRAGMENT]
    if not causes:
        return _from_sections(text, seen) or (_latest(fragments) if fragments else None)
    whole = [candidate for candidate in causes if candidate.shape is Shape.ANSWER]
    if whole and causes[-1].shape is not Shape.ANSWER:
        raise Undecided("after a complete answer stands another one that names no workflow")
    answer = _latest(whole or causes)
    if is_disowned(answer.label, text[answer.spans[-1][1] :][:MAX_AFTER_CHARS]):
        raise Undecided("the text beside the JSON says that it is not the answer: give the answer alone")
    return _with_fragments(answer, fragments)


def _latest(candidates: list[Candidate]) -> Candidate:
    last = candidates[-1]
    others = [candidate for candidate in candidates[:-1] if not same_value(candidate.value, last.value)]
    if not others or _supersedes(last.label, [other.label for other in others]):
        return last
    raise Undecided(
        f"{len(others) + 1} different answers are given and nothing says which one counts: give one"
    )


def _supersedes(label: str, earlier: list[str]) -> bool:
    """Whether the words before the last answer, or before the earlier ones, say that the last one counts."""
    last_line = _FENCE_LINE.sub("", label).strip().rpartition("\n")[2]
    if _OPTION.search(last_line) or is_not_meant(last_line):
        return False
    if _is_later(label):
        return True
    if _NO_ANSWER.search(label):
        return False
    named = _NAMED.search(last_line) and not any(_NAMED.search(other) for other in earlier)
    return bool(named) or all(_DRAFT.search(other) and not _is_later(other) for other in earlier)


def _is_later(label: str) -> bool:
    return any(
        _LATER.search(_DRAFT.sub("", sentence)) and not is_not_meant(sentence)
        for sentence in _SENTENCE_END.split(label)
    )


def _with_fragments(answer: Candidate, fragments: list[Candidate]) -> Candidate:
    """An answer split over two objects is one; a workflow named again must be the same."""
    later = [fragment for fragment in fragments if fragment.spans[0] >= answer.spans[0]]
    if answer.shape is Shape.ANSWER:
        if any(not _agree(answer.value, fragment.value) for fragment in later):
            raise Undecided("a second selected_workflow after the answer differs from it")
        return answer
    if not fragments:
        return answer
    fragment = _latest(fragments)
    if not _agree(answer.value, fragment.value):
        raise Undecided("the parts of the answer say different things")
    return Candidate(
        value={**fragment.value, **answer.value},
        shape=Shape.ANSWER,
        label=answer.label,
        spans=(*answer.spans, *fragment.spans),
        inner_prose=answer.inner_prose,
        loose=answer.loose | fragment.loose,
    )


def _agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    values = {plain(key): value for key, value in one.items()}
    return all(
        plain(key) not in values or same_value(values[plain(key)], value) for key, value in other.items()
    )


def _from_sections(text: str, seen: Scan) -> Candidate | None:
    """An answer put together from headed parts: the cause and the choice must both be there, each once."""
    parts = [(section_of(found.label), found) for found in seen.found]
    parts = [(name, found) for name, found in parts if name]
    if seen.broken or not parts:
        return None
    stated = [(name, found.value) for name, found in parts]
    stated += stated_in_lines(_gaps(text, seen))
    values: dict[str, Any] = {}
    for name, value in stated:
        if name in values and not same_value(values[name], value):
            raise Undecided(f"the section {name!r} is there twice")
        values[name] = value
    if not isinstance(values.get("rootcauseanalysis"), dict) or "selectedworkflow" not in values:
        return None
    loose = frozenset(word for _, found in parts for word in found.loose)
    spans = tuple((found.start, found.end) for _, found in parts)
    return Candidate(values, Shape.ANSWER, "", spans, loose=loose)


def _gaps(text: str, seen: Scan) -> Iterator[str]:
    holes = sorted([*((found.start, found.end) for found in seen.found), *seen.thoughts])
    position = 0
    for start, end in holes:
        yield text[position : max(start, position)]
        position = max(position, end)
    yield text[position:]


def _unwrapped(found: Found) -> Iterator[Candidate]:
    for candidate in _inside(found.value, found.label, 0):
        yield replace(
            candidate, spans=((found.start, found.end),), loose=candidate.loose | frozenset(found.loose)
        )


def _inside(value: Any, label: str, depth: int) -> Iterator[Candidate]:
    """Answers in a value, at most three wrappers deep. Where they stand is not known here."""
    if isinstance(value, dict):
        yield from _inside_object(value, label, depth)
    elif isinstance(value, list):
        for item in value:
            yield from _inside(item, label, depth)
    elif isinstance(value, str) and "{" in value:
        yield from _inside_text(value, label, depth)


def _inside_object(value: dict[str, Any], label: str, depth: int) -> Iterator[Candidate]:
    """The object itself when it is an answer, else a whole answer in one of its values, else its parts."""
    shape = shape_of(value)
    inner: list[Candidate] = []
    if shape is not Shape.ANSWER and depth < MAX_WRAPPERS:
        for key, item in value.items():
            if key == "properties" and value.get("type") == "object":
                continue  # a JSON Schema of the answer, not an answer
            inner.extend(_inside(item, f"{label}\n{key}", depth + 1))
    if shape is Shape.OTHER or any(candidate.shape is Shape.ANSWER for candidate in inner):
        yield from inner
    else:
        yield Candidate(value, shape, label, ())


def _inside_text(text: str, label: str, depth: int) -> Iterator[Candidate]:
    seen = scan(text)
    if seen.broken or seen.tangled:
        raise Undecided("JSON inside a string can't be read")
    prose = outside(text, [(found.start, found.end) for found in seen.found], seen.thoughts)
    for found in seen.found:
        for candidate in _inside(found.value, f"{label}\n{found.label}", depth):
            yield replace(
                candidate,
                inner_prose=candidate.inner_prose or prose,
                loose=candidate.loose | frozenset(found.loose),
            )
