"""Every shape an answer may have is mapped onto one, and what is odd in it becomes a problem or a note."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.answers import CANONICAL, answer_with, content, read, unreadable, workflow_with
from worker.domain.values.objects import ObjectRef
from worker.domain.verdict.answers.answer import (
    Answer,
    AnsweredAlternative,
    AnsweredWorkflow,
    ProblemKind,
    Unreadable,
)
from worker.domain.verdict.answers.shapes import to_answer

CAUSE = CANONICAL["root_cause_analysis"]
TARGET = ObjectRef("Deployment", "orders-api", "shop", "apps/v1")
WORKFLOW = {
    "workflow_id": "raise-memory-v2",
    "confidence": 0.8,
    "rationale": "fits",
    "parameters": {"FACTOR": 2},
}
CHOSEN = AnsweredWorkflow("raise-memory-v2", confidence=0.8, rationale="fits", parameters={"FACTOR": 2})


def test_the_canonical_answer():
    assert Answer(
        summary=CAUSE["summary"],
        severity="high",
        signal_type="OOMKilled",
        contributing_factors=("limit lowered in revision 7", 'no swap, "hard" limit'),
        affected_resource=TARGET,
        selected_workflow=AnsweredWorkflow(
            workflow_id="raise-memory-v2",
            confidence=0.84,
            version="2.1.0",
            rationale="More memory ends the kills.",
            estimated_risk="low",
            parameters={"TARGET_NAMESPACE": "shop", "FACTOR": 2, "DRY_RUN": False, "NOTE": None},
        ),
        workflow_stated=True,
        confidence=1.0,
        alternatives=(AnsweredAlternative("restart-v1", 0.3, "short relief"),),
        outcome="actionable",
        warnings=("memory may leak",),
        context_used={"cluster_state": "healthy", "blast_radius": "one service"},
    ) == read(CANONICAL)


def camel(value: Any) -> Any:
    """Keys in camelCase, but for the names of parameters."""
    if isinstance(value, list):
        return [camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    words = {key: key.split("_") for key in value}
    return {
        key if key.isupper() else words[key][0] + "".join(map(str.title, words[key][1:])): camel(item)
        for key, item in value.items()
    }


@pytest.mark.parametrize(
    "spelled",
    [
        camel({key: value for key, value in CANONICAL.items() if key != "root_cause_analysis"})
        | {"rootCauseAnalysis": camel(CAUSE)},
        answer_with(root_cause_analysis=CAUSE | {"affected_resource": CAUSE["affectedResource"]}),
        {key.upper(): value for key, value in CANONICAL.items()},
        {key.replace("_", "-"): value for key, value in CANONICAL.items()},
        {key.replace("_", " ").title(): value for key, value in CANONICAL.items()},
    ],
)
def test_keys_in_any_spelling(spelled):
    assert content(read(CANONICAL)) == content(read(spelled))


def test_the_older_answer_with_a_selected_workflow():
    answer = read(
        {
            "analysis_summary": "The API is down.",
            "root_cause_assessment": "Its limit is too low.",
            "rca_severity": "critical",
            "selected_workflow": WORKFLOW,
            "warnings": ["one", "two"],
            "alternative_workflows": [{"workflow_id": "b", "confidence": 0.65, "rationale": "later"}],
        }
    )
    assert (answer.summary, answer.severity) == ("Its limit is too low. The API is down.", "critical")
    assert (answer.selected_workflow, answer.workflow_stated) == (CHOSEN, True)
    assert (answer.warnings, answer.affected_resource) == (("one", "two"), None)
    assert (AnsweredAlternative("b", 0.65, "later"),) == answer.alternatives


def test_the_older_answer_with_strategies_chooses_the_one_with_the_highest_confidence():
    answer = read(
        {
            "analysis_summary": "Two ways.",
            "root_cause_assessment": "A leak.",
            "strategies": [
                {"workflow_id": "restart-v1", "confidence": 0.75, "rationale": "short"},
                WORKFLOW | {"estimated_risk": "Low", "version": "1.0.0"},
            ],
            "context_used": {"clusterState": "ok", "blast_radius": "small"},
        }
    )
    assert (
        answer.selected_workflow.workflow_id,
        answer.selected_workflow.confidence,
        answer.selected_workflow.estimated_risk,
        answer.selected_workflow.version,
    ) == ("raise-memory-v2", 0.8, "low", "1.0.0")
    assert (AnsweredAlternative("restart-v1", 0.75, "short"),) == answer.alternatives
    assert answer.context_used == {"cluster_state": "ok", "blast_radius": "small"}


def test_no_strategies_choose_nothing():
    answer = read({"analysis_summary": "x", "root_cause_assessment": "y", "strategies": []})
    assert (answer.selected_workflow, answer.workflow_stated) == (None, True)


def test_the_recommended_action_of_the_first_rank_is_a_choice():
    answer = read(
        {
            "root_cause": "Memory limit (512Mi) insufficient for current load",
            "confidence": 0.92,
            "recommendations": [
                {"action": "increase_memory_limit", "priority": 2, "risk_level": "medium"},
                {
                    "action": "scale_deployment",
                    "priority": 1,
                    "details": {"replicas": 5},
                    "rationale": "relief without downtime",
                    "estimated_downtime_seconds": 0,
                    "risk_level": "low",
                    "impact_on_dependencies": "minimal",
                },
            ],
        }
    )
    assert (answer.summary, answer.confidence) == ("Memory limit (512Mi) insufficient for current load", 0.92)
    assert answer.workflow_stated
    assert answer.selected_workflow == AnsweredWorkflow(
        "scale_deployment",
        confidence=0.92,
        rationale="relief without downtime",
        estimated_risk="low",
        estimated_downtime_seconds=0,
        impact_on_dependencies="minimal",
        by_action=True,
    )


@pytest.mark.parametrize(
    ("recommendations", "chosen"),
    [
        ([{"action": "a"}, {"action": "b"}], "a"),
        ([{"action": "a"}, {"action": "b", "priority": "1"}], "b"),
        ([{"name": "no action"}], None),
    ],
)
def test_recommended_actions_without_ranks_come_in_their_order(recommendations, chosen):
    found = read({"root_cause": "x", "confidence": 0.9, "recommendations": recommendations})
    assert chosen == (found.selected_workflow.workflow_id if found.selected_workflow else None)


@pytest.mark.parametrize(
    ("own", "confidence"), [({}, 0.9), ({"probability": 0.8}, 0.8), ({"confidence": None}, None)]
)
def test_an_action_without_a_confidence_has_that_of_the_answer(own, confidence):
    found = read({"root_cause": "x", "confidence": 0.9, "recommendations": [{"action": "a", **own}]})
    assert confidence == found.selected_workflow.confidence


def test_two_recommendations_of_the_first_rank_contradict_each_other():
    ranked = [{"action": "a", "priority": 1}, {"action": "b", "priority": 1}]
    assert Unreadable.CONTRADICTORY is unreadable(json.dumps({"root_cause": "x", "recommendations": ranked}))


def test_a_recommendation_with_an_id_is_a_choice():
    answer = read(
        {
            "root_cause": "x",
            "recommendations": [
                {"action": "raise", "risk_level": "low", "estimated_downtime_seconds": 45, "probability": 0.8}
                | {"workflow_id": "raise-memory-v2"},
                {"action": "rollback"},
            ],
        }
    )
    assert (
        AnsweredWorkflow(
            "raise-memory-v2", confidence=0.8, estimated_risk="low", estimated_downtime_seconds=45
        )
        == answer.selected_workflow
    )


def test_the_recovery_answer():
    answer = read(
        {
            "recovery_analysis": {
                "previous_attempt_assessment": {
                    "failure_understood": True,
                    "failureReasonAnalysis": "quota",
                    "current_signal_type": "Evicted",
                },
                "current_rca": {
                    "summary": "The quota is full.",
                    "severity": "high",
                    "contributing_factors": ["a"],
                    "affectedResource": CAUSE["affectedResource"],
                },
            },
            "selected_workflow": WORKFLOW,
            "recovery_strategy": {
                "approach": "other",
                "differs_from_previous": True,
                "why_different": "quota",
            },
        }
    )
    assert (answer.summary, answer.severity, answer.signal_type) == ("The quota is full.", "high", "Evicted")
    assert (
        answer.affected_resource,
        answer.contributing_factors,
        answer.selected_workflow,
    ) == (TARGET, ("a",), CHOSEN)
    assert answer.recovery_strategy == {"approach": "other", "why_different": "quota"}
    assert answer.recovery_analysis["previous_attempt_assessment"]["failure_reason_analysis"] == "quota"


def test_the_signal_type_of_the_cause_comes_before_the_current_one():
    assessment = {"previous_attempt_assessment": {"current_signal_type": "Evicted"}}
    current = {"summary": "x", "signal_type": "OOMKilled"}
    recovery = {"recovery_analysis": assessment | {"current_rca": current}, "selected_workflow": None}
    assert read(recovery).signal_type == "OOMKilled"


@pytest.mark.parametrize(
    "flat",
    [
        {"rca_summary": "s", "workflow_id": "raise-memory-v2"},
        {"summary": "s", "selected_workflow": "raise-memory-v2"},
        {"root_cause": "s", "workflowId": "raise-memory-v2"},
        {"root_cause_analysis": "s", "workflow_id": "raise-memory-v2"},
        {"analysis_summary": "s", "recommended_workflow": "raise-memory-v2"},
    ],
)
def test_flat_answers(flat):
    answer = read(
        flat
        | {"severity": "high", "signal_type": "OOMKilled", "affected_resource": CAUSE["affectedResource"]}
        | {"confidence": 0.8, "rationale": "fits", "parameters": {"FACTOR": 2}}
    )
    assert (
        answer.selected_workflow,
        answer.summary,
        answer.severity,
        answer.signal_type,
        answer.affected_resource,
    ) == (CHOSEN, "s", "high", "OOMKilled", TARGET)


@pytest.mark.parametrize(
    "workflow",
    [
        WORKFLOW,
        [WORKFLOW],
        {"id": "raise-memory-v2"} | {key: WORKFLOW[key] for key in WORKFLOW if key != "workflow_id"},
        {"workflowId": "raise-memory-v2", "confidence_score": 0.8, "reason": "fits", "params": {"FACTOR": 2}},
    ],
)
@pytest.mark.parametrize("key", ["selected_workflow", "recommended_workflow", "selectedWorkflow", "workflow"])
def test_the_chosen_workflow_in_other_words(key, workflow):
    assert read({"root_cause_analysis": CAUSE, key: workflow}).selected_workflow == CHOSEN


@pytest.mark.parametrize("key", ["container_image", "image", "execution_bundle", "executionBundle", "bundle"])
def test_the_image_of_the_chosen_workflow_in_other_words(key):
    chosen = read(workflow_with(**{key: "registry.example.com/other@sha256:00"})).selected_workflow
    assert chosen.container_image == "registry.example.com/other@sha256:00"


@pytest.mark.parametrize(
    "nothing",
    [None, "", " ", {}, [], "none", "None", "null", "N/A", "no workflow", "no_matching_workflows", "-"]
    + [{"workflow_id": nothing} for nothing in (None, "", "none")],
)
def test_no_workflow(nothing):
    answer = read(answer_with(selected_workflow=nothing, confidence=0.9, rationale="none fits"))
    assert (answer.selected_workflow, answer.workflow_stated, answer.confidence) == (None, True, 0.9)
    assert (answer.rationale, answer.problems) == ("none fits", ())


def test_why_no_workflow_may_stand_in_its_place():
    answer = read(answer_with(selected_workflow={"workflow_id": None, "rationale": "none fits"}))
    assert (answer.rationale, answer.selected_workflow) == ("none fits", None)


@pytest.mark.parametrize(
    ("fields", "stated"),
    [
        ({}, False),
        ({"human_review_reason": "no_matching_workflows"}, True),
        ({"human_review_reason": "other"}, False),
    ],
)
def test_a_missing_choice_is_not_a_choice(fields, stated):
    answer = read(answer_with(selected_workflow=..., **fields))
    assert (None, stated) == (answer.selected_workflow, answer.workflow_stated)


def test_a_workflow_without_a_cause_is_read_for_the_verdict_to_name_what_is_missing():
    answer = read({"selected_workflow": WORKFLOW})
    assert (answer.summary, answer.affected_resource, answer.selected_workflow) == ("", None, CHOSEN)


@pytest.mark.parametrize("workflow", [{"confidence": 0.9, "parameters": {}}, 7, True])
def test_a_workflow_without_an_id_is_a_problem(workflow):
    answer = read(answer_with(selected_workflow=workflow))
    assert (answer.selected_workflow, answer.workflow_stated) == (None, False)
    assert [(problem.kind, problem.path) for problem in answer.problems] == [
        (ProblemKind.WORKFLOW_UNKNOWN, "selected_workflow.workflow_id")
    ]


@pytest.mark.parametrize("key", ["name", "workflow_name"])
@pytest.mark.parametrize("title", ["Raise the memory limit", None])
def test_a_title_beside_an_id_is_no_other_id(key, title):
    assert read(workflow_with(**{key: title})) == read(CANONICAL)


def test_a_flat_id_may_be_null_beside_the_chosen_workflow():
    assert read(answer_with(workflow_id=None)) == read(CANONICAL)


@pytest.mark.parametrize("flag", [True, False, "maybe"])
def test_flags_that_code_decides_change_nothing(flag):
    flags = {"is_actionable": flag, "target_in_owner_chain": flag, "approved": flag}
    assert read(CANONICAL) == read(answer_with(**flags))


@pytest.mark.parametrize(
    ("fields", "asks"),
    [
        ({}, False),
        ({"needs_human_review": False}, False),
        ({"needsHumanReview": "no", "human_review_reason": None}, False),
        ({"approval": {"required": False}}, False),
        ({"needs_human_review": True}, True),
        ({"needsHumanReview": "true"}, True),
        ({"needs_human_review": "maybe"}, True),
        ({"human_review_reason": "not sure"}, True),
        ({"approval": {"required": True}}, True),
        ({"requires_approval": 1}, True),
        ({"approval": {"status": "required"}}, True),
        ({"approval": {"required": False, "status": "required"}}, True),
        ({"approval": {"approved": False}}, True),
        ({"approval": ["sre"]}, True),
        ({"requires_human_review": {"value": True}}, True),
        ({"humanApprovalRequired": True}, True),
        ({"needs_human": True}, True),
        ({"approval": {"required": "no", "reason": None}}, False),
        ({"approval": {"required": False, "reason": "The restart is safe."}}, False),
        ({"human_review": {"requires_approval": "no", "rationale": "The cause is clear."}}, False),
        ({"approval": {"required": False, "reason": {"required": True}}}, True),
        ({"approval": {"required": False, "Required": True, "reason": "safe"}}, True),
        ({"approval": {"required": False, "reason": "safe", "by": "sre"}}, True),
        ({"approval": {"reason": "The change is large."}}, True),
        ({"approval": "not required, except in production"}, True),
        ({"approval_reason": "not applicable"}, False),
        ({"approval": {}}, False),
        ({"human_readable_name": "x"}, False),
        ({"approval": "\u5fc5\u8981"}, True),
    ],
)
def test_a_model_may_ask_for_a_person(fields, asks):
    read_answer = read(answer_with(**fields))
    assert asks is read_answer.asks_for_human
    assert read(CANONICAL) == replace(read_answer, asks_for_human=False)


@pytest.mark.parametrize(
    ("fields", "asks"),
    [
        ({"requires_approval": True}, True),
        ({"approval": "by an SRE"}, True),
        ({"requires_approval": False}, False),
        ({"parameters": {"REQUIRE_APPROVAL": True}}, False),
    ],
)
def test_a_model_may_ask_for_a_person_at_the_workflow(fields, asks):
    assert asks is read(workflow_with(**fields)).asks_for_human
    beside = f"{json.dumps(CANONICAL)}\n{json.dumps({'human_review': fields.get('requires_approval', asks)})}"
    assert asks is read(beside).asks_for_human


@pytest.mark.parametrize("line", ["# needs_human_review\ntrue", "**Needs human review:** yes"])
def test_a_model_may_ask_for_a_person_in_a_heading(line):
    assert read(f"{line}\n{json.dumps(CANONICAL)}").asks_for_human


def test_the_alternatives_ask_for_nobody():
    other = {"workflow_id": "a", "requires_approval": True}
    assert not read(answer_with(alternative_workflows=[other])).asks_for_human


@pytest.mark.parametrize(("own", "expected"), [(0.1, 0.1), ("10%", 0.1), (0.99, 0.84)])
def test_a_workflow_is_no_surer_than_the_answer(own, expected):
    assert expected == read(answer_with(confidence=own)).selected_workflow.confidence


@pytest.mark.parametrize(
    ("written", "confidence"),
    [
        (0, 0.0),
        (1, 1.0),
        (0.85, 0.85),
        ("0.85", 0.85),
        (" .5 ", 0.5),
        ("85%", 0.85),
        ("85 %", 0.85),
        ("8.5%", 0.085),
        (85, 0.85),
        (100, 1.0),
        (92.5, 0.925),
        ("85", 0.85),
        ("8/10", 0.8),
        ("85 / 100", 0.85),
        ("85 percent", 0.85),
        ("0.9/1.0", 0.9),
        (1e-7, 0.0),
        ("1", 1.0),
        ("100%", 1.0),
    ],
)
def test_confidence_on_a_clear_scale(written, confidence):
    answer = read(workflow_with(confidence=written))
    assert (confidence, ()) == (answer.selected_workflow.confidence, answer.problems)


@pytest.mark.parametrize(
    "written",
    [
        1.5,
        8,
        10,
        170,
        101,
        -0.1,
        -85,
        "170%",
        "-5%",
        "high",
        "0.8 or 0.9",
        "0.8-0.9",
        True,
        False,
        [0.9],
        {"x": 0.9},
        "11/10",
        "0,85",
        "\uff18\uff15",
        "1e400",
        "9" * 40,
    ],
)
def test_confidence_on_no_clear_scale_is_a_problem(written):
    answer = read(workflow_with(confidence=written))
    assert None is answer.selected_workflow.confidence
    assert [(problem.kind, problem.path) for problem in answer.problems] == [
        (ProblemKind.UNREADABLE, "selected_workflow.confidence")
    ]


def test_a_missing_confidence_is_left_to_the_verdict():
    answer = read(workflow_with(confidence=...))
    assert (answer.selected_workflow.confidence, answer.problems) == (None, ())


def test_the_confidence_of_the_answer_is_not_that_of_the_workflow():
    answer = read(workflow_with(confidence=...) | {"confidence": 0.7})
    assert (answer.selected_workflow.confidence, answer.confidence) == (None, 0.7)


def test_the_only_confidence_of_an_answer_in_text_counts_for_all_of_it():
    answer = read(answer_with(confidence=...))
    assert (answer.selected_workflow.confidence, answer.confidence, len(answer.notes)) == (0.84, 0.84, 1)
    assert to_answer(answer_with(confidence=...), submitted=True).confidence is None


@pytest.mark.parametrize("written", [None, ""])
def test_an_empty_confidence_is_none(written):
    answer = read(answer_with(confidence=written))
    assert (answer.confidence, answer.problems, answer.selected_workflow.confidence) == (None, (), 0.84)


@pytest.mark.parametrize("chosen", [{}, {"selected_workflow": None}])
@pytest.mark.parametrize("written", [-3, 1.5, "sure", True, "170%"])
def test_an_odd_confidence_of_the_answer_is_a_problem(written, chosen):
    answer = read(answer_with(confidence=written, **chosen))
    assert answer.confidence is None
    assert [(problem.kind, problem.path) for problem in answer.problems] == [
        (ProblemKind.UNREADABLE, "confidence")
    ]


@pytest.mark.parametrize(
    "parameters",
    [
        {"A": 1, "B": "x"},
        [{"name": "A", "value": 1}, {"name": "B", "value": "x"}],
        [{"key": "A", "value": 1, "type": "integer"}, {"Name": "B", "Value": "x"}],
        [{"A": 1}, {"B": "x"}],
        json.dumps({"A": 1, "B": "x"}),
        json.dumps([{"name": "A", "value": 1}, {"name": "B", "value": "x"}]),
    ],
)
def test_parameters_in_other_forms(parameters):
    assert read(workflow_with(parameters=parameters)).selected_workflow.parameters == {"A": 1, "B": "x"}


@pytest.mark.parametrize("parameters", [None, {}, [], "", "none"])
def test_no_parameters(parameters):
    answer = read(workflow_with(parameters=parameters))
    assert (answer.selected_workflow.parameters, answer.problems) == ({}, ())


def test_values_and_names_of_parameters_stay_as_written():
    written = {
        "a_B": "2",
        "aB": 2,
        "list": [1, {"x": None}],
        "text": " x; rm -rf / \u200b",
        "null": None,
        "t": True,
    }
    assert written == read(workflow_with(parameters=written)).selected_workflow.parameters


@pytest.mark.parametrize(
    "parameters",
    ["A=1", 7, [1, 2], [{"name": "A"}], ["A=1"], {"A": "x" * 5_000}, {f"P{n}": n for n in range(101)}],
)
def test_parameters_that_cannot_be_read_are_a_problem(parameters):
    answer = read(workflow_with(parameters=parameters))
    assert answer.selected_workflow.parameters == {}
    assert [(problem.kind, problem.path) for problem in answer.problems] == [
        (ProblemKind.PARAMETERS, "selected_workflow.parameters")
    ]


@pytest.mark.parametrize(
    ("written", "target"),
    [
        ("shop/Deployment/web", ObjectRef("Deployment", "web", "shop")),
        ("Deployment/shop/web", ObjectRef("Deployment", "web", "shop")),
        ("shop/apps/StatefulSet/db", ObjectRef("StatefulSet", "db", "shop")),
        ("Node/n1", ObjectRef("Node", "n1")),
        ("deployment/web", ObjectRef("Deployment", "web")),
        ([CAUSE["affectedResource"]], TARGET),
        ({"Kind": "Node", "Name": "n1", "Namespace": None}, ObjectRef("Node", "n1")),
        ({"kind": "Node", "name": "n1", "namespace": "N/A"}, ObjectRef("Node", "n1")),
        ({"kind": "Pod", "name": 7, "namespace": "na"}, ObjectRef("Pod", "7", "na")),
        (
            {"resource_kind": "Pod", "resource_name": "p", "api_version": "v1"},
            ObjectRef("Pod", "p", "", "v1"),
        ),
        ({"name": "p"}, ObjectRef("", "p")),
        (None, None),
        ({}, None),
        ("", None),
    ],
)
def test_the_affected_resource_in_other_forms(written, target):
    answer = read(answer_with(root_cause_analysis=CAUSE | {"affectedResource": written}))
    assert (target, ()) == (answer.affected_resource, answer.problems)


@pytest.mark.parametrize(
    "written", ["the web deployment", "web", "a//b", "a/b/c/d/e", 7, [CAUSE, TARGET.name]]
)
def test_an_affected_resource_that_is_no_object_is_a_problem(written):
    answer = read(answer_with(root_cause_analysis=CAUSE | {"affectedResource": written}))
    assert None is answer.affected_resource
    assert [(problem.kind, problem.path) for problem in answer.problems] == [
        (ProblemKind.RCA, "root_cause_analysis.affectedResource")
    ]


@pytest.mark.parametrize(
    "key", ["remediationTarget", "remediation_target", "target_resource", "affected_resources"]
)
@pytest.mark.parametrize("inside", [True, False])
def test_other_names_for_the_affected_resource(key, inside):
    named = {key: [CAUSE["affectedResource"]] if key.endswith("s") else CAUSE["affectedResource"]}
    cause = {"summary": "x"} | (named if inside else {})
    assert (
        read({"rca": cause, "selected_workflow": None} | ({} if inside else named)).affected_resource
        == TARGET
    )


@pytest.mark.parametrize(
    "key", ["affected_resource", "affectedObject", "remediationTarget", "target_resource"]
)
@pytest.mark.parametrize(
    "value",
    [
        {"kind": "Pod", "name": "orders-api-1", "namespace": "shop"},
        {"kind": "Pod"},
        "Deployment/billing/orders-api",
        "deployment/orders",
        {**CAUSE["affectedResource"], "apiVersion": "apps/v2"},
    ],
)
def test_two_different_affected_resources_are_a_problem(key, value):
    answer = read(answer_with(**{key: value}))
    assert (
        answer.affected_resource,
        [problem.kind for problem in answer.problems],
    ) == (None, [ProblemKind.RCA])


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        [],
        "Deployment/shop/orders-api",
        "deployment/orders-api",
        {"kind": "Deployment", "name": "orders-api"},
    ],
)
def test_an_affected_resource_may_be_repeated_in_another_form(value):
    answer = read(answer_with(affected_resource=value))
    assert (answer.affected_resource, answer.problems) == (TARGET, ())


@pytest.mark.parametrize(
    ("written", "outcome"),
    [
        ("not_actionable", "not_actionable"),
        ("Not Actionable", "not_actionable"),
        ("problemResolved", "problem_resolved"),
        ("INSUFFICIENT-DATA", "insufficient_data"),
        (None, ""),
        ("", ""),
    ],
)
def test_outcomes_in_one_spelling(written, outcome):
    assert outcome == read(answer_with(investigation_outcome=written)).outcome


def test_texts_are_bounded_and_the_cut_is_noted():
    answer = read(
        answer_with(
            root_cause_analysis=CAUSE
            | {"summary": "s" * 5_000, "contributing_factors": [f"f{n}" for n in range(30)]},
            warnings="only one",
            alternative_workflows=[{"workflow_id": f"w{n}"} for n in range(30)],
        )
    )
    assert (
        answer.summary,
        len(answer.contributing_factors),
        len(answer.alternatives),
    ) == ("s" * 4_000 + "…", 20, 20)
    assert answer.warnings == ("only one",)
    assert {"alternative_workflows", "contributing_factors", "root_cause_analysis.summary"} == {
        note.split()[0] for note in answer.notes
    }


def test_an_id_that_is_too_long_cannot_match_by_its_head():
    answer = read(workflow_with(workflow_id="a" * 600))
    assert answer.selected_workflow.workflow_id == "a" * 512 + "…"


def test_an_id_that_is_no_ascii_word_is_an_id():
    assert read(workflow_with(workflow_id="回滚")).selected_workflow.workflow_id == "回滚"


@pytest.mark.parametrize(
    ("written", "shown"),
    [("a\x00b\x1b[0m", "a\ufffdb\ufffd[0m"), ("a\r\nb\tc", "a\nb\tc"), ("x\ud800y", "x\ufffdy")],
)
def test_control_characters_do_not_pass(written, shown):
    assert shown == read(answer_with(root_cause_analysis=CAUSE | {"summary": written})).summary


@pytest.mark.parametrize(
    ("written", "read_as"),
    [("slow", ("slow",)), ([1, None, "", {"a": 1}], ("1", '{"a": 1}')), (None, ()), ("none", ()), ({}, ())],
)
def test_lists_of_words_in_other_forms(written, read_as):
    assert read_as == read(answer_with(warnings=written)).warnings


def test_deep_or_wide_recovery_trees_are_cut():
    deep: Any = "x"
    for _ in range(10):
        deep = {"a": deep}
    wide = {f"k{n}": n for n in range(80)}
    answer = read(
        answer_with(recovery_analysis={"deep": deep, "wide": wide}, recovery_strategy="wait longer")
    )
    assert len(answer.recovery_analysis["wide"]) == 50
    assert "x" not in json.dumps(answer.recovery_analysis["deep"])
    assert answer.recovery_strategy == {"approach": "wait longer"}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(45, 45), (45.1, 46), ("45", 45), (" 9999.5 ", 10_000), (0, 0), (10**9, 10**9), (None, None)],
)
def test_the_estimated_downtime(written, seconds):
    answer = read(workflow_with(estimated_downtime_seconds=written))
    assert seconds == answer.selected_workflow.estimated_downtime_seconds
    assert answer.notes == ()


@pytest.mark.parametrize("written", ["45s", "10 minutes", -1, True, [45], {"s": 45}, 1e300, "nan"])
def test_a_downtime_that_is_no_number_of_seconds_is_unknown_and_noted(written):
    answer = read(workflow_with(estimated_downtime_seconds=written))
    assert answer.selected_workflow.estimated_downtime_seconds is None
    assert [True] == ["estimated_downtime_seconds" in note for note in answer.notes]


ODD = [None, 7, 0.5, True, "text", [], ["x"], [[]], {}, {"a": {"b": 1}}, [{"name": "x"}]]


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize(
    "key", [*CANONICAL, "confidence", "rationale", "recovery_analysis", "recovery_strategy"]
)
def test_any_value_in_any_place_is_read(key, odd):
    changed = CANONICAL | {"selected_workflow": CANONICAL["selected_workflow"], key: odd}
    assert isinstance(read(changed), Answer)


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("key", CANONICAL["selected_workflow"])
def test_any_value_in_a_workflow_is_read(key, odd):
    assert isinstance(read(workflow_with(**{key: odd})), Answer)


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("key", CAUSE)
def test_any_value_in_a_cause_is_read(key, odd):
    assert isinstance(read(answer_with(root_cause_analysis=CAUSE | {key: odd})), Answer)


@pytest.mark.parametrize(
    ("said", "level", "noted"),
    [("Low", "low", False), ("moderate", "medium", False), ("who knows", "", True), (None, "", False)],
)
def test_the_estimated_risk_is_one_of_three_words(said, level, noted):
    answer = read(workflow_with(estimated_risk=said))
    assert level == answer.selected_workflow.estimated_risk
    assert noted == any("estimated_risk" in note for note in answer.notes)
