"""The messages to a model about calls that are not run, and about rejected answers."""

from __future__ import annotations

from collections.abc import Sequence

from worker.domain.values.conversation import Reply, ToolCall, ToolResult, ToolTurn, Turn, UserTurn
from worker.domain.verdict.answers.parse import is_final, submissions
from worker.domain.verdict.judge import correction_message
from worker.domain.verdict.verdict import Rejected, Verdict

MAX_CALLS_PER_REPLY = 12
WRAP_UP = (
    "The budget of this investigation is nearly used up. Give the final answer now, from what you know: call "
    "submit_result and no other tool. If that is not enough, investigation_outcome insufficient_data is a valid answer."
)
NOT_RUN = "error: not run: the budget of this investigation is used up; give the final answer"
NOT_RUN_BESIDE_ANSWER = "error: not run: the same reply submitted an answer"
TOO_MANY = (
    f"error: not run: at most {MAX_CALLS_PER_REPLY} tool calls in one reply; ask again for what matters most"
)


def correction(reply: Reply, verdict: Verdict, attempt: str) -> Turn:
    """The message about a rejected answer: as the result of the call that submitted it, if one did."""
    text = correction_message(verdict.problems, attempt) if isinstance(verdict, Rejected) else ""
    if not reply.tool_calls:
        return UserTurn(text)
    if not is_final(reply):  # providers refuse a history in which a tool call has no result
        return ToolTurn(refusals(reply.tool_calls, NOT_RUN), note=text)
    first, others = submissions(reply)[0], NOT_RUN_BESIDE_ANSWER
    results = (refusals((call,), text if call is first else others)[0] for call in reply.tool_calls)
    return ToolTurn(tuple(results))


def refusals(calls: Sequence[ToolCall], text: str) -> tuple[ToolResult, ...]:
    """The text as the result of each of the calls."""
    return tuple(ToolResult(call.id, call.name, text, ok=False) for call in calls)
