"""The ways in which a message ends: answered, rejected, or dead-lettered.

Each is published before it is settled.

Outcomes that executors publish end here too: each is checked once, and a bad one is rejected like a bad
request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import structlog

from schemas import audit
from schemas import failure as failures
from schemas.analysis import AnalysisResult, Status
from schemas.subjects import OUTCOMES, Subjects
from worker.app.metrics import WorkerMetrics
from worker.domain.intake.accepted import AcceptedRequest
from worker.domain.intake.decode import InvalidRequest, decode_outcome
from worker.domain.journal.run import Run, dead_letter_step, unanswered
from worker.domain.untrusted.evidence import one_line
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.delays import ADVISORY_RETRY_SECONDS, NOT_NOW_SECONDS
from worker.domain.values.delivery import ACK, Delivery, Settlement, retry, term
from worker.domain.values.errors import LostClaim, Unavailable
from worker.domain.values.ports import Clock, Events, Step
from worker.domain.values.readable import readable
from worker.domain.values.step_kinds import BEGIN, DEAD_LETTERED, END
from worker.domain.verdict.outcome import Ending

ERROR_CHARS = 300
READ_BYTES = 2 * failures.EXCERPT_BYTES

log = structlog.stdlib.get_logger(__name__)


class Closing:
    """Publishes the end of a message and returns its settlement. Raises Unavailable, LostClaim."""

    def __init__(
        self, events: Events, clock: Clock, metrics: WorkerMetrics, *, observe: bool = False
    ) -> None:
        self._events, self._clock, self._metrics, self._observe = events, clock, metrics, observe

    async def answer(self, result: AnalysisResult, run: Run) -> Settlement:
        """Publish the result, unless the request has one already.

        Then its journal is deleted and the message acknowledged.
        """
        accepted = run.accepted
        stored = await self._events.result(result, replace_failed=accepted.replayed)
        if stored.request_digest != accepted.digest:
            return await self.conflict(accepted, answered(stored))
        self._metrics.published(result)
        log.info(
            "result_published",
            request=accepted.key,
            status=result.status,
            reason=result.human_review_reason,
            llm_calls=result.usage.llm_calls,
        )
        return await self.finish(run)

    async def finish(self, run: Run) -> Settlement:
        """Delete the journal of a request whose result is stored.

        If this fails at the first delivery, the message is delivered once more. What is left then expires.
        """
        try:
            await run.finish()
        except (LostClaim, Unavailable) as e:
            log.warning("journal_not_deleted", request=run.accepted.key, error=short(e))
            if isinstance(e, Unavailable) and run.accepted.delivery.deliveries == 1:
                return retry(NOT_NOW_SECONDS)
        return ACK

    async def dead_letter(self, run: Run, reason: failures.DeadLetterReason, error: str) -> Settlement:
        """Publish a `failed` result, once like any other, and then the dead letter.

        Both are stored in the journal first, so that a worker that takes over publishes the same again.
        """
        accepted = run.accepted
        step = dead_letter_step(run.steps, accepted.delivery.message)
        result = _read(step)
        if step is None or result is None:
            result, step = await self._prepare(run, reason, error)
        stored = await self._events.result(result, replace_failed=accepted.replayed)
        if stored.request_digest != accepted.digest:
            return await self.conflict(accepted, answered(stored))
        if stored.status is not Status.FAILED:
            return ACK  # another run has answered the request
        notes, reason = step.notes, failures.DeadLetterReason(step.notes["reason"])
        letter = _letter(accepted.delivery, reason, notes["error"], deliveries=notes["deliveries"])
        settlement = await self._write(letter, accepted)
        self._metrics.published(result)
        self._metrics.dead_letters.labels(letter.reason).inc()
        return settlement

    async def dead_letter_again(self, stored: AnalysisResult, accepted: AcceptedRequest) -> Settlement:
        """Write the dead letter for a stored `failed` result, once within the deduplication window."""
        detail = stored.human_review_detail
        named = (reason for reason in failures.DeadLetterReason if f"{reason}:" in detail)
        reason = next(named, failures.DeadLetterReason.INTERNAL_ERROR)
        return await self._write(_letter(accepted.delivery, reason, detail), accepted)

    async def _write(self, letter: failures.DeadLetter, accepted: AcceptedRequest) -> Settlement:
        await self._events.dead_letter(letter, accepted.body)
        log.error("request_dead_lettered", reason=letter.reason, error=letter.error)
        return term(f"dead letter: {letter.reason}")

    async def _prepare(
        self, run: Run, reason: failures.DeadLetterReason, error: str
    ) -> tuple[AnalysisResult, Step]:
        phase = next((s.kind for s in reversed(run.steps) if s.kind not in {BEGIN, END}), "")
        ending = Ending(dead_letter=f"{reason}: {error}")
        result = unanswered(run, ending, self._clock.now(), observe=self._observe)
        body, delivery = result.model_dump_json().encode(), run.accepted.delivery
        failed = audit.ResponseFailed(
            reason=reason,
            error=error,
            phase=phase,
            result_sha256=hashlib.sha256(body).hexdigest(),
            usage=result.usage,
        )
        run.trail.record(failed, audit.Outcome.FAILURE)
        notes: dict[str, Any] = {"reason": reason, "error": error, "deliveries": delivery.deliveries}
        await run.append(DEAD_LETTERED, body, **delivery.message.as_notes(), **notes)
        return result, run.steps[-1]

    async def conflict(self, accepted: AcceptedRequest, why: str) -> Settlement:
        """Reject a request whose key belongs to another one.

        The other result must not pass for the result of this one.
        """
        request, key = accepted.request, accepted.key
        error = failures.FieldError(
            path="remediation_id",
            expected=f"an id that was not used before: {key} {why}; publish this one under a new id",
            got=one_line(request.remediation_id, 80),
        )
        code, ids = failures.ValidationCode.KEY_CONFLICT, (request.remediation_id, request.incident_id)
        rejected = InvalidRequest(code, (error,), *ids, key)
        return await self.reject(rejected, accepted.body, accepted.delivery)

    async def reject(self, rejected: InvalidRequest, body: bytes, delivery: Delivery) -> Settlement:
        """Publish what is wrong with a message on `rca.validation.request`, with an excerpt, and remove the message."""
        errors = tuple(e.model_copy(update={"got": redact(e.got)}) for e in rejected.errors)
        failure = failures.ValidationFailure(
            code=rejected.code,
            errors=errors,
            path=errors[0].path,
            **delivery.origin,
            request_key=rejected.request_key,
            remediation_id=rejected.remediation_id,
            incident_id=rejected.incident_id,
            excerpt=failures.excerpt(redact(body[:READ_BYTES].decode("utf-8", "replace"))),
            failed_at=self._clock.now(),
        )
        await self._events.reject(failure)
        message = "outcome" if delivery.durable == OUTCOMES else "request"
        self._metrics.rejected.labels(rejected.code, message).inc()
        log.info(
            "request_rejected", code=rejected.code, errors=len(errors), first=str(errors[0])[:ERROR_CHARS]
        )
        return term(f"rejected: {rejected.code}")


def answered(stored: AnalysisResult) -> str:
    """Return why the key of a stored result is no longer free."""
    return f"has the result of another request, completed {stored.completed_at.isoformat()}"


def short(problem: Exception) -> str:
    """An error on one line, without secrets."""
    return redact(one_line(str(problem) or type(problem).__name__, ERROR_CHARS))


def _read(step: Step | None) -> AnalysisResult | None:
    """The `failed` result in a step; None without one that this version can read."""
    return readable(AnalysisResult, step.data) if step else None


def _letter(
    delivery: Delivery, reason: failures.DeadLetterReason, error: str, *, deliveries: int | None = None
) -> failures.DeadLetter:
    return failures.DeadLetter(
        reason=reason,
        **delivery.origin,
        deliveries=delivery.deliveries if deliveries is None else deliveries,
        error=error,
    )


class OutcomeCheck:
    """Implements `delivery.MessageHandler`. A good outcome stays in its stream, where analyses read it."""

    def __init__(self, closing: Closing, subjects: Subjects) -> None:
        self._closing, self._subjects = closing, subjects

    async def __call__(self, body: bytes, headers: Mapping[str, str], delivery: Delivery) -> Settlement:
        """Settle an outcome: done when it is good, or when its rejection is published."""
        del headers
        read = decode_outcome(body, delivery.subject, self._subjects)
        if not isinstance(read, InvalidRequest):
            return ACK
        try:
            return await self._closing.reject(read, body, delivery)
        except Unavailable as e:
            log.warning("broker_unavailable", error=short(e))
            return retry(ADVISORY_RETRY_SECONDS)
