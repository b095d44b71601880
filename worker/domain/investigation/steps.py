"""The steps of an investigation, and the journal as the loop needs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from worker.domain.values.conversation import Reply, ToolTurn
from worker.domain.verdict.outcome import Stop
from worker.domain.verdict.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """What the judge said, and the workflow the answer named (empty for none). A `stop` ends the run as it is.

    `wall_seconds`: from the start to this verdict.
    """

    verdict: Verdict
    workflow_id: str = ""
    stop: Stop | None = None
    stop_detail: str = ""
    wall_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A reply, and what the loop decides by: a successor has another clock and must take the same way.

    `wall_seconds`: from the start to this reply. `closing`: it had to be the final answer. `shrunk`: the conversation
    before it was shrunk to fit.
    """

    reply: Reply
    wall_seconds: float
    closing: bool = False
    shrunk: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """A turn of tool results, and the wall time from the start to the end of it."""

    turn: ToolTurn
    wall_seconds: float


class Steps(Protocol):
    """The journal as the loop needs it: a step that is there is replayed, any other is done once and kept."""

    async def reply(
        self, announce: Callable[[], Awaitable[None]], ask: Callable[[], Awaitable[Asked]]
    ) -> Asked: ...
    async def tools(self, run: Callable[[], Awaitable[Ran]]) -> Ran: ...
    async def verdict(self, judge: Callable[[], Awaitable[Judged]]) -> Judged: ...
