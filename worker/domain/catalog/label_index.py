"""The declarations of a catalog's workflows as an inverted index: which workflows fit a context, and how
well.

Every catalog uses this index, wherever it is stored. An entry is a label value (or a type of action), and bit
n of its number says whether the workflow at place n has it. Places follow the order of ids.
"""

from __future__ import annotations

import enum
import functools
import operator
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

from worker.domain.catalog.search import TiedWorkflows
from worker.domain.catalog.selection import (
    ANY_VALUE,
    SAME_VALUE,
    UNDECLARED,
    LabelFit,
    declared,
    exact_weight,
    is_gitops_managed,
    known,
    target_keys,
)
from worker.domain.values.workflows import (
    LABELS,
    WILDCARD,
    ActionSummary,
    ActionText,
    SelectionContext,
    Workflow,
)

SET_BIT = re.compile("1")
Number = TypeVar("Number", int, float)


class Kind(enum.StrEnum):
    """The meaning of the bits of an entry.

    Of a label: DECLARED with any value, WILD as `*`, STRICT when another value excludes, KEY with this value.
    """

    ALL = "all"
    AWARE = "gitops_aware"
    ACTION = "action"
    SIGNAL = "signal"
    DECLARED = "declared"
    WILD = "wild"
    STRICT = "strict"
    KEY = "key"
    WORD = "word"


Key = tuple[str, str, str]
"""Kind, label, value. The label of a type of action is its name in lower case, the value its name."""
Index = Mapping[str, Mapping[tuple[str, str], int]]
"""The bits by kind, and by label and value."""


def index_of(workflows: Iterable[Workflow]) -> Index:
    """The entries of all declarations of these workflows, which are given in the order of their ids."""
    found: dict[str, dict[tuple[str, str], int]] = {kind: {} for kind in Kind}
    for place, workflow in enumerate(workflows):
        for kind, *rest in _keys_of(workflow):
            label, value = rest
            found[kind][label, value] = found[kind].get((label, value), 0) | 1 << place
    return found


def _keys_of(workflow: Workflow) -> Iterator[Key]:
    yield Kind.ALL, "", ""
    if workflow.gitops_aware:
        yield Kind.AWARE, "", ""
    yield Kind.ACTION, workflow.action_type.lower(), workflow.action_type
    for name in workflow.labels.get("signal_type", ()):
        if name != WILDCARD:
            yield Kind.SIGNAL, "", name
    for label, wanted in declared(workflow).items():
        yield Kind.DECLARED, label, ""
        if wanted.wild:
            yield Kind.WILD, label, ""
        elif wanted.excludes:
            yield Kind.STRICT, label, ""
        for value in wanted.keys:
            yield Kind.KEY, label, value


def keys_for(context: SelectionContext) -> list[Key]:
    """The keys of the entries that say which workflows fit a context, and how well."""
    keys: list[Key] = [(Kind.ALL, "", "")]
    if is_gitops_managed(context):
        keys.append((Kind.AWARE, "", ""))
    for label, values in known(context).items():
        keys += [(kind, label, "") for kind in (Kind.DECLARED, Kind.WILD, Kind.STRICT)]
        keys += [(Kind.KEY, label, value) for value in values]
    return list(dict.fromkeys(keys))


