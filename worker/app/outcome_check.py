"""Outcomes that executors publish: each is checked once, and a bad one is rejected like a bad request."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from schemas.subjects import Subjects
from worker.app.closing import Closing, short
from worker.domain.intake.decode import InvalidRequest, decode_outcome
from worker.domain.values.delays import ADVISORY_RETRY_SECONDS
from worker.domain.values.delivery import ACK, Delivery, Settlement, retry
from worker.domain.values.errors import Unavailable

log = structlog.stdlib.get_logger(__name__)


class OutcomeCheck:
    """Implements `delivery.MessageHandler`. A good outcome stays where it is: analyses read it from its stream."""

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
