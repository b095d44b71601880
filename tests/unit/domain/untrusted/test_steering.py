from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.injections import HARMLESS
from tests.fakes.steering_texts import ALERTS, EVERYDAY, STEERING, UNREAD
from tests.fakes.tool_context import evidence_from
from tests.unit.domain.untrusted.test_injection import ordinary_texts
from worker.domain.untrusted.evidence import Evidence, make_visible
from worker.domain.untrusted.steering import SHOWN_CHARS, steering, steering_lines

ADVICE = ("Runbook: restart",)


@pytest.mark.parametrize("text", [*STEERING, *UNREAD])
def test_what_steers_is_found_in_a_log(text):
    assert steering_lines(f"2026-06-04T15:32:00Z INFO starting\n{text}\n2026-06-04T15:32:01Z ERROR no")


@pytest.mark.parametrize("text", [*STEERING, *UNREAD])
def test_and_in_a_document_and_as_hidden_characters_are_shown(text):
    pod = {"kind": "Pod", "metadata": {"annotations": {"note": f"{'x' * 1_000} {text} {'y' * 1_000}"}}}
    assert steering_lines(json.dumps(pod))
    assert steering_lines(make_visible("\u200b".join(text)))


@pytest.mark.parametrize("text", EVERYDAY)
def test_what_software_says_does_not_steer(text):
    assert [] == steering_lines(text)


@pytest.mark.parametrize("text", [text for text in HARMLESS if not text.startswith(ADVICE)])
def test_nor_does_what_only_looks_alike(text):
    assert [] == steering_lines(text)


@pytest.mark.parametrize("text", ALERTS)
def test_nor_does_an_alert(text):
    assert [] == steering_lines(text, of_sender=True)


@pytest.mark.parametrize(
    "text", [STEERING[0], STEERING[2], STEERING[6], STEERING[10], STEERING[13], UNREAD[0]]
)
def test_a_sender_and_a_line_of_a_catalog_may_steer_too(text):
    assert steering_lines(text, of_sender=True)
    planted = {"workflows": [{"description": f"Restarts a Deployment. {text}"}]}
    item = Evidence("list_workflows", "", json.dumps(planted), id="E1")
    if text not in STEERING[10:14]:  # causes and remedies are what a catalog is about
        assert ["E1"] == list(steering([item]))


def test_a_catalog_may_say_when_to_use_a_workflow():
    said = "Use when the rollout must be undone: roll back the deployment, then fix the root cause."
    item = Evidence("get_workflow", "", json.dumps({"when_to_use": said}), id="E1")
    assert {} == steering([item])


def test_no_line_of_an_ordinary_incident_steers():
    found = {
        name: steering_lines(text, of_sender=name.endswith("incident.json"))
        for name, text in ordinary_texts().items()
    }
    assert {} == {name: lines for name, lines in found.items() if lines}


def test_past_remediations_are_no_steering():
    shown = {"root_owner": {}, "remediation_history": [{"note": STEERING[5]}]}
    item = evidence_from("get_resource_context", "", json.dumps(shown), id="E1")
    assert {} == steering([item])


def test_errors_of_our_own_do_not_steer_but_those_of_a_mounted_server_may():
    ours = Evidence("get_resource", "", f"error: {STEERING[0]}", ok=False, id="E1")
    assert {} == steering([ours])
    assert ["E2"] == list(steering([Evidence("mcp:docs", "", STEERING[0], ok=False, id="E2")]))


@given(st.text(max_size=2_000))
def test_whatever_is_read_what_is_shown_is_short_and_on_one_line(text):
    assert all(len(line) <= SHOWN_CHARS and "\n" not in line for line in steering_lines(text))
