"""A model's final answer, read from its text: tolerant about form, never about content.

`parse_answer` accepts every shape models really write and maps it onto one type. It never invents a value: a truncated
object, two different complete answers, or two values for one key are problems, not guesses. Values stay as the model
wrote them where the verdict has to judge them (a severity outside the list is kept and refused later).
"""

from __future__ import annotations

import re
from dataclasses import replace

from worker.domain.values.conversation import Finish
from worker.domain.verdict.answers.answer import (
    Answer,
    AnsweredAlternative,
    AnsweredTarget,
    AnsweredWorkflow,
    UnreadableAnswer,
)
from worker.domain.verdict.answers.choice import Candidate, Undecided, choose
from worker.domain.verdict.answers.fields import Contradiction, clean
from worker.domain.verdict.answers.json_text import Fault
from worker.domain.verdict.answers.shapes import to_answer
from worker.domain.verdict.answers.text import Scan, outside, scan
from worker.domain.verdict.problems import Problem, ProblemKind

__all__ = [
    "Answer",
    "AnsweredAlternative",
    "AnsweredTarget",
    "AnsweredWorkflow",
    "UnreadableAnswer",
    "parse_answer",
]

MAX_TEXT_CHARS = 1024 * 1024
MAX_PROSE_CHARS = 20_000

_HOW = (
    "Answer again in full: a short summary in plain text, then one ```json fence with one object that holds"
    ' "root_cause_analysis" (summary, severity, signal_type, contributing_factors, affectedResource) and'
    ' "selected_workflow" (workflow_id, confidence, rationale, parameters; or null when no workflow fits).'
)
_UNFINISHED = {
    Finish.LENGTH: "The answer was cut off at the token limit: be shorter.",
    Finish.REFUSAL: "The answer was refused.",
    Finish.TOOL_CALLS: "The reply calls a tool: it is no final answer.",
    Finish.OTHER: "The reply stopped for another reason than being complete.",
}
# What an unreadable text looks like, and what the model is told then.
_LOOKS = (
    (
        re.compile(r"&(?:quot|#34|#x22);\s*(?:root_?cause|selected_?workflow)", re.IGNORECASE),
        "The JSON is HTML-escaped (&quot;): write it with plain double quotes.",
    ),
    (
        re.compile(r"\{(?:\s|\\n)*\\\""),
        'The JSON is escaped (\\"): write it with plain double quotes.',
    ),
    (
        re.compile(r"<(?:tool_call|function_calls?|invoke|tool_use)\b|\[TOOL_CALLS\]", re.IGNORECASE),
        "The text holds a tool call and no answer: call tools by the tool interface, and end with the answer.",
    ),
    (
        re.compile(
            r"^[ \t]*(?:root_?cause_?analysis|selected_?workflow)[ \t]*:", re.IGNORECASE | re.MULTILINE
        ),
        "The answer is not JSON (it looks like YAML or like sections of text).",
    ),
)


def parse_answer(text: str | None, finish: Finish) -> Answer:
    """The answer in a reply: `text` as the model wrote it, `finish` why it stopped.

    `Answer.prose` is the text around the JSON without thoughts, `Answer.problems` what the verdict must refuse.

    Raises:
        UnreadableAnswer: when no complete answer can be read; its problem tells the model why and how to answer.

    """
    if finish is not Finish.STOP:
        raise _unreadable(_UNFINISHED[finish])
    if text is None or not text.strip():
        raise _unreadable("The answer is empty.")
    if len(text) > MAX_TEXT_CHARS:
        raise _unreadable(f"The answer is longer than {MAX_TEXT_CHARS} characters.")
    seen = scan(text)
    if seen.tangled:
        raise _unreadable("The answer holds too many objects to tell which one counts.")
    try:
        chosen = choose(text, seen)
        if chosen is None:
            raise _unreadable(_why_nothing(text, seen))
        _refuse_broken_later(chosen, seen)
        answer = to_answer(chosen.value, _spelling_notes(chosen))
    except (Contradiction, Undecided) as found:
        raise _unreadable(f"The answer is not clear: {found}.") from found
    return _with_prose(answer, text, chosen, seen)


def _refuse_broken_later(chosen: Candidate, seen: Scan) -> None:
    """An earlier answer must not stand in for a later one that can't be read."""
    for broken in seen.broken:
        if broken.start > chosen.spans[0][0]:
            raise _unreadable(_broken_message(broken.fault, broken.message))


def _why_nothing(text: str, seen: Scan) -> str:
    if seen.broken:
        return _broken_message(seen.broken[-1].fault, seen.broken[-1].message)
    if seen.open_thought:
        return "The text ends inside a thinking tag that is never closed: nothing after it is read."
    for pattern, message in _LOOKS:
        if pattern.search(text):
            return message
    if seen.found or seen.other_json:
        return 'The JSON holds no answer: it needs "root_cause_analysis" and "selected_workflow".'
    return f"There is no JSON object{' outside of the thinking tags' if seen.thoughts else ''}."


def _broken_message(fault: Fault, message: str) -> str:
    if fault is Fault.END:
        return f"The JSON is cut off: {message}."
    return f"The JSON can't be read: {message}."


def _unreadable(message: str) -> UnreadableAnswer:
    return UnreadableAnswer(Problem(ProblemKind.UNREADABLE, "", f"{message} {_HOW}"))


def _spelling_notes(chosen: Candidate) -> tuple[str, ...]:
    if not chosen.loose:
        return ()
    return (f"the JSON was not strict: {', '.join(sorted(chosen.loose))}",)


def _with_prose(answer: Answer, text: str, chosen: Candidate, seen: Scan) -> Answer:
    prose = "\n".join(
        part for part in (outside(text, chosen.spans, seen.thoughts), chosen.inner_prose) if part
    )
    prose = clean(prose)
    if len(prose) <= MAX_PROSE_CHARS:
        return replace(answer, prose=prose)
    half = MAX_PROSE_CHARS // 2
    note = f"the middle of the prose was cut: {len(prose) - 2 * half} characters"
    return replace(answer, prose=f"{prose[:half]}\n[...]\n{prose[-half:]}", notes=(*answer.notes, note))
