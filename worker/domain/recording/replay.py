"""Runs a recorded analysis again: as it was, or with another model, catalog or policy against the recorded cluster."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from schemas.analysis import AnalysisResult
from schemas.failure import DeadLetter, ValidationFailure
from schemas.incident import IncidentRequest
from schemas.recovery import RecoveryRequest
from schemas.taxonomy import RequestKind
from worker.domain.analyse import Analysis
from worker.domain.intake.accepted import AcceptedRequest
from worker.domain.journal.run import Run
from worker.domain.recording.bundle import Bundle, BundleError
from worker.domain.recording.ports import ASK, ASK_SHADOW, TapedModel, taped
from worker.domain.recording.recorder import RULES
from worker.domain.recording.tape import Player
from worker.domain.values.delivery import Delivery
from worker.domain.values.errors import GiveUp, JournalGap, ReportedError, Retry
from worker.domain.values.objects import ObjectRef
from worker.domain.values.ports import AuditRecord, Catalog, Clock, Model, Outside, Policy, Step
from worker.domain.values.remediations import PastRemediation

RUN = "replay"
SPARE_TOKEN = "0" * 12
"""In place of a random text that was not recorded."""
NEVER_ASKED: Any = object()
"""In place of a port that a player never asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is not taken from the bundle. `clock` is that of this machine: a model that is really called takes its time."""

    clock: Clock
    model: Model | None = None
    catalog: Catalog | None = None
    policy: Policy | None = None

    @property
    def any(self) -> bool:
        """Whether the analysis may come to another result by them."""
        return any(port is not None for port in (self.model, self.catalog, self.policy))


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay.

    `gaps` are questions that the bundle has no answer to. `diverged` counts the recorded replies that were given to a
    conversation other than the recorded one: the model might have said something else there.
    """

    result: AnalysisResult
    gaps: tuple[str, ...]
    diverged: int


async def replay(bundle: Bundle, changes: Changes) -> Replayed:
    """Run the analysis of a bundle again. Raises BundleError, ReportedError when the model gives no answer."""
    player = Player(bundle.exchanges)
    try:
        rules = RULES.validate_python(bundle.rules)
        run = _run(bundle, () if changes.any else _steps(bundle), changes.clock)
        result = await Analysis(_outside(bundle, player, changes), rules).run(run)
    except (ValidationError, JournalGap) as e:
        raise BundleError(f"the bundle of {bundle.key} cannot be replayed by this version: {e}") from e
    except (Retry, GiveUp) as e:
        raise ReportedError(f"{bundle.key}: the model gives no answer: {e.message}") from e
    return Replayed(result, tuple(player.gaps), player.diverged)


def _outside(bundle: Bundle, player: Player, changes: Changes) -> Outside:
    """The recorded ports, and in place of some of them what is changed."""
    names, there = bundle.versions, dict.fromkeys(bundle.ports, NEVER_ASKED)
    if "history" in there:
        there["history"] = _NoStore()
    if "shadow" in there:
        there["shadow"] = TapedModel(player, NEVER_ASKED, names.shadow, ASK_SHADOW)
    recorded = Outside(
        cluster=NEVER_ASKED,
        catalog=NEVER_ASKED,
        model=TapedModel(player, NEVER_ASKED, names.model, ASK),
        policy=NEVER_ASKED,
        clock=_clock(bundle, changes),
        jitter=lambda: 0.0,
        **there,
    )
    outside = taped(recorded, player)
    return replace(
        outside,
        model=changes.model or outside.model,
        catalog=changes.catalog or outside.catalog,
        policy=changes.policy or outside.policy,
    )


def _steps(bundle: Bundle) -> tuple[Step, ...]:
    return tuple(
        Step(number, step.kind, step.run, step.data.encode(), step.notes)
        for number, step in enumerate(bundle.steps, start=1)
    )


def _clock(bundle: Bundle, changes: Changes) -> Clock:
    times = bundle.times or (datetime.fromisoformat(bundle.request["received_time"]),)
    return ShiftedClock(changes.clock, times[0]) if changes.model else PlayedClock(times, bundle.ticks)


class PlayedClock:
    """Implements Clock: says what the recorded one said, and its last word again when it is asked more often."""

    def __init__(self, times: Sequence[datetime], ticks: Sequence[float]) -> None:
        self._times, self._ticks = list(reversed(times)), list(reversed(ticks or (0.0,)))

    def now(self) -> datetime:
        return self._times.pop() if len(self._times) > 1 else self._times[0]

    def has_passed(self, moment: datetime) -> bool:
        return moment <= self._times[-1]

    def monotonic(self) -> float:
        return self._ticks.pop() if len(self._ticks) > 1 else self._ticks[0]

    async def sleep(self, seconds: float) -> None:
        """Nothing is waited for: the answer is there."""


class ShiftedClock:
    """Implements Clock: begins at a recorded moment and goes on with the clock of this machine."""

    def __init__(self, clock: Clock, begins: datetime) -> None:
        self._clock, self._shift = clock, begins - clock.now()

    def now(self) -> datetime:
        return self._clock.now() + self._shift

    def has_passed(self, moment: datetime) -> bool:
        return moment <= self.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


@dataclass(frozen=True)
class _RecordedRequest(AcceptedRequest):
    """A redacted request, with the digest of the original."""

    original: str = ""

    @cached_property
    def digest(self) -> str:
        return self.original


def _request(bundle: Bundle) -> AcceptedRequest:
    model = RecoveryRequest if bundle.kind == RequestKind.RECOVERY else IncidentRequest
    request = model.model_validate_json(json.dumps(bundle.request))
    delivery = Delivery("", "", bundle.lane, 0, 1, request.received_time)
    return _RecordedRequest(request, delivery, notes=bundle.notes, original=bundle.digest)


def _run(bundle: Bundle, past: Sequence[Step], clock: Clock) -> Run:
    tokens = itertools.chain(bundle.tokens, itertools.repeat(SPARE_TOKEN))
    return Run(
        _request(bundle),
        _Journal(past),
        _Nowhere(),
        clock,
        name=RUN,
        proceed=_go_on,
        new_token=lambda: next(tokens),
        max_attempts=RULES.validate_python(bundle.rules).limits.attempts,
    )


async def _go_on() -> None:
    """Nobody cancels a replay but by stopping it."""


@dataclass(frozen=True, slots=True)
class _Journal:
    """Implements JournalRun, and keeps nothing."""

    past: Sequence[Step]

    async def append(
        self, kind: str, data: bytes = b"", *, events: Sequence[AuditRecord] = (), **notes: Any
    ) -> None:
        pass

    async def finish(self, **notes: Any) -> None:
        pass


class _Nowhere:
    """Implements Events, and publishes nothing."""

    async def audit(self, record: AuditRecord) -> None:
        pass

    async def reject(self, failure: ValidationFailure) -> None:
        pass

    async def result(self, result: AnalysisResult, *, replace_failed: bool = False) -> AnalysisResult:
        del replace_failed
        return result

    async def dead_letter(self, letter: DeadLetter, body: bytes) -> None:
        pass


class _NoStore:
    """In place of a History: nothing is remembered of a replay."""

    async def remember(self, target: ObjectRef, remediation: PastRemediation) -> None:
        pass
