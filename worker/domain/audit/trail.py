"""The audit events of one request: one chain over all its runs.

A run records only its own steps, not replayed ones.

Each event is kept in the journal with the step it belongs to (see journal/run.py), and a run that takes over
publishes it again as it is. The server drops the second copy, and readers recognise it by its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from schemas import audit
from schemas.chain import UNSEALED, genesis
from schemas.failure import FieldError, ValidationCode, ValidationFailure, excerpt
from worker.domain.audit.record import event_id, finished, record_of
from worker.domain.audit.redacted import NAME_CHARS, preview, redacted
from worker.domain.intake.accepted import AcceptedRequest
from worker.domain.untrusted.evidence import one_line
from worker.domain.untrusted.redaction.redact import redact, redact_json
from worker.domain.values.conversation import ModelRequest, Reply, ToolCall, ToolResult, ToolTurn, Turn
from worker.domain.values.limits import Spent, usage_of
from worker.domain.values.ports import AuditRecord, Clock, Events, Signer, Step
from worker.domain.verdict.answers.answer import ProblemKind
from worker.domain.verdict.answers.parse import answer_text, submissions
from worker.domain.verdict.outcome import review_reason
from worker.domain.verdict.verdict import Attempt, Rejected

PREVIEW_CHARS = 500
ARGUMENTS = 32
"""How many arguments of a tool call an event holds."""
CODES = {
    ProblemKind.UNREADABLE: ValidationCode.ANSWER_UNREADABLE,
    ProblemKind.RCA: ValidationCode.ANSWER_RCA,
    ProblemKind.WORKFLOW_UNKNOWN: ValidationCode.ANSWER_WORKFLOW_UNKNOWN,
    ProblemKind.WORKFLOW_MISMATCH: ValidationCode.ANSWER_WORKFLOW_MISMATCH,
    ProblemKind.PARAMETERS: ValidationCode.ANSWER_PARAMETERS,
    ProblemKind.FORBIDDEN: ValidationCode.ANSWER_FORBIDDEN,
}


class AuditTrail:
    """Records the events of one run, as the observer of its investigation.

    `past` are the steps that the run continues from, `last` is the stored event that the next one follows;
    None when the next one begins a chain.

    Secrets are removed from all free text of an event. Rejected answers are also published to the validation
    subject, through `events`. `signer` signs the end of the chain.
    """

    def __init__(
        self,
        run: str,
        past: Sequence[Step],
        last: AuditRecord | None,
        events: Events,
        clock: Clock,
        accepted: AcceptedRequest,
        *,
        max_attempts: int,
        signer: Signer | None = None,
    ) -> None:
        self._run, self._events, self._clock, self._accepted = run, events, clock, accepted
        self._max_attempts, self._signer = max_attempts, signer
        self.last, self._recorded = last, list[AuditRecord]()
        self._asked_at = 0.0
        self._tool_calls = _tool_calls(past)

    def take(self) -> tuple[AuditRecord, ...]:
        """Hand over the recorded events, for the step that keeps them."""
        taken, self._recorded = tuple(self._recorded), []
        return taken

    def record(self, payload: audit.Payload, outcome: audit.Outcome = audit.Outcome.SUCCESS) -> None:
        """Keep one event for the next step of the run, which publishes it."""
        accepted, before = self._accepted, self._recorded[-1] if self._recorded else self.last
        chain = before.chain if before else self._run
        number = before.sequence + 1 if before else 1
        prev = before.hash if before else genesis(accepted.key, chain)
        event = audit.AuditEvent(
            event_id=event_id(self._run, prev),
            chain=chain,
            sequence=number,
            prev=prev,
            hash=UNSEALED,
            event_type=payload.event_type,
            outcome=outcome,
            time=self._clock.now(),
            correlation_id=accepted.request.remediation_id,
            request_key=accepted.key,
            incident_id=accepted.request.incident_id,
            payload=redacted(payload),
        )
        self._recorded.append(record_of(finished(event, self._signer)))

    async def asking(self, call: int, model: str, request: ModelRequest) -> None:
        """Record that a model is about to be called."""
        self._asked_at = self._clock.monotonic()
        self.record(
            audit.LLMRequest(
                call=call,
                model=model,
                prompt_chars=len(request.system) + sum(len(turn_text(turn)) for turn in request.turns),
                prompt_preview=_turn_preview(request.turns[-1]),
                tools=tuple(tool.name for tool in request.tools if request.tools_allowed or tool.is_answer),
            )
        )

    async def replied(self, call: int, reply: Reply) -> None:
        """Record that a model answered."""
        self.record(
            audit.LLMResponse(
                call=call,
                model=reply.model,
                finish=reply.finish,
                response_chars=len(answer_text(reply)),
                has_analysis=bool(answer_text(reply)),
                response_preview=_preview(answer_text(reply)),
                tool_calls=len(reply.tool_calls) - len(submissions(reply)),
                usage=usage_of(Spent().plus(reply.usage, wall_seconds=0.0)),
                duration_seconds=round(self._clock.monotonic() - self._asked_at, 3),
            )
        )

    async def tool_ran(self, call: ToolCall, result: ToolResult) -> None:
        """Record that a tool was run for the model."""
        self._tool_calls += 1
        self.record(
            audit.LLMToolCall(
                index=self._tool_calls,
                name=one_line(_preview(call.name), 128),
                arguments=_arguments(dict(islice(call.arguments.items(), ARGUMENTS))),
                succeeded=result.ok,
                result_chars=len(result.content),
                result_preview=result.content[:PREVIEW_CHARS],
                duration_seconds=round(result.seconds, 3),
            ),
            audit.Outcome.SUCCESS if result.ok else audit.Outcome.FAILURE,
        )

    async def judged(self, attempt: Attempt, *, last: bool) -> None:
        """Record that an answer was checked."""
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
                errors=tuple(f"{p.path}: {p.message}" if p.path else p.message for p in problems),
                workflow_id=one_line(attempt.workflow_id, PREVIEW_CHARS) or None,
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
            **delivery.origin,
            request_key=self._accepted.key,
            remediation_id=request.remediation_id,
            incident_id=request.incident_id,
            attempt=attempt.number,
            excerpt=excerpt(redact(attempt.text)),
            failed_at=self._clock.now(),
        )


def _arguments(arguments: dict[str, Any]) -> dict[str, str]:
    """The arguments as texts.

    Names are the model's words as well, and a value may be a secret because of its name.
    """
    shown = redact_json(arguments).items()
    return {one_line(_preview(name), NAME_CHARS): _preview(str(value)) for name, value in shown}


def _preview(text: str) -> str:
    return preview(text, PREVIEW_CHARS)


def _turn_preview(turn: Turn) -> str:
    """The beginning of a turn. Results of tools are left out, because each has an event of its own."""
    return _preview(turn.note if isinstance(turn, ToolTurn) else turn.text)


def turn_text(turn: Turn) -> str:
    """All text of a turn."""
    return "\n".join(result.content for result in turn.results) if isinstance(turn, ToolTurn) else turn.text


def _tool_calls(past: Sequence[Step]) -> int:
    """Return how many tool calls earlier runs recorded."""
    recorded = (record.event_type for step in past for record in step.events)
    return sum(event_type == audit.EventType.LLM_TOOL_CALL for event_type in recorded)
