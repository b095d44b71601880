"""A whole catalog in memory: look-ups and searches."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping

from worker.domain.catalog import selection
from worker.domain.catalog.candidates import Candidates
from worker.domain.catalog.search import best_matches, undecided
from worker.domain.catalog.similarity import Scores, TextIndex, passage_of
from worker.domain.values.workflow_search import SearchPage, SearchQuery
from worker.domain.values.workflows import ActionSummary, ActionText, SelectionContext, Workflow, WorkflowPage


class CatalogSnapshot:
    """One state of a catalog. A changed catalog is another snapshot, so that a look-up sees one state only.

    `texts` describe types of action. `passages` are the texts to embed, by workflow id. Building a snapshot
    of 2,000 workflows takes about 0.1 s.
    """

    def __init__(self, workflows: Iterable[Workflow], texts: Mapping[str, ActionText] | None = None) -> None:
        known = sorted(workflows, key=lambda w: w.workflow_id)
        self._workflows = {w.workflow_id: w for w in known}
        self._texts = dict(texts or {})
        self._candidates = Candidates(known)
        self._words = TextIndex(known)
        self.passages = {w.workflow_id: passage_of(w) for w in known}

    def __len__(self) -> int:
        """The number of workflows."""
        return len(self._workflows)

    def __iter__(self) -> Iterator[Workflow]:
        """All of them, by id."""
        return iter(self._workflows.values())

    def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        """The workflow, or None when it is unknown or does not fit. The signal type filters searches only."""
        found = self._workflows.get(workflow_id.strip())
        return selection.if_fitting(found, context)

    def actions(self, context: SelectionContext) -> tuple[ActionSummary, ...]:
        """Types of action with at least one workflow that fits, by name."""
        return self._candidates.actions(context, self._texts)

    def page(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        """The page after `cursor` of the workflows of a type of action (any case) that fit, best first.

        A cursor that names no workflow of the list starts at the first page.
        """
        selected = self._candidates.of_action(action_type, context)
        shown = selection.after_cursor(selected.ids, cursor)[: selection.PAGE_SIZE + 1]
        return selection.workflow_page([self._workflows[i] for i in shown], selected.excluded)

    def search(
        self, query: SearchQuery, context: SelectionContext, by_meaning: Scores | None = None
    ) -> SearchPage:
        """Workflows that fit the labels and the query, best match first.

        `by_meaning` orders workflows whose labels fit equally well: the higher its score the better. Without
        it, words decide.
        """
        selected = self._candidates.select(query.applied_to(context))
        score = by_meaning or functools.partial(self._words.scores, str(query))
        found = best_matches(selected.tied, query, score(undecided(selected.tied, query)))
        return selected.page(found, self._workflows)
