"""Shrinks a conversation that does not fit into a model: the oldest tool results are removed.

A pure function of the turns, so that a successor who replays the journal says the same. They stay in the
evidence of the run; only the model no longer sees them, and may call the tool again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from worker.domain.values.conversation import ModelRequest, Reply, ToolResult, ToolSpec, ToolTurn, Turn

SHARE = 0.5
"""The share of the characters of all tool results that is removed."""

CHARS_PER_TOKEN, CHARS_PER_TOKEN_REMOVED = 3, 4
"""How many characters count as a token: few if a call must fit, many if room is gained."""

MIN_GAIN_CHARS = 2_000
"""With less, a second call would fail like the first."""


def shrunk(turns: Sequence[Turn]) -> tuple[Turn, ...] | None:
    """The turns with their oldest tool results replaced by a note; None if that would gain too little.

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
    """Characters before the conversation."""
    return len(system) + sum(len(t.description) + len(json.dumps(dict(t.parameters))) for t in tools)


def expected_tokens(turns: Sequence[Turn], prefix: int) -> int:
    """The input tokens of the next call, rather too many than too few.

    They are those of the last call plus the additions since.

    `prefix` are the characters before the conversation, for a first call and if the provider counts nothing.
    """
    said = [index for index, turn in enumerate(turns) if isinstance(turn, Reply)]
    before = turns[said[-1]] if said else None
    if isinstance(before, Reply) and before.usage.input_tokens:
        known = before.usage.input_tokens + before.usage.output_tokens
        return known + _chars(turns[said[-1] + 1 :]) // CHARS_PER_TOKEN
    return (prefix + _chars(turns)) // CHARS_PER_TOKEN


def fitted(request: ModelRequest, window_tokens: int | None, expected: int) -> tuple[ModelRequest, int]:
    """The request within the window of the model, as far as shrinking helps, and how often it was shrunk.

    `expected` are the `expected_tokens` of the request.
    """
    times = 0
    while window_tokens is not None and expected > window_tokens:
        shorter = shrunk(request.turns)
        if shorter is None:
            break
        expected -= (_chars(request.turns) - _chars(shorter)) // CHARS_PER_TOKEN_REMOVED
        request, times = replace(request, turns=shorter), times + 1
    return request, times


def _chars(turns: Sequence[Turn]) -> int:
    """Characters of the turns as the model sees them."""
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
