"""Reads a model's final answer: what it submitted through the tool, else its text.

Tolerant about form, never about content.

`parse_answer` accepts every shape that models really write and maps it onto one type. It never invents a
value and never chooses between two: a truncated object, two different answers, or two values for one key are
rejected, and the model is told why. Values stay as the model wrote them where the verdict has to judge them
(a severity outside the list is kept here and rejected there).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from worker.domain.values.conversation import Finish, Reply, ToolCall
from worker.domain.verdict.answers.answer import Answer, Unreadable, UnreadableAnswer
from worker.domain.verdict.answers.fields import Contradiction, Fields, clean, plain, unwrapped
from worker.domain.verdict.answers.form import SUBMIT_RESULT
from worker.domain.verdict.answers.json_text import JsonFaultKind, same_value
from worker.domain.verdict.answers.shapes import AnswerShape, shape_of, to_answer
from worker.domain.verdict.answers.text import JsonInText, Scan, outside, scan, stated_in_lines

MAX_TEXT_CHARS = 1024 * 1024
MAX_PROSE_CHARS = 20_000
MAX_WRAPPERS = 3

_UNFINISHED = {
    Finish.LENGTH: (Unreadable.TRUNCATED, "The answer was cut off at the token limit: be shorter."),
    Finish.REFUSAL: (Unreadable.REFUSED, "The request was refused."),
    Finish.TOOL_CALLS: (Unreadable.TOOL_CALL, "The reply calls a tool, so it is no final answer."),
    Finish.OTHER: (Unreadable.UNFINISHED, "The reply stopped before it was complete."),
}
# Signs of a text without readable JSON, and the message to the model.
_LOOKS = (
    (
        re.compile(r"&(?:quot|#34|#x22);\s*(?:root_?cause|selected_?workflow)", re.IGNORECASE),
        Unreadable.ESCAPED,
        "The JSON is HTML-escaped (&quot;): write it with plain double quotes.",
    ),
    (
        re.compile(r"\{(?:\s|\\n)*\\\""),
        Unreadable.ESCAPED,
        'The JSON is escaped (\\"): write it with plain double quotes.',
    ),
    (
        re.compile(r"<(?:tool_call|function_calls?|invoke|tool_use)\b|\[TOOL_CALLS\]", re.IGNORECASE),
        Unreadable.TOOL_CALL,
        "The text holds a tool call and no answer: call tools through the tool interface, and end with the answer.",
    ),
    (
        re.compile(
            r"^[ \t]*(?:root_?cause_?analysis|selected_?workflow)[ \t]*:", re.IGNORECASE | re.MULTILINE
        ),
        Unreadable.NO_JSON,
        "The answer is not JSON (it looks like YAML or like sections of text).",
    ),
)
ONLY_THOUGHTS = "The reply holds {count} characters of reasoning and no answer. Reasoning is never read: put the answer into the reply."


def parse_answer(text: str | None, finish: Finish) -> Answer:
    """Read the answer in a reply: `text` as the model wrote it, `finish` why the reply ended.

    `Answer.prose` is the text around the JSON without thoughts, `Answer.problems` what the verdict must
    reject.

    Raises:
        UnreadableAnswer: when no complete answer can be read; its problem tells the model why, and how to answer.
    """
    if text is None or not text.strip():
        raise UnreadableAnswer(*_UNFINISHED.get(finish, (Unreadable.EMPTY, "The answer is empty.")))
    if finish is Finish.STOP:
        return _read(text)
    try:
        return _read(text, only_whole=True)
    except UnreadableAnswer as unreadable:
        if unreadable.reason is Unreadable.CONTRADICTORY:
            raise
        raise UnreadableAnswer(*_UNFINISHED[finish]) from unreadable


def read_submission(value: Mapping[str, Any]) -> Answer:
    """Read an answer that was submitted as a value, in the requested form or in any form that text may have.

    Raises:
        UnreadableAnswer: when it holds two different answers, or contradicts itself.
    """
    try:
        parts = list(_inside(dict(value), 0))
        found = _one_answer(parts) or _Part(value, AnswerShape.ANSWER, ())
        answer, stated = to_answer(found.value), Fields(value).get("analysis")
    except Contradiction as contradiction:
        raise contradictory(contradiction) from contradiction
    return replace(answer, prose=clean(stated)[:MAX_PROSE_CHARS] if isinstance(stated, str) else "")


def contradictory(contradiction: Contradiction) -> UnreadableAnswer:
    """Return what the model is told about an answer that contradicts itself."""
    return UnreadableAnswer(Unreadable.CONTRADICTORY, f"The answer contradicts itself: {contradiction}.")


def _read(text: str, *, only_whole: bool = False) -> Answer:
    """The answer in a text. With `only_whole` it must be one object: parts of it may have been cut off."""
    if len(text) > MAX_TEXT_CHARS:
        raise UnreadableAnswer(Unreadable.TOO_LONG, f"The answer is longer than {MAX_TEXT_CHARS} characters.")
    seen = scan(text)
    if seen.over_limit:
        raise UnreadableAnswer(
            Unreadable.TOO_LONG, "The answer holds too many objects: give exactly one JSON object."
        )
    try:
        found = _the_answer(text, seen)
        if found is None:
            raise _nothing_found(text, seen)
        for broken in seen.broken:
            if broken.start > found.spans[0][0]:  # it may have been meant to replace the readable one
                raise _broken(broken.kind, broken.message)
        if only_whole and len(found.spans) != 1:
            raise _nothing_found(text, seen)
        loose = ", ".join(sorted(found.loose))
        answer = to_answer(found.value, (f"the JSON was not strict: {loose}",) if loose else ())
    except Contradiction as contradiction:
        raise contradictory(contradiction) from contradiction
    return _with_prose(answer, text, found, seen)


@dataclass(frozen=True, slots=True)
class _Part:
    """An answer or a part of one, at `spans` in the text.

    `inner_prose` is text around it in the string it was read from.
    """

    value: Mapping[str, Any]
    shape: AnswerShape
    spans: tuple[tuple[int, int], ...]
    inner_prose: str = ""
    loose: frozenset[str] = frozenset()
    is_correction: bool = False


def _the_answer(text: str, seen: Scan) -> _Part | None:
    """The one answer of the text, or its parts joined, or None.

    What stands before the heading "Final answer:" or "Corrected answer:" is a draft.

    Raises:
        Contradiction: when two answers, or parts of one, say different things.

    """
    parts = [part for found in seen.found for part in _parts_of(found)]
    latest = max((at for at, part in enumerate(parts) if part.is_correction), default=0)
    parts = parts[latest:]
    if answer := _one_answer(parts):
        return answer
    return None if seen.broken else _joined([*parts, *_sections(text, seen)])


def _one_answer(parts: list[_Part]) -> _Part | None:
    """The one whole answer among the parts; None if there is none.

    Raises Contradiction when they say different things.
    """
    whole = [part for part in parts if part.shape is AnswerShape.ANSWER]
    if not whole:
        return None
    answer = whole[-1]
    different = [part for part in whole if not same_value(part.value, answer.value)]
    if different:
        raise Contradiction(f"{len(different) + 1} different answers are given: give exactly one")
    for part in parts:
        _joined([answer, part])
    return answer


def _joined(parts: list[_Part]) -> _Part | None:
    """The parts as one answer. Raises Contradiction when two of them have different values for one field."""
    if not parts:
        return None
    values: dict[str, tuple[str, Any]] = {}
    for part in parts:
        for key, value in part.value.items():
            known = values.setdefault(plain(key), (key, value))[1]
            if not same_value(known, value):
                raise Contradiction(f"{key[:60]!r} is given twice with different values")
    return _Part(
        value=dict(values.values()),
        shape=AnswerShape.ANSWER,
        spans=tuple(span for part in parts for span in part.spans),
        inner_prose=next((part.inner_prose for part in parts if part.inner_prose), ""),
        loose=frozenset().union(*(part.loose for part in parts)),
    )


def _sections(text: str, seen: Scan) -> Iterator[_Part]:
    """The sections of an answer that is split into parts with headings.

    None unless it has both a cause and a choice.
    """
    found = [
        _Part(
            {item.section: item.value},
            AnswerShape.FRAGMENT,
            ((item.start, item.end),),
            loose=frozenset(item.loose),
        )
        for item in seen.found
        if item.section and shape_of(item.value) is AnswerShape.OTHER
    ]
    if not found:
        return
    lines = [_Part({name: value}, AnswerShape.FRAGMENT, ()) for name, value in stated_in_lines(text, seen)]
    names = {name for part in (*found, *lines) for name in part.value}
    if {"rootcauseanalysis", "selectedworkflow"} <= names:
        yield from (*found, *lines)


def _parts_of(found: JsonInText) -> Iterator[_Part]:
    for part in _inside(found.value, 0):
        yield replace(
            part,
            spans=((found.start, found.end),),
            loose=part.loose | frozenset(found.loose),
            is_correction=found.is_correction,
        )


def _inside(value: Any, depth: int) -> Iterator[_Part]:
    """Answers in a value, at most three wrappers deep."""
    if isinstance(value, dict):
        yield from _inside_object(value, depth)
    elif isinstance(value, list):
        for item in value:
            yield from _inside(item, depth)
    elif isinstance(value, str) and "{" in value:
        yield from _inside_text(value, depth)


def _inside_object(value: dict[str, Any], depth: int) -> Iterator[_Part]:
    """The object itself when it is an answer, else a whole answer in one of its values, else its parts."""
    value = unwrapped(value)
    shape = shape_of(value)
    inner: list[_Part] = []
    if shape is not AnswerShape.ANSWER and depth < MAX_WRAPPERS:
        for key, item in value.items():
            if key == "properties" and value.get("type") == "object":
                continue  # a JSON Schema of the answer, not an answer
            inner.extend(_inside(item, depth + 1))
    if shape is AnswerShape.OTHER or any(part.shape is AnswerShape.ANSWER for part in inner):
        yield from inner
    else:
        yield _Part(value, shape, ())


def _inside_text(text: str, depth: int) -> Iterator[_Part]:
    seen = scan(text)
    if seen.broken or seen.over_limit:
        raise UnreadableAnswer(Unreadable.BROKEN_JSON, "JSON inside a string cannot be read.")
    prose = outside(text, [(found.start, found.end) for found in seen.found], seen.thoughts)
    for found in seen.found:
        for part in _inside(found.value, depth):
            loose = part.loose | frozenset(found.loose)
            yield replace(part, inner_prose=part.inner_prose or prose, loose=loose)


def _nothing_found(text: str, seen: Scan) -> UnreadableAnswer:
    if seen.broken:
        return _broken(seen.broken[-1].kind, seen.broken[-1].message)
    if seen.open_thought:
        message = (
            "The text ends inside a thinking tag that is never closed, so nothing after that tag was read."
        )
        return UnreadableAnswer(Unreadable.IN_THOUGHT, message)
    for pattern, reason, message in _LOOKS:
        if pattern.search(text):
            return UnreadableAnswer(reason, message)
    if seen.found or seen.other_json:
        message = 'The JSON holds no answer: it needs "root_cause_analysis" and "selected_workflow".'
        return UnreadableAnswer(Unreadable.NO_ANSWER, message)
    if seen.thoughts:
        message = "There is no JSON object outside of the thinking tags."
        return UnreadableAnswer(Unreadable.IN_THOUGHT, message)
    return UnreadableAnswer(Unreadable.NO_JSON, "There is no JSON object.")


def _broken(kind: JsonFaultKind, message: str) -> UnreadableAnswer:
    if kind is JsonFaultKind.END:
        return UnreadableAnswer(Unreadable.TRUNCATED, f"The JSON is cut off: {message}.")
    twice = kind is JsonFaultKind.DUPLICATE
    reason = Unreadable.CONTRADICTORY if twice else Unreadable.BROKEN_JSON
    return UnreadableAnswer(reason, f"The JSON cannot be read: {message}.")


def _with_prose(answer: Answer, text: str, found: _Part, seen: Scan) -> Answer:
    around = (outside(text, found.spans, seen.thoughts), found.inner_prose)
    prose = clean("\n".join(part for part in around if part))
    if len(prose) <= MAX_PROSE_CHARS:
        return replace(answer, prose=prose)
    half = MAX_PROSE_CHARS // 2
    note = f"the middle of the prose was cut: {len(prose) - 2 * half} characters"
    return replace(answer, prose=f"{prose[:half]}\n[...]\n{prose[-half:]}", notes=(*answer.notes, note))


def is_final(reply: Reply) -> bool:
    """True if the reply is a final answer: it submits one, or it calls no tool at all."""
    return not reply.tool_calls or bool(submissions(reply))


def submissions(reply: Reply) -> tuple[ToolCall, ...]:
    """The calls by which the reply submits an answer, whatever the case and separators of the tool's name."""
    return tuple(call for call in reply.tool_calls if plain(call.name) == plain(SUBMIT_RESULT))


