"""The Embedder port by a list of what words mean: the plainest model there is."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from worker.domain.values.errors import EmbedderUnavailable

DIMENSIONS = 64
SYNONYMS = {
    "ram": "memory",
    "heap": "memory",
    "bigger": "raises",
    "undo": "rolls",
    "revert": "rolls",
    "machine": "node",
    "host": "node",
}


@dataclass
class MemoryEmbedder:
    """`down` makes it raise, `hangs` never answer. Keeps what was asked, in calls."""

    name: str = "memory"
    dimensions: int = DIMENSIONS
    down: bool = False
    hangs: bool = False
    calls: list[tuple[str, ...]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str], *, query: bool) -> Sequence[Sequence[float]]:
        self.calls.append(tuple(texts))
        if self.hangs:
            await asyncio.Event().wait()
        if self.down:
            raise EmbedderUnavailable("the embedder is down")
        return [vector(text) for text in texts]

    @property
    def texts(self) -> list[str]:
        """All texts asked for, one by one."""
        return [text for call in self.calls for text in call]


def vector(text: str) -> list[float]:
    """A direction for each meaning, added up."""
    found = [0.0] * DIMENSIONS
    found[0] = 0.01  # a text without words has a direction as well
    for word in re.findall(r"[a-z]+", text.lower()):
        digest = hashlib.sha256(SYNONYMS.get(word, word).encode()).digest()
        found[1 + digest[0] % (DIMENSIONS - 1)] += 1.0
    length = math.hypot(*found)
    return [n / length for n in found]
