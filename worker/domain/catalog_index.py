"""Workflows in memory, arranged so that a look-up among thousands costs no walk over them.

Each workflow is a bit, by its place in the order of ids. For each label there are the bits of those that declare it,
by value: what fits is a few operations on whole numbers. Ranks are counted likewise, one bit of each count to a number
(`_Counter`), and read from the highest down only as far as the page goes.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from worker.domain.cursor import cursor_after, workflow_of
from worker.domain.search import Ranked, SearchPage, SearchQuery, graded
from worker.domain.selection import (
    CAUSE_LABELS,
    declared,
    for_final_choice,
    is_gitops_managed,
    known,
    mismatches,
    summary,
    target_keys,
)
from worker.domain.workflow import (
    LABELS,
    WILDCARD,
    ActionSummary,
    ActionText,
    SelectionContext,
    Workflow,
    WorkflowPage,
)

PAGE_SIZE = 10
CAUSE_WEIGHT = 8
"""Of an exact signal type or severity: more than the six other labels and the target itself have together."""


@dataclass(slots=True)
class _Facet:
    """One label. Bits of the workflows that declare it, for which any value will do, which a difference excludes."""

    declared: int = 0
    wild: int = 0
    strict: int = 0
    by_key: dict[str, int] = field(default_factory=dict)

    def exact(self, keys: Iterable[str]) -> int:
        """Workflows that declare one of the values."""
        bits = 0
        for key in keys:
            bits |= self.by_key.get(key, 0)
        return bits


class _Counter:
    """One count for each workflow; `planes[n]` holds bit n of all counts."""

    def __init__(self) -> None:
        self.planes: list[int] = []

    def add(self, bits: int, weight: int) -> None:
        """Add `weight` to the counts of these workflows."""
        for n in range(weight.bit_length()):
            if weight >> n & 1:
                self._carry(bits, n)

    def _carry(self, bits: int, n: int) -> None:
        while bits:
            self.planes += [0] * (n + 1 - len(self.planes))
            self.planes[n], bits = self.planes[n] ^ bits, self.planes[n] & bits
            n += 1

    def highest_first(self) -> list[int]:
        """The planes, the most significant one first."""
        return self.planes[::-1]


@dataclass(frozen=True, slots=True)
class _Fit:
    """What a context leaves of the catalog.

    `excluded` has the bits each label leaves out, `order` the ranking planes.

    `causes` has the bits of an exact signal type and of an exact severity.
    """

    fits: int
    excluded: Mapping[str, int]
    order: Sequence[int]
    causes: Sequence[int]


class CatalogIndex:
    """Workflows by id, label and type of action. `texts` are those of types of action."""

    def __init__(self, workflows: Iterable[Workflow], texts: Mapping[str, ActionText] | None = None) -> None:
        self._workflows = sorted(workflows, key=lambda w: w.workflow_id)
        self._places = {w.workflow_id: n for n, w in enumerate(self._workflows)}
        self._texts = dict(texts or {})
        self._all = (1 << len(self._workflows)) - 1
        self._facets: dict[str, _Facet] = {}
        self._actions: dict[str, int] = {}
        self._signal_types: dict[str, int] = {}
        self._aware = 0
        for n, workflow in enumerate(self._workflows):
            self._add(workflow, 1 << n)

    def _add(self, workflow: Workflow, bit: int) -> None:
        self._actions[workflow.action_type] = self._actions.get(workflow.action_type, 0) | bit
        for name in workflow.labels.get("signal_type", ()):
            if name != WILDCARD:
                self._signal_types[name] = self._signal_types.get(name, 0) | bit
        if workflow.gitops_aware:
            self._aware |= bit
        for name, wanted in declared(workflow).items():
            facet = self._facets.setdefault(name, _Facet())
            facet.declared |= bit
            facet.wild |= bit * wanted.wild
            facet.strict |= bit * (wanted.excludes and not wanted.wild)
            for key in wanted.keys:
                facet.by_key[key] = facet.by_key.get(key, 0) | bit

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
        fits = self._fit(context).fits
        return tuple(
            ActionSummary(
                name, self._texts.get(name, ActionText()), count, self._declared_signals(bits & fits)
            )
            for name, bits in sorted(self._actions.items())
            if (count := (bits & fits).bit_count())
        )

    def page(
        self, action_type: str, context: SelectionContext, cursor: str = "", size: int = PAGE_SIZE
    ) -> WorkflowPage:
        """The page after `cursor` of a type of action (any case). A cursor of no workflow listed here starts anew.

        Best first: GitOps-aware ones on a GitOps-managed target, exact labels over wildcards, detected and custom
        labels, then id.
        """
        wanted = action_type.strip().lower()
        scope = 0
        for name, bits in self._actions.items():
            if name.lower() == wanted:
                scope |= bits
        fit = self._fit(context)
        order = self._after(workflow_of(cursor), fit, scope)
        shown = [self._workflows[place] for place in itertools.islice(order, size + 1)]
        more, shown = len(shown) > size, shown[:size]
        return WorkflowPage(
            workflows=tuple(summary(w) for w in shown),
            next_cursor=cursor_after(shown[-1].workflow_id) if more else "",
            excluded=_counts({name: bits & scope for name, bits in fit.excluded.items()}),
        )

    def search(
        self,
        query: SearchQuery,
        context: SelectionContext,
        score: Callable[[Sequence[str]], Mapping[str, float]],
    ) -> SearchPage:
        """What fits the labels, in the order of `page`, but by text before id.

        `score` ranks ids by text: the higher the better; one that is absent does not match.
        """
        fit = self._fit(query.applied_to(context))
        scores = score([self._workflows[n].workflow_id for n in _places(fit.fits)])
        page = graded(list(self._ranked(fit, scores)), query)
        return replace(page, excluded=_counts(fit.excluded), excluded_alone=_counts(_alone(fit.excluded)))

    def _ranked(self, fit: _Fit, scores: Mapping[str, float]) -> Iterator[Ranked]:
        for number, group in enumerate(_groups(fit.fits, fit.order)):
            first = group & -group  # stands for all of them: see CAUSE_WEIGHT
            exact = sum(bool(bits & first) for bits in fit.causes)
            members = [self._workflows[n] for n in _places(group)]
            members.sort(key=lambda w: -scores.get(w.workflow_id, -math.inf))
            for workflow in members:
                yield Ranked(workflow, exact, (number, scores.get(workflow.workflow_id)))

    def _fit(self, context: SelectionContext) -> _Fit:
        values = known(context)
        excluded = {
            name: facet.strict & ~facet.exact(values[name])
            for name, facet in self._facets.items()
            if facet.strict and name in values
        }
        out = functools.reduce(operator.or_, excluded.values(), 0)
        exact, others = _Counter(), _Counter()
        near = self._facets.get("component", _Facet()).exact(target_keys(context))
        exact.add(near, 1)
        for name, keys in values.items():
            facet = self._facets.get(name)
            if facet is None:
                continue
            if name in LABELS:
                exact.add(facet.exact(keys), CAUSE_WEIGHT if name in CAUSE_LABELS else 1)
            else:
                others.add(self._all & ~facet.declared, 2)
                others.add(facet.wild, 3)
                others.add(facet.exact(keys) & ~facet.wild, 4)
        gitops = [self._aware] if is_gitops_managed(context) else []
        causes = [self._facets[n].exact(values[n]) for n in CAUSE_LABELS if n in values and n in self._facets]
        order = [*gitops, *exact.highest_first(), *others.highest_first()]
        return _Fit(self._all & ~out, excluded, order, causes)

    def _after(self, workflow_id: str, fit: _Fit, scope: int) -> Iterator[int]:
        """Places in order, from behind this workflow if it is among them."""
        order = itertools.chain.from_iterable(_places(g) for g in _groups(fit.fits & scope, fit.order))
        place = self._places.get(workflow_id)
        if place is None or not fit.fits & scope & 1 << place:
            return order
        return itertools.islice(itertools.dropwhile(lambda n: n != place, order), 1, None)

    def _declared_signals(self, members: int) -> tuple[str, ...]:
        return tuple(name for name, bits in self._signal_types.items() if bits & members)


def _groups(members: int, planes: Sequence[int]) -> Iterator[int]:
    """The members of each count, the highest count first. `planes` start with the most significant one."""
    if not members:
        return
    if not planes:
        yield members
        return
    yield from _groups(members & planes[0], planes[1:])
    yield from _groups(members & ~planes[0], planes[1:])


def _places(bits: int) -> Iterator[int]:
    """The places of the bits that are set, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _alone(excluded: Mapping[str, int]) -> dict[str, int]:
    """The bits of each label that no other label leaves out."""
    seen = several = 0
    for bits in excluded.values():
        several |= seen & bits
        seen |= bits
    return {name: bits & ~several for name, bits in excluded.items()}


def _counts(bits: Mapping[str, int]) -> dict[str, int]:
    """How many bits each label has, most first; labels without any are left out."""
    counts = {name: found.bit_count() for name, found in bits.items() if found}
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
