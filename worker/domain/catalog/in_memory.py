"""A whole catalog in memory: look-ups and searches over workflows that are indexed by their declarations."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping

from worker.domain.catalog.label_index import LabelMatch, index_of
from worker.domain.catalog.ranking import Scores, TextIndex, passage_of
from worker.domain.catalog.search import best_matches, undecided
from worker.domain.catalog.selection import (
    PAGE_SIZE,
    for_final_choice,
    mismatches,
    workflow_of,
    workflow_page,
)
from worker.domain.values.workflow_search import Match, SearchPage, SearchQuery
from worker.domain.values.workflows import ActionSummary, ActionText, SelectionContext, Workflow, WorkflowPage


class CatalogSnapshot:
    """One state of a catalog. A changed catalog is another snapshot, so that a look-up sees one state only.

    `texts` describe types of action. `passages` are the texts to embed, by workflow id. Building a snapshot
    of 2,000 workflows takes about 0.1 s. Internally, a workflow is its place in the order of ids.
    """

    def __init__(self, workflows: Iterable[Workflow], texts: Mapping[str, ActionText] | None = None) -> None:
        self._workflows = sorted(workflows, key=lambda w: w.workflow_id)
        self._places = {w.workflow_id: place for place, w in enumerate(self._workflows)}
        self._texts = dict(texts or {})
        self._index = index_of(self._workflows)
        self._words = TextIndex(self._workflows)
        self.passages = {w.workflow_id: passage_of(w) for w in self._workflows}

    def __len__(self) -> int:
        """The number of workflows."""
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
        return LabelMatch(self._index, context).actions(self._texts)

    def page(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        """The page after `cursor` of the workflows of a type of action (any case) that fit, best first.

        A cursor that names no workflow of the list starts at the first page.
        """
        labels = LabelMatch(self._index, context)
        scope = labels.of_action(action_type)
        order, last = labels.ordered(scope), self._places.get(workflow_of(cursor))
        start = order.index(last) + 1 if last in order else 0
        found = [self._workflows[place] for place in order[start : start + PAGE_SIZE + 1]]
        return workflow_page(found, labels.counts(scope))

    def search(
        self, query: SearchQuery, context: SelectionContext, by_meaning: Scores | None = None
    ) -> SearchPage:
        """Workflows that fit the labels and the query, best match first.

        `by_meaning` orders workflows whose labels fit equally well: the higher its score the better. Without
        it, words decide.
        """
        labels = LabelMatch(self._index, query.applied_to(context))
        tied = labels.best_first(labels.fitting)
        score = by_meaning or functools.partial(self._words.scores, str(query))
        scores = score([self._workflows[place].workflow_id for place in undecided(tied, query)])
        found = best_matches(tied, query, {self._places[name]: value for name, value in scores.items()})
        return SearchPage(
            tuple(Match(self._workflows[place], quality) for place, quality in found.shown),
            found.total,
            found.weaker,
            labels.counts(),
            labels.counts_alone(),
        )
