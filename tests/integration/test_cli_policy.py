"""`rca policy`: what a person sees who writes approval rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from worker.app.cli.main import app
from worker.domain.verdict.approval.policy import example_input

DEPLOY = Path(__file__).parents[2] / "deploy" / "policies"
STUCK = """package rca.approval
import rego.v1
require_approval if count([1 | some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); a * b == 0]) > 0
"""


def rca(*arguments: str):
    """The command in this process; the policy is evaluated in one of its own."""
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "input.json"
    path.write_text(json.dumps(example_input() | {"warnings": [], "failed_detections": []}))
    return path


def test_the_example_is_an_input(tmp_path):
    printed = rca("policy", "input")
    assert example_input() == json.loads(printed.stdout)
    path = tmp_path / "input.json"
    path.write_text(printed.stdout)
    tested = rca("policy", "test", str(DEPLOY / "approval.rego"), str(path))
    assert (0, "") == (tested.exit_code, tested.stderr)


def test_the_decision_is_shown_with_its_reasons(document):
    free = rca("policy", "test", str(DEPLOY / "approval.rego"), str(document))
    assert 0 == free.exit_code
    assert "approval required: no\n" in free.stdout
    document.write_text(json.dumps(example_input() | {"unverified": True}))
    required = rca("policy", "test", str(DEPLOY / "approval.rego"), str(document))
    lines = required.stdout.splitlines()
    assert lines[0].startswith("policy: rego:approval.rego@")
    assert "approval required: yes" == lines[1]
    assert "  reason: The worker could not check whether the affected resource exists." in lines
    assert "   40  The analysis has warnings." in lines
    assert lines[-1].startswith("time: ")
    assert lines[-1].endswith(" ms of 50 ms")


def test_what_is_misspelt_or_missing_in_the_input_is_reported(document):
    given = json.loads(document.read_text())
    given["enviroment"] = given.pop("environment")
    document.write_text(json.dumps(given))
    ended = rca("policy", "test", str(DEPLOY / "approval.rego"), str(document), "--json")
    assert 0 == ended.exit_code
    assert "warning: input.enviroment (did you mean environment?)" in ended.stderr
    assert "warning: the input of a worker always has environment as well\n" in ended.stderr
    told = json.loads(ended.stdout)
    assert ["environment"] == told["missing_fields"]
    assert {"required", "reasons", "factors", "risk_factors"} <= set(told["approval"])


def test_a_safety_policy_with_its_data(document):
    policy, limits = str(DEPLOY / "safety" / "safety.rego"), str(DEPLOY / "safety" / "limits.yaml")
    free = rca("policy", "test", policy, str(document), "--data", limits)
    assert "approval required: no\n" in free.stdout
    without = rca("policy", "test", policy, str(document))
    assert "  reason: The safety policy does not validate restart_deployment.\n" in without.stdout


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("package rca.approval\nimport rego.v1\nrequire_approval if {", "policy.rego:3:22: expecting expression\nA worker does not start"),
        ("package other\nx := 1", "no rule that decides: a policy has a rule require_approval in package rca.approval"),
        (STUCK, "it took longer than 50 ms\nA worker requires approval for such an input"),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_used(tmp_path, document, rules, text):
    path = tmp_path / "policy.rego"
    path.write_text(rules)
    ended = rca("policy", "test", str(path), str(document))
    assert (1, "") == (ended.exit_code, ended.stdout)
    assert ended.stderr.startswith("error: ")
    assert text in ended.stderr


@pytest.mark.parametrize(
    ("content", "text"), [("{", "line 1"), ("[]", "not an object"), ('{"x": NaN}', "NaN")]
)
def test_an_input_that_cannot_be_read(document, content, text):
    document.write_text(content)
    ended = rca("policy", "test", str(DEPLOY / "approval.rego"), str(document))
    assert (1, "") == (ended.exit_code, ended.stdout)
    assert f"error: input {document}: " in ended.stderr
    assert text in ended.stderr


def test_a_missing_file(tmp_path, document):
    for arguments in ((DEPLOY / "approval.rego", tmp_path / "none"), (tmp_path / "none", document)):
        ended = rca("policy", "test", *map(str, arguments))
        assert 1 == ended.exit_code
        assert "No such file" in ended.stderr


def test_policies_in_subdirectories_are_reported(document):
    tested = rca("policy", "test", str(DEPLOY), str(document), "--json")
    assert 0 == tested.exit_code
    unused = [str(DEPLOY / name / f"{name}.rego") for name in ("earned", "safety")]
    assert unused == json.loads(tested.stdout)["unused_files"]
    assert "warning: not used: " in tested.stderr
    assert all(path in tested.stderr for path in unused)
