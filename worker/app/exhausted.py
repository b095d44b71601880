"""Requests that the server delivers no more: its advisory is the only trace, the request stays in the queue for ever.

The server's limit of deliveries is a backstop. What meets it becomes a dead letter like any other, and is then removed
from the queue, so that nothing lies there without anybody working on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from worker.app.closing import short
from worker.app.handler import RequestHandler
from worker.domain.values.delays import ADVISORY_RETRY_SECONDS
from worker.domain.values.delivery import ACK, Delivery, Settlement, retry
from worker.domain.values.errors import LostClaim, Unavailable
from worker.domain.values.ports import Requests

log = structlog.stdlib.get_logger(__name__)


class Advisory(BaseModel):
    """What is read of io.nats.jetstream.advisory.v1.max_deliver."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    stream: str
    consumer: str
    stream_seq: int
    deliveries: int


class ExhaustedHandler:
    """Decides about advisories; a `delivery.Handler`."""

    def __init__(self, requests: Requests, handler: RequestHandler) -> None:
        self._requests, self._handler = requests, handler

    async def __call__(self, body: bytes, headers: Mapping[str, str], delivery: Delivery) -> Settlement:
        """The settlement of an advisory: done when its request is answered or a dead letter, and out of the queue."""
        del headers
        try:
            advisory = Advisory.model_validate_json(body)
        except ValidationError as e:
            log.warning("advisory_unreadable", sequence=delivery.sequence, error=short(e))
            return ACK
        with structlog.contextvars.bound_contextvars(stream=advisory.stream, sequence=advisory.stream_seq):
            try:
                await self._serve(advisory, delivery.stored_at)
            except LostClaim:
                return retry(ADVISORY_RETRY_SECONDS)
            except Unavailable as e:
                log.warning("broker_unavailable", error=short(e))
                return retry(ADVISORY_RETRY_SECONDS)
        return ACK

    async def _serve(self, advisory: Advisory, at: datetime) -> None:
        stored = await self._requests.read(advisory.stream_seq)
        if stored is None or stored.stored_at > at:
            return  # settled after all; or of a stream that was made anew, which counts from 1 again
        log.error("deliveries_exhausted", lane=advisory.consumer, deliveries=advisory.deliveries)
        origin = Delivery(
            stored.subject,
            advisory.stream,
            advisory.consumer,
            stored.sequence,
            advisory.deliveries,
            stored.stored_at,
        )
        await self._handler.exhausted(stored.body, stored.headers, origin)
        await self._requests.remove(stored.message)
