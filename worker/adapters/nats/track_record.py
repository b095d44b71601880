"""The track records of proposed actions: our results and the outcomes of executors, read from their streams.

Each reader reads both streams once, and from then on only new messages. That takes no consumer, no counter
and no right that a worker lacks, and a lost or repeated message cannot make the figures drift: they are
computed from what is stored.

A worker pays one read of at most MAX_RESULTS results and as many outcomes after each start, message by
message in the background (20,000 of each, of 3 KB: 8 s, 3 s of CPU, 13 MB of memory), then two requests for
the state of the streams each minute. Every worker does this for itself. Figures are up to a minute old and
reach back as far as results are kept (30 days as provisioned). Until the first read is complete, and when
none has succeeded for STALE_SECONDS, nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

import structlog

from schemas.subjects import Subjects
from worker.adapters.nats.stream import FencedStream
from worker.adapters.nats.stream_info import StreamExtent
from worker.domain.values.errors import Unavailable
from worker.domain.values.ports import Clock
from worker.domain.values.remediations import TrackRecord
from worker.domain.verdict.approval.track_record import Proposals

MAX_RESULTS: Final = 20_000
REFRESH_SECONDS: Final = 60.0
STALE_SECONDS: Final = 600.0

log = structlog.stdlib.get_logger(__name__)


class OutcomeReader:
    """Collects the results and outcomes under a prefix: all, or the `newest` of each stream."""

    def __init__(
        self, results: FencedStream, outcomes: FencedStream, subjects: Subjects, *, newest: int | None = None
    ) -> None:
        self._results, self._outcomes, self._subjects, self._newest = results, outcomes, subjects, newest
        self._proposals, self._read_results, self._read_outcomes = Proposals(), 0, 0

    async def read(self, now: datetime) -> Proposals:
        """Read everything that is stored now.

        Raises Unavailable; messages that were read until then are not read again.

        An outcome follows its result. Therefore the extent of the outcomes is read first, so that the results
        of all of them are read.
        """
        outcomes, results = await self._outcomes.extent(now), await self._results.extent(now)
        if results.last < self._read_results or outcomes.last < self._read_outcomes:  # a recreated stream
            self._proposals, self._read_results, self._read_outcomes = Proposals(), 0, 0
        async for message in self._results.messages(self._unread(results, self._read_results)):
            self._proposals.add_result(self._subjects.key_of(message.subject), message.body)
            self._read_results = message.sequence
        async for message in self._outcomes.messages(self._unread(outcomes, self._read_outcomes)):
            self._proposals.add_outcome(self._subjects.key_of(message.subject), message.body)
            self._read_outcomes = message.sequence
        self._proposals.forget(results.kept_since, self._newest)
        return self._proposals

    def _unread(self, extent: StreamExtent, read: int) -> StreamExtent:
        newest = 1 if self._newest is None else extent.last - self._newest + 1
        return replace(extent, first=max(extent.first, read + 1, newest))


class NatsTrackRecords:
    """Implements TrackRecords: answers from the last read of `run`."""

    def __init__(self, reader: OutcomeReader, clock: Clock) -> None:
        self._reader, self._clock = reader, clock
        self._records: Mapping[tuple[str, str], TrackRecord] = {}
        self._read_at: float | None = None

    def of(self, action_type: str, environment: str) -> TrackRecord | None:
        """The track record; zeros for an action that was never proposed in the environment."""
        if self._read_at is None or self._clock.monotonic() - self._read_at > STALE_SECONDS:
            return None
        return self._records.get((action_type, environment), TrackRecord())

    async def run(self) -> None:
        """Read at once, then each minute, until cancelled."""
        while True:
            await self.refresh()
            await self._clock.sleep(REFRESH_SECONDS)

    async def refresh(self) -> None:
        """Read once. Without the broker the figures stay, until they are stale."""
        try:
            proposals = await self._reader.read(self._clock.now())
        except Unavailable as e:
            log.warning("track_record_unreadable", error=str(e))
        else:
            self._records, self._read_at = proposals.track_records(), self._clock.monotonic()
