"""What every rule is given: the facts, the incident, and a way to look at another object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts
from worker.sandbox.analyst.finding import Finding
from worker.sandbox.analyst.refs import Key, key_of
from worker.sandbox.analyst.transcript import Incident

MAX_DEPTH = 4


@dataclass(slots=True)
class Case:
    """One pass of thinking. `look` diagnoses another object; each object is looked at once on a path."""

    facts: Facts
    incident: Incident
    look: Callable[[Case, ObjectRef], Finding | None]
    path: list[Key] = field(default_factory=list)

    def waits(self, asked_before: int) -> bool:
        """Whether questions were left open since then: it is too early to look for other explanations."""
        return len(self.facts.wanted) > asked_before

    @property
    def asked(self) -> int:
        """How many questions are open now; for `waits`."""
        return len(self.facts.wanted)

    def follow(self, ref: ObjectRef) -> Finding | None:
        """The cause as seen from another object; None when it is healthy, unknown, or already on the path."""
        key = key_of(ref.kind, ref.name, ref.namespace)
        if key in self.path or len(self.path) >= MAX_DEPTH:
            return None
        self.path.append(key)
        try:
            return self.look(self, ref)
        finally:
            self.path.pop()


def short(text: str, limit: int = 220) -> str:
    """Text of the cluster for a summary: one line, bounded. The first cause of a chain of errors stands at its end."""
    flat = " ".join(text.split())
    if len(flat) <= limit:
        return flat
    tail = limit * 2 // 5
    return f"{flat[: limit - tail - 1]}…{flat[-tail:]}"


def sentence(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
