"""The rules against every case with a right answer, and against wrong answers made from them."""

import asyncio
from functools import cache

import pytest

from tests.eval_corroboration import Evaluation, evaluate, load_catalog

pytestmark = [
    pytest.mark.slow,
    pytest.mark.unmeasured,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("evaluation"),  # what all tests look at is computed once
]


@cache
def found() -> Evaluation:
    """Not a fixture, because the coverage of fixtures is measured."""
    return asyncio.run(evaluate(load_catalog()))


def test_most_right_answers_are_confirmed():
    assert sum(j.verdict.confirmed for j in found().right) >= 0.75 * len(found().right)


def test_wrong_answers_are_not():
    assert len(found().wrong) >= 300
    assert sum(j.verdict.confirmed for j in found().wrong) <= 0.01 * len(found().wrong)


def test_reads_stay_within_the_budget():
    assert max(j.reads for j in found().right) <= 15


def test_the_first_diagnosis_is_mostly_acceptable():
    assert sum(found().diagnosed.values()) >= 0.8 * len(found().diagnosed)
