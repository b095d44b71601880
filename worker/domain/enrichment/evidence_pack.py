"""Packs evidence into one budget: each piece gets up to a cap, and the most important ones get the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from worker.domain.cluster.rendering.compact import Rendered
from worker.domain.untrusted.evidence import ENRICHMENT, Evidence, EvidenceKind
from worker.domain.values.tokens import estimate_tokens

FENCE_TOKENS = 45  # the fence lines around one piece
NOTE_TOKENS = 30  # what is said about the part that was cut
LEAST = 60  # tokens; a piece that would get less is left out
PLENTY = 4_000  # tokens; more than any piece is worth
CHANGES = "changes"
LAST_CHANGE = re.compile(r'"lastChange":(\{[^{}]*\})')


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece that can be rendered at any size.

    A lower `rank` is more important; `cap` is its fair share in tokens.
    """

    source: str
    scope: str
    rank: int
    cap: int
    render: Callable[[int], Rendered]
    kind: EvidenceKind = EvidenceKind.FACTS


def pack(pieces: Sequence[Piece], max_tokens: int) -> tuple[Evidence, ...]:
    """The pieces in their order, cut so that all of them with their fences fit the budget.

    If even the fair shares do not fit, the least important pieces are dropped first.
    """
    needed = [_natural(piece) for piece in pieces]
    given = _shares(pieces, needed, max_tokens)
    packed: list[Evidence] = []
    for index, piece in enumerate(pieces):
        if given[index]:
            shown = piece.render(given[index])
            source = f"{ENRICHMENT}{piece.source}"
            packed.append(Evidence(source, piece.scope, shown.body, shown.cut, kind=piece.kind))
    return tuple(packed)


def _natural(piece: Piece) -> int:
    """The tokens that the whole piece needs.

    Lines are counted one by one when it is cut, so each adds one.
    """
    body = piece.render(PLENTY).body
    return min(estimate_tokens(body) + body.count("\n") + 4, PLENTY)


def _shares(pieces: Sequence[Piece], needed: Sequence[int], max_tokens: int) -> list[int]:
    """Tokens for the body of each piece; 0 leaves it out.

    Without a cut, the room for its note is free again.
    """
    by_rank = sorted(range(len(pieces)), key=lambda index: pieces[index].rank)
    given = [0] * len(pieces)
    room = max_tokens
    for index in by_rank:
        left = room - FENCE_TOKENS - estimate_tokens(pieces[index].scope) - NOTE_TOKENS
        if left < min(LEAST, needed[index]):
            continue
        given[index] = min(needed[index], pieces[index].cap, left)
        room = left - given[index] + (NOTE_TOKENS if given[index] == needed[index] else 0)
    for index in by_rank:
        missing = needed[index] - given[index]
        if not given[index] or not missing:
            continue
        whole = missing <= room + NOTE_TOKENS
        more = missing if whole else room
        given[index] += more
        room += (NOTE_TOKENS if whole else 0) - more
    return given


def changes_told(evidence: Iterable[Evidence]) -> frozenset[str]:
    """The changes that the first look has shown: lines, and each `lastChange` of an object as JSON."""
    found: set[str] = set()
    for item in evidence:
        if item.source == f"{ENRICHMENT}{CHANGES}":
            found.update(item.body.splitlines())
        elif item.kind is EvidenceKind.OBJECT:
            found.update(LAST_CHANGE.findall(item.body))
    return frozenset(found)
