"""Reads a model's final answer: what it submitted through the tool, else its text.

Tolerant about form, never about content.

`parse_answer` accepts every shape that models really write and maps it onto one type. It never invents a
value and never chooses between two: a truncated object, two different answers, or two values for one field are
rejected, and the model is told why. The one exception is a second answer under the heading "Corrected answer"
that names another workflow and says the same of everything else; a human must approve it.

Values stay as the model wrote them where the verdict has to judge them (a severity outside the list is kept
here and rejected there).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from worker.domain.values.conversation import Finish, Reply, ToolCall
from worker.domain.verdict.answers.answer import Answer, Unreadable, UnreadableAnswer
from worker.domain.verdict.answers.fields import Contradiction, Fields, agreed, clean, plain, unwrapped
from worker.domain.verdict.answers.form import SUBMIT_RESULT
from worker.domain.verdict.answers.json_text import JsonFaultKind, same_value
from worker.domain.verdict.answers.shapes import AnswerShape, asks_for_human, shape_of, to_answer
from worker.domain.verdict.answers.text import Scan, outside, scan, split_thoughts, stated_in_lines
from worker.domain.verdict.answers.workflow import SELECTED

MAX_TEXT_CHARS = 1024 * 1024
MAX_PROSE_CHARS = 20_000
MAX_WRAPPERS = 3

_UNFINISHED = {
    Finish.LENGTH: (Unreadable.TRUNCATED, "The answer was cut off at the token limit: be shorter."),
    Finish.REFUSAL: (Unreadable.REFUSED, "The request was refused."),
    Finish.TOOL_CALLS: (Unreadable.TOOL_CALL, "The reply calls a tool, so it is not a final answer."),
    Finish.OTHER: (Unreadable.UNFINISHED, "The reply stopped before it was complete."),
}
CUT_SHORT = frozenset({Finish.LENGTH, Finish.REFUSAL})
"""What ended a reply whose answer is not read: the rest of it is missing, however whole the answer looks."""
# Signs of a text without readable JSON, and the message to the model.
_LOOKS = (
    (
        re.compile(
            r"&(?:quot|#34|#x22);\s*(?:root_?cause|selected_?workflow)|\{(?:\s|\\n)*\\\"", re.IGNORECASE
        ),
        Unreadable.ESCAPED,
        'The JSON is escaped (&quot; or \\"): write it with plain double quotes.',
    ),
    (
        re.compile(r"<(?:tool_call|function_calls?|invoke|tool_use)\b|\[TOOL_CALLS\]", re.IGNORECASE),
        Unreadable.TOOL_CALL,
        "The text holds a tool call and no answer: call tools through the tool interface, and end with the answer.",
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
    if finish in CUT_SHORT:
        raise UnreadableAnswer(*_UNFINISHED[finish])
    try:
        return _read(text, only_whole=finish is not Finish.STOP)
    except UnreadableAnswer as unreadable:
        if finish is Finish.STOP or unreadable.reason is Unreadable.CONTRADICTORY:
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
        answer, stated = to_answer(found.value, submitted=True), Fields(value).get("analysis")
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
    thoughts, text = split_thoughts(text)
    thought, seen = scan(thoughts), scan(text)
    if seen.over_limit or thought.over_limit:
        raise UnreadableAnswer(Unreadable.TOO_LONG, "There are too many objects: give one JSON object.")
    try:
        found = _the_answer(text, seen)
        if found is None:
            raise _nothing_found(text, seen, thoughts)
        for broken in seen.broken:
            if broken.start > found.spans[0][0]:  # it may have been meant to replace the readable one
                raise _broken(broken.kind, broken.message)
        if only_whole and len(found.spans) != 1:
            raise _nothing_found(text, seen, thoughts)
        drafts = [part for part in _parts(thought) if _must_agree(part) and not _decides_alike(part, found)]
        drafts += filter(None, [_joined(list(_sections(thoughts, thought)))])
        whole = _one_answer([*drafts, found]) or found
        answer = to_answer(whole.value)
    except Contradiction as contradiction:
        raise contradictory(contradiction) from contradiction
    if found.replaces or seen.broken:
        warnings = (*answer.warnings, "The reply holds another answer before this one, as a draft.")
        answer = replace(answer, asks_for_human=True, warnings=warnings)
    return replace(answer, prose=_prose(text, found))


@dataclass(frozen=True, slots=True)
class _Part:
    """An answer or a part of one, at `spans` in the text. `replaces`: the text holds a draft of it, too."""

    value: Mapping[str, Any]
    shape: AnswerShape
    spans: tuple[tuple[int, int], ...]
    is_correction: bool = False
    replaces: bool = False


def _is_whole(part: _Part) -> bool:
    return part.shape is AnswerShape.ANSWER


def _must_agree(draft: _Part) -> bool:
    """True for a whole answer, and for a part of one that chooses nothing or asks for a human."""
    said = None if _is_whole(draft) else to_answer(draft.value)
    return said is None or said.asks_for_human or (said.workflow_stated and not said.selected_workflow)


def _decides_alike(draft: _Part, found: _Part) -> bool:
    """True if a draft differs only in its words and its confidence, as drafts do."""
    one, other = to_answer(draft.value), to_answer(found.value)
    same = (one.affected_resource, one.asks_for_human) == (other.affected_resource, other.asks_for_human)
    return same and _chosen(one) == _chosen(other)


def _chosen(answer: Answer) -> object:
    return answer.selected_workflow and (
        answer.selected_workflow.workflow_id,
        answer.selected_workflow.parameters,
    )


def _the_answer(text: str, seen: Scan) -> _Part | None:
    """The one answer of the text, or its parts joined, or None.

    Raises:
        Contradiction: when two answers, or parts of one, say different things.

    """
    parts = list(_parts(seen))
    final = next((part for part in reversed(parts) if part.is_correction), None)
    kept = [part for part in parts if final is None or not _is_corrected(part, final)]
    sections = list(_sections(text, seen))
    answer = _one_answer([*kept, *sections])
    if answer is None:
        answer = None if seen.broken else _joined([*kept, *sections])
    return answer and replace(answer, replaces=len(kept) < len(parts))


def _is_corrected(part: _Part, final: _Part) -> bool:
    """True if `final`, which has the heading "Corrected answer", only names another workflow.

    Both must say the same of everything else, which a text that the model quotes cannot. A human approves.
    """
    if part.spans >= final.spans or not _is_whole(part):
        return False
    both = [{plain(key): value for key, value in each.value.items()} for each in (part, final)]
    others = [{key: each[key] for key in each if key not in SELECTED} for each in both]
    return same_value(*others) and all(to_answer(each).selected_workflow for each in both)


def _one_answer(parts: list[_Part]) -> _Part | None:
    """The one whole answer among the parts, with what the other parts add; None if there is none.

    Raises Contradiction when they say different things.
    """
    whole = [part for part in parts if _is_whole(part)]
    different = [part for part in whole if not same_value(part.value, whole[0].value)]
    if different:
        raise Contradiction(f"{len(different) + 1} different answers are given: give exactly one")
    return _joined(parts) if whole else None


def _joined(parts: list[_Part]) -> _Part | None:
    """The parts as one answer. Raises Contradiction when two of them have different values for one field."""
    if not parts:
        return None
    values: dict[str, list[tuple[str, Any]]] = {}
    for part in parts:
        for key, value in part.value.items():
            values.setdefault(plain(key), []).append((key, value))
    return _Part(
        value={entries[0][0]: agreed(entries) for entries in values.values()},
        shape=AnswerShape.ANSWER,
        spans=tuple(sorted({span for part in parts for span in part.spans})),
    )


def _sections(text: str, seen: Scan) -> Iterator[_Part]:
    """The sections of an answer that is split into parts with headings.

    Without both a cause and a choice, only those that choose nothing or ask for a human.
    """
    if not seen.found:
        return
    found = [
        _Part({item.section: item.value}, AnswerShape.FRAGMENT, ((item.start, item.end),))
        for item in seen.found
        if item.section and shape_of(item.value) is AnswerShape.OTHER
    ]
    found += [_Part({name: value}, AnswerShape.FRAGMENT, ()) for name, value in stated_in_lines(text, seen)]
    is_answer = {"rootcauseanalysis", "selectedworkflow"} <= {name for part in found for name in part.value}
    yield from (part for part in found if is_answer or _must_agree(part))


def _parts(seen: Scan) -> Iterator[_Part]:
    for found in seen.found:
        for part in _inside(found.value, 0):
            spans = ((found.start, found.end),)
            yield replace(part, spans=spans, is_correction=found.is_correction)


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
    """The object itself when it is an answer or a part of one, and the answers in its values.

    In a whole answer, only the values of its fields are examined, except for its workflow.
    """
    value = unwrapped(value)
    shape = shape_of(value)
    if shape is not AnswerShape.OTHER:
        yield _Part(value, shape, ())
    if shape is AnswerShape.ANSWER:
        others = [
            item for key, item in value.items() if plain(key) not in SELECTED and isinstance(item, dict)
        ]
        yield from (_Part(item, shape, ()) for item in others if shape_of(item) is shape)
    if shape is AnswerShape.ANSWER or depth == MAX_WRAPPERS:
        return
    for key, item in value.items():
        if key == "properties" and value.get("type") == "object":
            continue  # a JSON Schema of the answer, not an answer
        inner = _inside(item, depth + 1)
        yield from inner if shape is AnswerShape.OTHER else filter(_is_whole, inner)


def _inside_text(text: str, depth: int) -> Iterator[_Part]:
    seen = scan(text)
    if seen.broken or seen.over_limit:
        raise UnreadableAnswer(Unreadable.BROKEN_JSON, "JSON inside a string cannot be read.")
    for found in seen.found:
        yield from _inside(found.value, depth)


def _nothing_found(text: str, seen: Scan, thoughts: str) -> UnreadableAnswer:
    if seen.broken:
        return _broken(seen.broken[-1].kind, seen.broken[-1].message)
    for pattern, reason, message in _LOOKS:
        if pattern.search(text):
            return UnreadableAnswer(reason, message)
    if seen.found or seen.other_json:
        message = 'The JSON holds no answer: it needs "root_cause_analysis" and "selected_workflow".'
        return UnreadableAnswer(Unreadable.NO_ANSWER, message)
    if thoughts:
        message = "There is no JSON object outside of the thinking tags, or they are never closed."
        return UnreadableAnswer(Unreadable.IN_THOUGHT, message)
    return UnreadableAnswer(Unreadable.NO_JSON, "There is no JSON object.")


def _broken(kind: JsonFaultKind, message: str) -> UnreadableAnswer:
    if kind is JsonFaultKind.END:
        return UnreadableAnswer(Unreadable.TRUNCATED, f"The JSON is cut off: {message}.")
    twice = kind is JsonFaultKind.DUPLICATE
    reason = Unreadable.CONTRADICTORY if twice else Unreadable.BROKEN_JSON
    return UnreadableAnswer(reason, f"The JSON cannot be read: {message}.")


def _prose(text: str, found: _Part) -> str:
    """The text around an answer, at most its first 20,000 characters."""
    prose = clean(outside(text, found.spans))
    return prose if len(prose) <= MAX_PROSE_CHARS else f"{prose[:MAX_PROSE_CHARS]}…"


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
    if reply.finish in CUT_SHORT:
        raise UnreadableAnswer(*_UNFINISHED[reply.finish])
    first = given[0]
    for call in given:
        if call.problem:
            raise UnreadableAnswer(
                Unreadable.BROKEN_JSON, f"The submitted answer cannot be read: {call.problem}."
            )
        if not same_value(dict(call.arguments), dict(first.arguments)):
            raise contradictory(Contradiction(f"{len(given)} different answers are submitted: submit one"))
    if len(json.dumps(dict(first.arguments))) > MAX_TEXT_CHARS:
        raise UnreadableAnswer(Unreadable.TOO_LONG, f"The answer is longer than {MAX_TEXT_CHARS} characters.")
    return _beside(reply.text, read_submission(first.arguments))


def _beside(text: str, answer: Answer) -> Answer:
    """A submitted answer with the text beside it as prose.

    An answer in the text must choose the same, as must a line that says that no workflow is chosen. If the answer
    in the text cannot be read, a human compares.
    """
    try:
        said = parse_answer(text, Finish.STOP)
    except UnreadableAnswer as unreadable:
        if unreadable.reason is Unreadable.CONTRADICTORY:
            raise
        lines = dict(stated_in_lines(text, scan(text)))
        asks = unreadable.reason in {Unreadable.BROKEN_JSON, Unreadable.TRUNCATED} or asks_for_human(lines)
        said = Answer(workflow_stated=lines.get("selectedworkflow", "") is None, asks_for_human=asks)
    if said.workflow_stated and _chosen(answer) != _chosen(said):
        raise contradictory(Contradiction("the text and the submitted answer make different choices"))
    prose = text.strip() or answer.prose
    return replace(answer, prose=prose, asks_for_human=answer.asks_for_human or said.asks_for_human)
