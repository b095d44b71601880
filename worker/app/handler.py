"""What happens to one message: decoded, looked up, analysed, published, settled. The only place that catches everything.

The life of a request: reject what cannot be read; ack what has its result; begin a journal run, which fences every
older one; analyse; publish the result once; ack. A message is settled only after what became of it is confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from schemas.analysis import AnalysisResult
from schemas.failure import (
    EXCERPT_BYTES,
    DeadLetter,
    DeadLetterReason,
    FieldError,
    ValidationCode,
    ValidationFailure,
    excerpt,
)
from schemas.incident import request_digest
from schemas.subjects import Subjects, kv_key, request_key
from schemas.taxonomy import RequestKind
from worker.app.metrics import Metrics
from worker.domain.analyse import Analysis, Job, Rules, unanswered
from worker.domain.audit_trail import Subject
from worker.domain.context import attempt_number
from worker.domain.decode import Rejected, decode
from worker.domain.delivery import ACK, LET_GO, Delivery, Settlement, retry, term
from worker.domain.errors import GiveUp, GiveUpReason, JournalGap, LostClaim, Retry, RetryReason, Unavailable
from worker.domain.evidence import one_line
from worker.domain.journal import END, FAILED, RELEASED, Counts, count, done
from worker.domain.outcome import Ending, Stop
from worker.domain.ports import Clock, Events, Journal, JournalRun, Results
from worker.domain.redact import redact
from worker.domain.resume import OPENING
from worker.domain.retry import RetryPolicy, next_delay

BROKER_SECONDS, BROKER_CAP_SECONDS = 5.0, 300.0
BLOCKED_SECONDS, BLOCKED_CAP_SECONDS = 60.0, 900.0
"""Waiting times that double with each delivery: the server's count of deliveries must last for a long outage."""
ERROR_CHARS = 300
READ_BYTES = 2 * EXCERPT_BYTES
INTERNAL_ERROR = "internal_error"
BLOCKING = frozenset({GiveUpReason.MODEL_REFUSED_CREDENTIALS, GiveUpReason.MODEL_SPEND_CAP})
"""Nothing can be analysed until a person acts: requests are kept, readiness says why."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ports:
    """What the handler talks to."""

    events: Events
    results: Results
    journal: Journal
    clock: Clock


@dataclass(frozen=True, slots=True)
class HandlerRules:
    """How requests are taken and when they are given up.

    `max_failures` counts runs of one request that ended with an internal error, `max_deaths` those that ended with the
    death of a process in which no other suspect ran.
    """

    analysis: Rules
    cluster_name: str = ""
    max_failures: int = 5
    max_deaths: int = 4
    retries: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True, slots=True)
class _Taken:
    """One decoded message."""

    subject: Subject
    digest: str
    body: bytes
    ignored_fields: Sequence[str] = ()

    @property
    def delivery(self) -> Delivery:
        return self.subject.delivery


class Handler:
    """Decides about messages. `new_token` gives random hexadecimal text, `jitter` a number in [0, 1)."""

    def __init__(
        self,
        ports: Ports,
        analysis: Analysis,
        rules: HandlerRules,
        subjects: Subjects,
        metrics: Metrics,
        *,
        new_token: Callable[[], str],
        jitter: Callable[[], float],
    ) -> None:
        self._ports, self._analysis, self._rules = ports, analysis, rules
        self._subjects, self._metrics = subjects, metrics
        self._new_token, self._jitter = new_token, jitter
        self._alone = asyncio.Lock()
        self.blocked = ""
        """Why no request can be analysed at the moment; empty when that is not so. For readiness."""

    async def __call__(self, body: bytes, headers: Mapping[str, str], delivery: Delivery) -> Settlement:
        """The settlement of one message. `headers` are hostile and not read."""
        del headers
        parsed = self._subjects.parse_request(delivery.subject)
        kind = parsed[0] if parsed else RequestKind.INCIDENT
        with (
            self._metrics.running.track_inprogress(),
            structlog.contextvars.bound_contextvars(stream=delivery.stream, sequence=delivery.sequence),
        ):
            try:
                return await self._handle(body, kind, delivery)
            except LostClaim:
                log.info("run_taken_over")
                return LET_GO
            except Unavailable as e:
                log.warning("broker_unavailable", error=_short(e))
                self._metrics.retries.labels(RetryReason.BROKER_UNAVAILABLE).inc()
                return retry(_patience(delivery, BROKER_SECONDS, BROKER_CAP_SECONDS))

    async def _handle(self, body: bytes, kind: RequestKind, delivery: Delivery) -> Settlement:
        decoded = decode(body, kind, delivery.stored_at, self._rules.cluster_name)
        if isinstance(decoded, Rejected):
            await self._reject(decoded, body, delivery)
            return term(f"rejected: {decoded.code}")
        request = decoded.request
        key = request_key(request.remediation_id, attempt_number(request))
        subject = Subject(request, kind, key, delivery)
        taken = _Taken(subject, request_digest(request), body, decoded.ignored_fields)
        stored = await self._ports.results.find(kind, key)
        if stored is not None:
            return await self._already_answered(stored, taken)
        try:
            run = await self._ports.journal.open(kv_key(key), self._new_token())
        except JournalGap as e:
            return await self._bury(taken, DeadLetterReason.JOURNAL_GAP, _short(e))
        if any(step.notes.get("digest", taken.digest) != taken.digest for step in done(run, OPENING)):
            return await self._conflict(taken, "is taken by another request that is being analysed")
        return await self._begin(taken, run)

    async def _begin(self, taken: _Taken, run: JournalRun) -> Settlement:
        """Runs that may have killed a process run one at a time, so that the one that did can be told."""
        counts = count(run.past)
        if counts.deaths_alone >= self._rules.max_deaths:
            error = f"the process died {counts.deaths} times with this request"
            return await self._bury(taken, DeadLetterReason.PROCESS_DEATHS, error)
        async with self._alone if counts.suspect else contextlib.nullcontext():
            await run.begin(alone=counts.suspect)
            try:
                return await self._serve(taken, run, counts)
            except (asyncio.CancelledError, Unavailable):
                with contextlib.suppress(LostClaim, Unavailable):
                    await run.end(RELEASED)  # an orderly release is no death, nor is a broker that fails
                raise

    async def _serve(self, taken: _Taken, run: JournalRun, counts: Counts) -> Settlement:
        try:
            return await self._publish(await self._answer(taken, run), taken)
        except (LostClaim, Unavailable):
            raise
        except Retry as e:
            return await self._later(taken, run, counts, e)
        except GiveUp as e:
            return await self._given_up(taken, run, e)
        except JournalGap as e:
            return await self._bury(taken, DeadLetterReason.JOURNAL_GAP, _short(e))
        except Exception as e:
            log.exception("analysis_failed", error=_short(e))
            return await self._failed(taken, run, e)

    async def _answer(self, taken: _Taken, run: JournalRun) -> AnalysisResult:
        expires_at = taken.subject.request.expires_at
        if expires_at is not None and expires_at <= self._ports.clock.now():
            return self._unanswered(taken, Ending(expired=True))
        job = Job(taken.subject, taken.digest, run, self._new_token, taken.ignored_fields)
        result = await self._analysis.run(job)
        self.blocked = ""
        return result

    async def _publish(self, result: AnalysisResult, taken: _Taken) -> Settlement:
        stored = await self._ports.events.result(result)
        if stored.request_digest != taken.digest:
            return await self._conflict(taken, _answered(stored))
        self._metrics.published(result)
        log.info(
            "result_published",
            request=taken.subject.key,
            status=result.status,
            reason=result.human_review_reason,
            llm_calls=result.usage.llm_calls,
        )
        return ACK

    async def _later(self, taken: _Taken, run: JournalRun, counts: Counts, problem: Retry) -> Settlement:
        attempt = counts.failures + 1
        age = (self._ports.clock.now() - taken.delivery.stored_at).total_seconds()
        delay = next_delay(
            self._rules.retries,
            problem.reason,
            attempt=attempt,
            age_seconds=age,
            after=problem.after,
            jitter=self._jitter(),
        )
        if delay is None:
            ending = Ending(stop=Stop.MODELS_DOWN, stop_detail=_short(problem))
            return await self._publish(self._unanswered(taken, ending), taken)
        await run.end(FAILED, reason=problem.reason)
        self._metrics.retries.labels(problem.reason).inc()
        log.warning(
            "run_postponed", reason=problem.reason, attempt=attempt, seconds=delay, error=_short(problem)
        )
        return retry(delay)

    async def _given_up(self, taken: _Taken, run: JournalRun, problem: GiveUp) -> Settlement:
        if problem.reason in BLOCKING:
            self.blocked = f"{problem.reason}: {_short(problem)}"
            log.error("model_blocked", reason=problem.reason, error=_short(problem))
            await run.end(RELEASED, reason=problem.reason)
            return retry(_patience(taken.delivery, BLOCKED_SECONDS, BLOCKED_CAP_SECONDS))
        log.error("model_gave_up", reason=problem.reason, error=_short(problem))
        ending = Ending(stop=Stop.MODELS_DOWN, stop_detail=_short(problem))
        return await self._publish(self._unanswered(taken, ending), taken)

    async def _failed(self, taken: _Taken, run: JournalRun, problem: Exception) -> Settlement:
        """A bug, ours or a library's: tried again a few times, then a person gets it."""
        attempt = 1 + sum(step.notes.get("reason") == INTERNAL_ERROR for step in done(run, END))
        if attempt >= self._rules.max_failures:
            return await self._bury(taken, DeadLetterReason.INTERNAL_ERROR, _short(problem))
        await run.end(FAILED, reason=INTERNAL_ERROR)
        self._metrics.retries.labels(INTERNAL_ERROR).inc()
        return retry(min(self._rules.retries.cap_seconds, 2.0**attempt))

    async def _bury(self, taken: _Taken, reason: DeadLetterReason, error: str) -> Settlement:
        """First the `failed` result, by the same fence as any other; then the dead letter; then the end."""
        result = self._unanswered(taken, Ending(dead_letter=f"{reason}: {error}"))
        await self._ports.events.result(result)
        delivery = taken.delivery
        letter = DeadLetter(
            reason=reason,
            origin_stream=delivery.stream,
            origin_sequence=delivery.sequence,
            origin_subject=delivery.subject,
            deliveries=delivery.deliveries,
            error=error,
        )
        await self._ports.events.dead_letter(letter, taken.body)
        self._metrics.published(result)
        self._metrics.dead_letters.labels(reason).inc()
        log.error("request_dead_lettered", reason=reason, error=error)
        return term(f"dead letter: {reason}")

    def _unanswered(self, taken: _Taken, ending: Ending) -> AnalysisResult:
        now = self._ports.clock.now()
        return unanswered(taken.subject.request, taken.digest, ending, self._rules.analysis, now)

    async def _already_answered(self, stored: AnalysisResult, taken: _Taken) -> Settlement:
        if stored.request_digest == taken.digest:
            log.info("already_answered", request=taken.subject.key)
            return ACK
        return await self._conflict(taken, _answered(stored))

    async def _conflict(self, taken: _Taken, why: str) -> Settlement:
        """The key belongs to another request: the answer to that one must not pass for the answer to this one."""
        request, key = taken.subject.request, taken.subject.key
        error = FieldError(
            path="remediation_id",
            expected=f"an id that was not used before: {key} {why}; publish this one under a new id",
            got=one_line(request.remediation_id, 80),
        )
        rejected = Rejected(
            ValidationCode.KEY_CONFLICT, (error,), request.remediation_id, request.incident_id, key
        )
        await self._reject(rejected, taken.body, taken.delivery)
        return term(f"rejected: {ValidationCode.KEY_CONFLICT}")

    async def _reject(self, rejected: Rejected, body: bytes, delivery: Delivery) -> None:
        errors = tuple(e.model_copy(update={"got": redact(e.got)}) for e in rejected.errors)
        failure = ValidationFailure(
            code=rejected.code,
            errors=errors,
            path=errors[0].path,
            origin_stream=delivery.stream,
            origin_sequence=delivery.sequence,
            origin_subject=delivery.subject,
            request_key=rejected.request_key,
            remediation_id=rejected.remediation_id,
            incident_id=rejected.incident_id,
            excerpt=excerpt(redact(body[:READ_BYTES].decode("utf-8", "replace"))),
            failed_at=self._ports.clock.now(),
        )
        await self._ports.events.reject(failure)
        self._metrics.rejected.labels(rejected.code).inc()
        log.info(
            "request_rejected", code=rejected.code, errors=len(errors), first=str(errors[0])[:ERROR_CHARS]
        )


def _short(problem: Exception) -> str:
    return redact(one_line(str(problem) or type(problem).__name__, ERROR_CHARS))


def _answered(stored: AnalysisResult) -> str:
    return f"has the result of another request, completed {stored.completed_at.isoformat()}"


def _patience(delivery: Delivery, first_seconds: float, cap_seconds: float) -> float:
    return min(cap_seconds, first_seconds * 2.0 ** min(delivery.deliveries - 1, 30))