def answer_text(reply: Reply) -> str:
    """The answer as it was given, for humans: the text of the reply, and the submitted JSON."""
    given = (json.dumps(dict(call.arguments), ensure_ascii=False) for call in submissions(reply))
    return "\n".join(part for part in (reply.text, *given) if part.strip())


def read_reply(reply: Reply) -> Answer:
    """Read the answer in a final reply.

    Raises:
        UnreadableAnswer: when no complete answer can be read; its problem tells the model why, and how to answer.
    """
    given = submissions(reply)
    if not given:
        if reply.thinking_chars and not reply.text.strip() and reply.finish is not Finish.REFUSAL:
            raise UnreadableAnswer(Unreadable.IN_THOUGHT, ONLY_THOUGHTS.format(count=reply.thinking_chars))
        return parse_answer(reply.text, reply.finish)
    first = given[0]
    for call in given:
        if call.problem and reply.finish is Finish.LENGTH:
            raise UnreadableAnswer(*_UNFINISHED[Finish.LENGTH])
        if call.problem:
            raise UnreadableAnswer(
                Unreadable.BROKEN_JSON, f"The submitted answer cannot be read: {call.problem}."
            )
        if not same_value(dict(call.arguments), dict(first.arguments)):
            raise contradictory(
                Contradiction(f"{len(given)} different answers are submitted: submit exactly one")
            )
    if len(json.dumps(dict(first.arguments))) > MAX_TEXT_CHARS:
        raise UnreadableAnswer(Unreadable.TOO_LONG, f"The answer is longer than {MAX_TEXT_CHARS} characters.")
    answer = read_submission(first.arguments)
    return replace(answer, prose=reply.text.strip() or answer.prose)
