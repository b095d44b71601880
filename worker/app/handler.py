"""What happens to one message: decoded, looked up, analysed, published, settled. The only place that catches everything.

The life of a request: reject what cannot be read; ack what has its result; begin a journal run, which fences every
older one; analyse; publish the result once; ack. A message is settled only after what became of it is confirmed.
What may pass soon is waited for with the message in hand, kept by heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from schemas.analysis import AnalysisResult, Status
from schemas.failure import DeadLetterReason
from schemas.incident import request_digest
from schemas.subjects import REPLAY_HEADER, Subjects, kv_key, request_key
from schemas.taxonomy import RequestKind
from worker.app.admission import Admission
from worker.app.closing import Closing, Taken, answered, short
from worker.app.metrics import Metrics
from worker.domain.analyse import Analysis, Rules
from worker.domain.audit.trail import AuditTrail, Subject
from worker.domain.intake.context import attempt_number
from worker.domain.intake.decode import Rejected, decode
from worker.domain.journal.isolation import Passage, passage
from worker.domain.journal.job import Job
from worker.domain.journal.recorded import RecordedRun
from worker.domain.journal.start import buried, start
from worker.domain.journal.steps import FAILED, INTERNAL_ERROR, RELEASED, Counts, count, done, owner
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.delivery import ACK, LET_GO, Delivery, Settlement, retry
from worker.domain.values.errors import (
    BLOCKING,
    GiveUp,
    Halted,
    HaltReason,
    JournalGap,
    LostClaim,
    Retry,
    RetryReason,
    SteppedAside,
    Unavailable,
)
from worker.domain.values.ports import Cancellations, Clock, Events, Journal, Requests, Results, Signer
from worker.domain.values.retry import RetryPolicy, next_delay, probe_pause
from worker.domain.values.step_kinds import LLM, RESULT
from worker.domain.verdict.outcome import Ending, Stop

BROKER_SECONDS, BROKER_CAP_SECONDS = 5.0, 300.0
"""A waiting time that doubles with each delivery: the server's count of deliveries must last for a long outage."""
NOT_NOW_SECONDS = 1.0
"""For another worker, or for this one when it takes messages again."""
STEPPED_ASIDE = "stepped_aside"
RELEASE_TRIES = 10
"""Each waits for the broker. Unsaid, a run that lost its broker would count as dead."""
AFRESH = "the journal of earlier runs could not be read, so the analysis started afresh"

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ports:
    """What the handler talks to."""

    events: Events
    results: Results
    journal: Journal
    requests: Requests
    cancellations: Cancellations
    clock: Clock
    signer: Signer | None = None


@dataclass(frozen=True, slots=True)
class HandlerRules:
    """How requests are taken and when they are given up.

    `max_failures` counts runs of one request that ended with an internal error, `max_deaths` those that ended with the
    death of a process in which nothing else ran. Pauses up to `hold_seconds` are waited for with the message in hand.
    `probe_seconds` is the first pause between two tries of a model that refuses all calls, and for how long what it
    has refused meanwhile goes back to the queue.
    """

    analysis: Rules
    cluster_name: str = ""
    max_failures: int = 5
    max_deaths: int = 3
    hold_seconds: float = 60.0
    probe_seconds: float = 60.0
    retries: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True, slots=True)
class Hold:
    """Not settled: to be tried again after so many seconds, without giving the message back. `run` is the last one."""

    seconds: float
    run: str


