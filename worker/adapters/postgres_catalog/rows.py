"""Workflows as rows, and back: their documents, and the index of their labels (`label_index`) and words."""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from pydantic import TypeAdapter, ValidationError

from worker.adapters.postgres_catalog.driver import asyncpg
from worker.domain.catalog.label_index import Index, Key, Kind, index_of, keys_for
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflows import SelectionContext, Workflow

MAX_KEPT = 2_048
"""How many decoded workflows are cached: about 10 KB each."""
BitsRow = tuple[str, str, str, int, bytes]

_documents = TypeAdapter(Workflow)


def document_of(workflow: Workflow) -> str:
    """The whole workflow as JSON."""
    return _documents.dump_json(workflow).decode()


def hash_of(document: str) -> str:
    """SHA-256 of a document, in hexadecimal."""
    return hashlib.sha256(document.encode()).hexdigest()


def storable(text: str) -> bool:
    """True if PostgreSQL can hold the text. Other texts cannot be in the database either."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


class Decoder:
    """Decodes documents, and caches workflows by the hash of the document, because a row may be changed by
    hand.
    """

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
    """The rows of the declarations of these workflows, which are given in the order of their ids."""
    ordinal = itertools.count()
    for kind, entries in index_of(workflows).items():
        for (label, value), bits in entries.items():
            yield kind, label, value, next(ordinal), bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def read_index(rows: Iterable[asyncpg.Record]) -> Index:
    """The entries in these rows."""
    found: dict[str, dict[tuple[str, str], int]] = {}
    for row in rows:
        bits = int.from_bytes(row["members"], "little")
        found.setdefault(row["kind"], {})[row["label"], row["value"]] = bits
    return found


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


def storable_keys(context: SelectionContext) -> list[Key]:
    """Those of `keys_for(context)` that may be in the database."""
    return [key for key in keys_for(context) if all(map(storable, key))]
