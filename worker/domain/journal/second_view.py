"""The second view: a model chooses an object and a workflow from structured facts, without any free text.

It is called once, and only if rules do not confirm an answer that could otherwise run without approval.
If it chooses the same object and the same workflow, the answer is corroborated; if it fails or chooses
otherwise, it is not.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from worker.domain.investigation.journaled_steps import read_step
from worker.domain.investigation.loop import Observer
from worker.domain.journal.steps import done
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.conversation import Finish, ModelRequest, Reply, UserTurn
from worker.domain.values.errors import GiveUp, Retry
from worker.domain.values.ports import JournalRun, Model
from worker.domain.values.step_kinds import CLAIM, SHADOW
from worker.domain.values.workflows import Workflow

TRIES = 2
CALL_SECONDS = 30.0
PROBLEM_CHARS = 300
UNREADABLE = "the second model gave no readable choice"
SYSTEM = """\
You judge a Kubernetes incident from structured facts: states, conditions, reasons, exit codes, numbers and times that Kubernetes
components have written. Choose the object whose state is the root cause, and the workflow that repairs it. The object of the signal
may only be a victim of another one. If the facts do not show which object it is, or no workflow repairs that state, choose null.

Answer with one JSON object and nothing else:
{"object": {"kind": "...", "namespace": "...", "name": "..."} | null, "workflow_id": "..." | null}"""


class ChosenObject(BaseModel):
    """The object that the second model blames."""

    model_config = ConfigDict(strict=True)

    kind: str
    namespace: str = ""
    name: str


class SecondChoice(BaseModel):
    """The choice of the second model; None if it does not decide."""

    model_config = ConfigDict(strict=True)

    object: ChosenObject | None
    workflow_id: str | None


@dataclass(frozen=True, slots=True)
class SecondViewStep:
    """The result of the call: a reply, the choice in it, or why there is none."""

    reply: Reply | None = None
    choice: SecondChoice | None = None
    problem: str = ""


SECOND_VIEW_STEP = TypeAdapter(SecondViewStep)


@dataclass(frozen=True, slots=True)
class SecondView:
    """Asks the second model once; a journaled choice is not asked for again.

    `proceed` raises Halted if the answer is no longer needed. `calls` is the number of calls of the request so far.
    """

    model: Model
    run: JournalRun
    proceed: Callable[[], Awaitable[None]]
    observer: Observer
    calls: int

    async def ask(
        self, signal: str, facts: Sequence[dict[str, Any]], workflows: Sequence[Workflow]
    ) -> SecondViewStep:
        """The choice of the second model, or why there is none. Raises LostClaim, Unavailable, Halted, JournalGap."""
        if known := done(self.run, SHADOW):
            return read_step(SECOND_VIEW_STEP, known[0].data)
        offered = [{"workflow_id": w.workflow_id, "action_type": w.action_type} for w in workflows]
        shown = {"signal": signal, "objects": list(facts), "workflows": offered}
        turn = UserTurn(json.dumps(shown, separators=(",", ":")))
        request = ModelRequest(SYSTEM, (), (turn,), tools_allowed=False, deadline_seconds=CALL_SECONDS)
        await self.proceed()
        await self.observer.asking(self.calls + 1, self.model.name, request)
        await self.run.append(CLAIM, what=SHADOW)  # raises LostClaim before anything is spent
        found = await self._tried(request)
        if found.reply is not None:
            await self.observer.replied(self.calls + 1, found.reply)
        data = SECOND_VIEW_STEP.dump_json(found)
        await self.run.append(SHADOW, data)
        return read_step(SECOND_VIEW_STEP, data)

    async def _tried(self, request: ModelRequest) -> SecondViewStep:
        problem = ""
        for _ in range(TRIES):
            try:
                return read_choice(await self.model.ask(request))
            except (Retry, GiveUp) as error:
                problem = one_line(error.message, PROBLEM_CHARS)
                if isinstance(error, GiveUp):
                    break
        return SecondViewStep(problem=problem)


def read_choice(reply: Reply) -> SecondViewStep:
    """The choice in a reply. A reply that cannot be read, or was cut, chooses nothing."""
    if reply.finish is not Finish.STOP:
        return SecondViewStep(reply, problem=UNREADABLE)
    bare = reply.text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    try:
        return SecondViewStep(reply, SecondChoice.model_validate_json(bare))
    except ValidationError:
        return SecondViewStep(reply, problem=UNREADABLE)
