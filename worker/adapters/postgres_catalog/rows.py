"""Workflows as rows, and back: their documents, and what they declare.

What workflows declare is stored as an inverted index: a row of `workflow_catalog_bits` is a label value (or a type of
action, or a word), and bit n of the row says whether the workflow at place n has it. Places follow the order of ids.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import operator
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

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
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflows import LABELS, WILDCARD, SelectionContext, Workflow

SET_BIT = re.compile("1")
MAX_KEPT = 2_048
"""How many workflows are kept decoded: about 10 KB each."""
BitsKey = tuple[str, str, str]
"""Kind, label, value. The label of a type of action is its name in lower case, the value its name."""
BitsRow = tuple[str, str, str, int, bytes]

Number = TypeVar("Number", int, float)

_documents = TypeAdapter(Workflow)


class Kind(enum.StrEnum):
    """What the bits of a row mean.

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


class Row(Protocol):
    """Columns by name."""

    def __getitem__(self, name: str, /) -> Any: ...


def document_of(workflow: Workflow) -> str:
    """The whole workflow as JSON."""
    return _documents.dump_json(workflow).decode()


def hash_of(document: str) -> str:
    """SHA-256 of a document, in hexadecimal."""
    return hashlib.sha256(document.encode()).hexdigest()


def storable(text: str) -> bool:
    """Whether PostgreSQL can hold the text. A text that it cannot hold is not in the database either."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


class Decoder:
    """Decodes documents, and keeps the workflows read last by the hash of the document: a row may be changed by hand."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Workflow] = OrderedDict()

    def workflow(self, document: str) -> Workflow:
        """The workflow of a document. Raises CatalogUnavailable when it is not one."""
        key = hash_of(document)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        found = workflow_of(document)
        self._kept[key] = found
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return found


def workflow_of(document: str) -> Workflow:
    """The workflow of a document. Raises CatalogUnavailable."""
    try:
        return _documents.validate_json(document)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise CatalogUnavailable(f"a workflow in the database cannot be read: {where}") from None


def label_rows(workflows: Iterable[Workflow]) -> Iterator[BitsRow]:
    """The rows of what these workflows declare, which are given in the order of their ids."""
    found: dict[BitsKey, int] = {}
    for place, workflow in enumerate(workflows):
        for key in _keys_of(workflow):
            found[key] = found.get(key, 0) | 1 << place
    for ordinal, ((kind, label, value), bits) in enumerate(found.items()):
        yield kind, label, value, ordinal, bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _keys_of(workflow: Workflow) -> Iterator[BitsKey]:
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


def word_rows(words_by_place: Iterable[tuple[int, Sequence[str]]]) -> Iterator[BitsRow]:
    """The rows of the words that workflows have."""
    found: dict[str, bytearray] = {}
    for place, words in words_by_place:
        byte, bit = divmod(place, 8)
        for word in words:
            members = found.setdefault(word, bytearray())
            members.extend(bytes(max(0, byte + 1 - len(members))))
            members[byte] |= 1 << bit
    for word, members in found.items():
        yield Kind.WORD, "", word, 0, bytes(members)


def keys_for(context: SelectionContext) -> list[BitsKey]:
    """The keys of the rows that say which workflows fit a context, and how well."""
    keys = [(Kind.ALL, "", "")]
    if is_gitops_managed(context):
        keys.append((Kind.AWARE, "", ""))
    for label, values in known(context).items():
        keys += [(kind, label, "") for kind in (Kind.DECLARED, Kind.WILD, Kind.STRICT)]
        keys += [(Kind.KEY, label, value) for value in values]
    return [key for key in dict.fromkeys(keys) if all(storable(part) for part in key)]


class LabelBits:
    """The rows of `keys_for(context)`, with rows of types of action or words beside them, as sets of workflows.

    A set is a whole number with the bits of its places. `size` counts all workflows, `fitting` are those that fit,
    `excluded` those that each label excludes, `words` those that have each word, in the order of the words.
    """

    def __init__(self, rows: Iterable[Row], context: SelectionContext) -> None:
        self._context, self._values = context, known(context)
        self._bits = {
            (r["kind"], r["label"], r["value"]): int.from_bytes(r["members"], "little") for r in rows
        }
        self.words = [bits for (kind, *_), bits in sorted(self._bits.items()) if kind == Kind.WORD]
        everything = self._of(Kind.ALL)
        self.size = everything.bit_length()
        strict = {label: self._of(Kind.STRICT, label) & ~self._exact(label) for label in self._values}
        self.excluded: Mapping[str, int] = {label: bits for label, bits in strict.items() if bits}
        self.fitting = everything & ~functools.reduce(operator.or_, strict.values(), 0)

    def actions(self, lowered: str | None = None) -> dict[str, int]:
        """The workflows by type of action; of one type only, if its name in lower case is given."""
        return {
            name: bits
            for (kind, label, name), bits in self._bits.items()
            if kind == Kind.ACTION and lowered in {None, label}
        }

    def signal_types(self, members: int) -> tuple[str, ...]:
        """The signal types that one of these workflows is declared for."""
        return tuple(v for (kind, _, v), bits in self._bits.items() if kind == Kind.SIGNAL and bits & members)

    def excluded_alone(self) -> dict[str, int]:
        """The workflows that each label excludes and no other label does."""
        seen = several = 0
        for bits in self.excluded.values():
            several |= seen & bits
            seen |= bits
        return {label: bits & ~several for label, bits in self.excluded.items()}

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

    def _exact(self, label: str) -> int:
        return self._union(label, self._values[label])

    def _union(self, label: str, values: Iterable[str]) -> int:
        return functools.reduce(operator.or_, (self._of(Kind.KEY, label, value) for value in values), 0)

    def _of(self, kind: str, label: str = "", value: str = "") -> int:
        return self._bits.get((kind, label, value), 0)


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
        return isinstance(place, int) and bool(self.bits >> place & 1)


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
