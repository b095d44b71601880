"""Recordings in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from worker.domain.recording.bundle import Bundle, decode
from worker.domain.values.errors import Unavailable


@dataclass
class MemoryRecordings:
    """Implements Recordings. `down` makes every call fail."""

    max_bytes: int = 1 << 20
    down: bool = False
    kept: dict[str, bytes] = field(default_factory=dict)

    async def keep(self, key: str, bundle: bytes) -> None:
        if self.down:
            raise Unavailable("the broker is away")
        self.kept[key] = bundle

    async def find(self, key: str) -> bytes | None:
        return self.kept.get(key)

    def bundle(self, key: str = "rr-1") -> Bundle:
        return decode(self.kept[key], key)
