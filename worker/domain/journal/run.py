"""One run that works on an accepted request. It continues from the steps of earlier runs (`past`).

Its audit events are part of its steps.

An event is recorded first, kept with the next step, and published when that step is stored. So every
published event is in the journal, byte for byte, and a successor publishes it again as it is in case the
first attempt failed. An event that did not reach the journal was never published, and its step is recorded
again. Events need no write of their own.

This is also why their chain cannot fork: a fenced run cannot store its step, so its events are never
published, and the run that fenced it continues from the last event in the journal.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from schemas import audit
from schemas.analysis import AnalysisResult, Approval
from schemas.incident import Signal
from worker.domain.audit.trail import AuditTrail
from worker.domain.intake.accepted import AcceptedRequest
from worker.domain.investigation.corrections import NOT_RUN, TOO_MANY
from worker.domain.investigation.journaled_steps import ASKED, SAVED_REFUSAL, SAVED_TOOLS, SavedRefusal
from worker.domain.investigation.opening import OPENING_STEP, Opening
from worker.domain.investigation.prompt import PROMPT_VERSION
from worker.domain.journal.second_view import SECOND_VIEW_STEP
from worker.domain.journal.steps import done, flaw, unconfirmed, usable
from worker.domain.untrusted.evidence import Evidence
from worker.domain.values import step_kinds as kinds
from worker.domain.values.conversation import Reply
from worker.domain.values.delays import CLAIM_SECONDS
from worker.domain.values.delivery import MessageId
from worker.domain.values.limits import Spent
from worker.domain.values.ports import AuditRecord, Clock, Events, JournalRun, Signer, Step
from worker.domain.verdict.answers.parse import answer_text, is_final
from worker.domain.verdict.approval.policy import merge_approval, observed
from worker.domain.verdict.corroboration import Corroborated
from worker.domain.verdict.outcome import Ending, conclude
from worker.domain.verdict.result import Ingredients, build
from worker.domain.verdict.verdict import Accepted, Attempt, Rejected, fuller

AFRESH = "the journal of earlier runs could not be read, so the analysis started afresh"
NOT_REPLAYED = frozenset({kinds.BEGIN, kinds.CLAIM, kinds.END, kinds.TRIED, kinds.FINISHED})
"""Steps that describe a run and contain nothing that was read or paid for."""


class Run:
    """Implements JournalRun by calling another JournalRun. `name` names the run, and is part of the ids of its events.

    `proceed` is awaited before each paid call. It raises Halted if the answer is no longer needed,
    Preempted if other requests go first. `new_token` returns random digits for fences. `signer` signs the end
    of the audit chain.
    """

    def __init__(
        self,
        accepted: AcceptedRequest,
        journal: JournalRun,
        events: Events,
        clock: Clock,
        *,
        name: str,
        proceed: Callable[[], Awaitable[None]],
        new_token: Callable[[], str],
        max_attempts: int = 3,
        signer: Signer | None = None,
    ) -> None:
        self.accepted, self.name = accepted, name
        self.proceed, self.new_token = proceed, new_token
        self._journal, self._events, self._clock = journal, events, clock
        self.steps: list[Step] = list(journal.past)
        """Everything in the journal, including the steps of this run and those it cannot continue from."""
        self.begun = False
        """Other runs may be fenced: this run must end in an orderly way, or it counts as dead."""
        self.flaw = flaw(self.steps)
        """Why this run starts afresh instead of continuing from the journal; empty when it continues."""
        self._past = usable(self.steps)
        last, self._lost_tail = _last_event(self.steps)
        self.finding: Accepted | None = None
        """Findings of this run so far, which a result without an answer keeps."""
        self.trail = AuditTrail(
            name, self._past, last, events, clock, accepted, max_attempts=max_attempts, signer=signer
        )

    @property
    def request(self) -> Signal:
        """The request it works on."""
        return self.accepted.request

    @property
    def past(self) -> Sequence[Step]:
        """The steps that this run continues from."""
        return self._past

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the request and this run for the result."""
        return (*self.accepted.notes, AFRESH) if self.flaw else self.accepted.notes

    async def start(self, *, alone: bool, at: datetime) -> None:
        """Publish the events that earlier runs left, then fence these runs.

        `alone`: no other run is in this process.

        Raises LostClaim when another run was faster, Unavailable. A run that only publishes a finished result
        records no event, because its chain has ended already.
        """
        for record in unconfirmed(self.steps):
            await self._events.audit(record)
        message = self.accepted.delivery.message
        if not (done(self, kinds.RESULT) or dead_letter_step(self.steps, message)):
            # Only an END is there when the BEGIN before it could not be stored: nothing has begun yet.
            is_first = all(step.kind == kinds.END for step in self.steps)
            self.trail.record(self._accepted() if is_first else self._resumed())
        self.begun = True
        await self.append(
            kinds.BEGIN,
            alone=alone,
            digest=self.accepted.digest,
            **message.as_notes(),
            deliveries=self.accepted.delivery.deliveries,
            at=at.isoformat(),
            afresh=bool(self.flaw),
        )

    async def restart(self, why: str) -> None:
        """Begin again without the past, because a step was decoded but cannot be interpreted."""
        first = next(step for step in reversed(self.steps) if step.kind == kinds.BEGIN)
        self.flaw, self._past = why, ()
        self.trail.take()
        await self.append(kinds.BEGIN, **{**first.notes, "afresh": True})

    async def append(
        self, kind: str, data: bytes = b"", *, events: Sequence[AuditRecord] = (), **notes: Any
    ) -> None:
        """Store a step with the events recorded since the last one, then publish them.

        A claim that took long is repeated, because another run may have replaced this one meanwhile.
        """
        records, began = (*self.trail.take(), *events), self._clock.monotonic()
        await self._journal.append(kind, data, events=records, **notes)
        self.steps.append(Step(len(self.steps) + 1, kind, self.name, data, notes, records))
        self.trail.last = records[-1] if records else self.trail.last
        for record in records:
            await self._events.audit(record)
        if kind == kinds.CLAIM and self._clock.monotonic() - began > CLAIM_SECONDS:
            await self.append(kinds.CLAIM, **notes)

    async def conclude(self, result: AnalysisResult, **kept: Any) -> None:
        """Make the result the last step of the request: from now on every run publishes this one."""
        workflow, body = result.selected_workflow, result.model_dump_json().encode()
        self.trail.record(
            audit.ResponseComplete(
                status=result.status,
                human_review_reason=result.human_review_reason,
                workflow_id=workflow.workflow_id if workflow else None,
                confidence=workflow.confidence if workflow else None,
                approval_required=result.approval.required,
                result_sha256=hashlib.sha256(body).hexdigest(),
                usage=result.usage,
            )
        )
        await self.append(kinds.RESULT, body, **kept)

    async def end(self, outcome: str, **notes: Any) -> None:
        """Record how this run ended, so that it does not count as dead."""
        await self.append(kinds.END, outcome=outcome, **notes)

    async def finish(self, **notes: Any) -> None:
        """Delete the steps once the result is stored: no run continues from them any more.

        Raises LostClaim, Unavailable.
        """
        if self.steps:
            message = self.accepted.delivery.message.as_notes()
            await self._journal.finish(digest=self.accepted.digest, **message, **notes)

    def _accepted(self) -> audit.RequestAccepted:
        return audit.RequestAccepted(
            kind=self.accepted.kind,
            subject=self.accepted.delivery.subject,
            request_digest=self.accepted.digest,
            ignored_fields=self.accepted.ignored_fields,
            replayed=self.accepted.replayed,
        )

    def _resumed(self) -> audit.RequestResumed:
        return audit.RequestResumed(
            run=self.name,
            replayed_steps=sum(step.kind not in NOT_REPLAYED for step in self.past),
            deliveries=self.accepted.delivery.deliveries,
            continues=(self._lost_tail.hash or None) if self._lost_tail else None,
        )


