"""What holds for every text and every answer."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fakes.answers import CANONICAL, content, read, unreadable, workflow_with
from worker.domain.values.conversation import Finish
from worker.domain.verdict.answers.answer import Answer, Unreadable, UnreadableAnswer
from worker.domain.verdict.answers.json_text import same_value
from worker.domain.verdict.answers.parse import parse_answer
from worker.domain.verdict.answers.workflow import CONFIDENCE

PIECES = st.sampled_from([
    "{", "}", "[", "]", '"', "'", ":", ",", "\\", "\n", " ", "```", "```json\n", "~~~\n", "<think>", "</think>", "#", "//",
    "/*", "*/", "null", "None", "0.9", "-1", "85", "root_cause_analysis", '"root_cause_analysis"', '"rca"', '"summary"',
    '"selected_workflow"', "# selected_workflow\n", "workflow_id", '"workflow_id"', '"confidence"', '"parameters"', '"x"',
    '"strategies"', '"recovery_analysis"', '"current_rca"', '"affectedResource"', '"name"', '"value"', "\ud800", "\u200b",
    '{"rca": "x", "selected_workflow": null}', "&quot;", "Final answer: ", "Draft: ", "\x00", "“", "”", '"{\\"',
])  # fmt: skip
# Words without the marks that start an object, a tag or a fence.
PROSE = st.text(st.characters(exclude_characters='{[<"`~\u25c1', exclude_categories=["Cs"]), max_size=80)
WORDS = st.text(min_size=1, max_size=30).filter(str.strip)
NAME = st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True).filter(
    lambda name: name not in {"none", "null"}
)
VALUE = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=40)
PARAMETERS = st.dictionaries(st.from_regex(r"[A-Z][A-Z_]{0,15}", fullmatch=True), VALUE, max_size=5)
WORKFLOW = st.fixed_dictionaries({
    "workflow_id": NAME.filter(lambda name: len(name) > 3),
    "confidence": st.floats(0, 1),
    "rationale": WORDS,
    "parameters": PARAMETERS,
})  # fmt: skip
ANSWER = st.fixed_dictionaries({
    "root_cause_analysis": st.fixed_dictionaries({
        "summary": WORDS,
        "severity": st.sampled_from(["critical", "high", "medium", "low"]),
        "contributing_factors": st.lists(WORDS, max_size=3),
        "affectedResource": st.fixed_dictionaries({"kind": st.just("Pod"), "name": NAME, "namespace": NAME}),
    }),
    "selected_workflow": st.none() | WORKFLOW,
})  # fmt: skip
LABELS = st.sampled_from(["", "json", "JSON", "jsonc", "python", "text", 'json title="x"', "json5"])
WRAPPERS = st.lists(
    st.sampled_from(["response", "result", "data", "output", "list", "text"]), max_size=3
).filter(lambda names: ("text", "text") not in pairwise(names))


def wrapped(answer, wrappers):
    value = answer
    for name in wrappers:
        value = [value] if name == "list" else json.dumps(value) if name == "text" else {name: value}
    return value


@examples(600)
@given(st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join))
@example("\ud800")
def test_any_text_is_an_answer_or_unreadable(text):
    try:
        answer = parse_answer(text, Finish.STOP)
        said = [answer.summary, answer.prose, *answer.warnings, *answer.notes]
    except UnreadableAnswer as error:
        said = [error.problem.message]
    assert all(isinstance(part.encode(), bytes) for part in said)


@given(ANSWER, PROSE, PROSE, LABELS, st.sampled_from(["```", "````", "~~~", ""]), st.booleans(), WRAPPERS)
def test_what_stands_around_an_answer_changes_nothing(answer, before, after, label, fence, closed, wrappers):
    text = json.dumps(wrapped(answer, wrappers), ensure_ascii=False, indent=2)
    if fence:
        text = f"{fence}{label}\n{text}\n{fence if closed else ''}"
    assert content(read(answer)) == content(read(f"{before}\n{text}\n{after}"))


@given(ANSWER, st.sampled_from(["think", "thinking", "reasoning", "THINK"]), ANSWER)
def test_a_thought_before_an_answer_changes_nothing(answer, tag, draft):
    thought = json.dumps(draft)
    assume("</" not in thought and not same_value(answer, draft))
    text = json.dumps(answer)
    assert content(read(answer)) == content(read(f"<{tag}>{thought[:-1]}</{tag}>{text}"))
    assert content(read(answer)) == content(read(f"<{tag}>{text}</{tag}>{text}"))
    both = f"<{tag}>{thought}</{tag}>{text}"
    if decision(read(answer)) == decision(read(draft)):
        assert content(read(answer)) == content(read(both))
    else:
        assert Unreadable.CONTRADICTORY is unreadable(both)


def decision(answer):
    chosen = answer.selected_workflow
    return answer.affected_resource, answer.asks_for_human, chosen and (chosen.workflow_id, chosen.parameters)


@given(ANSWER)
def test_what_python_prints_is_the_same_answer(answer):
    assert content(read(answer)) == content(read(repr(answer)))


@given(ANSWER, ANSWER)
def test_two_different_answers_are_none(one, other):
    assume(not same_value(one, other))
    assert Unreadable.CONTRADICTORY is unreadable(f"{json.dumps(one)}\n{json.dumps(other)}")
    assert Unreadable.CONTRADICTORY is unreadable(
        f"Draft: {json.dumps(one)}\nFinal answer: {json.dumps(other)}"
    )


CUTS = {
    "bare": json.dumps(CANONICAL),
    "indented": json.dumps(CANONICAL, indent=1),
    "python": repr(CANONICAL),
    "wrapped": json.dumps({"response": {"data": CANONICAL}}),
    "in a list": json.dumps([CANONICAL]),
    "in a text": json.dumps({"answer": json.dumps(CANONICAL)}),
    "a text": json.dumps(json.dumps(CANONICAL)),
    "bare keys": json.dumps(CANONICAL).replace('"root_cause_analysis"', "root_cause_analysis"),
    "curly quotes": json.dumps(CANONICAL).replace('\\"', "").replace('"', "”"),
    "flat": json.dumps({"rca_summary": "x", "workflow_id": "a-b", "parameters": {"A": 1}, "confidence": 0.9}),
    "recovery": json.dumps({
        "recovery_analysis": {"current_rca": CANONICAL["root_cause_analysis"]},
        "selected_workflow": CANONICAL["selected_workflow"],
    }),
    "sections": "\n".join(
        f"# {name}\n{json.dumps(CANONICAL[name])}" for name in ("root_cause_analysis", "selected_workflow")
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", CUTS.values(), ids=CUTS)
def test_an_answer_cut_anywhere_is_no_answer(text):
    assert isinstance(read(text), Answer)
    assert [cut for cut in range(len(text)) if not unreadable(text[:cut])] == []


@pytest.mark.parametrize("text", CUTS.values(), ids=CUTS)
def test_an_answer_cut_in_its_fence_is_no_other_answer(text):
    fenced = f"Killed at its limit.\n```json\n{text}\n```\nDone."
    answer = content(read(text))
    for cut in range(len(fenced)):
        try:
            assert answer == content(read(fenced[:cut]))
        except UnreadableAnswer:
            assert cut < len(fenced) - len("\n```\nDone.")


def structure(text):
    """Offsets of all marks of the structure of a JSON text, the quotes around strings included."""
    inside = escaped = False
    for offset, character in enumerate(text):
        if escaped:
            escaped = False
        elif inside and character == "\\":
            escaped = True
        elif character == '"':
            inside = not inside
            yield offset
        elif not inside and character in "{}[],:":
            yield offset


def test_an_answer_with_any_mark_missing_is_no_answer():
    text = json.dumps(CANONICAL)
    marks = list(structure(text))
    assert len(marks) > 150
    assert all(unreadable(text[:offset] + text[offset + 1 :]) for offset in marks)


CHOICE = CANONICAL["selected_workflow"]
CAUSE = CANONICAL["root_cause_analysis"]
PART = {"root": (), "cause": ("root_cause_analysis",), "workflow": ("selected_workflow",)}
CONFIDENCES = [("root", name) for name in CONFIDENCE] + [("cause", name) for name in CONFIDENCE]
OBJECTS = st.builds(lambda name: {"kind": "Pod", "name": name, "namespace": "shop"}, NAME)
NUMBERS = st.floats(0, 1)
FIELDS = {
    "the confidence": (CONFIDENCES, NUMBERS),
    "the workflow's confidence": ([("workflow", name) for name in CONFIDENCE], NUMBERS),
    "the parameters": ([("workflow", "parameters"), ("workflow", "params"), ("root", "parameters")], PARAMETERS),
    "the id": ([("workflow", n) for n in ("workflow_id", "id", "workflowName", "name")], NAME),
    "the risk": ([("workflow", name) for name in ("estimated_risk", "risk_level", "risk")], WORDS),
    "the version": ([("workflow", "version"), ("workflow", "workflow_version")], WORDS),
    "the image": ([("workflow", name) for name in ("container_image", "image", "executionBundle", "bundle")], WORDS),
    "the choice": (
        [("root", n) for n in ("selected_workflow", "recommendedWorkflow", "chosen_workflow", "workflow")],
        st.builds(lambda name: CHOICE | {"workflow_id": name}, NAME),
    ),
    "the outcome": ([("root", "investigation_outcome"), ("root", "outcome")], WORDS),
    "the severity": ([("cause", "severity"), ("root", "severity"), ("root", "rca_severity")], WORDS),
    "the signal type": ([("cause", "signal_type"), ("root", "signalType"), ("root", "rca_signal_type")], WORDS),
    "the chain": (
        [(at, n) for at in ("cause", "root") for n in ("causal_chain", "causalClaims", "chain_of_causes")],
        st.lists(WORDS, min_size=1, max_size=3),
    ),
    "the object": (
        [
            (at, name)
            for at in ("cause", "root")
            for name in ("affectedResource", "affected_object", "affectedResources", "remediation_target", "targetResource")
        ],
        OBJECTS,
    ),
    "the alternatives": (
        [("root", "alternative_workflows"), ("root", "alternatives")],
        st.lists(st.builds(lambda name: {"workflow_id": name}, NAME), min_size=1, max_size=2),
    ),
}  # fmt: skip


def at_place(answer, place, value):
    """The answer with one field set, whatever names the field had before."""
    part, name = place
    path = PART[part]
    if not path:
        return answer | {name: value}
    return answer | {path[0]: answer.get(path[0], {}) | {name: value}}


def without(answer, places):
    changed = json.loads(json.dumps(answer))
    for part, name in places:
        (changed.get(PART[part][0], {}) if PART[part] else changed).pop(name, None)
    return changed


@pytest.mark.parametrize("field", FIELDS)
@given(st.data())
def test_two_values_under_two_names_of_one_field_are_none(field, data):
    """Nor does a null that says that no workflow is chosen give way to a choice under another name."""
    places, values = FIELDS[field]
    one, other = data.draw(st.lists(st.sampled_from(places), min_size=2, max_size=2, unique=True))
    first, second = data.draw(values), data.draw(values | st.none() if field == "the choice" else values)
    assume(not same_value(first, second))
    answer = without(CANONICAL, places)
    said = at_place(at_place(answer, one, first), other, second)
    text = json.dumps({"result": said} if data.draw(st.booleans()) else said)
    assert (field == "the object" and read(text).problems) or unreadable(text) is Unreadable.CONTRADICTORY
    assert read(at_place(said, other, first)).problems == read(at_place(answer, one, first)).problems


@pytest.mark.parametrize("field", [field for field in FIELDS if field != "the choice"])
@given(st.data())
def test_a_null_under_another_name_of_a_field_changes_nothing(field, data):
    places, values = FIELDS[field]
    one, other = data.draw(st.lists(st.sampled_from(places), min_size=2, max_size=2, unique=True))
    assume(other[1] not in {"workflow_id", "id"})  # a null there says that no workflow is chosen
    answer = at_place(without(CANONICAL, places), one, data.draw(values))
    assert content(read(at_place(answer, other, None))) == content(read(answer))


@given(st.integers(-(10**9), 10**9))
def test_a_number_may_be_text_in_one_of_two_places(number):
    answer = workflow_with(parameters={"N": number})
    assert content(read(answer | {"parameters": {"N": str(number)}})) == content(read(answer))
    assert unreadable(json.dumps(answer | {"parameters": {"N": f"{number}0"}})) is (Unreadable.CONTRADICTORY)


@given(st.lists(WORDS, max_size=3), st.lists(WORDS, max_size=3))
def test_factors_at_two_levels_are_joined(one, other):
    answer = at_place(CANONICAL, ("cause", "contributing_factors"), one)
    said = read(answer | {"contributing_factors": other}).contributing_factors
    assert {*said} == {*read(answer).contributing_factors} | {
        *read(at_place(CANONICAL, ("cause", "contributing_factors"), other)).contributing_factors
    }


PROSE = {
    "summary": (
        [("cause", "summary"), ("cause", "rootCause")]
        + [("root", n) for n in ("rca_summary", "root_cause_summary", "root_cause_assessment", "root_cause")],
        lambda answer: answer.summary,
    ),
    "rationale": ([("root", "rationale"), ("root", "reasoning")], lambda answer: answer.rationale),
    "the workflow's rationale": (
        [("workflow", name) for name in ("rationale", "reasoning", "reason")],
        lambda answer: answer.selected_workflow.rationale,
    ),
}


@pytest.mark.parametrize("field", PROSE)
@given(st.data())
def test_two_wordings_under_two_names_of_one_field_are_both_kept(field, data):
    places, written = PROSE[field]
    one, other = data.draw(st.lists(st.sampled_from(places), min_size=2, max_size=2, unique=True))
    said = at_place(at_place(without(CANONICAL, places), one, "killed at its limit"), other, "out of memory")
    text = written(read(json.dumps(said)))
    assert "killed at its limit" in text
    assert "out of memory" in text
