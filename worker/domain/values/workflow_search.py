"""Searching workflows (DD-LLM-001): the query, the object that its label filters describe, and the result."""

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
    """The query of a search. `min_confidence` is the lowest match quality to show, 0 to 1."""

    signal_type: str
    severity: Severity
    keywords: tuple[str, ...] = ()
    min_confidence: float = MIN_CONFIDENCE
    max_results: int = MAX_RESULTS

    def __str__(self) -> str:
        """The query as it is written: `<signal_type> <severity> [keywords]`."""
        return " ".join((self.signal_type, self.severity, *self.keywords))

    def applied_to(self, context: SelectionContext) -> SelectionContext:
        """The context with the signal type and the severity of the query."""
        return replace(context, signal_type=self.signal_type, severity=self.severity)


@dataclass(frozen=True, slots=True)
class Match:
    """A workflow that fits. `confidence` is its match quality, 0 to 1."""

    workflow: Workflow
    confidence: float


@dataclass(frozen=True, slots=True)
class SearchPage:
    """The result of a search, best match first.

    `total` counts the workflows of at least `min_confidence`, `weaker` those that fit below it. `excluded`
    says how many workflows of the catalog each label excludes, `excluded_alone` how many of them no other
    label excludes.
    """

    matches: tuple[Match, ...]
    total: int = 0
    weaker: int = 0
    excluded: Mapping[str, int] = field(default_factory=dict)
    excluded_alone: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """The object of the last get_resource_context, which the label filters of the workflow choice describe.

    `chain` starts with the object itself and ends with its top owner. `exists` is None if that is unknown.
    """

    ref: ObjectRef
    chain: tuple[ObjectRef, ...]
    detected_labels: DetectedLabels
    exists: bool | None = True
