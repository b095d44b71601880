"""The loop between the model and the tools.

Until an answer is accepted, the last one is rejected or the budget is spent: take the next reply, run the
tools it calls, judge the answer it gives. A step that is in the journal is taken from there; any other is
claimed, done and recorded before the next one, so that a successor replays every step and pays for none
twice.

Calls to unknown tools and malformed arguments come back as tool errors, and tool calls in place of the final
answer count as a failed attempt. A model that calls only unknown tools three times in a row has failed. An
unreadable answer does not count as an attempt if the model only needs to be told how to answer; this happens
once for each way of being unreadable. A conversation that becomes too long for the model loses its oldest
tool results, before the call if the window of the model is known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from worker.domain.investigation import corrections
from worker.domain.investigation import journaled_steps as journaled
from worker.domain.investigation.models.shrink import expected_tokens, fitted, prefix_chars, shrunk
from worker.domain.investigation.models.tries import TryRule, failed_tries, is_try
from worker.domain.investigation.toolbox.toolbox import Toolbox
from worker.domain.untrusted.evidence import EvidenceLog
from worker.domain.values import conversation
from worker.domain.values.errors import BLOCKING, GiveUp, GiveUpReason, Retry
from worker.domain.values.limits import Limits, Spent, exhausted, must_wrap_up, seconds_for_call
from worker.domain.values.ports import Clock, JournalRun, Model
from worker.domain.values.step_kinds import CLAIM, LLM, TOOLS, TRIED
from worker.domain.verdict.answers.answer import Problem, ProblemKind, Unreadable
from worker.domain.verdict.answers.parse import answer_text, is_final
from worker.domain.verdict.checks.facts import VerdictFacts
from worker.domain.verdict.outcome import Stop
from worker.domain.verdict.verdict import Accepted, Attempt, Rejected, Verdict, fuller

STOPS = {GiveUpReason.CONTEXT_OVERFLOW: Stop.CONTEXT_FULL, GiveUpReason.BUDGET_SPENT: Stop.BUDGET_SPENT}
CALL_INSTEAD_OF_ANSWER = Problem(
    ProblemKind.UNREADABLE,
    "",
    "no final answer: tool calls are no longer possible, answer from what you know",
)
MAX_LOST = 3
"""After how many replies in a row that call only unknown tools the run ends."""
ONLY_UNKNOWN_TOOLS = Problem(
    ProblemKind.UNREADABLE, "", f"no final answer: the last {MAX_LOST} replies called only unknown tools"
)


class Observer(Protocol):
    """Is notified of each step before it is recorded. Replayed steps were observed by an earlier run."""

    async def asking(self, call: int, model: str, request: conversation.ModelRequest) -> None: ...
    async def replied(self, call: int, reply: conversation.Reply) -> None: ...
    async def tool_ran(self, call: conversation.ToolCall, result: conversation.ToolResult) -> None: ...
    async def judged(self, attempt: Attempt, *, last: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on an answer, and the workflow the answer named (empty for none).

    A `stop` ends the run at once. `facts` are those behind the verdict, or None if they were not looked up.
    `at` is when the answer was checked. `unreadable`: why no answer could be read.
    """

    verdict: Verdict
    workflow_id: str = ""
    stop: Stop | None = None
    stop_detail: str = ""
    facts: VerdictFacts | None = None
    at: datetime | None = None
    unreadable: Unreadable | None = None

    def attempt(self, number: int, reply: conversation.Reply) -> Attempt:
        """The attempt with this number, whose answer is in the reply."""
        return Attempt(number, self.verdict, answer_text(reply), self.workflow_id, self.at)