def unanswered(
    run: Run,
    ending: Ending,
    completed_at: datetime,
    corroborated: Corroborated | None = None,
    evidence: Sequence[Evidence] | None = None,
    *,
    last: Attempt | None = None,
    observe: bool = False,
) -> AnalysisResult:
    """A result without an answer: with the findings and costs of the runs so far, and the diagnosis by rules.

    `evidence` is by default that of the runs. `last` is the last attempt, if the journal has no verdict on
    it. `observe`: the worker runs in observe mode.
    """
    found, conclusion = progress_of(run.steps), conclude(ending)
    approval = merge_approval(Approval(required=False), conclusion.approval_factors)
    return build(
        Ingredients(
            prompt_version=PROMPT_VERSION,
            request=run.request,
            digest=run.accepted.digest,
            conclusion=conclusion,
            approval=observed(approval) if observe else approval,
            completed_at=completed_at,
            corroborated=corroborated or Corroborated(),
            accepted=fuller(_finding(last), run.finding or found.partial),
            attempts=(*found.attempts, *([last] if last else [])),
            evidence=found.evidence if evidence is None else evidence,
            detected_labels=found.opening.detected_labels if found.opening else None,
            spent=spent_of(run.steps),
            model=found.model,
            notes=run.notes,
        )
    )


