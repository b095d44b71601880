"""An object that a model wrote as a string is read like the object itself, at any depth, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.answers import CANONICAL, answer_with, content, read, workflow_with
from worker.domain.verdict.answers.fields import OBJECTS, VALUES, embedded, plain, unwrapped
from worker.domain.verdict.answers.shapes import to_answer

FULL = answer_with(
    root_cause_analysis={
        **CANONICAL["root_cause_analysis"],
        "causal_chain": [{"claim": "It was killed", "evidence": ["E1", "E2"]}, "so it restarts (E3)"],
    },
    recovery_analysis={
        "previous_attempt_assessment": {"failure_understood": True, "failure_reason_analysis": "too little"},
        "current_rca": CANONICAL["root_cause_analysis"],
    },
    recovery_strategy={"approach": "more", "why_different": "another size"},
    confidence=0.9,
)
SPACES = st.sampled_from(["", " ", "\n"])


def encode(value, layers=1):
    for _ in range(layers):
        value = json.dumps(value)
    return value


def paths(value, path=()):
    """Where objects and lists stand in an answer, the answer itself included."""
    if isinstance(value, dict | list):
        yield path
    if isinstance(value, dict) and (not path or plain(str(path[-1])) not in VALUES):
        for key, item in value.items():
            yield from paths(item, (*path, key))
    elif isinstance(value, list) and plain(str(path[-1])) in OBJECTS:
        for number, item in enumerate(value):
            yield from paths(item, (*path, number))


def encoded_at(value, where, layers, path=()):
    if isinstance(value, dict):
        value = {key: encoded_at(item, where, layers, (*path, key)) for key, item in value.items()}
    elif isinstance(value, list):
        value = [encoded_at(item, where, layers, (*path, number)) for number, item in enumerate(value)]
    return encode(value, layers) if path in where else value


PATHS = list(paths(FULL))


@pytest.mark.parametrize("where", PATHS, ids=str)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_any_object_may_be_encoded(where, layers):
    assert content(read(FULL)) == content(read(encoded_at(FULL, {where}, layers)))


@given(st.sets(st.sampled_from(PATHS)), st.integers(1, 2))
def test_any_objects_may_be_encoded_at_once(where, layers):
    assert content(read(FULL)) == content(read(encoded_at(FULL, where, layers)))


@given(st.sets(st.sampled_from(PATHS[1:])))
def test_an_answer_that_came_as_an_object_is_read_alike(where):
    assert content(to_answer(FULL)) == content(to_answer(encoded_at(FULL, where, 1)))


@given(
    st.recursive(
        st.none() | st.integers(-9, 9) | st.text(max_size=9), lambda inner: st.lists(inner, max_size=3)
    ),
    SPACES,
)
def test_a_text_is_unwrapped_when_it_is_one_complete_object_or_list(value, space):
    for whole in ([value], {"a": value}):
        assert whole == embedded(f"{space}{json.dumps(whole)}{space}")
        assert whole == embedded(json.dumps(json.dumps(whole)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "3",
        '"text"',
        "{",
        '{"a": 1',
        '{"a": 1} and more',
        '{"a": 1}{"b": 2}',
        '{"a": 1, "a": 2}',
        "[1",
        "a [1]",
    ],
)
def test_anything_else_stays_the_text_that_it_is(text):
    assert text == embedded(text)


def test_texts_are_never_unwrapped():
    said = '{"looks": "like JSON"}'
    cause = {**CANONICAL["root_cause_analysis"], "summary": said, "contributing_factors": [said]}
    answer = read(answer_with(root_cause_analysis=cause, rationale=said, warnings=[said]))
    assert (said, (said,), said, (said,)) == (
        answer.summary,
        answer.contributing_factors,
        answer.rationale,
        answer.warnings,
    )


def test_the_value_of_a_parameter_is_never_unwrapped():
    patch = '{"spec": {"replicas": 3}}'
    for parameters in ({"PATCH": patch}, json.dumps({"PATCH": patch}), [{"name": "PATCH", "value": patch}]):
        assert {"PATCH": patch} == read(workflow_with(parameters=parameters)).selected_workflow.parameters


@given(st.dictionaries(st.sampled_from([*OBJECTS, *VALUES, "summary"]), st.text(max_size=20), max_size=4))
def test_unwrapping_is_done_once(value):
    assert unwrapped(value) == unwrapped(unwrapped(value))


def test_a_text_that_was_encoded_too_often_stays_a_text():
    assert encode({"a": 1}, 9) == embedded(encode({"a": 1}, 9))
