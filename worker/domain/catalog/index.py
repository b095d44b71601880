"""Workflows in memory, arranged so that a look-up among thousands costs no walk over them (`label_bits`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from worker.domain.catalog.cursor import workflow_of
from worker.domain.catalog.label_bits import LabelBits, by_score, places_of
from worker.domain.catalog.meaning_rank import Scores
from worker.domain.catalog.search import contested, graded, search_page
from worker.domain.catalog.selection import for_final_choice, mismatches, workflow_page
from worker.domain.values.workflow_search import SearchPage, SearchQuery
from worker.domain.values.workflows import ActionSummary, ActionText, SelectionContext, Workflow, WorkflowPage

PAGE_SIZE = 10


class CatalogIndex:
    """Workflows by id, label and type of action. `texts` are those of types of action."""

    def __init__(self, workflows: Iterable[Workflow], texts: Mapping[str, ActionText] | None = None) -> None:
        self._workflows = sorted(workflows, key=lambda w: w.workflow_id)
        self._places = {w.workflow_id: n for n, w in enumerate(self._workflows)}
        self._texts = dict(texts or {})
        self._bits = LabelBits.of(self._workflows)

    def __len__(self) -> int:
        """How many workflows there are."""
        return len(self._workflows)

    def __iter__(self) -> Iterator[Workflow]:
        """All of them, by id."""
        return iter(self._workflows)

    def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        """The workflow, None when it is unknown or does not fit. The signal type filters searches only."""
        place = self._places.get(workflow_id.strip())
        if place is None or mismatches(self._workflows[place], for_final_choice(context)):
            return None
        return self._workflows[place]

    def actions(self, context: SelectionContext) -> tuple[ActionSummary, ...]:
        """Types of action with at least one workflow that fits, by name."""
        return self._bits.summaries(context, self._texts)

    def page(
        self, action_type: str, context: SelectionContext, cursor: str = "", size: int = PAGE_SIZE
    ) -> WorkflowPage:
        """The page after `cursor` of a type of action (any case). A cursor of no workflow listed here starts anew.

        The order is that of `Fit.places`.
        """
        fit, scope = self._bits.fit(context), self._bits.of_action(action_type)
        order = fit.places(scope, self._places.get(workflow_of(cursor)))
        found = [self._workflows[place] for place in itertools.islice(order, size + 1)]
        return workflow_page(found, size, fit.left_out(scope))

    def search(
        self,
        query: SearchQuery,
        context: SelectionContext,
        score: Scores,
    ) -> SearchPage:
        """What fits the labels, in the order of `page`, but by text before id.

        `score` ranks those ids by text that it has to order: the higher the better; one that is absent does not match.
        """
        fit = self._bits.fit(query.applied_to(context))
        tied = fit.tied()
        among = [place for bits in contested(tied, query) for place in places_of(bits)]
        scores = score([self._workflows[place].workflow_id for place in among])
        by_place = {self._places[name]: value for name, value in scores.items()}
        best = graded(tied, query, by_score(by_place))
        return search_page(best, self._workflows.__getitem__, fit.left_out(-1), fit.left_out_alone())
