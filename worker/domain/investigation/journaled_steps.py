"""The steps of an investigation in the journal: what each keeps, and how a later run takes them over.

Nothing that an earlier run has paid for is paid for again: the loop (`loop.py`, `next_reply`) asks
`JournaledSteps` first, and calls the model only when no stored reply is left.

Steps are read back in the order in which they were written. A turn of tool results is kept with the evidence
it added and the memory of the toolbox, so that grounding, label filters, the answers to repeated calls and
the budgets are the same after a restart as before it. A rejected answer has no step of its own: its problems
are kept in the claim of the call that tells the model about them. Before that claim, the answer is judged
again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from worker.domain.investigation.toolbox.toolbox import Remembered
from worker.domain.untrusted.evidence import Evidence
from worker.domain.values.conversation import Reply, ToolTurn
from worker.domain.values.errors import JournalGap
from worker.domain.values.ports import Step
from worker.domain.values.step_kinds import CLAIM, LLM, TOOLS
from worker.domain.verdict.answers.answer import Problem, Unreadable
from worker.domain.verdict.verdict import Accepted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A reply of the model, and the values by which the loop decides.

    The values are kept because a successor with another clock must decide the same.

    `wall_seconds`: from the start to this reply. `closing`: it had to be the final answer. `shrunk`: how
    often the conversation before it was shrunk to fit.
    """

    reply: Reply
    wall_seconds: float
    closing: bool = False
    shrunk: int = 0


@dataclass(frozen=True, slots=True)
class Ran:
    """A turn of tool results. `wall_seconds`: from the start to the end of the turn."""

    turn: ToolTurn
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class SavedTools:
    """A turn of tool results, with its changes."""

    ran: Ran
    evidence: tuple[Evidence, ...]
    memory: Remembered


@dataclass(frozen=True, slots=True)
class SavedRefusal:
    """Why an answer was rejected, and the workflow it named. `wall_seconds`: from the start to the verdict.

    `partial` is the valid part of the answer, `at` when it was checked. `told`: it did not count as an
    attempt; the model was only told that the answer is unreadable.
    """

    problems: tuple[Problem, ...]
    workflow_id: str
    wall_seconds: float
    partial: Accepted | None = None
    at: datetime | None = None
    told: Unreadable | None = None


ASKED = TypeAdapter(Asked)
SAVED_TOOLS = TypeAdapter(SavedTools)
SAVED_REFUSAL = TypeAdapter(SavedRefusal)


class JournaledSteps:
    """A cursor over the steps of earlier runs.

    Each method takes the next step of its kind; None after the last one.

    All raise JournalGap for a step that this version cannot read.
    """

    def __init__(self, past: Sequence[Step]) -> None:
        self._replies = deque(step for step in past if step.kind == LLM)
        self._turns = deque(step for step in past if step.kind == TOOLS)
        self._refusals = deque(step for step in past if step.kind == CLAIM and step.data)

    def reply(self) -> Asked | None:
        """The next reply of the model."""
        return read_step(ASKED, self._replies.popleft().data) if self._replies else None

    def tools(self) -> SavedTools | None:
        """The next turn of tool results."""
        return read_step(SAVED_TOOLS, self._turns.popleft().data) if self._turns else None

    def refusal(self) -> SavedRefusal | None:
        """The next rejected answer that the model was told about."""
        return read_step(SAVED_REFUSAL, self._refusals.popleft().data) if self._refusals else None


def read_step(adapter: TypeAdapter[T], data: bytes) -> T:
    """The content of a step. Raises JournalGap if this version cannot read it."""
    try:
        return adapter.validate_json(data)
    except ValidationError as e:
        raise JournalGap(f"a step cannot be read: {e.error_count()} errors") from e
