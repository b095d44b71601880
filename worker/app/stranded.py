"""Requests that have exhausted their deliveries.

The server keeps them in the queue but no longer delivers them.

The limit of deliveries is a backstop. A request that reaches it becomes a dead letter like any other, and is
then removed from the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from worker.app.closing import short
from worker.app.handler import RequestHandler
from worker.domain.values.delays import ADVISORY_RETRY_SECONDS, SWEEP_SECONDS
from worker.domain.values.delivery import ACK, Delivery, Settlement, retry
from worker.domain.values.errors import LostClaim, Unavailable
from worker.domain.values.ports import Requests, StoredRequest

STRANDED = "requests that are no longer delivered and"

log = structlog.stdlib.get_logger(__name__)


async def contained(work: Awaitable[object], stored: StoredRequest) -> str:
    """Handle a request that was read in the queue. A defect, returned in short, must not end the loop that reads.

    Raises LostClaim, Unavailable.
    """
    [problem] = await asyncio.gather(work, return_exceptions=True)
    if isinstance(problem, LostClaim | Unavailable):
        raise problem
    if not isinstance(problem, Exception):
        return ""
    log.error("handler_failed", sequence=stored.sequence, exc_info=problem)
    return short(problem)


class Advisory(BaseModel):
    """The fields that are read of io.nats.jetstream.advisory.v1.max_deliver."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    stream: str
    consumer: str
    stream_seq: int
    deliveries: int


@dataclass(slots=True)
class SweepReport:
    """How many requests the last sweep could not dead-letter, and why. For readiness and metrics."""

    count: int = 0
    problem: str = ""


class StrandedRequests:
    """Turns requests that the server will not deliver again into dead letters.

    Each one is then removed from the queue.

    They are found by the server's advisories (`__call__` is a `delivery.MessageHandler`) and by sweeping the
    queue: the advisory of a request is published once, and is lost if it cannot be stored then.
    """

    def __init__(self, requests: Requests, handler: RequestHandler, report: SweepReport) -> None:
        self._requests, self._handler, self._report = requests, handler, report
        self._under_way: set[int] = set()

    async def __call__(self, body: bytes, headers: Mapping[str, str], delivery: Delivery) -> Settlement:
        """Settle an advisory: done when its request is answered or dead-lettered, and out of the queue."""
        del headers
        try:
            advisory = Advisory.model_validate_json(body)
        except ValidationError as e:
            log.warning("advisory_unreadable", sequence=delivery.sequence, error=short(e))
            return ACK
        try:
            stored = await self._requests.read(advisory.stream_seq)
            # None: settled after all. A younger one belongs to a recreated stream, which counts from 1 again.
            if stored is not None and stored.stored_at <= delivery.stored_at:
                await self._dead_letter(stored, advisory.deliveries)
        except (LostClaim, Unavailable) as e:
            if isinstance(e, Unavailable):
                log.warning("broker_unavailable", error=short(e))
            return retry(ADVISORY_RETRY_SECONDS)
        return ACK

    async def run(self) -> None:
        """Sweep at once, then now and then, until cancelled."""
        while True:
            with contextlib.suppress(Unavailable):  # the broker is away, which is reported elsewhere
                await self.sweep()
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Look for stranded requests once. Raises Unavailable when the queue cannot be read."""
        found, report, failed = await self._requests.stranded(), self._report, ""
        report.count = len(found)
        if found:  # reported at once, because storing dead letters is retried for long
            report.problem = f"{STRANDED} wait to be dead-lettered: {report.count}"
        for stored in found:
            try:
                defect = await contained(self._dead_letter(stored, deliveries=0), stored)
            except LostClaim:
                continue  # another worker handles it
            except Unavailable as e:
                failed = short(e)
                log.warning("requests_stranded", count=report.count, error=failed)
                break
            failed = defect or failed
            report.count -= 0 if defect else 1
        report.problem = f"{STRANDED} cannot be dead-lettered: {report.count}; {failed}" if failed else ""

    async def _dead_letter(self, stored: StoredRequest, deliveries: int) -> None:
        """Dead-letter a request and remove it from the queue."""
        if stored.sequence in self._under_way:  # an advisory and the sweep may find it at the same time
            return
        self._under_way.add(stored.sequence)
        try:
            with structlog.contextvars.bound_contextvars(sequence=stored.sequence):
                await self._handler.exhausted(stored, deliveries)
                await self._requests.remove(stored.message)
        finally:
            self._under_way.discard(stored.sequence)
