"""One accepted request with the run that works on it, and the last step that every run of it ends with."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from schemas import audit
from schemas.analysis import AnalysisResult, Approval
from schemas.incident import Signal
from worker.domain.audit.trail import AuditTrail, Subject
from worker.domain.investigation.prompt import PROMPT_VERSION
from worker.domain.journal.recorded import RecordedRun
from worker.domain.journal.resume import spent_of
from worker.domain.values.step_kinds import RESULT
from worker.domain.verdict.outcome import Ending, conclude
from worker.domain.verdict.result import Ingredients, build


@dataclass(frozen=True, slots=True)
class Job:
    """One accepted request, and the run that works on it.

    `proceed` raises Halted when nobody waits for the answer any more, SteppedAside when others go first. `new_token` gives random hexadecimal text for the
    fences. `notes` go into the result.
    """

    subject: Subject
    digest: str
    run: RecordedRun
    trail: AuditTrail
    proceed: Callable[[], Awaitable[None]]
    new_token: Callable[[], str]
    notes: Sequence[str] = ()

    @property
    def request(self) -> Signal:
        """The request."""
        return self.subject.request


def unanswered(job: Job, ending: Ending, completed_at: datetime) -> AnalysisResult:
    """A result without an answer. What all runs have spent until now is in it."""
    return build(
        Ingredients(
            prompt_version=PROMPT_VERSION,
            request=job.request,
            digest=job.digest,
            conclusion=conclude(ending),
            approval=Approval(required=False),
            completed_at=completed_at,
            spent=spent_of(job.run.steps),
            notes=job.notes,
        )
    )


async def conclude_with(job: Job, result: AnalysisResult, **kept: Any) -> AnalysisResult:
    """Make it the last step of the request: from now on this is what is published, whoever does it."""
    job.trail.record(_complete(result))
    await job.run.append(RESULT, result.model_dump_json().encode(), **kept)
    return result


def _complete(result: AnalysisResult) -> audit.ResponseComplete:
    workflow = result.selected_workflow
    return audit.ResponseComplete(
        status=result.status,
        human_review_reason=result.human_review_reason,
        workflow_id=workflow.workflow_id if workflow else None,
        confidence=workflow.confidence if workflow else None,
        approval_required=result.approval.required,
        result_sha256=hashlib.sha256(result.model_dump_json().encode()).hexdigest(),
        usage=result.usage,
    )