class LabelMatch:
    """How the workflows of an index match a context, as sets of workflows: whole numbers with the bits of
    their places.

    The index needs the entries of `keys_for(context)` only, and for `actions` those of types of action and
    signal types. `size` counts all workflows, `fitting` are those that fit, `excluded` those that each label
    excludes.
    """

    def __init__(self, index: Index, context: SelectionContext) -> None:
        self._index, self._context, self._values = index, context, known(context)
        everything = self._of(Kind.ALL)
        self.size = everything.bit_length()
        strict = {label: self._of(Kind.STRICT, label) & ~self._exact(label) for label in self._values}
        self.excluded: Mapping[str, int] = {label: bits for label, bits in strict.items() if bits}
        self.fitting = everything & ~functools.reduce(operator.or_, strict.values(), 0)

    def actions(self, texts: Mapping[str, ActionText]) -> tuple[ActionSummary, ...]:
        """Types of action with at least one workflow that fits, by name."""
        found = sorted((name, bits & self.fitting) for (_, name), bits in self._entries(Kind.ACTION).items())
        return tuple(
            ActionSummary(name, texts.get(name, ActionText()), bits.bit_count(), self._signal_types(bits))
            for name, bits in found
            if bits
        )

    def of_action(self, action_type: str) -> int:
        """The workflows of a type of action, in any case."""
        lowered = action_type.strip().lower()
        found = (bits for (name, _), bits in self._entries(Kind.ACTION).items() if name == lowered)
        return functools.reduce(operator.or_, found, 0)

    def best_first(self, members: int) -> list[TiedWorkflows]:
        """These workflows by how well they fit, the best fit first."""
        aware = [(self._of(Kind.AWARE), 1)] if is_gitops_managed(self._context) else []
        exact, others = [(self._union("component", target_keys(self._context)), 1)], []
        for label in self._values:
            if label in LABELS:
                exact.append((self._exact(label), exact_weight(label)))
            else:
                declared_, wild = self._of(Kind.DECLARED, label), self._of(Kind.WILD, label)
                others += [
                    (~declared_, UNDECLARED),
                    (wild, ANY_VALUE),
                    (self._exact(label) & ~wild, SAME_VALUE),
                ]
        return [
            TiedWorkflows(LabelFit(bool(first), second, third), Places(alike))
            for first, one in by_weight(members, aware)
            for second, two in by_weight(one, exact)
            for third, alike in by_weight(two, others)
        ]

    def ordered(self, members: int) -> list[int]:
        """The places of those of these workflows that fit, best fit first, then by id."""
        return [place for group in self.best_first(self.fitting & members) for place in group.places]

    def counts(self, members: int = -1) -> dict[str, int]:
        """How many of these workflows (by default, of all) each label excludes, the highest count first."""
        return _most_first({label: bits & members for label, bits in self.excluded.items()})

    def counts_alone(self) -> dict[str, int]:
        """How many workflows only this label excludes, by label, the highest count first."""
        seen = several = 0
        for bits in self.excluded.values():
            several |= seen & bits
            seen |= bits
        return _most_first({label: bits & ~several for label, bits in self.excluded.items()})

    def _signal_types(self, members: int) -> tuple[str, ...]:
        return tuple(name for (_, name), bits in self._entries(Kind.SIGNAL).items() if bits & members)

    def _exact(self, label: str) -> int:
        return self._union(label, self._values[label])

    def _union(self, label: str, values: Iterable[str]) -> int:
        return functools.reduce(operator.or_, (self._of(Kind.KEY, label, value) for value in values), 0)

    def _of(self, kind: Kind, label: str = "", value: str = "") -> int:
        return self._entries(kind).get((label, value), 0)

    def _entries(self, kind: Kind) -> Mapping[tuple[str, str], int]:
        return self._index.get(kind, {})


def _most_first(excluded: Mapping[str, int]) -> dict[str, int]:
    counts = Counter({label: bits.bit_count() for label, bits in excluded.items() if bits})
    return dict(counts.most_common())


@dataclass(frozen=True, slots=True)
class Places(Collection[int]):
    """The places of the bits that are set, lowest first."""

    bits: int

    @classmethod
    def of(cls, places: Collection[int]) -> Self:
        """These places, in whatever order they come."""
        row = bytearray(max(places, default=0) // 8 + 1)
        for place in places:
            row[place >> 3] |= 1 << (place & 7)
        return cls(int.from_bytes(row, "little"))

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __iter__(self) -> Iterator[int]:
        for match in SET_BIT.finditer(bin(self.bits)[:1:-1]):
            yield match.start()

    def __contains__(self, place: object) -> bool:
        return isinstance(place, int) and place >= 0 and bool(self.bits >> place & 1)


def by_weight(members: int, terms: Iterable[tuple[int, Number]]) -> list[tuple[Number, int]]:
    """The members by the sum of the weights of those terms that they are in, the greatest sum first."""
    found: dict[Number, int] = {0: members}
    for term, weight in terms:
        before, found = found, {}
        for sum_, bits in before.items():
            inside = bits & term
            if inside:
                found[sum_ + weight] = found.get(sum_ + weight, 0) | inside
            if inside != bits:
                found[sum_] = found.get(sum_, 0) | (bits ^ inside)
    return sorted(found.items(), reverse=True) if members else []
