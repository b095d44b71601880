"""What only an evaluator in a process can get wrong: limits, deaths, queries, and answers that are no decision."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.analysis import Approval, RiskFactor
from tests.fakes.rego import PATIENT, RULES, children, policy_files, rego
from tests.waiting import until
from worker.adapters.rego_policy import Evaluator, PolicySources, PolicyUnusable

HEAD = "package rca.approval\nimport rego.v1\n"
STUCK = (
    HEAD
    + """
default require_approval := false
require_approval if {
    input.n > 0
    count([1 | some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); a * b == input.n]) > 0
}
"""
)
HUNGRY = (
    HEAD
    + """
long := concat("", ["xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" | some _ in numbers.range(1, input.n)])
require_approval if count([concat("", [long | some _ in numbers.range(1, input.n)]) | some _ in numbers.range(1, input.n)]) < 0
"""
)

NESTED: list = []
for _ in range(100_000):
    NESTED = [NESTED]


async def decide(module: str, asked=None, **bounds) -> Approval:
    async with rego(module, **bounds) as policy:
        return (await policy.decide(asked or {})).approval


def says(approval: Approval, text: str) -> bool:
    return (
        approval.required and text in approval.reasons[0] and "could not be evaluated" in approval.reasons[0]
    )


def pid_of(policy) -> int:
    return policy._evaluator._process.pid


# --- Decisions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("require_approval if input.nothing", "require_approval is not a boolean"),
        ('require_approval := "false"', "require_approval is not a boolean"),
        ("require_approval := 0", "require_approval is not a boolean"),
        ("require_approval(x) := x", "require_approval is not a boolean"),
        ("require_approval := true\nrequire_approval := false", "0.rego:4:1: rule conflicts"),
        ("require_approval if other\nother if require_approval", "recursion"),
        ("require_approval := false\nrisk_factors contains 7", "a risk factor is not"),
        ("require_approval := false\nrisk_factors := 7", "risk_factors is not"),
        ('require_approval := false\nrisk_factors contains {"score": true, "reason": "x"}', "a risk factor is not"),
        ('require_approval := false\nrisk_factors contains {"score": 5, "reason": ""}', "a risk factor is not"),
    ],
)  # fmt: skip
async def test_what_is_no_decision_requires_approval(rules, text):
    decided = await decide(HEAD + rules)
    assert says(decided, text), decided


async def test_reasons_are_bounded_and_on_one_line():
    rules = """
    require_approval := true
    reasons contains sprintf("%v\\n%v", [n, concat("", ["x y " | some _ in numbers.range(1, 300)])]) if {
        some n in numbers.range(1, 40)
    }
    """
    decided = await decide(HEAD + rules)
    assert len(decided.reasons) == 32
    assert {500} == {len(reason) for reason in decided.reasons}
    assert not any("\n" in reason for reason in decided.reasons)


async def test_a_required_approval_always_has_a_reason():
    decided = await decide(f"{HEAD}require_approval := true")
    assert Approval(required=True, reasons=("The approval policy requires approval.",)) == decided


async def test_an_input_that_is_too_long_requires_approval():
    async with rego(RULES) as policy:
        assert says((await policy.decide({"environment": "x" * 2**20})).approval, "longer than 1048576 bytes")
        assert not (await policy.decide({"environment": "dev"})).approval.required


# --- Loading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("package other\nx := 1", r"require_approval in package rca\.approval or .* here are other\.x"),
        ("package rca.approval\nrequires_approval := true", r"package rca\.approval has no rule require_approval; .* rca\.approval\.requires"),
        ("package safety\nvalidate_actions(a) := true", "package safety has no rule validate_action; its rules are safety.validate_actions"),
        ("package rca.aproval\nrequire_approval := true", r"package rca\.aproval is not used; rename it to rca\.approval"),
        ("package saftey\nvalidate_action(_) := true", "package saftey is not used; rename it to safety"),
        ("package safety\nvalidate_action(a, b) := true", "takes 2 arguments"),
        (f"{HEAD}require_approval if {{", "0.rego:3:22: expecting expression"),
        (f"{HEAD}require_approval {{ true }}", "0.rego:3:18: `if` keyword is required"),
        (f"{HEAD}require_approval if {{ x == unknown }}", "0.rego:3:.*unsafe"),
        ("", "expecting `package`"),
    ],
)  # fmt: skip
async def test_a_policy_that_cannot_be_used_is_known_at_the_start(module, text):
    policy = rego(module)
    with pytest.raises(PolicyUnusable, match=text):
        await policy.start()
    assert (await policy.decide({})).approval.required
    await policy.close()


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({"rca": {"approval": {"require_approval": False}}}, "data.rca.approval.require_approval"),
        ({"rca": {"approval": {"never": {"x": 1}}}}, "data.rca.approval.never"),
        ({"rca": 7}, "data.rca "),
    ],
)
async def test_a_document_cannot_take_the_place_of_a_rule(data, name):
    """The evaluator would answer the document, and never look at the rule."""
    with pytest.raises(PolicyUnusable, match=name):
        await rego(RULES, data=data).start()


@pytest.mark.parametrize("other", ["package saftey\nx := 1", "package safety\nvalidate(_) := true"])
async def test_a_misspelt_policy_among_several_is_not_overlooked(other):
    with pytest.raises(PolicyUnusable, match="saf"):
        await rego(RULES, other).start()


async def test_packages_of_helpers_are_fine():
    module = f"{HEAD}require_approval := data.team.safety.validate_action(input.x)"
    module += '\nlabels["x"] := 1'
    team = "package team.safety\nvalidate_action(x) := x > 3"
    async with rego(
        module, team, "package safety.words\nx := 1", "package rca.approval.words\nx := 1"
    ) as policy:
        assert [True, False] == [(await policy.decide({"x": x})).approval.required for x in (4, 3)]


async def test_closing_twice_and_before_the_start_is_fine():
    policy = rego(RULES)
    await policy.close()
    await policy.start()
    await policy.close()
    await policy.close()


# --- The process ---------------------------------------------------------------------------------------------------


async def test_an_evaluation_that_takes_too_long_is_killed_and_the_next_one_works():
    before = children()
    async with rego(STUCK, cpu_seconds=0.3) as policy:
        for _ in range(2):
            assert says((await policy.decide({"n": 9})).approval, "it took longer than 300 ms")
            assert Approval(required=False) == (await policy.decide({"n": 0})).approval
        assert 1 == len(children() - before)
    assert set() == children() - before


async def test_an_evaluation_that_needs_too_much_memory_is_ended_and_the_next_one_works():
    before = children()
    async with rego(HUNGRY, cpu_seconds=60) as policy:
        assert says((await policy.decide({"n": 1000})).approval, "more than 256 MiB of memory")
        assert says((await policy.decide({"n": 2})).approval, "is not a boolean")
    assert set() == children() - before


async def test_a_policy_that_needs_too_much_memory_is_known_at_the_start():
    with pytest.raises(PolicyUnusable, match="memory"):
        await rego(RULES, data={"x": list(range(500_000))}, memory_bytes=64 * 2**20).start()


@pytest.mark.parametrize("value", [float("nan"), object(), NESTED], ids=["NaN", "no JSON", "too deep"])
async def test_a_policy_that_cannot_be_handed_over_is_unusable_and_leaves_no_process(value):
    before = children()
    evaluator = Evaluator(PolicySources({"a.rego": RULES}, {"x": value}), PATIENT)
    with pytest.raises(PolicyUnusable):
        await evaluator.start()
    with pytest.raises(PolicyUnusable):
        await evaluator.evaluate({"environment": "dev"})
    assert set() == children() - before


async def test_a_process_that_died_is_replaced():
    async with rego(RULES) as policy:
        process = policy._evaluator._process
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        assert not (await policy.decide({"environment": "dev"})).approval.required


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None], ids=["killed", "ended", "frozen"])
async def test_an_input_whose_process_is_lost_is_evaluated_by_a_new_one(end):
    before = children()
    async with rego(RULES, answer_seconds=PATIENT.answer_seconds if end else 0.2) as policy:
        process = policy._evaluator._process
        os.kill(process.pid, signal.SIGSTOP)
        asking = [asyncio.create_task(policy.decide({"environment": e})) for e in ("dev", "production")]
        await asyncio.sleep(0.05)  # the first question has been sent
        for number in (end, signal.SIGCONT) if end else ():
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
        await process.wait()
        policy._evaluator._bounds = PATIENT
        assert [False, True] == [decision.approval.required for decision in await asyncio.gather(*asking)]
        assert not any(decision.approval.factors for decision in await asyncio.gather(*asking))
        assert 1 == len(children() - before)
    assert set() == children() - before


async def test_without_a_process_approval_is_required_and_the_problem_tells_until_there_is_one():
    """The evaluator hangs at every start, as on a machine without memory."""
    before = children()
    async with rego(RULES) as policy:
        os.kill(pid_of(policy), signal.SIGKILL)
        policy._evaluator._bounds = replace(PATIENT, start_seconds=0.0)
        for _ in range(5):
            assert says((await policy.decide({"environment": "dev"})).approval, "no answer within 0 s")
            assert "no answer within 0 s" in policy.problem
            assert set() == children() - before
        policy._evaluator._bounds = PATIENT
        following = asyncio.create_task(policy.follow(0.01))
        await until(lambda: not policy.problem)
        following.cancel()
    assert set() == children() - before


@pytest.mark.slow
async def test_decisions_do_not_wait_one_after_the_other_for_starts_that_hang(tmp_path, monkeypatch):
    hanging = tmp_path / "python"
    hanging.write_text(f"#!/bin/sh\necho started >> {tmp_path}/starts\nexec sleep 60\n")
    hanging.chmod(0o755)
    before = children()
    async with rego(RULES) as policy:
        os.kill(pid_of(policy), signal.SIGKILL)
        policy._evaluator._bounds = replace(PATIENT, start_seconds=2.0)
        monkeypatch.setattr(sys, "executable", str(hanging))
        decisions = await asyncio.gather(*(policy.decide({"environment": "dev"}) for _ in range(8)))
        assert all(says(decision.approval, "no answer within 2 s") for decision in decisions)
        assert len((tmp_path / "starts").read_text().split()) < 8
        monkeypatch.undo()
        policy._evaluator._bounds = PATIENT
        following = asyncio.create_task(policy.follow(0.01))
        await until(lambda: not policy.problem)
        following.cancel()
    assert set() == children() - before


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("require_approval if input.nothing", "require_approval is not a boolean"),
        (STUCK.removeprefix(HEAD).replace("input.n", "to_number(input.confidence)"), "it took longer than 50 ms"),
    ],
    ids=["undefined", "slow"],
)  # fmt: skip
async def test_a_policy_that_gives_no_decision_is_a_problem_before_it_is_asked(rules, text):
    async with rego(HEAD + rules, cpu_seconds=0.05) as policy:
        assert text in policy.problem
    async with rego(RULES) as policy:
        assert "" == policy.problem


async def test_a_cancelled_evaluation_does_not_answer_the_next_one():
    async with rego(RULES) as policy:
        os.kill(pid_of(policy), signal.SIGSTOP)
        asking = asyncio.create_task(policy.decide({"environment": "production"}))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not (await policy.decide({"environment": "dev"})).approval.required


async def test_the_evaluator_gets_no_secrets_of_the_worker(monkeypatch):
    monkeypatch.setenv("RCA_LLM__API_KEY", "canary")
    async with rego(RULES) as policy:
        path = Path(f"/proc/{pid_of(policy)}/environ")
        assert "canary" not in await asyncio.to_thread(path.read_text, "utf-8")


async def test_the_time_of_an_evaluation_is_measured():
    evaluator = Evaluator(policy_files(RULES).sources(), PATIENT)
    evaluated = await evaluator.evaluate({"environment": "dev"})
    await evaluator.close()
    assert not evaluated.approval.required
    assert evaluated.seconds > 0


# --- The reference system's packages -------------------------------------------------------------------------------

REFERENCE = """
package aianalysis.approval
import rego.v1

