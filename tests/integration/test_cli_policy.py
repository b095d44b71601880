"""`rca policy`: what a person sees who writes approval rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import rca
from worker.domain.policy_example import example_input

DEPLOY = Path(__file__).parents[2] / "deploy" / "policies"
STUCK = """package rca.approval
import rego.v1
require_approval if count([1 | some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); a * b == 0]) > 0
"""


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "input.json"
    path.write_text(json.dumps(example_input() | {"warnings": [], "failed_detections": []}))
    return path


async def test_the_example_is_an_input(tmp_path):
    printed = await rca("policy", "input")
    assert example_input() == json.loads(printed.out)
    path = tmp_path / "input.json"
    path.write_text(printed.out)
    tested = await rca("policy", "test", str(DEPLOY / "approval.rego"), str(path))
    assert (0, "") == (tested.code, tested.err)


async def test_the_decision_is_shown_with_its_reasons(document):
    free = await rca("policy", "test", str(DEPLOY / "approval.rego"), str(document))
    assert 0 == free.code
    assert "approval required: no\n" in free.out
    document.write_text(json.dumps(example_input()))
    required = await rca("policy", "test", str(DEPLOY / "approval.rego"), str(document))
    lines = required.out.splitlines()
    assert lines[0].startswith("policy: rego:approval.rego@")
    assert "approval required: yes" == lines[1]
    assert "  because the analysis has warnings" in lines
    assert "   60  the analysis has warnings" in lines
    assert lines[-1].startswith("time: ")
    assert lines[-1].endswith(" ms of 50 ms")


async def test_what_is_misspelt_or_missing_in_the_input_is_told(document):
    given = json.loads(document.read_text())
    given["enviroment"] = given.pop("environment")
    document.write_text(json.dumps(given))
    ended = await rca("policy", "test", str(DEPLOY / "approval.rego"), str(document), "--json")
    assert 0 == ended.code
    assert "warning: input.enviroment (did you mean environment?)" in ended.err
    assert "warning: every policy is asked with environment, too\n" in ended.err
    told = json.loads(ended.out)
    assert ["environment"] == told["missing_fields"]
    assert {"required", "reasons", "risk_factors"} == set(told["approval"])


async def test_a_safety_policy_with_its_data(document):
    policy, limits = str(DEPLOY / "safety" / "safety.rego"), str(DEPLOY / "safety" / "limits.yaml")
    free = await rca("policy", "test", policy, str(document), "--data", limits)
    assert "approval required: no\n" in free.out
    without = await rca("policy", "test", policy, str(document))
    assert "  because the safety policy does not validate restart_deployment\n" in without.out


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("package rca.approval\nimport rego.v1\nrequire_approval if {", "policy.rego:3:22: expecting expression\nA worker does not start"),
        ("package other\nx := 1", "no rule that decides: a policy has a rule require_approval in package rca.approval"),
        (STUCK, "it took longer than 50 ms\nA worker requires approval for such an input"),
    ],
)  # fmt: skip
async def test_a_policy_that_cannot_be_used(tmp_path, document, rules, text):
    path = tmp_path / "policy.rego"
    path.write_text(rules)
    ended = await rca("policy", "test", str(path), str(document))
    assert (1, "") == (ended.code, ended.out)
    assert ended.err.startswith("error: ")
    assert text in ended.err


@pytest.mark.parametrize(
    ("content", "text"), [("{", "line 1"), ("[]", "not an object"), ('{"x": NaN}', "NaN")]
)
async def test_an_input_that_cannot_be_read(document, content, text):
    document.write_text(content)
    ended = await rca("policy", "test", str(DEPLOY / "approval.rego"), str(document))
    assert (1, "") == (ended.code, ended.out)
    assert f"error: input {document}: " in ended.err
    assert text in ended.err


async def test_a_missing_file(tmp_path, document):
    for arguments in ((DEPLOY / "approval.rego", tmp_path / "none"), (tmp_path / "none", document)):
        ended = await rca("policy", "test", *map(str, arguments))
        assert 1 == ended.code
        assert "No such file" in ended.err
