"""The final answer in a reply: what the model submitted through the tool, else what its text holds."""

from __future__ import annotations

import json
from dataclasses import replace

from worker.domain.values.conversation import Finish, Reply, ToolCall
from worker.domain.verdict.answers.answer import Answer, Unreadable, UnreadableAnswer
from worker.domain.verdict.answers.fields import Contradiction
from worker.domain.verdict.answers.form import SUBMIT_RESULT
from worker.domain.verdict.answers.json_text import same_value
from worker.domain.verdict.answers.parse import MAX_TEXT_CHARS, contradictory, parse_answer, read_submission

ONLY_THOUGHTS = "The reply holds {count} characters of reasoning and no answer. Reasoning is never read: put the answer into the reply."


def is_final(reply: Reply) -> bool:
    """Whether the reply is a final answer: it submits one, or it calls no tool at all."""
    return not reply.tool_calls or bool(submissions(reply))


def submissions(reply: Reply) -> tuple[ToolCall, ...]:
    """The calls by which the reply submits an answer."""
    return tuple(call for call in reply.tool_calls if call.name == SUBMIT_RESULT)


def answer_text(reply: Reply) -> str:
    """The answer as it was given, for people: the text of the reply, and what it submitted as JSON."""
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
            raise UnreadableAnswer(
                Unreadable.TRUNCATED, "The answer was cut off at the token limit: be shorter."
            )
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
