"""The rules against every case with a right answer, and against wrong answers made from them."""

import asyncio

import pytest

from tests.eval_corroboration import Evaluation, evaluate, load_catalog

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]


@pytest.fixture(scope="module")
def found() -> Evaluation:
    return asyncio.run(evaluate(load_catalog()))


def test_most_right_answers_are_confirmed(found):
    assert sum(j.verdict.confirmed for j in found.right) >= 0.75 * len(found.right)


def test_wrong_answers_are_not(found):
    assert len(found.wrong) >= 300
    assert sum(j.verdict.confirmed for j in found.wrong) <= 0.01 * len(found.wrong)


def test_reads_stay_within_the_budget(found):
    assert max(j.reads for j in found.right) <= 15


def test_the_first_diagnosis_is_mostly_acceptable(found):
    assert sum(found.diagnosed.values()) >= 0.8 * len(found.diagnosed)
