"""Making room in a conversation that does not fit into a model: the oldest tool results are taken out.

A pure function of the turns, so that a successor who replays the journal says the same. What the run has seen stays in
its evidence; only the model no longer reads it, and may call the tool again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from worker.domain.values.conversation import ToolResult, ToolTurn, Turn

SHARE = 0.5
"""Part of the characters of all tool results that is taken out."""

MIN_GAIN_CHARS = 2_000
"""Below it a second call would fail as the first did."""


def shrunk(turns: Sequence[Turn]) -> tuple[Turn, ...] | None:
    """The turns with their oldest tool results replaced by a note; None when that would gain too little.

    Calls keep their ids and their order, so the history stays valid for every provider.
    """
    sizes = [len(result.content) for turn in turns if isinstance(turn, ToolTurn) for result in turn.results]
    gained, aim = 0, SHARE * sum(sizes)
    kept: list[Turn] = []
    for turn in turns:
        if not isinstance(turn, ToolTurn):
            kept.append(turn)
            continue
        results = []
        for result in turn.results:
            short = _removed(result)
            gain = len(result.content) - len(short.content)
            if gained < aim and gain > 0:
                gained += gain
                results.append(short)
            else:
                results.append(result)
        kept.append(replace(turn, results=tuple(results)))
    return tuple(kept) if gained >= MIN_GAIN_CHARS else None


def _removed(result: ToolResult) -> ToolResult:
    note = f"[cut: {len(result.content)} characters, taken out to make room; call {result.name} again if you need them]"
    return replace(result, content=note)
