"""Answers that are submitted through the tool: the form that is offered, and what is read of what comes back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from schemas.taxonomy import Severity
from tests.fakes.answers import CANONICAL, OTHER_CHOICE, answer_with, content, read
from tests.fakes.memory_model import calls
from worker.domain.values.conversation import CallUsage, Finish, Reply, ToolCall
from worker.domain.verdict.answers.answer import InvestigationOutcome, Unreadable, UnreadableAnswer
from worker.domain.verdict.answers.form import INCIDENT_ANSWER, RECOVERY_ANSWER, SUBMIT_RESULT
from worker.domain.verdict.answers.parse import answer_text, is_final, read_reply

FORM = {
    "analysis": "The limit was lowered; E3 shows the kills.",
    **CANONICAL,
    "confidence": 0.9,
    "rationale": "",
    "selected_workflow": {
        **CANONICAL["selected_workflow"],
        "estimated_downtime_seconds": 30,
        "impact_on_dependencies": "none",
        "parameters": [
            {"name": "TARGET_NAMESPACE", "value": "shop"},
            {"name": "FACTOR", "value": 2},
            {"name": "DRY_RUN", "value": False},
            {"name": "NOTE", "value": None},
        ],
    },
    "context_used": {**CANONICAL["context_used"], "resource_availability": ""},
}
"""The canonical answer in the form of the tool."""


def submitted(*answers, text="", finish=Finish.TOOL_CALLS, problem=""):
    made = tuple(ToolCall(f"c{n}", SUBMIT_RESULT, given, problem) for n, given in enumerate(answers))
    return Reply(text, made, finish, CallUsage(), "m")


def reason(reply):
    with pytest.raises(UnreadableAnswer) as rejected:
        read_reply(reply)
    return rejected.value.reason


def test_the_form_filled_in_is_the_answer():
    found = read_reply(submitted(FORM))
    assert (found.confidence, found.prose) == (0.9, FORM["analysis"])
    assert (30, "none") == (
        found.selected_workflow.estimated_downtime_seconds,
        found.selected_workflow.impact_on_dependencies,
    )
    assert found.selected_workflow.parameters == CANONICAL["selected_workflow"]["parameters"]
    assert found.problems == ()


@pytest.mark.parametrize(
    "given",
    [CANONICAL, {"result": CANONICAL}, {"answer": json.dumps(CANONICAL)}],
    ids=["object", "wrapped", "text"],
)
def test_other_forms_are_read_as_in_text(given):
    assert content(read(CANONICAL)) == content(read_reply(submitted(given)))


def test_an_incomplete_submission_is_left_to_the_checks():
    found = read_reply(submitted({"selected_workflow": None}))
    assert (found.summary, found.workflow_stated) == ("", True)
    assert read_reply(submitted({})).workflow_stated is False


def test_the_text_beside_a_submission_is_the_prose():
    assert read_reply(submitted(FORM, text="Found it.")).prose == "Found it."


def test_an_answer_beside_a_submission_may_say_the_same():
    text = f"I submit this: {json.dumps(CANONICAL)}"
    assert replace(content(read(CANONICAL)), prose=text) == read_reply(submitted(CANONICAL, text=text))
    for asks in (True, False):
        beside = json.dumps({"needs_human_review": asks})
        assert asks is read_reply(submitted(CANONICAL, text=beside)).asks_for_human


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Needs human review: true", True),
        ("**Needs human review:** No", False),
        (f"Draft: {json.dumps(OTHER_CHOICE)[:-30]}", True),
        (f"Draft: {json.dumps(OTHER_CHOICE).replace(':', '', 3)}", True),
        ("**Selected workflow:** raise-memory-v2", False),
        ("**Warnings:** none", False),
    ],
)
def test_a_line_beside_a_submission_may_ask_for_a_human(text, asks):
    assert replace(read(CANONICAL), prose=text, asks_for_human=asks) == read_reply(
        submitted(CANONICAL, text=text)
    )


@pytest.mark.parametrize("text", ["## Selected workflow\nnull", "**Selected workflow:** none"])
def test_a_line_beside_a_submission_may_not_refuse_to_choose(text):
    with pytest.raises(UnreadableAnswer):
        read_reply(submitted(CANONICAL, text=text))
    nothing = answer_with(selected_workflow=None)
    assert read_reply(submitted(nothing, text=text)).selected_workflow is None


def test_the_same_submission_twice_is_one():
    assert content(read_reply(submitted(CANONICAL, CANONICAL))) == content(read(CANONICAL))


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (submitted(CANONICAL, answer_with(selected_workflow=None)), Unreadable.CONTRADICTORY),
        (submitted({"a": CANONICAL, "b": OTHER_CHOICE}), Unreadable.CONTRADICTORY),
        (submitted({"outcome": "a", "Outcome": "b", **CANONICAL}), Unreadable.CONTRADICTORY),
        (submitted(CANONICAL, text=json.dumps(OTHER_CHOICE)), Unreadable.CONTRADICTORY),
        (
            submitted(CANONICAL, text=json.dumps(answer_with(selected_workflow=None))),
            Unreadable.CONTRADICTORY,
        ),
        (submitted(CANONICAL, text='{"selected_workflow": null}'), Unreadable.CONTRADICTORY),
        (
            submitted(answer_with(selected_workflow=None), text=json.dumps(CANONICAL)),
            Unreadable.CONTRADICTORY,
        ),
        (
            submitted(CANONICAL, text=f"{json.dumps(CANONICAL)} or {json.dumps(OTHER_CHOICE)}"),
            Unreadable.CONTRADICTORY,
        ),
        (submitted({}, problem="not JSON"), Unreadable.BROKEN_JSON),
        (submitted({}, problem="not JSON", finish=Finish.LENGTH), Unreadable.TRUNCATED),
        (submitted({"x": "y" * 1024 * 1024}), Unreadable.TOO_LONG),
        (submitted(CANONICAL, finish=Finish.LENGTH), Unreadable.TRUNCATED),
        (submitted(CANONICAL, finish=Finish.REFUSAL), Unreadable.REFUSED),
        (submitted({"selected_workflow": None, "analysis": json.dumps(CANONICAL)}), Unreadable.CONTRADICTORY),
        (Reply("", (), Finish.STOP, CallUsage(), "m", thinking_chars=900), Unreadable.IN_THOUGHT),
        (Reply("", (), Finish.REFUSAL, CallUsage(), "m", thinking_chars=900), Unreadable.REFUSED),
        (Reply("", (), Finish.STOP, CallUsage(), "m"), Unreadable.EMPTY),
    ],
)
def test_what_holds_no_answer_says_why(reply, why):
    assert why is reason(reply)


def test_an_answer_in_text_is_read_where_none_is_submitted():
    reply = Reply(json.dumps(CANONICAL), (), Finish.STOP, CallUsage(), "m")
    assert content(read(CANONICAL)) == content(read_reply(reply))


def test_a_reply_is_final_if_it_submits_or_calls_nothing():
    assert is_final(submitted(CANONICAL))
    assert is_final(Reply("", (), Finish.STOP, CallUsage(), "m"))
    assert not is_final(calls(("get_resource", {})))
    assert is_final(calls(("get_resource", {}), (SUBMIT_RESULT, CANONICAL)))


def test_people_see_what_was_submitted():
    assert answer_text(submitted({"a": 1}, text="Found it.")) == 'Found it.\n{"a": 1}'
    assert answer_text(submitted({"a": 1})) == '{"a": 1}'


def objects(schema):
    """All object schemas in a schema."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


@pytest.mark.parametrize("tool", [INCIDENT_ANSWER, RECOVERY_ANSWER])
def test_the_form_can_be_enforced(tool):
    """Strict modes want closed objects whose fields are all required, and no references to other places."""
    assert all(set(each["properties"]) == set(each["required"]) for each in objects(tool.parameters))
    assert "$ref" not in json.dumps(tool.parameters)
    assert tool.is_answer


def test_the_form_has_the_words_that_are_accepted():
    cause = INCIDENT_ANSWER.parameters["properties"]["root_cause_analysis"]["properties"]
    assert cause["severity"]["enum"] == [level for level in Severity if level is not Severity.UNKNOWN]
    outcome = INCIDENT_ANSWER.parameters["properties"]["investigation_outcome"]
    assert outcome["enum"] == list(InvestigationOutcome)
    assert set(FORM) == set(INCIDENT_ANSWER.parameters["properties"])


@pytest.mark.parametrize("name", ["Submit_Result", "submitResult", "submit-result"])
def test_the_name_of_the_tool_may_differ_in_case_and_separators(name):
    reply = submitted(FORM)
    [call] = reply.tool_calls
    assert read_reply(replace(reply, tool_calls=(replace(call, name=name),))) == read_reply(reply)