default require_approval := false
default reason := "Auto-approved"
default confidence_threshold := 0.8
confidence_threshold := input.confidence_threshold if input.confidence_threshold

detection_failed(field) if field in input.failed_detections
has_target if { input.remediation_target; input.remediation_target.kind != "" }
is_sensitive if input.remediation_target.kind in {"Node", "StatefulSet"}
is_sensitive if input.target_resource.kind in {"Node", "StatefulSet"}
is_production if input.environment == "production"

require_approval if not has_target
require_approval if is_sensitive
require_approval if { is_production; input.confidence < confidence_threshold }
require_approval if { is_production; detection_failed("gitOpsManaged") }

risk_factors contains {"score": 90, "reason": "no target"} if not has_target
risk_factors contains {"score": 80, "reason": "sensitive kind"} if is_sensitive
risk_factors contains {"score": 40, "reason": "production"} if is_production

scores contains f.score if some f in risk_factors
reason := f.reason if { some f in risk_factors; f.score == max(scores) }
"""


async def test_the_package_of_the_reference_system_decides_too():
    pod, node = {"kind": "Pod"}, {"kind": "Node"}
    sure = {"environment": "production", "confidence": 0.9, "failed_detections": [], "target_resource": pod}
    production = RiskFactor(score=40, reason="production")
    sensitive = RiskFactor(score=80, reason="sensitive kind")
    async with rego(REFERENCE) as policy:
        free = (await policy.decide(sure | {"remediation_target": pod})).approval
        assert Approval(required=False, risk_factors=(production,)) == free
        node_at_fault = (await policy.decide(sure | {"remediation_target": node})).approval
        assert (("sensitive kind",), (sensitive, production)) == (
            node_at_fault.reasons,
            node_at_fault.risk_factors,
        )
        named = (await policy.decide(sure | {"remediation_target": pod, "target_resource": node})).approval
        assert ("sensitive kind",) == named.reasons
        assert ("no target",) == (await policy.decide(sure)).approval.reasons
        unsure = (await policy.decide(sure | {"remediation_target": pod, "confidence": 0.7})).approval
        assert unsure.required
        unknown = {"remediation_target": pod, "failed_detections": ["gitOpsManaged"]}
        assert (await policy.decide(sure | unknown)).approval.required


async def test_of_several_policies_the_strictest_decides():
    async with rego(REFERENCE, RULES) as policy:
        asked = {"environment": "dev", "remediation_target": {"kind": "Node"}, "target_resource": {}}
        decided = (await policy.decide(asked)).approval
        assert ("sensitive kind",) == decided.reasons
        assert ["sensitive kind", "always"] == [f.reason for f in decided.risk_factors]


# --- Safety policies -----------------------------------------------------------------------------------------------

SAFETY = """
package safety
import future.keywords.if

