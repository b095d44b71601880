"""A whole catalog in memory: look-ups and searches over workflows that are indexed by what they declare."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from worker.domain.catalog.ranking import Scores, TextIndex, passage_of
from worker.domain.catalog.search import TiedWorkflows, best_matches, undecided
from worker.domain.catalog.selection import (
    PAGE_SIZE,
    declared,
    for_final_choice,
    known,
    label_fits,
    mismatches,
    most_first,
    workflow_of,
    workflow_page,
)
from worker.domain.values.workflow_search import Match, SearchPage, SearchQuery
from worker.domain.values.workflows import (
    WILDCARD,
    ActionSummary,
    ActionText,
    SelectionContext,
    Workflow,
    WorkflowPage,
)


class CatalogSnapshot:
    """One state of a catalog. A changed catalog is another snapshot, so that a look-up sees one state only.

    `texts` describe types of action. `passages` are the texts to embed, by workflow id. Building a snapshot of 2,000
    workflows takes about 0.1 s. Inside, a workflow is its place in the order of ids.
    """

    def __init__(self, workflows: Iterable[Workflow], texts: Mapping[str, ActionText] | None = None) -> None:
        self._workflows = sorted(workflows, key=lambda w: w.workflow_id)
        self._places = {w.workflow_id: place for place, w in enumerate(self._workflows)}
        self._declared = [declared(w) for w in self._workflows]
        self._texts = dict(texts or {})
        self._by_action: dict[str, set[int]] = {}
        self._by_signal_type: dict[str, set[int]] = {}
        self._by_label: dict[str, dict[frozenset[str], set[int]]] = {}
        for place in range(len(self._workflows)):
            self._index(place)
        self._words = TextIndex(self._workflows)
        self.passages = {w.workflow_id: passage_of(w) for w in self._workflows}

    def _index(self, place: int) -> None:
        """Note the workflow under its type of action, its signal types, and each label that may exclude it."""
        workflow = self._workflows[place]
        self._by_action.setdefault(workflow.action_type, set()).add(place)
        for name in workflow.labels.get("signal_type", ()):
            if name != WILDCARD:
                self._by_signal_type.setdefault(name, set()).add(place)
        for label, wanted in self._declared[place].items():
            if wanted.excludes and not wanted.wild:
                self._by_label.setdefault(label, {}).setdefault(wanted.keys, set()).add(place)

    def __len__(self) -> int:
        """How many workflows there are."""
        return len(self._workflows)

    def __iter__(self) -> Iterator[Workflow]:
        """All of them, by id."""
        return iter(self._workflows)

    def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        """The workflow, or None when it is unknown or does not fit. The signal type filters searches only."""
        place = self._places.get(workflow_id.strip())
        if place is None or mismatches(self._workflows[place], for_final_choice(context)):
            return None
        return self._workflows[place]

    def actions(self, context: SelectionContext) -> tuple[ActionSummary, ...]:
        """Types of action with at least one workflow that fits, by name."""
        fitting = self._fitting(self._excluded(context))
        found = []
        for name, members in sorted(self._by_action.items()):
            if shown := members & fitting:
                text, signal_types = self._texts.get(name, ActionText()), self._signal_types(shown)
                found.append(ActionSummary(name, text, len(shown), signal_types))
        return tuple(found)

    def page(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        """The page after `cursor` of the workflows of a type of action (any case) that fit, best first.

        A cursor that names no workflow of the list starts at the first page.
        """
        wanted = action_type.strip().lower()
        scope = {p for name, members in self._by_action.items() if name.lower() == wanted for p in members}
        excluded = self._excluded(context)
        tied = self._best_first(self._fitting(excluded) & scope, context)
        order = [place for group in tied for place in group.places]
        last = self._places.get(workflow_of(cursor))
        start = order.index(last) + 1 if last in order else 0
        found = [self._workflows[place] for place in order[start : start + PAGE_SIZE + 1]]
        return workflow_page(found, most_first({label: len(out & scope) for label, out in excluded.items()}))

    def search(
        self, query: SearchQuery, context: SelectionContext, by_meaning: Scores | None = None
    ) -> SearchPage:
        """Workflows that fit the labels and the query, best match first.

        `by_meaning` orders workflows whose labels fit alike: the higher its score the better. Without it words do.
        """
        context = query.applied_to(context)
        excluded = self._excluded(context)
        tied = self._best_first(self._fitting(excluded), context)
        score = by_meaning or functools.partial(self._words.scores, str(query))
        scores = score([self._workflows[place].workflow_id for place in undecided(tied, query)])
        found = best_matches(tied, query, {self._places[name]: value for name, value in scores.items()})
        times = Counter(itertools.chain.from_iterable(excluded.values()))
        return SearchPage(
            tuple(Match(self._workflows[place], quality) for place, quality in found.shown),
            found.total,
            found.weaker,
            most_first({label: len(out) for label, out in excluded.items()}),
            most_first({label: sum(times[place] == 1 for place in out) for label, out in excluded.items()}),
        )

    def _excluded(self, context: SelectionContext) -> dict[str, set[int]]:
        """The workflows that each label of the context excludes."""
        return {
            label: set[int]().union(*(out for wanted, out in by_keys.items() if wanted.isdisjoint(keys)))
            for label, keys in known(context).items()
            if (by_keys := self._by_label.get(label))
        }

    def _fitting(self, excluded: Mapping[str, set[int]]) -> set[int]:
        return set(range(len(self._workflows))).difference(*excluded.values())

    def _best_first(self, places: Collection[int], context: SelectionContext) -> list[TiedWorkflows]:
        """Best fit first, and by id among those that fit alike."""
        by_id = sorted(places)
        fits = label_fits(((self._workflows[place], self._declared[place]) for place in by_id), context)
        order = sorted(zip(fits, by_id, strict=True), key=operator.itemgetter(0), reverse=True)
        return [
            TiedWorkflows(fit, [place for _, place in group])
            for fit, group in itertools.groupby(order, operator.itemgetter(0))
        ]

    def _signal_types(self, places: set[int]) -> tuple[str, ...]:
        return tuple(name for name, members in self._by_signal_type.items() if members & places)
