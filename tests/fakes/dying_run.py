"""A journal run whose process dies at a chosen step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.incident import Signal
from tests.fakes.scripted import World
from worker.domain.values.ports import AuditRecord, JournalRun, Step
from worker.domain.values.step_kinds import BEGIN


class Killed(BaseException):
    """The process dies: nothing in it has a chance to react."""


@dataclass
class DyingRun:
    """A journal run whose process dies right after an append, or before it. `begin` does not count."""

    inner: JournalRun
    dies_at: int
    before: bool = False
    appends: int = 0

    @property
    def past(self) -> Sequence[Step]:
        return self.inner.past

    async def append(
        self, kind: str, data: bytes = b"", *, events: Sequence[AuditRecord] = (), **notes: Any
    ) -> None:
        self.appends += kind != BEGIN
        if self.before and self.appends == self.dies_at:
            raise Killed
        await self.inner.append(kind, data, events=events, **notes)
        if self.appends == self.dies_at:
            raise Killed


async def die_at(
    world: World, request: Signal, append: int, *, before: bool = False, name: str = "run-1"
) -> bool:
    """One run that dies around its n-th append. Whether it came to it."""
    run = DyingRun(await world.opened(request, name), append, before)
    try:
        await world.analysis().run(await world.open(request, name, run))
    except Killed:
        return True
    return False