validate_action(action) if {
    action.action in data.allowed_actions[input.priority]
    not forbidden(action)
    action.estimated_downtime_seconds <= data.max_downtime[input.environment]
    not requires_approval(action)
}

forbidden(action) if glob.match(data.forbidden_actions[_], [], action.action)

requires_approval(action) if {
    input.priority == "P0"
    action.risk_level == "high"
}
"""
LIMITS = {
    "allowed_actions": {"P0": ["scale_up", "delete_pod"]},
    "forbidden_actions": ["delete_*"],
    "max_downtime": {"production": 60, "staging": 600},
}
SCALE_UP = {"action": "scale_up", "risk_level": "low", "estimated_downtime_seconds": 10}
SAFE = {"priority": "P0", "environment": "production", "action": SCALE_UP}
REFUSED = ("The safety policy does not validate scale_up.",)


@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        ({}, ()),
        ({"priority": "P1"}, REFUSED),
        ({"environment": "unheard-of"}, REFUSED),
        ({"action": SCALE_UP | {"estimated_downtime_seconds": 90}}, REFUSED),
        ({"action": SCALE_UP | {"estimated_downtime_seconds": 90}, "environment": "staging"}, ()),
        ({"action": {"action": "scale_up", "risk_level": "low"}}, REFUSED),
        ({"action": SCALE_UP | {"action": "delete_pod"}}, ("The safety policy does not validate delete_pod.",)),
        ({"action": SCALE_UP | {"risk_level": "high"}}, ("The safety policy requires approval for scale_up.",)),
        ({"action": None}, ("The safety policy does not validate the action.",)),
    ],
)  # fmt: skip
async def test_a_safety_policy_is_a_function_over_data_documents(changed, reasons):
    async with rego(SAFETY, data=LIMITS) as policy:
        assert (
            Approval(required=bool(reasons), reasons=reasons)
            == (await policy.decide(SAFE | changed)).approval
        )


async def test_without_its_data_a_safety_policy_validates_nothing():
    async with rego(SAFETY) as policy:
        assert REFUSED == (await policy.decide(SAFE)).approval.reasons


async def test_a_safety_policy_joins_an_approval_policy():
    async with rego(SAFETY, RULES, data=LIMITS) as policy:
        assert ("it is production",) == (await policy.decide(SAFE)).approval.reasons
        staging = SAFE | {"environment": "staging"}
        assert not (await policy.decide(staging)).approval.required
        risky = staging | {"action": SCALE_UP | {"risk_level": "high"}}
        assert (await policy.decide(risky)).approval.reasons == (
            "The safety policy requires approval for scale_up.",
        )


RISK = """
package safety
import rego.v1

