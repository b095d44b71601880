from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.memory_model import calls, says
from worker.domain.investigation.models.shrink import MIN_GAIN_CHARS, expected_tokens, fitted, shrunk
from worker.domain.values.conversation import (
    CallUsage,
    ModelRequest,
    ToolResult,
    ToolSpec,
    ToolTurn,
    UserTurn,
)

LOOK = ("get_resource", {"kind": "Pod"})


def tool_turn(*sizes, note=""):
    return ToolTurn(
        tuple(ToolResult(f"call_{n}", "get_pod_logs", "x" * size) for n, size in enumerate(sizes)), note
    )


def contents(turns):
    return [result.content for turn in turns if isinstance(turn, ToolTurn) for result in turn.results]


def test_the_oldest_results_go_until_half_is_gone():
    turns = [UserTurn("incident"), calls(LOOK), tool_turn(4_000, 4_000), calls(LOOK), tool_turn(4_000, 4_000)]
    kept = contents(shrunk(turns))
    assert [True, True, True, False] == ["taken out" in text for text in kept]  # the notes take room as well
    assert kept[-1] == "x" * 4_000
    assert "4000 characters" in kept[0]
    assert "get_pod_logs" in kept[0]


def said(input_tokens, output_tokens=0):
    return calls(LOOK, usage=CallUsage(input_tokens=input_tokens, output_tokens=output_tokens))


def test_what_the_next_call_costs_is_what_the_last_one_did_and_what_came_since():
    assert expected_tokens([UserTurn("x" * 300)], 600) == 300
    assert expected_tokens([UserTurn("x" * 300), said(0), tool_turn(300)], 600) == 400
    assert expected_tokens([UserTurn("x" * 300), said(500, 20), tool_turn(300, note="x" * 30)], 600) == 630


@pytest.mark.parametrize(("window", "times"), [(None, 0), (20_000, 0), (14_000, 1), (12_000, 2), (10, 2)])
def test_a_conversation_is_shrunk_until_it_fits(window, times):
    turns = (UserTurn("incident"), said(10_000), tool_turn(4_000, 4_000, 4_000, 4_000))
    request = ModelRequest("system", (ToolSpec("t", "d", {}),), turns)
    after, shrunk_times = fitted(request, window, expected_tokens(turns, 0))
    assert times == shrunk_times
    expected = turns
    for _ in range(times):
        expected = shrunk(expected)
    assert after.turns == expected


def test_one_turn_that_is_too_long_by_itself_is_shortened_from_its_start():
    turns = [UserTurn("incident"), calls(*[LOOK] * 4), tool_turn(5_000, 5_000, 5_000, 5_000, note="Hurry.")]
    after = shrunk(turns)
    assert contents(after)[-1] == "x" * 5_000
    assert "taken out" in contents(after)[0]
    assert after[-1].note == "Hurry."


@pytest.mark.parametrize(
    "turns",
    [
        [UserTurn("x" * 100_000)],
        [UserTurn("incident"), calls(LOOK), tool_turn(MIN_GAIN_CHARS // 2)],
        [UserTurn("incident"), says("x" * 50_000), UserTurn("wrong")],
        [UserTurn("incident"), calls(*[LOOK] * 40), tool_turn(*[90] * 40)],
    ],
)
def test_what_would_gain_too_little_is_left(turns):
    assert shrunk(turns) is None


TURNS = st.lists(
    st.one_of(
        st.builds(UserTurn, st.text(max_size=20)),
        st.builds(lambda sizes: tool_turn(*sizes), st.lists(st.integers(0, 9_000), max_size=6)),
        st.just(calls(LOOK)),
    ),
    max_size=12,
)


@given(TURNS)
def test_nothing_but_contents_changes_and_every_run_makes_the_same_of_it(turns):
    after = shrunk(turns)
    assert after == shrunk(tuple(turns))
    if after is None:
        return
    assert len(turns) == len(after)
    for before, now in zip(turns, after, strict=True):
        if not isinstance(before, ToolTurn):
            assert before is now
            continue
        assert [(r.call_id, r.name, r.ok) for r in before.results] == [
            (r.call_id, r.name, r.ok) for r in now.results
        ]
        assert before.note == now.note
    sizes = sum(map(len, contents(turns))), sum(map(len, contents(after)))
    assert sizes[0] - sizes[1] >= MIN_GAIN_CHARS
    assert json.dumps(contents(after))
