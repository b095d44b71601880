"""The causal chain of an answer is read in every form in which models write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.answers import CANONICAL, answer_with, read
from worker.domain.verdict.answers.answer import AnsweredClaim

KILLED = AnsweredClaim("The container was OOMKilled", ("E2", "E5"))


def chain(value, where="causal_chain"):
    cause = {**CANONICAL["root_cause_analysis"], where: value}
    return read(answer_with(root_cause_analysis=cause)).causal_chain


@pytest.mark.parametrize(
    "step",
    [
        {"claim": KILLED.text, "evidence": ["E2", "E5"]},
        {"claim": KILLED.text, "evidence": "E2, E5"},
        {"claim": KILLED.text, "evidence": ["E2", "e5", "E2"]},
        {"statement": KILLED.text, "evidence_ids": ["E2", "E5"]},
        {"claim": KILLED.text, "evidence": [{"id": "E2"}, {"id": "E5"}]},
        {"Claim": KILLED.text, "Evidence": ["E2 (get_resource)", "E5"]},
    ],
)
def test_a_step_is_a_claim_with_ids(step):
    assert (KILLED,) == chain([step])
    assert (KILLED,) == chain(step)
    assert (KILLED,) == chain([step], "causalChain")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("the limit is too low", ()),
        ("the limit is too low (E1, E4)", ("E1", "E4")),
        ("it was killed [E3] and again [E4]", ("E3", "E4")),
        ("zone E3 is full", ()),
        ("node (type E3-small) is full", ()),
    ],
)
def test_a_plain_sentence_is_read_and_may_cite_in_brackets(text, ids):
    assert (AnsweredClaim(text, ids),) == chain([text])
    assert (AnsweredClaim(text, ids),) == chain([{"claim": text}])


def test_the_chain_may_stand_beside_the_cause():
    assert (KILLED,) == read(
        answer_with(causal_chain=[{"claim": KILLED.text, "evidence": ["E2", "E5"]}])
    ).causal_chain


@pytest.mark.parametrize("nothing", [None, [], "", {}, [None], [{}], [{"evidence": ["E1"]}], "none"])
def test_without_a_chain_there_is_none(nothing):
    assert () == chain(nothing)


def test_a_long_chain_is_cut_with_a_note():
    answer = read(answer_with(causal_chain=[f"step {number}" for number in range(30)]))
    assert 20 == len(answer.causal_chain)
    assert any("causal_chain" in note for note in answer.notes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_whatever_stands_there_the_rest_of_the_answer_is_read(value):
    answer = read(answer_with(causal_chain=value))
    assert answer.summary == CANONICAL["root_cause_analysis"]["summary"]
    assert all(claim.text for claim in answer.causal_chain)
