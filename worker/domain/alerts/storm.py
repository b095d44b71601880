"""Decides about an alert: a request, a duplicate, or a part of a storm. Pure: the state is a value.

A storm of the type `rate` is one alert, repeated within one namespace; of the type `pattern`, one alert about
many objects. A storm becomes one request. Further alerts within its window are counted, but not published.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from worker.domain.values.bounded import BoundedDict
from worker.domain.values.objects import ObjectRef

KEPT = 20_000
"""How many groups are remembered; the oldest are dropped first."""


@dataclass(frozen=True, slots=True)
class StormRule:
    """How many alerts, or objects, of one name within the window are a storm."""

    window: timedelta = timedelta(minutes=5)
    alerts: int = 20
    objects: int = 5


class Decision(enum.StrEnum):
    """The decision about an alert."""

    PUBLISH = "publish"
    DUPLICATE = "duplicate"
    STORM = "storm"
    IN_STORM = "in_storm"


@dataclass(frozen=True, slots=True)
class Storm:
    """A storm that has just been recognised."""

    type: str
    alerts: int
    objects: tuple[ObjectRef, ...]


@dataclass(slots=True)
class _Group:
    """Alerts of one name in one namespace (or of the whole cluster) within a window."""

    began: datetime
    alerts: int = 0
    objects: dict[ObjectRef, None] = field(default_factory=dict)
    storm: bool = False


@dataclass(slots=True)
class Stormwatch:
    """Remembers the alerts within the window."""

    rule: StormRule = field(default_factory=StormRule)
    _seen: BoundedDict[tuple[str, ObjectRef], datetime] = field(default_factory=lambda: BoundedDict(KEPT))
    _groups: BoundedDict[tuple[str, str], _Group] = field(default_factory=lambda: BoundedDict(KEPT))

    def decide(self, name: str, target: ObjectRef, now: datetime) -> tuple[Decision, Storm | None]:
        """Take in a new alert about an object. With a storm, also returns its facts."""
        group = self._group((name, target.namespace), now)
        group.alerts += 1
        group.objects[target] = None
        if group.storm:
            return Decision.IN_STORM, None
        pattern, rate = len(group.objects) >= self.rule.objects, group.alerts >= self.rule.alerts
        if pattern or rate:
            group.storm = True
            kind = "pattern" if pattern else "rate"
            return Decision.STORM, Storm(kind, group.alerts, tuple(group.objects))
        last = self._seen.get((name, target))
        if last is not None and now - last < self.rule.window:
            return Decision.DUPLICATE, None
        self._seen[name, target] = now
        return Decision.PUBLISH, None

    def _group(self, key: tuple[str, str], now: datetime) -> _Group:
        found = self._groups.get(key)
        if found is None or now - found.began >= self.rule.window:
            found = self._groups[key] = _Group(now)
            self._groups.move_to_end(key)
        return found
