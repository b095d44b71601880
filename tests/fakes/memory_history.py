"""History in memory. `down` makes every call fail; `asked` lists what was looked up, with the hash if it was awaited."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field

from worker.domain.values.errors import HistoryUnavailable
from worker.domain.values.objects import ObjectRef
from worker.domain.values.remediations import Past, PastRemediation

Place = tuple[str, str, str]


def place_of(target: ObjectRef) -> Place:
    return target.kind, target.namespace, target.name


@dataclass
class MemoryHistory:
    kept: dict[Place, dict[str, PastRemediation]] = field(default_factory=dict)
    down: bool = False
    asked: list[tuple[Place, str]] = field(default_factory=list)

    @classmethod
    def of(cls, target: ObjectRef, *remediations: PastRemediation) -> MemoryHistory:
        return cls({place_of(target): {item.id: item for item in remediations}})

    async def past(self, target: ObjectRef, spec_hash: Awaitable[str]) -> Past:
        self.asked.append((place_of(target), await spec_hash))
        if self.down:
            raise HistoryUnavailable("the store is down")
        return Past(tuple(self.kept.get(place_of(target), {}).values()))

    async def remember(self, target: ObjectRef, remediation: PastRemediation) -> None:
        if self.down:
            raise HistoryUnavailable("the store is down")
        self.kept.setdefault(place_of(target), {})[remediation.id] = remediation
