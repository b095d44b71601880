"""The life of a message, from delivery to settlement: decode, look up, analyse, publish, acknowledge.

A message that cannot be read is rejected, and one that has its result is acknowledged. For any other a run
begins in the journal, which fences every older run of the same request; the request is analysed, its result
is published once, and the message is acknowledged last. No message is settled before the server has confirmed
what was published. During short pauses, heartbeats keep the message with the worker. This is the only place
that catches every exception.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from functools import partial

import structlog

from schemas.analysis import AnalysisResult, Status
from schemas.failure import DeadLetterReason
from schemas.subjects import DEFAULT_LANE, Subjects
from worker.app.admission import Admission
from worker.app.closing import Closing, answered, short
from worker.app.failed_runs import FailedRuns, Hold
from worker.app.metrics import WorkerMetrics
from worker.app.open_files import FILES
from worker.app.settings.groups import WorkerSettings
from worker.domain.analyse import Analysis
from worker.domain.intake.accepted import AcceptedRequest, accept
from worker.domain.intake.decode import InvalidRequest
from worker.domain.journal.isolation import RunMode, pause_after_death, run_mode
from worker.domain.journal.run import Run, dead_letter_step
from worker.domain.journal.steps import RELEASED, Counts, count, done, finished, is_overtaken, owner
from worker.domain.values import errors
from worker.domain.values import ports as port
from worker.domain.values.concurrency import MAX_INLINE_JSON_BYTES
from worker.domain.values.delays import HELD_CHECK_SECONDS, NOT_NOW_SECONDS, RELEASE_PAUSE_SECONDS
from worker.domain.values.delivery import ACK, LET_GO, Delivery, Fate, MessageId, Settlement, retry
from worker.domain.values.retry import broker_delay
from worker.domain.values.step_kinds import DEAD_LETTERED, LLM, RESULT
from worker.domain.verdict.outcome import Ending

RELEASE_TRIES = 1_000

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of the handler."""

    events: port.Events
    results: port.Results
    journal: port.Journal
    requests: port.Requests
    cancellations: port.Cancellations
    clock: port.Clock
    signer: port.Signer | None = None


