"""Making room in a conversation that does not fit into a model: the oldest tool results are taken out.

A pure function of the turns, so that a successor who replays the journal says the same. What the run has seen stays in
its evidence; only the model no longer reads it, and may call the tool again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from worker.domain.values.conversation import ModelRequest, Reply, ToolResult, ToolSpec, ToolTurn, Turn

SHARE = 0.5
"""Part of the characters of all tool results that is taken out."""

CHARS_PER_TOKEN, CHARS_PER_TOKEN_REMOVED = 3, 4
"""How many characters are taken for a token: few where a call must fit, many where room is gained."""

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


def prefix_chars(system: str, tools: Sequence[ToolSpec]) -> int:
    """Characters of what stands before the conversation."""
    return len(system) + sum(len(t.description) + len(json.dumps(dict(t.parameters))) for t in tools)


def expected_tokens(turns: Sequence[Turn], prefix: int) -> int:
    """Return how many input tokens the next call will cost, rather too many than too few: the last call's, and what came since.

    `prefix` are the characters before the conversation, for a first call and where the provider counts nothing.
    """
    said = [index for index, turn in enumerate(turns) if isinstance(turn, Reply)]
    before = turns[said[-1]] if said else None
    if isinstance(before, Reply) and before.usage.input_tokens:
        known = before.usage.input_tokens + before.usage.output_tokens
        return known + _chars(turns[said[-1] + 1 :]) // CHARS_PER_TOKEN
    return (prefix + _chars(turns)) // CHARS_PER_TOKEN


def fitted(request: ModelRequest, window_tokens: int | None) -> tuple[ModelRequest, int]:
    """The request within the window of the model, as far as shrinking helps, and how often it was shrunk."""
    expected, times = expected_tokens(request.turns, prefix_chars(request.system, request.tools)), 0
    while window_tokens is not None and expected > window_tokens:
        shorter = shrunk(request.turns)
        if shorter is None:
            break
        expected -= (_chars(request.turns) - _chars(shorter)) // CHARS_PER_TOKEN_REMOVED
        request, times = replace(request, turns=shorter), times + 1
    return request, times


def _chars(turns: Sequence[Turn]) -> int:
    """Characters of what the turns say to the model."""
    total = 0
    for turn in turns:
        if isinstance(turn, ToolTurn):
            total += len(turn.note) + sum(len(result.content) for result in turn.results)
        else:
            total += len(turn.text)
    return total


def _removed(result: ToolResult) -> ToolResult:
    note = f"[cut: {len(result.content)} characters, taken out to make room; call {result.name} again if you need them]"
    return replace(result, content=note)
