"""The workflows of a catalog as candidates: which fit an incident, which fit best, what excludes the others.

Every catalog selects with these, wherever its workflows are stored.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import NamedTuple

from worker.domain.catalog.search import BestMatches, TiedWorkflows
from worker.domain.catalog.selection import (
    Declared,
    declared,
    is_gitops_managed,
    known,
    label_fit,
    target_keys,
)
from worker.domain.values.workflow_search import Match, SearchPage
from worker.domain.values.workflows import WILDCARD, ActionSummary, ActionText, SelectionContext, Workflow


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a workflow declares."""

    workflow_id: str
    action_type: str
    gitops_aware: bool
    signal_types: tuple[str, ...]
    declared: Mapping[str, Declared]


class Selected(NamedTuple):
    """The workflows that fit, best fit first and then by id.

    `excluded` says how many of the others each label excludes, `excluded_alone` how many only that label
    excludes; the highest count comes first.
    """

    tied: tuple[TiedWorkflows, ...]
    excluded: Mapping[str, int]
    excluded_alone: Mapping[str, int]

    @property
    def ids(self) -> list[str]:
        """The ids of all workflows that fit."""
        return [i for group in self.tied for i in group.ids]

    def page(self, found: BestMatches, workflows: Mapping[str, Workflow]) -> SearchPage:
        """The page of a search. Matches that are not among these workflows are left out."""
        matches = tuple(Match(workflows[i], quality) for i, quality in found.shown if i in workflows)
        return SearchPage(matches, found.total, found.weaker, self.excluded, self.excluded_alone)


class Candidates:
    """All workflows of a catalog, by their labels. Each takes about 1 KB."""

    def __init__(self, workflows: Iterable[Workflow]) -> None:
        every = [_candidate(w) for w in sorted(workflows, key=lambda w: w.workflow_id)]
        by_action: dict[str, list[Candidate]] = {}
        for one in every:
            by_action.setdefault(one.action_type.lower(), []).append(one)
        self._whole = _Scope(every)
        self._by_action = {name: _Scope(alike) for name, alike in by_action.items()}
        self._signal_types = list(dict.fromkeys(name for one in every for name in one.signal_types))
        self._size = len(every)

    def __len__(self) -> int:
        """The number of workflows."""
        return self._size

    def actions(
        self, context: SelectionContext, texts: Mapping[str, ActionText]
    ) -> tuple[ActionSummary, ...]:
        """Types of action with at least one workflow that fits, by name."""
        found: dict[str, list[Candidate]] = {}
        for one in self._whole.fitting(known(context)):
            found.setdefault(one.action_type, []).append(one)
        return tuple(
            ActionSummary(name, texts.get(name, ActionText()), len(fitting), self._signal_types_of(fitting))
            for name, fitting in sorted(found.items())
        )

    def of_action(self, action_type: str, context: SelectionContext) -> Selected:
        """The workflows of a type of action, in any case."""
        return self._by_action.get(action_type.strip().lower(), _Scope([])).select(context)

    def select(self, context: SelectionContext) -> Selected:
        """The workflows of the whole catalog."""
        return self._whole.select(context)

    def _signal_types_of(self, candidates: Iterable[Candidate]) -> tuple[str, ...]:
        found = {name for one in candidates for name in one.signal_types}
        return tuple(name for name in self._signal_types if name in found)


def _candidate(workflow: Workflow) -> Candidate:
    signal_types = tuple(name for name in workflow.labels.get("signal_type", ()) if name != WILDCARD)
    return Candidate(
        workflow.workflow_id, workflow.action_type, workflow.gitops_aware, signal_types, declared(workflow)
    )


class _Scope:
    """Candidates in groups that have the same declarations that exclude: all of a group fit, or none."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._groups: dict[frozenset[Declared], list[Candidate]] = {}
        self._counts = Counter[Declared]()
        for one in candidates:
            required = frozenset(said for said in one.declared.values() if said.excludes)
            self._groups.setdefault(required, []).append(one)
        for required, alike in self._groups.items():
            self._counts.update(dict.fromkeys(required, len(alike)))

    def fitting(self, values: Mapping[str, frozenset[str]]) -> list[Candidate]:
        """Those that fit a context with these values, in no order."""
        unmet = self._unmet(values)
        return [
            one for required, alike in self._groups.items() if unmet.isdisjoint(required) for one in alike
        ]

    def select(self, context: SelectionContext) -> Selected:
        """Those that fit, in order, and what excludes the others."""
        values = known(context)
        unmet = self._unmet(values)
        excluded, alone = Counter(dict.fromkeys(values, 0)), Counter(dict.fromkeys(values, 0))
        for one in unmet:
            excluded[one.label] += self._counts[one]
        for required, alike in self._groups.items():
            if len(against := unmet & required) == 1:
                alone[next(iter(against)).label] += len(alike)
        tied = _best_first(self.fitting(values), context, values)
        return Selected(tied, _highest_first(excluded), _highest_first(alone))

    def _unmet(self, values: Mapping[str, frozenset[str]]) -> frozenset[Declared]:
        """The declarations that exclude from a context with these values."""
        return frozenset(d for d in self._counts if d.label in values and d.keys.isdisjoint(values[d.label]))


def _best_first(
    fitting: list[Candidate], context: SelectionContext, values: Mapping[str, frozenset[str]]
) -> tuple[TiedWorkflows, ...]:
    target, managed = target_keys(context), is_gitops_managed(context)
    fits = [
        (label_fit(one.declared, values, target, gitops_aware=managed and one.gitops_aware), one.workflow_id)
        for one in sorted(fitting, key=attrgetter("workflow_id"))
    ]
    fits.sort(key=itemgetter(0), reverse=True)  # equal fits stay in the order of their ids
    return tuple(
        TiedWorkflows(fit, tuple(workflow_id for _, workflow_id in alike))
        for fit, alike in itertools.groupby(fits, key=itemgetter(0))
    )


def _highest_first(counts: Counter[str]) -> dict[str, int]:
    return {label: count for label, count in counts.most_common() if count}
