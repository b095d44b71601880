"""Pieces of evidence that share one budget: each gets what it needs up to a cap, then the most important get the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worker.domain.budget import estimate_tokens
from worker.domain.evidence import Evidence
from worker.domain.render import Rendered

FENCE_TOKENS = 45  # the fence lines around one piece
LEAST = 60  # tokens; a piece that would get less is left out
PLENTY = 4_000  # tokens; more than any piece is worth


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece that can be rendered at any size. A lower `rank` is more important; `cap` is its fair share in tokens."""

    source: str
    scope: str
    rank: int
    cap: int
    render: Callable[[int], Rendered]


def pack(pieces: Sequence[Piece], max_tokens: int) -> tuple[Evidence, ...]:
    """The pieces in their order, cut so that all of them with their fences fit the budget.

    When even the fair shares do not fit, the least important pieces go first.
    """
    needed = [_natural(piece) for piece in pieces]
    given = _shares(pieces, needed, max_tokens)
    packed: list[Evidence] = []
    for index, piece in enumerate(pieces):
        if given[index]:
            shown = piece.render(given[index])
            packed.append(Evidence(f"enrichment:{piece.source}", piece.scope, shown.body, shown.cut))
    return tuple(packed)


def _natural(piece: Piece) -> int:
    """What the piece needs in full; lines are counted one by one when it is cut, so each adds one."""
    body = piece.render(PLENTY).body
    return min(estimate_tokens(body) + body.count("\n") + 4, PLENTY)


def _shares(pieces: Sequence[Piece], needed: Sequence[int], max_tokens: int) -> list[int]:
    by_rank = sorted(range(len(pieces)), key=lambda index: pieces[index].rank)
    given = [0] * len(pieces)
    room = max_tokens
    for index in by_rank:
        overhead = FENCE_TOKENS + estimate_tokens(pieces[index].scope)
        share = min(needed[index], pieces[index].cap, room - overhead)
        if share < min(LEAST, needed[index]):
            continue
        given[index] = share
        room -= share + overhead
    for index in by_rank:
        more = min(needed[index] - given[index], room) if given[index] else 0
        if more > 0:
            given[index] += more
            room -= more
    return given
