"""What a successor needs to go on where a run stopped: the opening, every reply, every turn of tool results.

Steps are written in the order in which they were taken and read back in the same order. A turn of tool results is kept
with the evidence it added and with what the toolbox remembers of it, so that grounding, label filters, the answers to
repeated calls and the budgets are the same after a restart as before it. A verdict that refused an answer has no step of its own: it is kept in the claim of the call that
it leads to, since the model is told of it there; before that claim the answer is judged anew.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from worker.domain.investigation.loop import NOT_RUN, TOO_MANY
from worker.domain.investigation.steps import Asked, Judged, Ran
from worker.domain.investigation.toolbox.toolbox import Remembered, Toolbox
from worker.domain.journal.second_reader import HEARD
from worker.domain.journal.steps import done, paid
from worker.domain.untrusted.evidence import Evidence, EvidenceLog
from worker.domain.values.errors import JournalGap
from worker.domain.values.limits import Spent
from worker.domain.values.ports import JournalRun, Step
from worker.domain.values.step_kinds import CLAIM, LLM, SHADOW, TOOLS
from worker.domain.verdict.problems import Problem
from worker.domain.verdict.verdict import Rejected


@dataclass(frozen=True, slots=True)
class SavedTools:
    """One turn of tool results with what it changed."""

    ran: Ran
    evidence: tuple[Evidence, ...]
    memory: Remembered


@dataclass(frozen=True, slots=True)
class SavedRefusal:
    """Why an answer was refused, the workflow it named, and when, counted from the start of the investigation."""

    problems: tuple[Problem, ...]
    workflow_id: str
    wall_seconds: float


T = TypeVar("T")
ASKED = TypeAdapter(Asked)
SAVED_TOOLS = TypeAdapter(SavedTools)
SAVED_REFUSAL = TypeAdapter(SavedRefusal)


class JournaledSteps:
    """`investigate.Steps` on a journal run: replays what is there, claims and records what is not.

    `proceed` is asked before each paid call, and raises Halted when there shall be none.
    """

    def __init__(
        self,
        run: JournalRun,
        evidence: EvidenceLog,
        toolbox: Toolbox,
        proceed: Callable[[], Awaitable[None]],
    ) -> None:
        self._run, self._evidence, self._toolbox, self._proceed = run, evidence, toolbox, proceed
        self._replies = deque(done(run, LLM))
        self._turns = deque(done(run, TOOLS))
        self._refusals = deque(step for step in done(run, CLAIM) if step.data)
        self._refusal = b""

    async def reply(
        self, announce: Callable[[], Awaitable[None]], ask: Callable[[], Awaitable[Asked]]
    ) -> Asked:
        """The next reply: from the journal, or announced, asked for once and recorded."""
        if self._replies:
            return _read(ASKED, self._replies.popleft().data)
        await self._proceed()
        await announce()

        async def call() -> bytes:
            return ASKED.dump_json(await ask())

        refusal, self._refusal = self._refusal, b""
        return _read(ASKED, await paid(self._run, LLM, call, claim=refusal))

    async def tools(self, run: Callable[[], Awaitable[Ran]]) -> Ran:
        """The next turn of tool results: from the journal, or run once and recorded."""
        if self._turns:
            saved = _read(SAVED_TOOLS, self._turns.popleft().data)
            for item in saved.evidence:
                self._evidence.add(item)
            self._toolbox.recall(saved.ran.turn.results, saved.memory)
            return saved.ran
        before = len(self._evidence.items)
        ran = await run()
        memory = self._toolbox.remembered(ran.turn.results)
        saved = SavedTools(ran, self._evidence.items[before:], memory)
        await self._run.append(TOOLS, SAVED_TOOLS.dump_json(saved))
        return ran

    async def verdict(self, judge: Callable[[], Awaitable[Judged]]) -> Judged:
        """The verdict on a final answer: the one that the model was told of, or a new one."""
        if self._refusals:
            saved = _read(SAVED_REFUSAL, self._refusals.popleft().data)
            return Judged(Rejected(saved.problems), saved.workflow_id, wall_seconds=saved.wall_seconds)
        judged = await judge()
        if isinstance(judged.verdict, Rejected):
            refusal = SavedRefusal(judged.verdict.problems, judged.workflow_id, judged.wall_seconds)
            self._refusal = SAVED_REFUSAL.dump_json(refusal)
        return judged


def spent_of(steps: Sequence[Step]) -> Spent:
    """What all runs together have spent, as far as their steps can be read."""
    spent = Spent()
    for step in steps:
        with contextlib.suppress(ValidationError):
            if step.kind == LLM:
                asked = ASKED.validate_json(step.data)
                spent = spent.plus(asked.reply.usage, wall_seconds=asked.wall_seconds)
            elif step.kind == SHADOW:
                if (reply := HEARD.validate_json(step.data).reply) is not None:
                    spent = spent.plus(reply.usage, wall_seconds=spent.wall_seconds)
            elif step.kind == TOOLS:
                results = SAVED_TOOLS.validate_json(step.data).ran.turn.results
                ran = sum(result.content not in {NOT_RUN, TOO_MANY} for result in results)
                spent = replace(spent, tool_calls=spent.tool_calls + ran)
    return spent


def _read(adapter: TypeAdapter[T], data: bytes) -> T:
    try:
        return adapter.validate_json(data)
    except ValidationError as e:
        raise JournalGap(f"a step is not readable: {e.error_count()} errors") from e