@dataclass(frozen=True, slots=True)
class Investigated:
    """How an investigation ended: by its last attempt, or by a `stop` before the attempts were used up.

    `shrunk`: at the end, the model no longer saw the oldest tool results. `facts`: those behind the last
    verdict. `partial`: the fullest valid part of a rejected answer.
    """

    attempts: tuple[Attempt, ...]
    spent: Spent
    model: str
    stop: Stop | None = None
    stop_detail: str = ""
    shrunk: bool = False
    facts: VerdictFacts | None = None
    partial: Accepted | None = None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the last attempt; None without one."""
        return self.attempts[-1].verdict if self.attempts else None

    @property
    def accepted(self) -> Accepted | None:
        """The accepted answer, if there is one."""
        return self.verdict if isinstance(self.verdict, Accepted) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Investigation:
    """Everything one investigation works with.

    `judge` reads and checks a final answer. `proceed` is awaited before each call of the model, and raises
    Halted or Preempted if it must not be made. `jitter` returns a number in [0, 1).
    """

    model: Model
    tools: tuple[conversation.ToolSpec, ...]
    system: str
    opening: str
    toolbox: Toolbox
    evidence: EvidenceLog
    judge: Callable[[conversation.Reply], Awaitable[Judged]]
    run: JournalRun
    proceed: Callable[[], Awaitable[None]]
    observer: Observer
    clock: Clock
    jitter: Callable[[], float]
    limits: Limits = field(default_factory=Limits)
    tries: TryRule = field(default_factory=TryRule)
    urgency: int = 2


async def investigate(given: Investigation) -> Investigated:
    """Run the loop to its end.

    Raises Retry, GiveUp, Halted, Preempted, LostClaim, JournalGap, Unavailable.
    """
    loop = _Loop(given)
    while not (used_up := exhausted(loop.spent, given.limits)):
        try:
            asked = await loop.next_reply()
        except GiveUp as e:
            if e.reason in BLOCKING:
                raise
            return loop.ended(given.model.name, STOPS.get(e.reason, Stop.MODELS_DOWN), e.message)
        if not is_final(asked.reply) and not asked.closing and not loop.is_lost:
            await loop.run_tools(asked.reply)
            continue
        judged = await loop.judge_answer(asked.reply)
        if judged.stop or loop.is_over:
            return loop.ended(asked.reply.model, judged.stop, judged.stop_detail)
        loop.turns.append(corrections.correction(asked.reply, judged.verdict, loop.next_attempt))
    return loop.ended(given.model.name, Stop.BUDGET_SPENT, used_up)


class _Loop:
    """The state of an investigation, and its three steps. Each is replayed, or claimed, done and recorded."""

    def __init__(self, given: Investigation) -> None:
        self._given, self._journaled = given, journaled.JournaledSteps(given.run.past)
        self.turns: list[conversation.Turn] = [conversation.UserTurn(given.opening)]
        self._attempts: list[Attempt] = []
        self._told: set[Unreadable] = set()
        """The kinds of unreadable answers that were returned to the model without counting as an attempt."""
        self._refusal = b""
        """The last verdict, until it is recorded with the claim of the call that reports it to the model."""
        self._facts: VerdictFacts | None = None
        self._partial: Accepted | None = None
        self._shrunk, self._prefix = False, prefix_chars(given.system, given.tools)
        self._spent, self._since = Spent(), given.clock.monotonic()

    @property
    def spent(self) -> Spent:
        """The costs so far. A successor continues from the time that the last step has recorded."""
        passed = self._given.clock.monotonic() - self._since
        return replace(self._spent, wall_seconds=self._spent.wall_seconds + passed)

    @property
    def next_attempt(self) -> str:
        """The next attempt, in words for the model: `attempt 2 of 3`."""
        return f"attempt {len(self._attempts) + 1} of {self._given.limits.attempts}"

    @property
    def is_over(self) -> bool:
        """True if the last attempt was accepted, or was the last one allowed."""
        return bool(self._attempts) and self._is_last(self._attempts[-1])

    @property
    def is_lost(self) -> bool:
        """True if the last replies called only unknown tools."""
        last = [turn for turn in self.turns if isinstance(turn, conversation.Reply)][-MAX_LOST:]
        named = self._given.toolbox.tool_named
        unknown = (not is_final(reply) and not any(named(c.name) for c in reply.tool_calls) for reply in last)
        return len(last) == MAX_LOST and all(unknown)

    def ended(self, model: str, stop: Stop | None, detail: str) -> Investigated:
        """The end of the investigation.

        Its costs leave out failed tries of a last call, which a successor could not count.
        """
        return Investigated(
            tuple(self._attempts), self._spent, model, stop, detail, self._shrunk, self._facts, self._partial
        )

    async def next_reply(self) -> journaled.Asked:
        """The next reply of the model: from the journal, or asked for."""
        asked = self._journaled.reply() or await self._ask_until_answered()
        for _ in range(asked.shrunk):
            self.turns, self._shrunk = list(shrunk(self.turns) or self.turns), True
        self.turns.append(asked.reply)
        self._count(self._spent.plus(asked.reply.usage, wall_seconds=asked.wall_seconds))
        return asked

    async def run_tools(self, reply: conversation.Reply) -> None:
        """Answer the tool calls of a reply: from the journal, or by running those that the budget allows."""
        given, allowed = self._given, self._allowed_calls(reply)
        tool_calls = self._spent.tool_calls + len(allowed)
        if saved := self._journaled.tools():
            for item in saved.evidence:
                given.evidence.add(item)
            given.toolbox.recall(saved.ran.turn.results, saved.memory)
        else:
            before = len(given.evidence.items)
            ran = await self._run(reply, allowed, tool_calls)
            memory = given.toolbox.remembered(ran.turn.results)
            saved = journaled.SavedTools(ran, given.evidence.items[before:], memory)
            await given.run.append(TOOLS, journaled.SAVED_TOOLS.dump_json(saved))
        self.turns.append(saved.ran.turn)
        self._count(replace(self._spent, tool_calls=tool_calls, wall_seconds=saved.ran.wall_seconds))

    async def judge_answer(self, reply: conversation.Reply) -> Judged:
        """The verdict on a final answer: the recorded one, or a new one."""
        if saved := self._journaled.refusal():
            judged = Judged(Rejected(saved.problems, saved.partial), saved.workflow_id, at=saved.at)
            seconds, told = saved.wall_seconds, saved.told
        else:
            judged = await self._judge(reply)
            seconds, told = self.spent.wall_seconds, self._only_told(judged)
            if judged.stop is None and told is None:
                attempt = judged.attempt(len(self._attempts) + 1, reply)
                await self._given.observer.judged(attempt, last=self._is_last(attempt))
            if isinstance(judged.verdict, Rejected):
                verdict = judged.verdict
                refusal = journaled.SavedRefusal(
                    verdict.problems, judged.workflow_id, seconds, verdict.partial, judged.at, told
                )
                self._refusal = journaled.SAVED_REFUSAL.dump_json(refusal)
        if told is not None:
            self._told.add(told)
        elif judged.stop is None:
            self._attempts.append(judged.attempt(len(self._attempts) + 1, reply))
        if isinstance(judged.verdict, Rejected):
            self._partial = fuller(judged.verdict.partial, self._partial)
        self._facts = judged.facts
        self._count(replace(self._spent, wall_seconds=seconds))
        return judged

    async def _judge(self, reply: conversation.Reply) -> Judged:
        if is_final(reply):
            judged = await self._given.judge(reply)
        else:
            judged = Judged(Rejected((ONLY_UNKNOWN_TOOLS if self.is_lost else CALL_INSTEAD_OF_ANSWER,)))
        return replace(judged, at=self._given.clock.now())

    def _only_told(self, judged: Judged) -> Unreadable | None:
        """Why an answer is unreadable, if this does not count as an attempt; else None.

        Each kind but a refusal is forgiven once, if the model can submit an answer, and while calls remain besides
        those reserved for the attempts.
        """
        limits, way = self._given.limits, judged.unreadable
        reserved = limits.attempts - len(self._attempts)
        can_submit = any(tool.is_answer for tool in self._given.tools)
        spare = self._spent.llm_calls + reserved < limits.llm_calls
        is_new = way not in {Unreadable.REFUSED, *self._told}
        return way if can_submit and spare and is_new else None

    async def _ask_until_answered(self) -> journaled.Asked:
        """Ask for the next reply. Failed calls are retried by the rule for tries."""
        given, waited = self._given, 0.0
        request = self._request()
        tries = failed_tries(given.run.past, self._spent.llm_calls + 1)
        given.tries.check(tries, "as an earlier run found")
        while True:
            try:
                return await self._ask(request)
            except Retry as error:
                if is_try(error):
                    tries += 1
                    await given.run.append(TRIED, reason=error.reason)
                    given.tries.check(tries, error.message)
                pause = given.tries.pause(tries, error, given.jitter())
                given.tries.check_patience(waited, pause, error)
            waited += pause
            await given.clock.sleep(pause)

    def _request(self) -> conversation.ModelRequest:
        """The next request. Raises GiveUp when the budget has no room for it."""
        given, spent = self._given, self.spent
        request = conversation.ModelRequest(
            system=given.system,
            tools=given.tools,
            turns=tuple(self.turns),
            urgency=given.urgency,
            deadline_seconds=seconds_for_call(spent, given.limits),
        )
        expected = expected_tokens(self.turns, self._prefix)
        if used_up := exhausted(spent, given.limits, expected):
            raise GiveUp(GiveUpReason.BUDGET_SPENT, used_up)
        return replace(request, tools_allowed=not must_wrap_up(spent, given.limits, expected))

    async def _ask(self, request: conversation.ModelRequest) -> journaled.Asked:
        """Claim the call, make it, record the reply."""
        given, number = self._given, self._spent.llm_calls + 1
        await given.proceed()
        await given.observer.asking(number, given.model.name, request)
        refusal, self._refusal = self._refusal, b""
        await given.run.append(CLAIM, refusal, what=LLM)
        reply, was_shrunk = await self._call(request)
        await given.observer.replied(number, reply)
        closing = not request.tools_allowed
        data = journaled.ASKED.dump_json(journaled.Asked(reply, self.spent.wall_seconds, closing, was_shrunk))
        await given.run.append(LLM, data)
        return journaled.read_step(journaled.ASKED, data)  # as a successor reads it

    async def _call(self, request: conversation.ModelRequest) -> tuple[conversation.Reply, int]:
        """Call the model. A conversation that is too long for it is shrunk, and it is called once more.

        Also returns how often the conversation was shrunk.
        """
        expected = expected_tokens(request.turns, self._prefix)
        request, times = fitted(request, self._given.limits.window_tokens, expected)
        try:
            return await self._call_in_time(request), times
        except GiveUp as e:
            too_long = e.reason is GiveUpReason.CONTEXT_OVERFLOW and not (self._shrunk or times)
            shorter = shrunk(request.turns) if too_long else None
            if shorter is None:
                raise
        return await self._call_in_time(replace(request, turns=shorter)), 1

    async def _call_in_time(self, request: conversation.ModelRequest) -> conversation.Reply:
        """Call the model within the time that earlier tries of this call have left."""
        if used_up := exhausted(self.spent, self._given.limits):
            raise GiveUp(GiveUpReason.BUDGET_SPENT, used_up)
        seconds = seconds_for_call(self.spent, self._given.limits)
        return await self._given.model.ask(replace(request, deadline_seconds=seconds))

    def _allowed_calls(self, reply: conversation.Reply) -> tuple[conversation.ToolCall, ...]:
        """The tool calls of a reply that are run: the first ones, within what is left of the budget."""
        room = max(0, self._given.limits.tool_calls - self._spent.tool_calls)
        return reply.tool_calls[: min(corrections.MAX_CALLS_PER_REPLY, room)]

    async def _run(
        self, reply: conversation.Reply, allowed: Sequence[conversation.ToolCall], tool_calls: int
    ) -> journaled.Ran:
        """Run the allowed calls, refuse the others. `tool_calls` counts those run by the end of this turn."""
        given = self._given
        results = await given.toolbox.run_all(allowed)
        spent = replace(self.spent, tool_calls=tool_calls)
        refusal = corrections.NOT_RUN if tool_calls >= given.limits.tool_calls else corrections.TOO_MANY
        results = (*results, *corrections.refusals(reply.tool_calls[len(allowed) :], refusal))
        for call, result in zip(reply.tool_calls, results, strict=True):
            await given.observer.tool_ran(call, result)
        expected = expected_tokens((*self.turns, conversation.ToolTurn(results)), self._prefix)
        note = corrections.WRAP_UP if must_wrap_up(spent, given.limits, expected) else ""
        return journaled.Ran(conversation.ToolTurn(results, note), spent.wall_seconds)

    def _count(self, spent: Spent) -> None:
        """Take over the costs at the end of a step, as a successor finds them in the journal."""
        self._spent, self._since = spent, self._given.clock.monotonic()

    def _is_last(self, attempt: Attempt) -> bool:
        accepted = isinstance(attempt.verdict, Accepted)
        return accepted or self.is_lost or attempt.number >= self._given.limits.attempts
