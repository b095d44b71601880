"""Runs a recorded analysis again.

It runs as it was, or with another model, catalog or policy against the recorded cluster.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from schemas.analysis import AnalysisResult
from schemas.incident import IncidentRequest
from schemas.recovery import RecoveryRequest
from schemas.taxonomy import RequestKind
from worker.domain.analyse import Analysis
from worker.domain.intake.accepted import AcceptedRequest
from worker.domain.journal.run import Run
from worker.domain.recording.bundle import Bundle, BundleError
from worker.domain.recording.recorder import RULES
from worker.domain.recording.tape import PORTS, REQUIRED, Player, Taped, taped
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.delivery import Delivery
from worker.domain.values.errors import GiveUp, JournalGap, ReportedError, Retry
from worker.domain.values.limits import Limits
from worker.domain.values.ports import Catalog, Clock, Model, Outside, Policy, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The parts that do not come from the bundle.

    `clock` is that of this machine: a model that is really called takes its time.

    `limits` are what such a model may cost, since a bundle may come from anybody.
    """

    clock: Clock
    model: Model | None = None
    limits: Limits | None = None
    catalog: Catalog | None = None
    policy: Policy | None = None

    @property
    def live(self) -> frozenset[str]:
        """The ports that are asked in place of the recording. The time always comes from the recording."""
        changed = {name for name in ("model", "catalog", "policy") if getattr(self, name) is not None}
        return frozenset(changed | ({"clock.monotonic"} if self.model else set()))


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay.

    `gaps` are questions without an answer in the bundle. `diverged` counts the recorded replies to a
    conversation that now differs: the model might have replied otherwise there.
    """

    result: AnalysisResult
    gaps: tuple[str, ...]
    diverged: int


async def replay(bundle: Bundle, changes: Changes) -> Replayed:
    """Run the analysis of a bundle again.

    Raises BundleError, ReportedError when the model gives no answer.
    """
    player = Player(bundle.exchanges, changes.live)
    try:
        rules, request = RULES.validate_python(bundle.rules), _request(bundle)
        rules = replace(rules, limits=changes.limits or rules.limits)
        steps = () if changes.live else enumerate(bundle.steps, start=1)
        past = [Step(number, step.kind, step.run, step.data.encode(), step.notes) for number, step in steps]
        nowhere: Any = _StandIn(past=past)
        run = Run(
            request,
            nowhere,
            nowhere,
            changes.clock,
            name="replay",
            proceed=_nothing,
            new_token=Taped("run", nowhere, player).new_token,
            max_attempts=rules.limits.attempts,
        )
        result = await Analysis(_outside(bundle, player, changes), rules).run(run)
    except (ValueError, JournalGap) as e:  # also of texts that are no Unicode
        raise BundleError(f"the bundle of {_shown(bundle)} cannot be replayed by this version: {e}") from e
    except (Retry, GiveUp) as e:
        raise ReportedError(f"{_shown(bundle)}: the model does not answer: {e.message}") from e
    return Replayed(result, tuple(player.gaps), player.diverged)


def recorded_result(bundle: Bundle) -> AnalysisResult:
    """The result as it was published. Raises BundleError."""
    try:
        return AnalysisResult.model_validate_json(bundle.result)
    except ValidationError as e:
        problems = f"its result has {e.error_count()} errors"
        raise BundleError(f"the bundle of {_shown(bundle)} cannot be replayed: {problems}") from e


def _shown(bundle: Bundle) -> str:
    """Its key, safe to show: the bundle may come from anybody."""
    return one_line(bundle.key, 200)


def _outside(bundle: Bundle, player: Player, changes: Changes) -> Outside:
    names = {"model": bundle.versions.model, "shadow": bundle.versions.shadow}
    there: dict[str, Any] = {
        name: getattr(changes, name, None) or _StandIn(names.get(name, ""))
        for name in PORTS
        if name in {*REQUIRED, *bundle.ports}
    }
    if not changes.model:
        there["clock"] = _StandIn()  # no waiting: the answers are there
    return taped(Outside(jitter=lambda: 0.0, **there), player)


def _request(bundle: Bundle) -> AcceptedRequest:
    model = RecoveryRequest if bundle.kind == RequestKind.RECOVERY else IncidentRequest
    request = model.model_validate_json(json.dumps(bundle.request))
    delivery = Delivery("", "", bundle.lane, 0, 1, request.received_time)
    return AcceptedRequest(request, delivery, notes=bundle.notes, known_digest=bundle.digest)


class _StandIn:
    """Replaces recorded ports, the journal, and the publisher of events: it does nothing."""

    def __init__(self, name: str = "", past: Sequence[Step] = ()) -> None:
        self.name, self.past = name, past

    def __getattr__(self, method: str) -> Any:
        return _nothing


async def _nothing(*_: Any, **__: Any) -> None:
    pass