def _finding(attempt: Attempt | None) -> Accepted | None:
    """The valid part of an attempt."""
    verdict = attempt.verdict if attempt else None
    return verdict.partial if isinstance(verdict, Rejected) else verdict


@dataclass(frozen=True, slots=True)
class Progress:
    """The findings in the steps of unfinished runs.

    `partial` is the fullest valid part of a rejected answer, `attempts` are the rejected answers, `answer` is
    the last one, if its verdict is not recorded. `model` is the one that replied last.
    """

    opening: Opening | None = None
    evidence: tuple[Evidence, ...] = ()
    partial: Accepted | None = None
    attempts: tuple[Attempt, ...] = ()
    answer: Reply | None = None
    model: str = ""


def progress_of(steps: Sequence[Step]) -> Progress:
    """The findings in the steps that a run can continue from, as far as they can be read."""
    found = Progress()
    for step in usable(steps):
        with contextlib.suppress(ValidationError):
            if step.kind == kinds.OPENING:
                opening = OPENING_STEP.validate_json(step.data)
                found = replace(found, opening=opening, evidence=opening.evidence)
            elif step.kind == kinds.TOOLS:
                more = SAVED_TOOLS.validate_json(step.data).evidence
                found = replace(found, evidence=(*found.evidence, *more))
            elif step.kind == kinds.LLM:
                reply = ASKED.validate_json(step.data).reply
                found = replace(found, answer=reply if is_final(reply) else None, model=reply.model)
            elif step.kind == kinds.CLAIM and step.data:
                found = _with_refusal(found, SAVED_REFUSAL.validate_json(step.data))
    return found


def _with_refusal(found: Progress, saved: SavedRefusal) -> Progress:
    """The progress with the verdict on its last answer.

    An answer that was only corrected in form is not an attempt.
    """
    text = answer_text(found.answer) if found.answer else ""
    verdict = Rejected(saved.problems, saved.partial)
    attempt = Attempt(len(found.attempts) + 1, verdict, text, saved.workflow_id, saved.at)
    attempts = found.attempts if saved.told else (*found.attempts, attempt)
    return replace(found, partial=fuller(saved.partial, found.partial), attempts=attempts, answer=None)


def spent_of(steps: Sequence[Step]) -> Spent:
    """The costs of all runs together, as far as their steps can be read."""
    spent = Spent()
    for step in steps:
        with contextlib.suppress(ValidationError):
            if step.kind == kinds.LLM:
                asked = ASKED.validate_json(step.data)
                spent = spent.plus(asked.reply.usage, wall_seconds=asked.wall_seconds)
            elif step.kind == kinds.SHADOW:
                if (reply := SECOND_VIEW_STEP.validate_json(step.data).reply) is not None:
                    spent = spent.plus(reply.usage, wall_seconds=spent.wall_seconds)
            elif step.kind == kinds.TOOLS:
                results = SAVED_TOOLS.validate_json(step.data).ran.turn.results
                ran = sum(result.content not in {NOT_RUN, TOO_MANY} for result in results)
                spent = replace(spent, tool_calls=spent.tool_calls + ran)
    return spent


def dead_letter_step(steps: Sequence[Step], message: MessageId) -> Step | None:
    """The step that made a message a dead letter, or None."""
    for step in reversed(steps):
        noted = MessageId.from_notes(step.notes) if step.kind == kinds.DEAD_LETTERED else None
        if noted and noted.matches(message):
            return step
    return None


def _last_event(steps: Sequence[Step]) -> tuple[AuditRecord | None, AuditRecord | None]:
    """The last event; or, as the second value, the last readable one if a later one may be lost."""
    lost = False
    for step in reversed(steps):
        lost = lost or step.kind == kinds.UNREADABLE
        if step.events:
            last = step.events[-1]
            return (None, last) if lost or not last.hash else (last, None)
    return None, None
