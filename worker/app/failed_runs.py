"""Handles runs without a result: the request runs again, is escalated to a human, or is dead-lettered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from schemas.analysis import AnalysisResult
from schemas.failure import DeadLetterReason
from worker.app.admission import Admission
from worker.app.closing import Closing, short
from worker.app.metrics import WorkerMetrics
from worker.app.settings.groups import WorkerSettings
from worker.domain.journal.run import Run
from worker.domain.journal.steps import FAILED, INTERNAL_ERROR, RELEASED, Counts
from worker.domain.values import errors
from worker.domain.values.delays import NOT_NOW_SECONDS
from worker.domain.values.delivery import Settlement, retry
from worker.domain.values.ports import Clock
from worker.domain.values.retry import error_delay, next_delay, probe_pause
from worker.domain.values.step_kinds import MODEL_OUTAGE
from worker.domain.verdict.outcome import Ending, Stop

PROBES = 5
PERHAPS_OF_ONE = frozenset({errors.GiveUpReason.MODEL_UNREACHABLE, errors.GiveUpReason.MODEL_REJECTS_ALL})
"""Failures that the probing request itself may cause: after PROBES probes in a row, another one probes."""
CLUSTER_UNREADABLE = "cluster_unreadable"

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Hold:
    """The message stays with the worker and runs again after so many seconds.

    `run` is the name of its last run.

    `for_model`: it runs again when the model has answered the request that probes it.
    """

    seconds: float
    run: str
    for_model: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRuns:
    """Settles messages whose run has failed. `jitter` gives a number in [0, 1).

    `without_answer` builds the result of a request that ends without an answer.
    """

    settings: WorkerSettings
    closing: Closing
    without_answer: Callable[[Run, Ending], Awaitable[AnalysisResult]]
    admission: Admission
    metrics: WorkerMetrics
    clock: Clock
    jitter: Callable[[], float]

    async def settle(self, run: Run, counts: Counts, problem: Exception) -> Settlement | Hold:
        """End a run without a result, and decide about its message."""
        if lacking := _lacking(problem):
            return await self._released(run, lacking, problem)
        match problem:
            case errors.Retry():
                return await self._later(run, counts, problem)
            case errors.GiveUp():
                blocked = problem.reason in errors.BLOCKING
                end = self._blocked(run, problem) if blocked else self._escalated(run, short(problem))
                return await end
            case errors.Preempted():
                await run.end(RELEASED, reason=problem.reason)
                log.info("run_preempted", request=run.accepted.key, reason=problem.reason)
                return Hold(0.0, run.name)
            case errors.JournalGap():
                return await self.closing.dead_letter(run, DeadLetterReason.JOURNAL_GAP, short(problem))
        log.error("analysis_failed", error=short(problem), exc_info=problem)
        return await self._failed(run, counts, problem)

    async def _released(self, run: Run, lacking: str, problem: Exception) -> Settlement:
        """End a run that lacked something through no fault of its request. Another process may have it."""
        await run.end(RELEASED, reason=lacking)
        self.metrics.retries.labels(lacking).inc()
        log.warning("run_released", request=run.accepted.key, reason=lacking, error=short(problem))
        return retry(NOT_NOW_SECONDS)

    async def _later(self, run: Run, counts: Counts, problem: errors.Retry) -> Settlement | Hold:
        attempt, now = counts.failures + 1, self.clock.now()
        delay = next_delay(
            self.settings.retries,
            attempt=attempt,
            age_seconds=(now - (counts.since or now)).total_seconds(),
            after=problem.after,
            jitter=self.jitter(),
        )
        if delay is None:
            return await self._escalated(run, short(problem))
        await run.end(FAILED, reason=problem.reason)
        self.metrics.retries.labels(problem.reason).inc()
        log.warning(
            "run_postponed", reason=problem.reason, attempt=attempt, seconds=delay, error=short(problem)
        )
        return Hold(delay, run.name) if delay <= self.settings.hold_seconds else retry(delay)

    async def _escalated(self, run: Run, why: str) -> Settlement:
        """Publish a result that is escalated to a human, because the model does not answer this request."""
        log.error("model_gave_up", error=why)
        ending = Ending(stop=Stop.MODELS_DOWN, stop_detail=why)
        return await self.closing.answer(await self.without_answer(run, ending), run)

    async def _blocked(self, run: Run, problem: errors.GiveUp) -> Hold:
        """While every call fails, one request probes the model, the others wait, and no further one begins."""
        message = run.accepted.delivery.message
        outage = problem.reason is errors.GiveUpReason.MODEL_UNREACHABLE
        await run.end(RELEASED, reason=MODEL_OUTAGE if outage else problem.reason)
        log.error("model_blocked", reason=problem.reason, error=short(problem))
        self.admission.block(short(problem))
        count = self.admission.probe_count(message)
        if count == 0:
            return Hold(0.0, run.name, for_model=True)
        if count > PROBES and problem.reason in PERHAPS_OF_ONE:
            self.admission.release(message)
            return Hold(NOT_NOW_SECONDS, run.name)
        pause = probe_pause(self.settings.probe_seconds, self.admission.probes, outage=outage)
        return Hold(pause, run.name)

    async def _failed(self, run: Run, counts: Counts, problem: Exception) -> Settlement:
        """Run a request again after an internal error; dead-letter it after the last allowed one."""
        delay = error_delay(self.settings.retries, counts.errors + 1)
        if delay is None:
            return await self.closing.dead_letter(run, DeadLetterReason.INTERNAL_ERROR, short(problem))
        await run.end(FAILED, reason=INTERNAL_ERROR)
        self.metrics.retries.labels(INTERNAL_ERROR).inc()
        return retry(delay)


def _lacking(problem: Exception) -> str:
    """The thing that a run lacked through no fault of its request; empty for any other failure."""
    if isinstance(problem, errors.ClusterUnreadable):
        return CLUSTER_UNREADABLE
    return errors.PreemptReason.OPEN_FILES if errors.is_resource_fault(problem) else ""
