"""Searching workflows: the query, the object that its label filters speak of, and what was found (DD-LLM-001)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemas.enrichment import DetectedLabels
from schemas.taxonomy import Severity
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import SelectionContext, Workflow

MIN_CONFIDENCE = 0.7


MAX_RESULTS = 10


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What is searched for. `min_confidence` is 0..1, of match quality."""

    signal_type: str
    severity: Severity
    keywords: tuple[str, ...] = ()
    min_confidence: float = MIN_CONFIDENCE
    max_results: int = MAX_RESULTS

    def __str__(self) -> str:
        """The query as it is written."""
        return " ".join((self.signal_type, self.severity, *self.keywords))

    def applied_to(self, context: SelectionContext) -> SelectionContext:
        """The context with the signal type and the severity of the query."""
        return replace(context, signal_type=self.signal_type, severity=self.severity)


@dataclass(frozen=True, slots=True)
class Match:
    """A workflow that fits, and how well: 0..1, match quality."""

    workflow: Workflow
    confidence: float


@dataclass(frozen=True, slots=True)
class SearchPage:
    """What was found, best first.

    `total` counts those of at least `min_confidence`, `weaker` those that fit below it. `excluded` says which label left
    how many workflows of the catalog out, `excluded_alone` how many a label left out that would fit otherwise.
    """

    matches: tuple[Match, ...]
    total: int = 0
    weaker: int = 0
    excluded: Mapping[str, int] = field(default_factory=dict)
    excluded_alone: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """The object of the last get_resource_context: what label filters of the workflow choice speak of.

    `chain` starts with the object itself, its top owner is last. `exists` is None when that is not known.
    """

    ref: ObjectRef
    chain: tuple[ObjectRef, ...]
    detected_labels: DetectedLabels
    exists: bool | None = True
