from __future__ import annotations

import copy
import json

import pytest

from schemas.taxonomy import ReasonCode
from tests.fakes.scripted import FAILED, incident, recovery
from worker.domain.investigation.prompt import PromptFacts, opening_turn
from worker.domain.investigation.prompt.recovery import GUIDANCE, SHOWN_PARAMETERS, guidance
from worker.domain.verdict.answers.form import RECOVERY_ANSWER

TOKEN = "0a1b2c3d4e5f"
SECRET = "ghp_FAKE0123456789abcdefghijklmnopqrstuv"
CODES = tuple(map(str, ReasonCode))


def turn(number=1, **changes):
    """The turn of a recovery; `failure__reason="X"` changes a member of a part of the previous execution."""
    execution = copy.deepcopy(FAILED)
    for name, value in changes.items():
        part, _, member = name.partition("__")
        execution[part][member] = value
    request = recovery(recovery_attempt_number=number, previous_execution=execution)
    return opening_turn(request, PromptFacts(TOKEN))


def test_an_incident_knows_of_no_attempt():
    text = opening_turn(incident(), PromptFacts(TOKEN))
    assert text.startswith("# Incident Analysis Request\n")
    assert "Previous" not in text


def test_the_attempt_that_failed_stands_first():
    text = turn(2)
    assert text.startswith("# Recovery Analysis Request (Attempt 2)\n")
    order = [
        "## Previous Remediation Attempt",
        "### How it failed",
        "### Your task",
        "## Incident Summary",
        "## Evidence",
        "## Your answer",
    ]
    assert sorted(order, key=text.index) == order


def test_what_was_determined_and_done_and_how_it_failed():
    text = turn(failure__exit_code=137)
    for line in (
        "- Signal Type then: CrashLoopBackOff",
        "- Severity then: critical",
        "- Contributing Factors: rollout at 15:20",
        "- Workflow: restart-v1 version 1.2.0",
        "- Image: registry.example.com/restart@sha256:00ff",
        "  - TARGET_RESOURCE_NAME: api",
        "- Step 1: wait-for-ready",
        "- Kubernetes Reason: DeadlineExceeded",
        "- Exit Code: 137",
        "- After: 5m0s",
    ):
        assert f"\n{line}\n" in text
    for scope, body in (
        ("original_rca", "The image 2.4.1 does not start."),
        ("rationale", "A restart clears it."),
        ("failure_message", "the pods were not ready after 5m"),
    ):
        assert f'<data-{TOKEN} source="sender" scope="{scope}">\n{body}\n</data-{TOKEN}>' in text


def test_the_five_instructions_name_workflow_and_reason():
    text = turn()
    assert "1. Do NOT select restart-v1 with the same parameters again" in text
    assert "fit the failure (DeadlineExceeded)" in text
    assert all(f"\n{number}. " in text for number in range(1, 6))


def test_the_turn_ends_with_what_a_recovery_adds_to_the_answer():
    form = turn().split("```json\n")[1].removesuffix("\n```")
    properties = RECOVERY_ANSWER.parameters["properties"]
    for name, example in json.loads(form).items():
        schema = properties[name]
        assert list(example) == schema["required"]
    assert json.loads(form)["recovery_analysis"]["previous_attempt_assessment"]["failure_understood"] is True


def test_the_time_of_the_failure_and_its_reason_are_reported():
    assert "- Failed At: 2026-06-04T15:30:00Z" in turn()
    assert "failure reason in your search rationale" in turn()


def test_each_reason_code_has_guidance_of_its_own():
    assert set(CODES) == set(GUIDANCE)
    assert len({guidance(code) for code in CODES}) == len(CODES)


@pytest.mark.parametrize("code", CODES)
def test_each_reason_code_brings_its_guidance_and_only_its_own(code):
    text = turn(failure__reason=code)
    assert guidance(code) in text
    assert not any(guidance(other) in text for other in CODES if other != code)


def test_another_code_gets_general_guidance():
    text = turn(failure__reason="QuotaExploded")
    assert "The execution failed with QuotaExploded." in text
    assert "finding out what this failure mode means here" in text


def test_guidance_comes_from_the_code_and_not_from_the_message():
    assert guidance("OOMKilled") not in turn(failure__reason="Error", failure__message="OOMKilled: exit 137")


def test_what_is_not_there_leaves_no_trace():
    text = turn(
        selected_workflow__parameters={},
        selected_workflow__rationale="",
        selected_workflow__container_image="",
        selected_workflow__version="",
        original_rca__contributing_factors=[],
    )
    for absent in (
        "Parameters:",
        "Rationale then",
        "Image:",
        " version ",
        "Contributing Factors",
        "Exit Code",
        "None",
    ):
        assert absent not in text.partition("### Your task")[0]


def test_parameters_are_bounded_in_number():
    text = turn(selected_workflow__parameters={f"P{n}": "5" for n in range(100)})
    assert text.count("\n  - P") == SHOWN_PARAMETERS
    assert "\n  - (80 more)\n" in text


def test_parameters_are_bounded_in_size():
    text = turn(selected_workflow__parameters={f"P{n}": "long value " * 100 for n in range(100)})
    assert "characters cut]" in text
    assert "  - (80 more)" in text
    assert len(text) < 8_000


def test_secrets_of_the_attempt_before_are_removed():
    text = turn(
        selected_workflow__parameters={
            "DB_PASSWORD": "FAKE-hunter2",
            "NOTE": SECRET,
            "TOKEN": "FAKE-abcdefgh",
        },
        selected_workflow__rationale=SECRET,
        selected_workflow__container_image=f"registry.example.com/{SECRET}",
        original_rca__summary=SECRET,
        original_rca__contributing_factors=[SECRET],
        failure__message=SECRET,
        failure__failed_step_name=SECRET,
    )
    assert "FAKE" not in text


def test_a_number_of_factors_is_shown():
    text = turn(original_rca__contributing_factors=[f"factor {n}" for n in range(30)])
    assert "factor 7" in text
    assert "factor 8" not in text