default validate_action(_) := false
validate_action(action) if score(action) < data.highest_risk
score(action) := data.risk[action.risk_level]
default reasons := []
reasons := [sprintf("risk %v is too high", [input.action.risk_level])] if not validate_action(input.action)
risk_factors contains {"score": score(input.action), "reason": sprintf("risk %v", [input.action.risk_level])}
"""


async def test_a_safety_policy_may_weigh_the_risk_and_give_reasons():
    data = {"risk": {"low": 10, "high": 80}, "highest_risk": 50}
    async with rego(RISK, data=data) as policy:
        free = (await policy.decide({"action": {"action": "scale_up", "risk_level": "low"}})).approval
        assert Approval(required=False, risk_factors=(RiskFactor(score=10, reason="risk low"),)) == free
        refused = (await policy.decide({"action": {"action": "scale_up", "risk_level": "high"}})).approval
        assert (*REFUSED, "risk high is too high") == refused.reasons
        unknown = (await policy.decide({"action": {"action": "scale_up", "risk_level": ""}})).approval
        assert (True, ()) == (unknown.required, unknown.risk_factors)


@pytest.mark.parametrize(
    ("rule", "required"),
    [
        ("validate_action if input.action.action == data.only", False),
        ("validate_action(action) := action.action == data.only", False),
        ("validate_action(_) := 1", True),
        ('validate_action(_) := "true"', True),
        ("validate_action(_) := true\nrequires_approval := null", True),
        ("validate_action(_) := true\nrequires_approval := false", False),
    ],
)
async def test_only_true_validates(rule, required):
    async with rego(f"package safety\nimport rego.v1\n{rule}", data={"only": "scale_up"}) as policy:
        assert required == (await policy.decide(SAFE)).approval.required