@dataclass(eq=False)
class RequestHandler:
    """Decides about messages. `new_token` gives 12 random digits, `jitter` a number in [0, 1)."""

    ports: Ports
    _: KW_ONLY
    analysis: Analysis
    settings: WorkerSettings
    subjects: Subjects
    metrics: WorkerMetrics
    admission: Admission
    new_token: Callable[[], str]
    jitter: Callable[[], float]

    def __post_init__(self) -> None:
        clock, observe = self.ports.clock, self.analysis.rules.observe
        self._closing = Closing(self.ports.events, clock, self.metrics, observe=observe)
        self._failed_runs = FailedRuns(
            settings=self.settings,
            closing=self._closing,
            without_answer=self.analysis.without_answer,
            admission=self.admission,
            metrics=self.metrics,
            clock=clock,
            jitter=self.jitter,
        )

    async def __call__(self, body: bytes, headers: Mapping[str, str], delivery: Delivery) -> Settlement:
        """Settle one message.

        Its headers are not trusted: only the mark of a replayed dead letter is read.
        """
        with (
            self.metrics.running.track_inprogress(),
            structlog.contextvars.bound_contextvars(stream=delivery.stream, sequence=delivery.sequence),
        ):
            try:
                return await self._until_settled(body, headers, delivery)
            except errors.LostClaim as e:
                log.info("run_taken_over", reason=short(e))
                return LET_GO
            except errors.Unavailable as e:
                log.warning("broker_unavailable", error=short(e))
                self.metrics.retries.labels(errors.RetryReason.BROKER_UNAVAILABLE).inc()
                return retry(broker_delay(delivery.deliveries))
            finally:
                structlog.contextvars.unbind_contextvars("request")
                self.admission.release(delivery.message)

    async def ended_in_queue(self, stored: port.StoredRequest) -> bool:
        """Answer a request that waits in the queue if it is cancelled or has expired, without the model.

        Returns True if it may be removed. One that has begun is left to the worker that holds it. Raises LostClaim
        when another run works on it after all, Unavailable.
        """
        accepted = await self._accept(stored.body, stored.headers, self._delivery_of(stored))
        if isinstance(accepted, InvalidRequest) or (reason := await self._halt(accepted)) is None:
            return False
        run = await self._look_up(accepted)
        if isinstance(run, Settlement) or run.steps:
            return isinstance(run, Settlement)
        async with self._started(run, alone=False):
            ended = await self._serve(run, Counts(), reason)
        return isinstance(ended, Settlement) and ended.fate in {Fate.DONE, Fate.TERMINATE}

    def _delivery_of(self, stored: port.StoredRequest, deliveries: int = 0) -> Delivery:
        """The origin of a message that was read in the queue."""
        parsed, stream = self.subjects.parse_request(stored.subject), self.subjects.requests_stream
        lane = parsed[1] if parsed else DEFAULT_LANE
        return Delivery(stored.subject, stream, lane, stored.sequence, deliveries, stored.stored_at)

    async def exhausted(self, stored: port.StoredRequest, deliveries: int) -> None:
        """Dead-letter a message that the server does not deliver again, unless its request has been answered.

        Raises LostClaim when another run works on it after all, Unavailable.
        """
        delivery = self._delivery_of(stored, deliveries)
        log.error("deliveries_exhausted", lane=delivery.durable, deliveries=deliveries)
        accepted = await self._accept(stored.body, stored.headers, delivery)
        if isinstance(accepted, InvalidRequest):
            await self._closing.reject(accepted, stored.body, delivery)
            return
        run = await self._look_up(accepted)
        if isinstance(run, Settlement):
            return
        error = f"delivered {deliveries} times without being acknowledged"
        async with self._started(run, alone=False):
            try:
                if done(run, RESULT):
                    await self._closing.answer(await self.analysis.run(run), run)
                    return
            except (errors.JournalGap, ValueError) as e:
                error = f"{error}; its result cannot be published: {short(e)}"
            await self._closing.dead_letter(run, DeadLetterReason.MAX_DELIVERIES, error)

    async def _until_settled(self, body: bytes, headers: Mapping[str, str], delivery: Delivery) -> Settlement:
        accepted = await self._accept(body, headers, delivery)
        if isinstance(accepted, InvalidRequest):
            return await self._closing.reject(accepted, body, delivery)
        structlog.contextvars.bind_contextvars(request=accepted.key)
        last_run = ""
        while True:
            outcome = await self._attempt(accepted, last_run)
            if isinstance(outcome, Settlement):
                return outcome
            last_run = outcome.run
            if not await self._waited(outcome, accepted):
                return retry(NOT_NOW_SECONDS)

    async def _waited(self, hold: Hold, accepted: AcceptedRequest) -> bool:
        """Wait for the end of the hold, or until the request is cancelled or expires.

        Returns False if the message must be returned because the worker shuts down.
        """
        message, pause = accepted.delivery.message, self.admission.wait_unless_stopping
        ends = self.admission.model_answers(message) if hold.for_model else pause(hold.seconds)
        waiting = asyncio.create_task(ends)
        halt = asyncio.create_task(self._until_halted(accepted))
        try:
            await asyncio.wait({waiting, halt}, return_when=asyncio.FIRST_COMPLETED)
            return not waiting.done() or waiting.result()
        finally:
            waiting.cancel()
            halt.cancel()

    async def _until_halted(self, accepted: AcceptedRequest) -> None:
        while True:
            with contextlib.suppress(errors.Unavailable):  # asked again, and before each paid call
                if await self._halt(accepted):
                    return
            await asyncio.sleep(HELD_CHECK_SECONDS)

    async def _accept(
        self, body: bytes, headers: Mapping[str, str], delivery: Delivery
    ) -> AcceptedRequest | InvalidRequest:
        read = partial(accept, body, headers, delivery, self.subjects, self.settings.cluster_name)
        return await asyncio.to_thread(read) if len(body) > MAX_INLINE_JSON_BYTES else read()

    async def _attempt(self, accepted: AcceptedRequest, last_run: str) -> Settlement | Hold:
        run = await self._look_up(accepted)
        if isinstance(run, Settlement):
            return run
        if last_run and (latest := owner(run.steps)) and latest.run != last_run:
            raise errors.LostClaim(f"{accepted.key}: taken over while it was held")
        if is_overtaken(run.steps, accepted.delivery):
            raise errors.LostClaim(f"{accepted.key}: a later delivery is being served")
        message, urgency = accepted.delivery.message, accepted.delivery.urgency
        counts = count(run.steps, message)
        mode = run_mode(counts, max_deaths=self.settings.max_deaths, finished=bool(done(run, RESULT)))
        if mode is RunMode.ISOLATED:
            if (pause := pause_after_death(counts, self.ports.clock.now())) > 0.0:
                log.warning("suspect_postponed", deaths=counts.deaths_alone, seconds=pause)
                return retry(pause)
            accepted.delivery.release_slot()  # others need it while this one waits
        async with self.admission.running(message, urgency, alone=mode is RunMode.ISOLATED) as admitted:
            still_blocked = bool(last_run and self.admission.blocked)
            # What nobody waits for any more needs no call of the model, so it may end now.
            if not admitted and not (still_blocked and await self._halt(accepted)):
                return Hold(0.0, last_run, for_model=True) if still_blocked else retry(NOT_NOW_SECONDS)
            async with self._started(run, alone=mode is RunMode.ISOLATED):
                if mode is RunMode.REFUSED or dead_letter_step(run.steps, message):
                    error = f"the process died {counts.deaths} times while analysing this request"
                    return await self._closing.dead_letter(run, DeadLetterReason.PROCESS_DEATHS, error)
                return await self._serve(run, counts, None)

    async def _look_up(self, accepted: AcceptedRequest) -> Settlement | Run:
        """Return the run to begin, or the settlement of a message that must not run.

        It must not run if the request has its result, or if its key belongs to another message.
        """
        # The journal first: a run that ends while this is read stores its result before its last step.
        run = await self._open(accepted)
        stored = await self.ports.results.find(accepted.key)
        if stored is not None and stored.request_digest != accepted.digest:
            return await self._closing.conflict(accepted, answered(stored))
        if stored is not None and stored.status is not Status.FAILED:
            log.info("already_answered", request=accepted.key)
            # After a redelivery: the worker that answered it may have died before the end.
            return await self._closing.finish(run) if accepted.delivery.deliveries > 1 else ACK
        if settled := await self._not_ours(accepted, run):
            return settled
        goes_on = accepted.replayed or dead_letter_step(run.steps, accepted.delivery.message)
        if stored is not None and not goes_on:
            if accepted.delivery.deliveries > 1 and not _is_sent_again(run, stored):
                # The worker may have died before it wrote the letter, and its journal has expired since.
                return await self._closing.dead_letter_again(stored, accepted)
            log.info("already_answered", request=accepted.key)
            return ACK
        return run

    async def _open(self, accepted: AcceptedRequest) -> Run:
        name = self.new_token()
        run = Run(
            accepted,
            await self.ports.journal.open(accepted.key, name),
            self.ports.events,
            self.ports.clock,
            name=name,
            proceed=partial(self._proceed, accepted),
            new_token=self.new_token,
            max_attempts=self.analysis.rules.limits.attempts,
            signer=self.ports.signer,
        )
        if run.flaw:
            log.warning("journal_unreadable", request=accepted.key, error=run.flaw)
        return run

    async def _proceed(self, accepted: AcceptedRequest) -> None:
        """Check before each paid call whether it may be made. Raises Halted or Preempted if not."""
        if reason := await self._halt(accepted):
            raise errors.Halted(reason)
        if self.admission.must_yield(accepted.delivery.message):
            raise errors.Preempted(errors.PreemptReason.URGENT_REQUEST)
        if self.admission.is_paused_by(FILES):
            raise errors.Preempted(errors.PreemptReason.OPEN_FILES)

    async def _halt(self, accepted: AcceptedRequest) -> errors.HaltReason | None:
        """Why the answer is no longer needed; None while it still is. Raises Unavailable."""
        expires_at = accepted.request.expires_at
        if expires_at is not None and self.ports.clock.has_passed(expires_at):
            return errors.HaltReason.EXPIRED
        is_cancelled = await self.ports.cancellations.cancelled(accepted.key)
        return errors.HaltReason.CANCELLED if is_cancelled else None

    async def _not_ours(self, accepted: AcceptedRequest, run: Run) -> Settlement | None:
        """The settlement of a message whose key belongs to another message; None if this one may run."""
        latest = owner(run.steps)
        if latest is None:
            return None
        if latest.digest != accepted.digest:
            taken = "is taken by another request that is being analysed"
            return await self._closing.conflict(accepted, taken)
        if latest.message.matches(accepted.delivery.message) and finished(run.steps):
            log.info("already_answered", request=accepted.key)
            return ACK  # its result was stored, and has expired since
        if latest.message.matches(accepted.delivery.message) or dead_letter_step(run.steps, latest.message):
            return None
        if not await self._is_queued(latest.message, accepted):
            return None
        log.info("duplicate_request", request=accepted.key, first_sequence=latest.message.sequence)
        return ACK  # the other one stays in the queue until there is a result

    async def _is_queued(self, message: MessageId, accepted: AcceptedRequest) -> bool:
        """True if that message is still in the queue and holds the same request."""
        stored = await self.ports.requests.read(message.sequence)
        if stored is None or not message.matches(stored.message):
            return False
        other = await self._accept(stored.body, stored.headers, self._delivery_of(stored))
        if isinstance(other, InvalidRequest):
            return False
        return (other.key, other.digest) == (accepted.key, accepted.digest)

    @contextlib.asynccontextmanager
    async def _started(self, run: Run, *, alone: bool) -> AsyncIterator[None]:
        """Start the run.

        If it is cancelled or the broker fails, record its release, so that it does not count as dead.
        """
        try:
            await run.start(alone=alone, at=self.ports.clock.now())
            yield
        except (asyncio.CancelledError, errors.Unavailable) as e:
            await self._release(run, is_cancelled=isinstance(e, asyncio.CancelledError))
            raise

    async def _release(self, run: Run, *, is_cancelled: bool) -> None:
        """Record that the run ended in an orderly way; else it counts as dead.

        Retried as long as the process lives.

        A worker that shuts down cancels its runs twice. The first cancellation leaves this some seconds for a
        broker that returns, the second one ends it. Raises LostClaim if another run has replaced this one:
        the message now belongs to that run and must not be returned.
        """
        for _ in range(RELEASE_TRIES if run.begun else 0):
            try:
                # When this raises Unavailable, its patience for the broker is already used up.
                with contextlib.suppress(errors.Unavailable):
                    return await run.end(RELEASED)
                await self.ports.clock.sleep(RELEASE_PAUSE_SECONDS)
            except asyncio.CancelledError:
                if is_cancelled:
                    raise
                is_cancelled = True
        return None

    async def _serve(self, run: Run, counts: Counts, halt: errors.HaltReason | None) -> Settlement | Hold:
        """Answer a request; without an analysis if there is a reason to halt."""
        try:
            result = await (self._halted(run, halt) if halt else self._answer(run))
            return await self._closing.answer(result, run)
        except (errors.LostClaim, errors.Unavailable):
            raise
        except Exception as e:  # noqa: BLE001 - the only place that catches everything
            return await self._failed_runs.settle(run, counts, e)

    async def _answer(self, run: Run) -> AnalysisResult:
        try:
            result = await self.analysis.run(run)
        except errors.Halted as e:
            return await self._halted(run, e.reason)
        except errors.JournalGap as e:
            if run.flaw:
                raise
            log.warning("journal_unreadable", request=run.accepted.key, error=short(e))
            await run.restart(short(e))
            return await self._answer(run)
        asked = any(step.kind == LLM and step.run == run.name for step in run.steps)
        if asked and self.admission.unblock():
            log.info("model_unblocked")
        return result

    async def _halted(self, run: Run, reason: errors.HaltReason) -> AnalysisResult:
        is_expired = reason is errors.HaltReason.EXPIRED
        return await self.analysis.without_answer(run, Ending(expired=is_expired, cancelled=not is_expired))


def _is_sent_again(run: Run, failed: AnalysisResult) -> bool:
    """True if the message is not the one that became a dead letter.

    In that case the journal names another message, or this one was stored after the result. The minute allows
    for clocks that differ.
    """
    is_later = run.accepted.delivery.stored_at > failed.completed_at + timedelta(minutes=1)
    return is_later or any(step.kind == DEAD_LETTERED for step in run.steps)
