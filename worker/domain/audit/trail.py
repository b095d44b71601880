"""The audit events of one request: a chain over all its runs, told of what a run does, not of what it replays.

They go through the run: each is kept in the journal with the step it belongs to (see journal/run.py), and whoever takes
over publishes it again as it is. The server drops it then, and readers who see an id twice can tell.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import islice
from typing import Any, Protocol

from schemas import audit
from schemas.chain import UNSEALED, genesis
from schemas.failure import FieldError, ValidationCode, ValidationFailure, excerpt
from worker.domain.audit.record import finished, record_of
from worker.domain.intake.accepted import AcceptedRequest
from worker.domain.untrusted.evidence import one_line
from worker.domain.untrusted.redaction.redact import redact, redact_json
from worker.domain.values.conversation import ModelRequest, Reply, ToolCall, ToolResult, ToolTurn, Turn
from worker.domain.values.limits import Spent, usage_of
from worker.domain.values.ports import AuditRecord, Clock, Events, Signer, Step
from worker.domain.verdict.approval.text import without_secrets
from worker.domain.verdict.outcome import review_reason
from worker.domain.verdict.problems import ProblemKind
from worker.domain.verdict.verdict import Attempt, Rejected

EVENT_NAMESPACE = uuid.UUID("6f1f6c5e-9f3b-5d57-9a49-0b6f0f8f3c1d")
PREVIEW_CHARS = 500
READ_CHARS = 8_000
"""How much of a text is looked at for its preview: a secret that the end of it cuts is not recognised, nor shown."""
ARGUMENTS, NAME_CHARS = 32, 64
"""How many arguments of a tool call are told of, and how much of their names."""
CODES = {
    ProblemKind.UNREADABLE: ValidationCode.ANSWER_UNREADABLE,
    ProblemKind.RCA: ValidationCode.ANSWER_RCA,
    ProblemKind.WORKFLOW_UNKNOWN: ValidationCode.ANSWER_WORKFLOW_UNKNOWN,
    ProblemKind.WORKFLOW_MISMATCH: ValidationCode.ANSWER_WORKFLOW_MISMATCH,
    ProblemKind.PARAMETERS: ValidationCode.ANSWER_PARAMETERS,
    ProblemKind.FORBIDDEN: ValidationCode.ANSWER_FORBIDDEN,
}


class RecordedSteps(Protocol):
    """The run whose steps keep the events: `record` keeps one for the next step, which publishes it.

    `past` are the steps this run continues from, `tail` is the event that the next one follows.
    """

    @property
    def name(self) -> str: ...
    @property
    def past(self) -> Sequence[Step]: ...
    @property
    def tail(self) -> AuditRecord | None: ...
    def record(self, record: AuditRecord) -> None: ...


class AuditTrail:
    """Tells of one run; the observer of its investigation.

    Secrets are removed from all free text. Rejected answers also go to the validation subject, by `events`.
    `signer` signs the end of the chain.
    """

    def __init__(
        self,
        run: RecordedSteps,
        events: Events,
        clock: Clock,
        accepted: AcceptedRequest,
        *,
        max_attempts: int,
        signer: Signer | None = None,
    ) -> None:
        self._run, self._events, self._clock, self._accepted = run, events, clock, accepted
        self._max_attempts, self._signer = max_attempts, signer
        self._asked_at = 0.0
        self._tool_calls = _tool_calls(run)

    def record(self, payload: audit.Payload, outcome: audit.Outcome = audit.Outcome.SUCCESS) -> None:
        """Keep one event for the next step of the run, which publishes it."""
        accepted, run, before = self._accepted, self._run, self._run.tail
        chain = before.chain if before else run.name
        number = before.sequence + 1 if before else 1
        identity = (
            f"{accepted.key}:{accepted.delivery.stream}:{accepted.delivery.sequence}:{run.name}:{number}"
        )
        event = audit.AuditEvent(
            event_id=str(uuid.uuid5(EVENT_NAMESPACE, identity)),
            chain=chain,
            sequence=number,
            prev=before.hash if before else genesis(accepted.key, chain),
            hash=UNSEALED,
            event_type=payload.event_type,
            outcome=outcome,
            time=self._clock.now(),
            correlation_id=accepted.request.remediation_id,
            request_key=accepted.key,
            incident_id=accepted.request.incident_id,
            payload=self._clean(payload),
        )
        run.record(record_of(finished(event, self._signer)))

    async def asking(self, call: int, model: str, request: ModelRequest) -> None:
        """A model is about to be called."""
        self._asked_at = self._clock.monotonic()
        self.record(
            audit.LLMRequest(
                call=call,
                model=model,
                prompt_chars=len(request.system) + sum(len(_text(turn)) for turn in request.turns),
                prompt_preview=self._preview(_text(request.turns[-1])),
                tools=tuple(tool.name for tool in request.tools) if request.tools_allowed else (),
            )
        )

    async def replied(self, call: int, reply: Reply) -> None:
        """A model answered."""
        self.record(
            audit.LLMResponse(
                call=call,
                model=reply.model,
                finish=reply.finish,
                response_chars=len(reply.text),
                has_analysis=bool(reply.text.strip()),
                response_preview=self._preview(reply.text),
                tool_calls=len(reply.tool_calls),
                usage=usage_of(Spent().plus(reply.usage, wall_seconds=0.0)),
                duration_seconds=round(self._clock.monotonic() - self._asked_at, 3),
            )
        )

    async def tool_ran(self, call: ToolCall, result: ToolResult) -> None:
        """A tool was run for the model."""
        self._tool_calls += 1
        self.record(
            audit.LLMToolCall(
                index=self._tool_calls,
                name=one_line(self._preview(call.name), 128),
                arguments=self._arguments(dict(islice(call.arguments.items(), ARGUMENTS))),
                succeeded=result.ok,
                result_chars=len(result.content),
                result_preview=self._preview(result.content),
            ),
            audit.Outcome.SUCCESS if result.ok else audit.Outcome.FAILURE,
        )

    async def judged(self, attempt: Attempt, *, last: bool) -> None:
        """An answer was checked."""
        verdict = attempt.verdict
        problems = verdict.problems if isinstance(verdict, Rejected) else ()
        outcome = audit.Outcome.SUCCESS
        if isinstance(verdict, Rejected):
            await self._events.reject(self._rejected(attempt, verdict))
            outcome = audit.Outcome.FAILURE if last else audit.Outcome.PENDING
        self.record(
            audit.ValidationAttempted(
                attempt=attempt.number,
                max_attempts=self._max_attempts,
                is_valid=not problems,
                errors=tuple(redact(f"{p.path}: {p.message}" if p.path else p.message) for p in problems),
                workflow_id=self._preview(one_line(attempt.workflow_id, READ_CHARS)) or None,
                human_review_reason=review_reason(verdict) if isinstance(verdict, Rejected) else None,
                is_final_attempt=last,
            ),
            outcome,
        )

    def _rejected(self, attempt: Attempt, verdict: Rejected) -> ValidationFailure:
        delivery, request = self._accepted.delivery, self._accepted.request
        return ValidationFailure(
            code=CODES[verdict.problems[0].kind],
            path=redact(verdict.problems[0].path),
            errors=tuple(
                FieldError(path=redact(p.path), expected=redact(p.message)) for p in verdict.problems
            ),
            origin_stream=delivery.stream,
            origin_sequence=delivery.sequence,
            origin_subject=delivery.subject,
            request_key=self._accepted.key,
            remediation_id=request.remediation_id,
            incident_id=request.incident_id,
            attempt=attempt.number,
            excerpt=excerpt(redact(attempt.text)),
            failed_at=self._clock.now(),
        )

    def _clean(self, payload: audit.Payload) -> audit.Payload:
        """Without secrets in what others put in: names of fields, errors of the cluster, reasons."""
        if isinstance(payload, audit.RequestAccepted):
            fields = tuple(self._preview(one_line(name, READ_CHARS)) for name in payload.ignored_fields)
            return payload.model_copy(update={"ignored_fields": fields})
        if isinstance(payload, audit.EnrichmentCompleted):
            sources = tuple(self._preview(source) for source in payload.failed_sources)
            return payload.model_copy(update={"failed_sources": sources})
        if isinstance(payload, audit.AlignmentChecked):
            words = {
                self._preview(one_line(id_, NAME_CHARS)): self._preview(text)
                for id_, text in payload.suspicious.items()
            }
            return payload.model_copy(update={"suspicious": words, "problem": self._preview(payload.problem)})
        if isinstance(payload, audit.PolicyDecided):
            return payload.model_copy(update={"approval": without_secrets(payload.approval, redact)})
        return payload

    def _arguments(self, arguments: dict[str, Any]) -> dict[str, str]:
        """Names are the model's words as well. A value may be a secret because of its name."""
        shown = redact_json(arguments).items()
        return {one_line(self._preview(name), NAME_CHARS): self._preview(str(value)) for name, value in shown}

    def _preview(self, text: str) -> str:
        return redact(text[:READ_CHARS])[:PREVIEW_CHARS]


def _text(turn: Turn) -> str:
    return "\n".join(result.content for result in turn.results) if isinstance(turn, ToolTurn) else turn.text


def _tool_calls(run: RecordedSteps) -> int:
    """How many tool calls earlier runs have told of."""
    told = (record.event_type for step in run.past for record in step.events)
    return sum(event_type == audit.EventType.LLM_TOOL_CALL for event_type in told)
