"""What differs between results, and how sure a difference over many incidents is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.memory_model import calls, final, says
from tests.fakes.scripted import CONTEXT, World, answer, chosen, nothing
from worker.domain.recording.compare import changed_fields, compare, differences, interval
from worker.domain.values.conversation import CallUsage

PRICED = CallUsage(input_tokens=10, output_tokens=5, cost_usd=0.25)


async def result_of(*said):
    return await World.saying(*said).analyse()


async def test_equal_results_differ_in_nothing():
    one = await result_of(final(answer()))
    assert () == differences(one, one)


async def test_facts_that_differ_are_named_with_both_values():
    one = await result_of(final(answer()))
    other = await result_of(calls(CONTEXT), final(chosen(workflow_id="rollback-v1", version=None)))
    found = {each.fact: (each.recorded, each.replayed) for each in differences(one, other)}
    assert ("restart-v1", "rollback-v1") == found["workflow"]
    assert (1, 2) == found["llm_calls"]
    assert "target" not in found


async def test_results_without_an_answer_can_be_compared():
    found = differences(await result_of(final(answer())), await result_of(*[says("?")] * 5))
    assert {"status", "workflow", "needs_human"} <= {each.fact for each in found}


def test_paths_of_changed_fields():
    before = {"a": [1, {"b": 2}], "c": 3, "d": [1]}
    assert ["a.1.b", "d", "e"] == sorted(
        changed_fields(before, {"a": [1, {"b": 5}], "c": 3, "d": [], "e": 1})
    )
    assert [] == list(changed_fields(before, before))


async def test_two_configurations_are_compared_pair_by_pair():
    good, other = await result_of(final(answer())), await result_of(final(nothing("insufficient_data")))
    rows = {row.figure: row for row in compare([(good, good)] * 3 + [(good, other)])}
    assert (1.0, 0.75, -0.25) == (
        rows["same_workflow"].recorded,
        rows["same_workflow"].replayed,
        rows["same_workflow"].difference,
    )
    assert (0.0, 0.25) == (rows["needs_human"].recorded, rows["needs_human"].replayed)
    assert rows["same_workflow"].low < -0.25 < rows["same_workflow"].high <= 0.0
    assert (0.0, 0.0) == (rows["llm_calls"].low, rows["llm_calls"].high)
    assert "cost_usd" not in rows, "it is not known"


async def test_the_cost_is_compared_where_it_is_known():
    priced = await result_of(final(answer(), usage=PRICED))
    [row] = [row for row in compare([(priced, priced)]) if row.figure == "cost_usd"]
    assert (0.25, 0.25, 0.0) == (row.recorded, row.replayed, row.difference)


def test_nothing_to_compare():
    assert () == compare([])


@settings(max_examples=15)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers(0, 5))
def test_an_interval_lies_within_its_values_and_is_repeatable(values, seed):
    low, high = interval(values, seed=seed)
    assert low <= high
    assert min(values) == pytest.approx(low, abs=1e-3) or min(values) <= low
    assert max(values) == pytest.approx(high, abs=1e-3) or high <= max(values)
    assert (low, high) == interval(values, seed=seed)
