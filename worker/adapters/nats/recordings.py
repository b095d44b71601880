"""Recorded analyses on a stream of their own: one bundle for each request, and old ones make room for new ones."""

from __future__ import annotations

import hashlib

from nats.aio.client import Client

from schemas.subjects import Subjects
from worker.adapters.nats.stream import FencedStream
from worker.domain.values.delays import HISTORY_PATIENCE_SECONDS

HEADER_BYTES = 1_024


class NatsRecordings:
    """Implements Recordings."""

    def __init__(
        self, nc: Client, subjects: Subjects, *, patience_seconds: float = HISTORY_PATIENCE_SECONDS
    ) -> None:
        self._nc, self._subjects = nc, subjects
        self._stream = FencedStream(nc, subjects.recordings_stream, patience_seconds=patience_seconds)

    @property
    def max_bytes(self) -> int:
        """What one message may have beside its headers."""
        return self._nc.max_payload - HEADER_BYTES

    async def keep(self, key: str, bundle: bytes) -> None:
        await self._stream.add(
            self._subjects.recording(key), bundle, msg_id=hashlib.sha256(bundle).hexdigest()
        )

    async def find(self, key: str) -> bytes | None:
        found = await self._stream.newest(self._subjects.recording(key))
        return found.body if found else None
