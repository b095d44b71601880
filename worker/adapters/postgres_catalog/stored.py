"""Workflows and the bits of their labels as rows, and back."""

from __future__ import annotations

import enum
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from worker.domain.catalog.label_bits import Facet, LabelBits
from worker.domain.catalog.selection import is_gitops_managed, known
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflows import SelectionContext, Workflow

MAX_KEPT = 2_048
"""Workflows that are kept decoded: some 10 KB each."""
BitsKey = tuple[str, str, str]
"""Kind, label, value. A type of action stands under its name in lower case, with the name as the value."""

_documents = TypeAdapter(Workflow)


class Kind(enum.StrEnum):
    """What the bits of a row say."""

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
    """Whether PostgreSQL can hold the text at all; what it cannot hold, it does not have either."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


class Decoder:
    """Workflows of documents; those read last are kept, by the hash of what was read: a row may be changed by hand."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Workflow] = OrderedDict()

    def workflow(self, document: str) -> Workflow:
        """The workflow. Raises CatalogUnavailable for a document that is none."""
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


def rows_of(bits: LabelBits) -> Iterator[tuple[str, str, str, int, bytes]]:
    """Everything as rows of `workflow_catalog_bits`, without those that hold nothing."""
    for ordinal, ((kind, label, value), members) in enumerate(_sets(bits)):
        if members:
            yield kind, label, value, ordinal, members.to_bytes((members.bit_length() + 7) // 8, "little")


def _sets(bits: LabelBits) -> Iterator[tuple[BitsKey, int]]:
    yield (Kind.ALL, "", ""), (1 << bits.size) - 1
    yield (Kind.AWARE, "", ""), bits.aware
    for name, members in bits.actions.items():
        yield (Kind.ACTION, name.lower(), name), members
    for name, members in bits.signal_types.items():
        yield (Kind.SIGNAL, "", name), members
    for label, facet in bits.facets.items():
        yield (Kind.DECLARED, label, ""), facet.declared
        yield (Kind.WILD, label, ""), facet.wild
        yield (Kind.STRICT, label, ""), facet.strict
        for value, members in facet.by_key.items():
            yield (Kind.KEY, label, value), members


def word_rows_of(said: Iterable[tuple[int, Sequence[str]]]) -> Iterator[tuple[str, str, str, int, bytes]]:
    """Who says a word, as rows of `workflow_catalog_bits`, from the words of each place."""
    found: dict[str, bytearray] = {}
    for place, words in said:
        byte, bit = divmod(place, 8)
        for word in words:
            members = found.setdefault(word, bytearray())
            members.extend(bytes(max(0, byte + 1 - len(members))))
            members[byte] |= 1 << bit
    for word, members in found.items():
        yield Kind.WORD, "", word, 0, bytes(members)


def keys_for(context: SelectionContext) -> list[BitsKey]:
    """The rows that say which workflows fit a context, and how well."""
    keys = [(Kind.ALL, "", "")]
    if is_gitops_managed(context):
        keys.append((Kind.AWARE, "", ""))
    for label, values in known(context).items():
        keys += [(kind, label, "") for kind in (Kind.DECLARED, Kind.WILD, Kind.STRICT)]
        keys += [(Kind.KEY, label, value) for value in values]
    return [key for key in dict.fromkeys(keys) if all(storable(part) for part in key)]


def bits_of(rows: Iterable[Row]) -> LabelBits:
    """The bits of these rows."""
    found = LabelBits()
    for row in rows:
        kind, label, value = row["kind"], row["label"], row["value"]
        members = int.from_bytes(row["members"], "little")
        match kind:
            case Kind.ALL:
                found.size = members.bit_length()
            case Kind.AWARE:
                found.aware = members
            case Kind.ACTION:
                found.actions[value] = members
            case Kind.SIGNAL:
                found.signal_types[value] = members
            case Kind.WORD:
                pass
            case _:
                _add(found.facets.setdefault(label, Facet()), kind, value, members)
    return found


def words_in(rows: Iterable[Row]) -> list[int]:
    """For each word among these rows the bits of those that say it, in the order of the words."""
    found = {
        row["value"]: int.from_bytes(row["members"], "little") for row in rows if row["kind"] == Kind.WORD
    }
    return [found[word] for word in sorted(found)]


def _add(facet: Facet, kind: str, value: str, members: int) -> None:
    match kind:
        case Kind.DECLARED:
            facet.declared = members
        case Kind.WILD:
            facet.wild = members
        case Kind.STRICT:
            facet.strict = members
        case Kind.KEY:
            facet.by_key[value] = members