class Handler:
    """Decides about messages. `new_token` gives random hexadecimal text, `jitter` a number in [0, 1)."""

    def __init__(
        self,
        ports: Ports,
        analysis: Analysis,
        rules: HandlerRules,
        subjects: Subjects,
        metrics: Metrics,
        admission: Admission,
        *,
        new_token: Callable[[], str],
        jitter: Callable[[], float],
    ) -> None:
        self._ports, self._analysis, self._rules = ports, analysis, rules
        self._subjects, self._metrics, self._admission = subjects, metrics, admission
        self._new_token, self._jitter = new_token, jitter
        self._closing = Closing(ports.events, ports.clock, metrics)

    async def __call__(self, body: bytes, headers: Mapping[str, str], delivery: Delivery) -> Settlement:
        """The settlement of one message. Of the hostile `headers` only the mark of a replayed dead letter is read."""
        with (
            self._metrics.running.track_inprogress(),
            structlog.contextvars.bound_contextvars(stream=delivery.stream, sequence=delivery.sequence),
        ):
            try:
                return await self._until_settled(body, headers, delivery)
            except LostClaim:
                log.info("run_taken_over")
                return LET_GO
            except Unavailable as e:
                log.warning("broker_unavailable", error=short(e))
                self._metrics.retries.labels(RetryReason.BROKER_UNAVAILABLE).inc()
                return retry(
                    min(BROKER_CAP_SECONDS, BROKER_SECONDS * 2.0 ** min(delivery.deliveries - 1, 30))
                )
            finally:
                self._admission.leave(delivery.sequence)

    async def exhausted(self, body: bytes, headers: Mapping[str, str], delivery: Delivery) -> None:
        """A message that the server delivers no more: it becomes a dead letter, unless it was answered before.

        Raises LostClaim when somebody works on it after all, Unavailable.
        """
        taken = self._read(body, headers, delivery)
        if isinstance(taken, Rejected):
            await self._closing.reject(taken, body, delivery)
            return
        run = await self._look_up(taken)
        if isinstance(run, Settlement):
            return
        job = self._job(taken, run)
        error = f"delivered {delivery.deliveries} times without an end"
        async with self._claimed(job, taken, alone=False):
            try:
                if done(run, RESULT):
                    await self._closing.answer(await self._analysis.run(job), taken)
                    return
            except (JournalGap, ValueError) as e:
                error = f"{error}; its result cannot be published: {short(e)}"
            await self._closing.bury(job, taken, DeadLetterReason.MAX_DELIVERIES, error)

    async def _until_settled(self, body: bytes, headers: Mapping[str, str], delivery: Delivery) -> Settlement:
        taken = self._read(body, headers, delivery)
        if isinstance(taken, Rejected):
            return await self._closing.reject(taken, body, delivery)
        last_run = ""
        while True:
            made = await self._attempt(taken, last_run)
            if isinstance(made, Settlement):
                return made
            last_run = made.run
            if not await self._admission.hold(made.seconds):
                return retry(NOT_NOW_SECONDS)

    def _read(self, body: bytes, headers: Mapping[str, str], delivery: Delivery) -> Taken | Rejected:
        parsed = self._subjects.parse_request(delivery.subject)
        kind = parsed[0] if parsed else RequestKind.INCIDENT
        decoded = decode(body, kind, delivery.stored_at, self._rules.cluster_name)
        if isinstance(decoded, Rejected):
            return decoded
        request = decoded.request
        key = request_key(request.remediation_id, attempt_number(request))
        subject = Subject(request, kind, key, delivery)
        replayed = REPLAY_HEADER in headers
        return Taken(subject, request_digest(request), body, decoded.ignored_fields, replayed)

    async def _attempt(self, taken: Taken, last_run: str) -> Settlement | Hold:
        run = await self._look_up(taken)
        if isinstance(run, Settlement):
            return run
        if last_run and (last := owner(run.steps)) and last.run != last_run:
            raise LostClaim(f"{taken.subject.key}: taken over while it was held")
        message, urgency = taken.delivery.sequence, taken.delivery.urgency
        counts = count(run.steps, message)
        how = passage(counts, max_deaths=self._rules.max_deaths, finished=bool(done(run, RESULT)))
        async with self._admission.running(message, urgency, alone=how is Passage.ALONE) as admitted:
            if not admitted:
                return retry(NOT_NOW_SECONDS)
            job = self._job(taken, run)
            async with self._claimed(job, taken, alone=how is Passage.ALONE):
                if how is Passage.NEVER or buried(run.steps, message):
                    error = f"the process died {counts.deaths} times with this request"
                    return await self._closing.bury(job, taken, DeadLetterReason.PROCESS_DEATHS, error)
                return await self._serve(job, taken, counts)

    async def _look_up(self, taken: Taken) -> Settlement | RecordedRun:
        """The run to be begun, or what is to be done about a request that has its result or is another message's."""
        stored = await self._ports.results.find(taken.subject.kind, taken.subject.key)
        if stored is not None and stored.request_digest != taken.digest:
            return await self._closing.conflict(taken, answered(stored))
        if stored is not None and stored.status is not Status.FAILED:
            log.info("already_answered", request=taken.subject.key)
            return ACK
        run = await self._open(taken)
        if settled := await self._not_ours(taken, run):
            return settled
        if stored is not None and not (taken.replayed or buried(run.steps, taken.delivery.sequence)):
            log.info("already_answered", request=taken.subject.key)
            return ACK
        return run

    async def _open(self, taken: Taken) -> RecordedRun:
        token = self._new_token()
        run = RecordedRun(
            await self._ports.journal.open(kv_key(taken.subject.key), token), self._ports.events, token
        )
        if run.flaw:
            log.warning("journal_unreadable", request=taken.subject.key, why=run.flaw)
        return run

    async def _not_ours(self, taken: Taken, run: RecordedRun) -> Settlement | None:
        """What is to be done about a request whose key another message works for."""
        last = owner(run.steps)
        if last is None:
            return None
        if last.digest != taken.digest:
            return await self._closing.conflict(taken, "is taken by another request that is being analysed")
        if last.message == taken.delivery.sequence or buried(run.steps, last.message):
            return None
        if not await self._is_queued(last.message, taken):
            return None
        log.info("published_twice", request=taken.subject.key, first=last.message)
        return ACK  # the other one stays in the queue until there is a result

    async def _is_queued(self, sequence: int, taken: Taken) -> bool:
        """Whether that message is still there, and asks the same: a stream that was made anew counts from 1 again."""
        stored = await self._ports.requests.read(sequence)
        if stored is None:
            return False
        delivery = replace(taken.delivery, subject=stored.subject, sequence=sequence)
        other = self._read(stored.body, stored.headers, delivery)
        if isinstance(other, Rejected):
            return False
        return (other.subject.key, other.digest) == (taken.subject.key, taken.digest)

    def _job(self, taken: Taken, run: RecordedRun) -> Job:
        trail = AuditTrail(
            run,
            self._ports.events,
            self._ports.clock,
            taken.subject,
            redact=redact,
            max_attempts=self._rules.analysis.limits.attempts,
            signer=self._ports.signer,
        )

        async def proceed() -> None:
            expires_at = taken.subject.request.expires_at
            if expires_at is not None and expires_at <= self._ports.clock.now():
                raise Halted(HaltReason.EXPIRED)
            if await self._ports.cancellations.cancelled(kv_key(taken.subject.key)):
                raise Halted(HaltReason.CANCELLED)
            if self._admission.steps_aside(taken.delivery.sequence):
                raise SteppedAside

        notes = (AFRESH,) if run.flaw else ()
        return Job(taken.subject, taken.digest, run, trail, proceed, self._new_token, notes)

    @contextlib.asynccontextmanager
    async def _claimed(self, job: Job, taken: Taken, *, alone: bool) -> AsyncIterator[None]:
        """The run has begun. An orderly release of it is no death, nor is a broker that fails."""
        try:
            await start(
                job.run,
                job.trail,
                job.subject,
                job.digest,
                alone=alone,
                at=self._ports.clock.now(),
                ignored_fields=taken.ignored_fields,
                replayed=taken.replayed,
            )
            yield
        except asyncio.CancelledError:
            await self._release(job.run, tries=1)
            raise
        except Unavailable:
            await self._release(job.run, tries=RELEASE_TRIES)
            raise

    async def _release(self, run: RecordedRun, tries: int) -> None:
        """Raises LostClaim: a run that was replaced must not give back what another one has now."""
        for _ in range(tries if run.begun else 0):
            with contextlib.suppress(Unavailable):
                await run.end(RELEASED)
                return

    async def _serve(self, job: Job, taken: Taken, counts: Counts) -> Settlement | Hold:
        try:
            return await self._closing.answer(await self._answer(job), taken)
        except (LostClaim, Unavailable):
            raise
        except Retry as e:
            return await self._later(job, taken, counts, e)
        except GiveUp as e:
            return await self._given_up(job, taken, e)
        except SteppedAside:
            await job.run.end(RELEASED, reason=STEPPED_ASIDE)
            log.info("suspect_stepped_aside", request=taken.subject.key)
            return Hold(0.0, job.run.name)
        except JournalGap as e:
            return await self._closing.bury(job, taken, DeadLetterReason.JOURNAL_GAP, short(e))
        except Exception as e:
            log.exception("analysis_failed", error=short(e))
            return await self._failed(job, taken, counts, e)

    async def _answer(self, job: Job) -> AnalysisResult:
        try:
            result = await self._analysis.run(job)
        except Halted as e:
            ending = Ending(
                expired=e.reason is HaltReason.EXPIRED, cancelled=e.reason is HaltReason.CANCELLED
            )
            return await self._analysis.without_answer(job, ending)
        except JournalGap as e:
            if job.run.flaw:
                raise
            log.warning("journal_unreadable", request=job.subject.key, why=short(e))
            await job.run.begin_afresh(short(e))
            return await self._answer(replace(job, notes=(AFRESH,)))
        asked = any(step.kind == LLM and step.run == job.run.name for step in job.run.steps)
        if asked and self._admission.unblock():
            log.info("model_unblocked")
        return result

    async def _later(self, job: Job, taken: Taken, counts: Counts, problem: Retry) -> Settlement | Hold:
        attempt, now = counts.failures + 1, self._ports.clock.now()
        delay = next_delay(
            self._rules.retries,
            problem.reason,
            attempt=attempt,
            age_seconds=(now - (counts.since or now)).total_seconds(),
            after=problem.after,
            jitter=self._jitter(),
        )
        if delay is None:
            ending = Ending(stop=Stop.MODELS_DOWN, stop_detail=short(problem))
            return await self._closing.answer(await self._analysis.without_answer(job, ending), taken)
        await job.run.end(FAILED, reason=problem.reason)
        self._metrics.retries.labels(problem.reason).inc()
        log.warning(
            "run_postponed", reason=problem.reason, attempt=attempt, seconds=delay, error=short(problem)
        )
        return Hold(delay, job.run.name) if delay <= self._rules.hold_seconds else retry(delay)

    async def _given_up(self, job: Job, taken: Taken, problem: GiveUp) -> Settlement | Hold:
        if problem.reason not in BLOCKING:
            log.error("model_gave_up", reason=problem.reason, error=short(problem))
            ending = Ending(stop=Stop.MODELS_DOWN, stop_detail=short(problem))
            return await self._closing.answer(await self._analysis.without_answer(job, ending), taken)
        await job.run.end(RELEASED, reason=problem.reason)
        log.error("model_blocked", reason=problem.reason, error=short(problem))
        self._admission.block(f"{problem.reason}: {short(problem)}")
        if tried := self._admission.tried(taken.delivery.sequence):
            return Hold(probe_pause(self._rules.probe_seconds, tried), job.run.name)
        return retry(self._rules.probe_seconds)

    async def _failed(self, job: Job, taken: Taken, counts: Counts, problem: Exception) -> Settlement:
        """A bug, ours or a library's: tried again a few times, then a person gets it."""
        attempt = counts.errors + 1
        if attempt >= self._rules.max_failures:
            return await self._closing.bury(job, taken, DeadLetterReason.INTERNAL_ERROR, short(problem))
        await job.run.end(FAILED, reason=INTERNAL_ERROR)
        self._metrics.retries.labels(INTERNAL_ERROR).inc()
        return retry(min(self._rules.retries.cap_seconds, 2.0**attempt))
