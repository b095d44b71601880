"""What a successor needs to go on where a run stopped: the opening, every reply, every turn of tool results.

Steps are written in the order in which they were taken and read back in the same order. A turn of tool results is kept
with the evidence it added and the target it left behind, so that grounding and label filters are the same after a
restart as before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from worker.domain.conversation import ToolTurn
from worker.domain.errors import JournalGap
from worker.domain.evidence import Evidence, EvidenceLog
from worker.domain.investigate import Asked
from worker.domain.journal import done, paid
from worker.domain.ports import JournalRun
from worker.domain.toolbox import Target, Toolbox

OPENING, LLM, TOOLS, RESULT = "opening", "llm", "tools", "result"


@dataclass(frozen=True, slots=True)
class SavedTools:
    """One turn of tool results with what it changed."""

    turn: ToolTurn
    evidence: tuple[Evidence, ...]
    target: Target | None


T = TypeVar("T")
ASKED = TypeAdapter(Asked)
SAVED_TOOLS = TypeAdapter(SavedTools)


class JournaledSteps:
    """`investigate.Steps` on a journal run: replays what is there, claims and records what is not."""

    def __init__(self, run: JournalRun, evidence: EvidenceLog, toolbox: Toolbox) -> None:
        self._run, self._evidence, self._toolbox = run, evidence, toolbox
        self._replies = deque(done(run, LLM))
        self._turns = deque(done(run, TOOLS))

    async def reply(self, ask: Callable[[], Awaitable[Asked]]) -> Asked:
        """The next reply: from the journal, or asked for once and recorded."""
        if self._replies:
            return _read(ASKED, self._replies.popleft().data)

        async def call() -> bytes:
            return ASKED.dump_json(await ask())

        return _read(ASKED, await paid(self._run, LLM, call))

    async def tools(self, run: Callable[[], Awaitable[ToolTurn]]) -> ToolTurn:
        """The next turn of tool results: from the journal, or run once and recorded."""
        if self._turns:
            saved = _read(SAVED_TOOLS, self._turns.popleft().data)
            for item in saved.evidence:
                self._evidence.add(item)
            self._toolbox.last_target = saved.target
            return saved.turn
        before = len(self._evidence.items)
        turn = await run()
        saved = SavedTools(turn, self._evidence.items[before:], self._toolbox.last_target)
        await self._run.append(TOOLS, SAVED_TOOLS.dump_json(saved))
        return turn


def _read(adapter: TypeAdapter[T], data: bytes) -> T:
    try:
        return adapter.validate_json(data)
    except ValidationError as e:
        raise JournalGap(f"a step is not readable: {e.error_count()} errors") from e
