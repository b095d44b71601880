"""The loop between the model and the tools: steps, budgets, journal.

One investigation is a list of turns that only grows. Every reply of the model and every turn of tool results is in the
journal before the next step, so a successor replays them and pays for nothing twice. The loop ends in exactly one of:
an accepted answer, three rejected ones, or a spent budget.

What the model does wrong is handled here and never ends a run: calls to unknown tools and malformed arguments come back
as tool errors, tool calls in place of the final answer count as a failed attempt. A conversation that has become too
long for it loses its oldest tool results, once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from worker.domain.investigation.models.shrink import shrunk
from worker.domain.investigation.steps import Asked, Judged, Ran, Steps
from worker.domain.values.conversation import (
    ModelRequest,
    Reply,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolTurn,
    Turn,
    UserTurn,
)
from worker.domain.values.errors import BLOCKING, GiveUp, GiveUpReason
from worker.domain.values.limits import Limits, Spent, exhausted, must_wrap_up, seconds_for_call
from worker.domain.values.ports import Clock, Model
from worker.domain.verdict.judge import correction_message
from worker.domain.verdict.outcome import Stop
from worker.domain.verdict.problems import Problem, ProblemKind
from worker.domain.verdict.verdict import Accepted, Attempt, Rejected, Verdict

MAX_CALLS_PER_REPLY = 12
WRAP_UP = (
    "The budget of this investigation is nearly used up. Give the final answer now, from what you know, without any "
    "tool call. If that is not enough, investigation_outcome insufficient_data is a valid answer."
)
NOT_RUN = "error: not run: the budget of this investigation is used up; give the final answer"
TOO_MANY = (
    f"error: not run: at most {MAX_CALLS_PER_REPLY} tool calls in one reply; ask again for what matters most"
)
STOPS = {
    GiveUpReason.CONTEXT_OVERFLOW: Stop.CONTEXT_FULL,
    GiveUpReason.BUDGET_SPENT: Stop.BUDGET_SPENT,
}
CALL_INSTEAD_OF_ANSWER = Problem(
    ProblemKind.UNREADABLE,
    "",
    "no final answer: tool calls are no longer possible, answer from what you know",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """How an investigation ended: by its last attempt, or by a `stop` before the attempts were used up.

    `shrunk`: the model no longer read the oldest tool results at the end.
    """

    attempts: tuple[Attempt, ...]
    spent: Spent
    model: str
    stop: Stop | None = None
    stop_detail: str = ""
    shrunk: bool = False


class Observer(Protocol):
    """Who is told about each step that is taken, before it is kept; of replayed steps an earlier run has told."""

    async def asking(self, call: int, model: str, request: ModelRequest) -> None: ...
    async def replied(self, call: int, reply: Reply) -> None: ...
    async def tool_ran(self, call: ToolCall, result: ToolResult) -> None: ...
    async def judged(self, attempt: Attempt, *, last: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Investigation:
    """What one investigation works with. `judge` reads and checks a final answer; `run_tools` keeps the order."""

    model: Model
    tools: tuple[ToolSpec, ...]
    system: str
    opening: str
    run_tools: Callable[[Sequence[ToolCall]], Awaitable[tuple[ToolResult, ...]]]
    judge: Callable[[Reply], Awaitable[Judged]]
    steps: Steps
    observer: Observer
    clock: Clock
    limits: Limits
    urgency: int = 2


@dataclass(slots=True)
class _State:
    """Where an investigation stands."""

    turns: list[Turn]
    mark: float
    spent: Spent = field(default_factory=Spent)
    attempts: list[Attempt] = field(default_factory=list)
    shrunk: bool = False

    def finding(self, model: str, stop: Stop | None = None, detail: str = "") -> Finding:
        return Finding(tuple(self.attempts), self.spent, model, stop, detail, self.shrunk)

    def tick(self, now: float) -> None:
        self.spent = replace(self.spent, wall_seconds=self.spent.wall_seconds + now - self.mark)
        self.mark = now


async def investigate(job: Investigation) -> Finding:
    """Run the loop to its end. Raises what the ports raise (Retry, GiveUp, LostClaim, Unavailable)."""
    at = _State([UserTurn(job.opening)], job.clock.monotonic())
    while True:
        at.tick(job.clock.monotonic())
        if over := exhausted(at.spent, job.limits):
            return at.finding(job.model.name, Stop.BUDGET_SPENT, over)
        try:
            asked = await _ask(job, at)
        except GiveUp as e:
            if e.reason in BLOCKING:
                raise
            return at.finding(job.model.name, STOPS.get(e.reason, Stop.MODELS_DOWN), e.message)
        reply = _take(job, at, asked)
        if reply.tool_calls and not asked.closing:
            await _run(job, at, reply)
        elif finding := await _attempt(job, at, reply):
            return finding


async def _attempt(job: Investigation, at: _State, reply: Reply) -> Finding | None:
    """Judge a final answer. The finding when it was the last one; else the correction stands in the turns."""
    number = len(at.attempts) + 1

    def attempt_of(judged: Judged) -> Attempt:
        return Attempt(number, judged.verdict, reply.text, judged.workflow_id)

    def is_last(verdict: Verdict) -> bool:
        return isinstance(verdict, Accepted) or number >= job.limits.attempts

    async def judge() -> Judged:
        judged = await _judge(job, reply)
        if judged.stop is None:
            await job.observer.judged(attempt_of(judged), last=is_last(judged.verdict))
        at.tick(job.clock.monotonic())
        return replace(judged, wall_seconds=at.spent.wall_seconds)

    judged = await job.steps.verdict(judge)
    at.spent = replace(at.spent, wall_seconds=judged.wall_seconds)
    if judged.stop is not None:
        return at.finding(reply.model, judged.stop, judged.stop_detail)
    at.attempts.append(attempt_of(judged))
    if is_last(judged.verdict):
        return at.finding(reply.model)
    at.turns.append(_correction(reply, judged.verdict))
    return None


async def _ask(job: Investigation, at: _State) -> Asked:
    """The next reply. A successor makes the same of the same turns, so only that it was shrunk is journaled."""
    spent, turns = at.spent, tuple(at.turns)
    closing, started = must_wrap_up(spent, job.limits), job.clock.monotonic()
    request = ModelRequest(
        system=job.system,
        tools=job.tools,
        turns=turns,
        tools_allowed=not closing,
        urgency=job.urgency,
        deadline_seconds=seconds_for_call(spent, job.limits),
    )
    number = spent.llm_calls + 1

    async def announce() -> None:
        await job.observer.asking(number, job.model.name, request)

    def until_now() -> Spent:
        return replace(spent, wall_seconds=spent.wall_seconds + job.clock.monotonic() - started)

    async def once(turns: tuple[Turn, ...]) -> Reply:
        if over := exhausted(until_now(), job.limits):  # earlier tries of this call took that long
            raise GiveUp(GiveUpReason.BUDGET_SPENT, over)
        seconds = seconds_for_call(until_now(), job.limits)
        return await job.model.ask(replace(request, turns=turns, deadline_seconds=seconds))

    async def fitting() -> tuple[Reply, bool]:
        try:
            return await once(turns), False
        except GiveUp as e:
            shorter = shrunk(turns) if e.reason is GiveUpReason.CONTEXT_OVERFLOW and not at.shrunk else None
            if shorter is None:
                raise
        return await once(shorter), True

    async def ask() -> Asked:
        reply, was_shrunk = await fitting()
        await job.observer.replied(number, reply)
        return Asked(reply, until_now().wall_seconds, closing, was_shrunk)

    return await job.steps.reply(announce, ask)


def _take(job: Investigation, at: _State, asked: Asked) -> Reply:
    if asked.shrunk:
        at.turns, at.shrunk = list(shrunk(at.turns) or at.turns), True
    at.turns.append(asked.reply)
    at.spent = at.spent.plus(asked.reply.usage, wall_seconds=asked.wall_seconds)
    at.mark = job.clock.monotonic()
    return asked.reply


def _runnable(job: Investigation, reply: Reply, spent: Spent) -> tuple[ToolCall, ...]:
    """The calls of a reply that are run: the first ones, within what is left of the budget."""
    room = max(0, job.limits.tool_calls - spent.tool_calls)
    return reply.tool_calls[: min(MAX_CALLS_PER_REPLY, room)]


async def _run(job: Investigation, at: _State, reply: Reply) -> None:
    wanted = _runnable(job, reply, at.spent)
    tool_calls = at.spent.tool_calls + len(wanted)

    async def run() -> Ran:
        results = await job.run_tools(wanted)
        at.tick(job.clock.monotonic())
        surplus = _refusals(
            reply.tool_calls[len(wanted) :],
            NOT_RUN if tool_calls >= job.limits.tool_calls else TOO_MANY,
        )
        for call, result in zip(reply.tool_calls, (*results, *surplus), strict=True):
            await job.observer.tool_ran(call, result)
        wrap_up = must_wrap_up(replace(at.spent, tool_calls=tool_calls), job.limits)
        return Ran(ToolTurn((*results, *surplus), note=WRAP_UP if wrap_up else ""), at.spent.wall_seconds)

    ran = await job.steps.tools(run)
    at.turns.append(ran.turn)
    at.spent = replace(at.spent, tool_calls=tool_calls, wall_seconds=ran.wall_seconds)


async def _judge(job: Investigation, reply: Reply) -> Judged:
    if reply.tool_calls:
        return Judged(Rejected((CALL_INSTEAD_OF_ANSWER,)))
    return await job.judge(reply)


def _correction(reply: Reply, verdict: Verdict) -> Turn:
    text = correction_message(verdict.problems) if isinstance(verdict, Rejected) else ""
    if reply.tool_calls:  # providers refuse a history in which a tool call has no result
        return ToolTurn(_refusals(reply.tool_calls, NOT_RUN), note=text)
    return UserTurn(text)


def _refusals(calls: Sequence[ToolCall], text: str) -> tuple[ToolResult, ...]:
    return tuple(ToolResult(call.id, call.name, text, ok=False) for call in calls)
