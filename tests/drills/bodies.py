"""Request bodies nobody should send: mutations of the payload corpus, byte by byte and field by field."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from schemas.taxonomy import RequestKind
from tests.corpus_files import corpus_path, payload_rows
from worker.domain.intake.decode import Decoded, decode

LARGEST_SEED = 20_000
NOW = datetime(2026, 5, 11, 21, 43, tzinfo=UTC)
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**63, -(2**70), 1e308, float("nan"), float("inf"), "", " ", "\x00", "\ud800", "NaN",
    "../../etc/passwd", "a" * 300, "*", "rca.>", "\u202eevil", "9" * 400, [], {}, [[]], {"": {}}, [None] * 50,
)  # fmt: skip
"""Values that a field does not expect."""


@cache
def seeds() -> tuple[tuple[bytes, RequestKind], ...]:
    """The corpus without its large files."""
    return tuple(
        (
            corpus_path(f"payloads/{row.file}").read_bytes(),
            RequestKind.RECOVERY if row.is_recovery else RequestKind.INCIDENT,
        )
        for row in payload_rows()
        if row.bytes <= LARGEST_SEED
    )


def mutations(seed: int) -> Iterator[tuple[bytes, RequestKind]]:
    """Bodies without end, the same for the same seed."""
    chance = random.Random(seed)
    while True:
        body, kind = chance.choice(seeds())
        for _ in range(chance.randint(1, 3)):
            body = chance.choice(MUTATIONS)(body, chance)
        yield body, kind if chance.random() < 0.9 else chance.choice(list(RequestKind))


def _flip(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body or b"{")
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _cut(body: bytes, chance: random.Random) -> bytes:
    return body[: chance.randint(0, len(body))]


def _insert(body: bytes, chance: random.Random) -> bytes:
    at = chance.randint(0, len(body))
    return (
        body[:at]
        + chance.choice((b"\x00", b"{", b"}", b'"', b",", b"[" * 80, b"\xff\xfe", b"null", b"1e999"))
        + body[at:]
    )


def _repeat(body: bytes, chance: random.Random) -> bytes:
    start, end = sorted(chance.randint(0, len(body)) for _ in range(2))
    return body[:end] + body[start:end] + body[end:]


def _encode(body: bytes, chance: random.Random) -> bytes:
    text = body.decode("utf-8", "replace")
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: text.encode("utf-16"),
        lambda: text.encode("latin-1", "replace"),
        lambda: gzip.compress(body),
        lambda: b"\xef\xbb\xbf" + body,
        lambda: json.dumps(text).encode(),
    )
    return chance.choice(ways)()


def _field(body: bytes, chance: random.Random) -> bytes:
    """One value somewhere in the document is replaced, removed, renamed or joined by another."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return body
    places = list(_places(document, 8))
    if not places:
        return body
    holder, name = chance.choice(places)
    match chance.randrange(4):
        case 0:
            holder[name] = chance.choice(ODD)
        case 1 if isinstance(holder, dict):
            del holder[name]
        case 2 if isinstance(holder, dict):
            holder[str(name).swapcase()] = holder.pop(name)
        case _ if isinstance(holder, dict):
            holder[f"x-{chance.randrange(99)}"] = chance.choice(ODD)
        case _:
            holder.append(chance.choice(ODD))
    return json.dumps(document).encode()


def _places(value: Any, levels: int) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    if not levels or not isinstance(value, dict | list):
        return
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, name
        yield from _places(inner, levels - 1)


MUTATIONS = (_flip, _cut, _insert, _repeat, _encode, _field, _field, _field, _field, _field)


def generated(count: int, check: Callable[[bytes, RequestKind], None]) -> None:
    """Hypothesis looks for a body that `check` does not stand: known field names with values of any kind."""
    names = sorted({name for body, _ in seeds() for name in _names(body)})
    leaves = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=30)
        | st.sampled_from(ODD[:6])
    )
    values = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    )
    documents = st.dictionaries(st.sampled_from(names), values, max_size=12)

    @settings(
        max_examples=count, database=None, deadline=None, derandomize=True,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(documents, st.sampled_from(RequestKind))
    def look(document: dict[str, Any], kind: RequestKind) -> None:
        check(json.dumps(document).encode(), kind)

    look()


def _names(body: bytes) -> list[str]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return []
    return list(document) if isinstance(document, dict) else []


class Tally:
    """What became of bodies that were decoded here."""

    def __init__(self) -> None:
        self.accepted = self.rejected = self.crashes = self.wordless = 0
        self.first_crash = ""

    @property
    def all(self) -> int:
        return self.accepted + self.rejected + self.crashes

    def decode(self, body: bytes, kind: RequestKind) -> bool:
        """Decode one; whether it was accepted."""
        try:
            found = decode(body, kind, NOW)
        except Exception as e:  # noqa: BLE001 - whatever it is, it is what is counted
            self.crashes += 1
            self.first_crash = self.first_crash or f"{e!r} for {body[:200]!r}"
            return False
        if isinstance(found, Decoded):
            self.accepted += 1
            return True
        self.rejected += 1
        self.wordless += not (found.code and found.errors)
        return False
