"""Which workflows of a catalog fit a context, and in what order, by their labels alone.

Each workflow is a bit, by its place in the order of ids. For each label there are the bits of those that declare it,
by value: what fits is a few operations on whole numbers. Ranks are counted likewise, one bit of each count to a number
(`_Counter`), and read from the highest down only as far as they are needed.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from worker.domain.catalog.search import Part, Tied
from worker.domain.catalog.selection import CAUSE_LABELS, declared, is_gitops_managed, known, target_keys
from worker.domain.values.workflows import (
    LABELS,
    WILDCARD,
    ActionSummary,
    ActionText,
    SelectionContext,
    Workflow,
)

CAUSE_WEIGHT = 8
"""Of an exact signal type or severity: more than the six other labels and the target itself have together."""


PIECE_BITS = 512
PIECE = (1 << PIECE_BITS) - 1

Parting = Callable[[int], Iterable[Part[int]]]
"""Parts bits by how well the text of their workflows matches, the best ones first."""


@dataclass(slots=True)
class Facet:
    """One label. Bits of the workflows that declare it, for which any value will do, which a difference excludes.

    `by_key` has the bits of those that declare a value, by its comparable spelling.
    """

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
class Fit:
    """What a context leaves of the catalog.

    `excluded` has the bits each label leaves out, `order` the ranking planes, `causes` the bits of an exact signal type
    and of an exact severity.
    """

    fits: int
    excluded: Mapping[str, int]
    order: Sequence[int]
    causes: Sequence[int]

    def places(self, scope: int, after: int | None = None) -> Iterator[int]:
        """Places among `scope` that fit, best first, from behind the place `after` if it is one of them.

        Best first: GitOps-aware ones on a GitOps-managed target, exact labels over wildcards, detected and custom
        labels, then id.
        """
        members = self.fits & scope
        order = itertools.chain.from_iterable(places_of(g) for g in _groups(members, self.order))
        if after is None or not members >> after & 1:
            return order
        return itertools.islice(itertools.dropwhile(lambda n: n != after, order), 1, None)

    def tied(self) -> list[Tied[int]]:
        """The bits of all that fit, in the order of `places`, by what labels tell apart."""
        return [
            Tied(group, group.bit_count(), self._exact(group)) for group in _groups(self.fits, self.order)
        ]

    def _exact(self, group: int) -> int:
        first = group & -group  # stands for all of them: see CAUSE_WEIGHT
        return sum(bool(bits & first) for bits in self.causes)

    def left_out(self, scope: int) -> dict[str, int]:
        """How many of `scope` (-1: of all) each label leaves out, most first."""
        return _counts({name: bits & scope for name, bits in self.excluded.items()})

    def left_out_alone(self) -> dict[str, int]:
        """How many each label leaves out that no other does, most first."""
        seen = several = 0
        for bits in self.excluded.values():
            several |= seen & bits
            seen |= bits
        return _counts({name: bits & ~several for name, bits in self.excluded.items()})


@dataclass(slots=True)
class LabelBits:
    """The bits of `size` workflows: by label, by type of action, by signal type as it is written, and GitOps-aware ones.

    Types of action and signal types stand in the order in which the workflows name them first.
    """

    size: int = 0
    facets: dict[str, Facet] = field(default_factory=dict)
    actions: dict[str, int] = field(default_factory=dict)
    signal_types: dict[str, int] = field(default_factory=dict)
    aware: int = 0

    @classmethod
    def of(cls, workflows: Iterable[Workflow]) -> LabelBits:
        """The bits of these workflows, which stand in the order of their ids."""
        made = cls()
        for workflow in workflows:
            made._add(workflow, 1 << made.size)
            made.size += 1
        return made

    def _add(self, workflow: Workflow, bit: int) -> None:
        self.actions[workflow.action_type] = self.actions.get(workflow.action_type, 0) | bit
        for name in workflow.labels.get("signal_type", ()):
            if name != WILDCARD:
                self.signal_types[name] = self.signal_types.get(name, 0) | bit
        if workflow.gitops_aware:
            self.aware |= bit
        for name, wanted in declared(workflow).items():
            facet = self.facets.setdefault(name, Facet())
            facet.declared |= bit
            facet.wild |= bit * wanted.wild
            facet.strict |= bit * (wanted.excludes and not wanted.wild)
            for key in wanted.keys:
                facet.by_key[key] = facet.by_key.get(key, 0) | bit

    def of_action(self, action_type: str) -> int:
        """Workflows of a type of action, in any case."""
        wanted, bits = action_type.strip().lower(), 0
        for name, members in self.actions.items():
            if name.lower() == wanted:
                bits |= members
        return bits

    def summaries(
        self, context: SelectionContext, texts: Mapping[str, ActionText]
    ) -> tuple[ActionSummary, ...]:
        """Types of action with at least one workflow that fits, by name."""
        fits = self.fit(context).fits
        return tuple(
            ActionSummary(name, texts.get(name, ActionText()), count, self._signals(bits & fits))
            for name, bits in sorted(self.actions.items())
            if (count := (bits & fits).bit_count())
        )

    def _signals(self, members: int) -> tuple[str, ...]:
        return tuple(name for name, bits in self.signal_types.items() if bits & members)

    def fit(self, context: SelectionContext) -> Fit:
        """What the context leaves, and how it ranks that."""
        values, everything = known(context), (1 << self.size) - 1
        excluded = {
            name: facet.strict & ~facet.exact(values[name])
            for name, facet in self.facets.items()
            if facet.strict and name in values
        }
        out = functools.reduce(operator.or_, excluded.values(), 0)
        exact, others = _Counter(), _Counter()
        exact.add(self.facets.get("component", Facet()).exact(target_keys(context)), 1)
        for name, keys in values.items():
            facet = self.facets.get(name)
            if facet is None:
                continue
            if name in LABELS:
                exact.add(facet.exact(keys), CAUSE_WEIGHT if name in CAUSE_LABELS else 1)
            else:
                others.add(everything & ~facet.declared, 2)
                others.add(facet.wild, 3)
                others.add(facet.exact(keys) & ~facet.wild, 4)
        gitops = [self.aware] if is_gitops_managed(context) else []
        causes = [self.facets[n].exact(values[n]) for n in CAUSE_LABELS if n in values and n in self.facets]
        order = [*gitops, *exact.highest_first(), *others.highest_first()]
        return Fit(everything & ~out, excluded, order, causes)


def places_of(bits: int) -> Iterator[int]:
    """The places of the bits that are set, lowest first.

    Taken from small pieces: each operation on all bits costs as much as there are workflows.
    """
    start = 0
    while bits:
        empty = (bits & -bits).bit_length() - 1
        start, bits = start + empty, bits >> empty
        piece = bits & PIECE
        while piece:
            lowest = piece & -piece
            yield start + lowest.bit_length() - 1
            piece ^= lowest
        start, bits = start + PIECE_BITS, bits >> PIECE_BITS


def by_score(scores: Mapping[int, float]) -> Parting:
    """By the score of each place, the highest first. A place without one is last."""

    def parted(members: int) -> Iterable[Part[int]]:
        found: dict[float, list[int]] = {}
        for place in places_of(members):
            found.setdefault(scores.get(place, -math.inf), []).append(place)
        return [(found[score], len(found[score])) for score in sorted(found, reverse=True)]

    return parted


def _groups(members: int, planes: Sequence[int]) -> Iterator[int]:
    """The members of each count, the highest count first. `planes` start with the most significant one."""
    if not members:
        return
    if not planes:
        yield members
        return
    yield from _groups(members & planes[0], planes[1:])
    yield from _groups(members & ~planes[0], planes[1:])


def _counts(bits: Mapping[str, int]) -> dict[str, int]:
    """How many bits each label has, most first; labels without any are left out."""
    counts = {name: found.bit_count() for name, found in bits.items() if found}
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
