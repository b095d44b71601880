"""The Policy port: one suite for the rules in memory and in Rego, then what only Rego can get wrong."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schemas.analysis import Approval, RiskFactor
from schemas.enrichment import DetectedLabels
from tests.fakes.memory_policy import MemoryPolicy
from worker.adapters.rego_policy import PolicySources, PolicyUnusable, RegoPolicy, read_policy
from worker.domain.objects import ObjectRef
from worker.domain.policy import PolicyFacts, policy_input

RULES = """
package rca.approval
import rego.v1

default require_approval := false
require_approval if input.environment == "production"
reasons contains "it is production" if input.environment == "production"
risk_factors contains {"score": 40, "reason": "production"} if input.environment == "production"
risk_factors contains {"score": 10, "reason": "always"}
never := to_number("not a number") if input.environment == "broken"
require_approval := "no boolean" if input.environment == "odd"
"""
STUCK = """
package rca.approval
import rego.v1

default require_approval := false
require_approval if count([1 | some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); a * b == input.n]) > 0
"""
LOW, HIGH = RiskFactor(score=10, reason="always"), RiskFactor(score=40, reason="production")


def in_python(asked) -> Approval:
    if asked["environment"] == "broken":
        raise ValueError("broken")
    if asked["environment"] == "production":
        return Approval(required=True, reasons=("it is production",), risk_factors=(HIGH, LOW))
    return Approval(required=False, risk_factors=(LOW,))


def rego(*modules: str, data=(), **limits) -> RegoPolicy:
    return RegoPolicy(
        PolicySources({f"{n}.rego": text for n, text in enumerate(modules)}, tuple(data)), **limits
    )


@asynccontextmanager
async def memory():
    yield MemoryPolicy(in_python)


@asynccontextmanager
async def real():
    async with rego(RULES) as policy:
        yield policy


@pytest.fixture(params=[memory, real], ids=["memory", "rego"])
async def policy(request):
    async with request.param() as made:
        yield made


async def test_it_decides_by_the_input(policy):
    assert Approval(required=False, risk_factors=(LOW,)) == await policy.decide({"environment": "dev"})
    expected = Approval(required=True, reasons=("it is production",), risk_factors=(HIGH, LOW))
    assert expected == await policy.decide({"environment": "production"})


async def test_a_rule_that_fails_requires_approval_and_says_so(policy):
    decided = await policy.decide({"environment": "broken"})
    assert decided.required
    assert decided.reasons[0].startswith("the approval policy could not be evaluated: ")


async def test_decisions_do_not_disturb_each_other(policy):
    asked = ["dev", "production", "broken", "production", "dev"] * 4
    decided = await asyncio.gather(*(policy.decide({"environment": e}) for e in asked))
    assert [e != "dev" for e in asked] == [d.required for d in decided]
    assert [(HIGH, LOW) if e == "production" else () for e in asked if e != "dev"] == [
        d.risk_factors for d in decided if d.required
    ]


async def test_it_has_a_name(policy):
    assert policy.name


# --- Rego only -----------------------------------------------------------------------------------------------------


async def decide(module: str, asked=None, **limits) -> Approval:
    async with rego(module, **limits) as policy:
        return await policy.decide(asked or {})


def says(approval: Approval, text: str) -> bool:
    return (
        approval.required and text in approval.reasons[0] and "could not be evaluated" in approval.reasons[0]
    )


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("x := 1", "require_approval is not a boolean"),
        ("require_approval if input.nothing", "require_approval is not a boolean"),
        ('require_approval := "false"', "require_approval is not a boolean"),
        ("require_approval := 0", "require_approval is not a boolean"),
        ("require_approval := true\nrequire_approval := false", "0.rego:4:1: rule conflicts"),
        ("require_approval := false\nrisk_factors contains 7", "a risk factor is not"),
        ('require_approval := false\nrisk_factors contains {"score": true, "reason": "x"}', "a risk factor is not"),
        ('require_approval := false\nrisk_factors contains {"score": 5, "reason": ""}', "a risk factor is not"),
    ],
)  # fmt: skip
async def test_what_is_no_decision_requires_approval(rules, text):
    decided = await decide(f"package rca.approval\nimport rego.v1\n{rules}")
    assert says(decided, text), decided


async def test_an_evaluation_that_takes_too_long_is_killed_and_the_next_one_works():
    async with rego(STUCK) as policy:
        assert says(await policy.decide({"n": 9}), "it took longer than 50 ms")
        assert says(await policy.decide({"n": 9}), "it took longer than 50 ms")
    async with rego(RULES) as policy:
        os.killpg(policy._process.pid, signal.SIGKILL)
        await policy._process.wait()
        assert not (await policy.decide({"environment": "dev"})).required


async def test_the_wall_clock_bounds_an_evaluator_that_hangs():
    async with rego(RULES, answer_seconds=0.2) as policy:
        os.kill(policy._process.pid, signal.SIGSTOP)
        assert says(await policy.decide({"environment": "dev"}), "no answer within 0.2 s")
        assert not (await policy.decide({"environment": "dev"})).required


async def test_a_cancelled_evaluation_does_not_answer_the_next_one():
    async with rego(RULES) as policy:
        os.kill(policy._process.pid, signal.SIGSTOP)
        asking = asyncio.create_task(policy.decide({"environment": "production"}))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not (await policy.decide({"environment": "dev"})).required


async def test_an_input_that_is_no_json_requires_approval():
    async with rego(RULES) as policy:
        assert says(await policy.decide({"confidence": float("nan")}), "")
        assert says(await policy.decide({"confidence": object()}), "")
        assert not (await policy.decide({"environment": "dev"})).required


async def test_reasons_are_bounded_and_on_one_line():
    rules = """
    require_approval := true
    reasons contains sprintf("%v\\n%v", [n, concat("", ["x" | some _ in numbers.range(1, 900)])]) if {
        some n in numbers.range(1, 40)
    }
    """
    decided = await decide(f"package rca.approval\nimport rego.v1\n{rules}", cpu_seconds=5)
    assert len(decided.reasons) == 32
    assert {500} == {len(reason) for reason in decided.reasons}
    assert not any("\n" in reason for reason in decided.reasons)


async def test_a_required_approval_always_has_a_reason():
    decided = await decide("package rca.approval\nimport rego.v1\nrequire_approval := true")
    assert Approval(required=True, reasons=("the approval policy requires it",)) == decided


async def test_the_package_of_the_reference_system_decides_too():
    module = """
    package aianalysis.approval
    import rego.v1
    default require_approval := false
    default reason := "Auto-approved"
    require_approval if { input.environment == "production"; input.remediation_target.kind == "Node" }
    risk_factors contains {"score": 80, "reason": "sensitive kind"} if require_approval
    reason := f.reason if { some f in risk_factors }
    """
    node = {"environment": "production", "remediation_target": {"kind": "Node"}}
    async with rego(module) as policy:
        assert Approval(
            required=True,
            reasons=("sensitive kind",),
            risk_factors=(RiskFactor(score=80, reason="sensitive kind"),),
        ) == await policy.decide(node)
        assert Approval(required=False) == await policy.decide(node | {"environment": "dev"})


SAFETY = """
package safety
import future.keywords.if
import future.keywords.in

validate_action(action) if {
    action.action in data.allowed_actions[input.priority]
    action.estimated_downtime_seconds <= data.max_downtime[input.environment]
    not requires_approval(action)
}

requires_approval(action) if {
    input.priority == "P0"
    action.risk_level == "high"
}
"""


async def test_a_safety_policy_is_a_function_over_data_documents():
    data = {"allowed_actions": {"P0": ["scale_up"]}, "max_downtime": {"production": 60}}
    action = {"action": "scale_up", "risk_level": "low", "estimated_downtime_seconds": 10}
    asked = {"priority": "P0", "environment": "production", "action": action}
    refused = Approval(required=True, reasons=("the safety policy does not validate the action",))
    async with rego(SAFETY, data=[data]) as policy:
        assert Approval(required=False) == await policy.decide(asked)
        assert refused == await policy.decide(asked | {"priority": "P1"})
        assert refused == await policy.decide(asked | {"action": action | {"risk_level": "high"}})
        assert refused == await policy.decide(asked | {"action": action | {"estimated_downtime_seconds": 90}})
        unknown = {"action": "scale_up", "risk_level": "low"}
        assert refused == await policy.decide(asked | {"action": unknown})
    async with rego(SAFETY, RULES, data=[data]) as policy:
        decided = await policy.decide(asked)
        assert decided.reasons == ("it is production",)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("package other\nx := 1", "no package rca.approval"),
        ("package rca.approval\nimport rego.v1\nrequire_approval if {", "0.rego:3:22: expecting expression"),
        ("", "expecting `package`"),
    ],
)
async def test_a_policy_that_cannot_be_used_is_known_at_the_start(module, text):
    policy = rego(module)
    with pytest.raises(PolicyUnusable, match=text):
        await policy.start()
    assert (await policy.decide({})).required
    await policy.close()


async def test_closing_twice_and_before_the_start_is_fine():
    policy = rego(RULES)
    await policy.close()
    await policy.start()
    await policy.close()
    await policy.close()


async def test_the_evaluator_gets_no_secrets_of_the_worker(monkeypatch):
    monkeypatch.setenv("RCA_LLM__API_KEY", "canary")
    module = 'package rca.approval\nimport rego.v1\nrequire_approval := "RCA_LLM__API_KEY" in object.keys(opa.runtime().env)'
    async with rego(module) as policy:
        environment = await asyncio.to_thread(_environment_of, policy._process.pid)
        assert "canary" not in environment


def _environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text("utf-8")


def test_a_policy_is_a_file_or_a_directory_with_data(tmp_path):
    (tmp_path / "a.rego").write_text(RULES)
    (tmp_path / "limits.yaml").write_text("max: {p0: 1}\n")
    (tmp_path / "more.json").write_text('{"x": 1}')
    (tmp_path / "README.md").write_text("not a policy")
    assert PolicySources({"a.rego": RULES}, ({"max": {"p0": 1}}, {"x": 1})) == read_policy(tmp_path)
    assert PolicySources({"a.rego": RULES}) == read_policy(tmp_path / "a.rego")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.txt", b""),
        ("a.rego", b"\xff\xfe"),
        ("b.json", b"{"),
        ("c.rego", b"x" * 2_000_000),
        ("d.yaml", b"day: 2026-01-01"),
    ],
)
def test_files_that_are_no_policy_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PolicyUnusable, match=str(tmp_path)):
        read_policy(tmp_path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(PolicyUnusable, match="nothing"):
        read_policy(tmp_path / "nothing.rego")


# --- The shipped policy --------------------------------------------------------------------------------------------

SURE = {
    "affected": ObjectRef("Deployment", "api", "shop", "apps/v1"), "target": ObjectRef("Pod", "api-0", "shop", "v1"),
    "environment": "production", "priority": "P1", "severity": "high", "signal_type": "OOMKilled",
    "action_type": "RestartDeployment", "confidence": 0.95, "confidence_threshold": 0.8,
    "detected_labels": DetectedLabels(), "custom_labels": {},
}  # fmt: skip


def facts(**changed) -> dict:
    values = SURE | changed
    return policy_input(PolicyFacts(**({"acted_on": values["affected"]} | values)))


@pytest.fixture(scope="module")
def shipped():
    """All decisions of the shipped policy on the inputs below, taken in one process."""
    asked = {name: facts(**changed) for name, (changed, _) in SHIPPED.items()}
    whole = facts(environment="staging")
    asked |= {f"without {field}": {k: v for k, v in whole.items() if k != field} for field in whole}
    asked |= {"empty": {}}

    async def run():
        async with RegoPolicy(read_policy()) as policy:
            return {name: await policy.decide(one) for name, one in asked.items()}

    return asyncio.run(run())


NODE = ObjectRef("Node", "worker-1")
SHIPPED = {
    "restart in production": ({}, None),
    "rolling back in production": ({"action_type": "RollbackDeployment"}, "not known to be low risk"),
    "not quite sure in production": ({"confidence": 0.85}, "not known to be low risk"),
    "long downtime": ({"estimated_downtime_seconds": 120}, "not known to be low risk"),
    "short downtime": ({"estimated_downtime_seconds": 5}, None),
    "unknown environment": ({"environment": "unknown", "action_type": "RollbackDeployment"}, "in production"),
    "unheard-of environment": ({"environment": "eu-1", "action_type": "RollbackDeployment"}, "in production"),
    "rolling back in staging": ({"environment": "Staging", "action_type": "RollbackDeployment"}, None),
    "unsure in staging": ({"environment": "staging", "confidence": 0.75}, "confidence 0.75 is below 0.8"),
    "no confidence": ({"environment": "staging", "confidence": None}, "confidence 0"),
    "another threshold": ({"environment": "staging", "confidence": 0.75, "confidence_threshold": 0.7}, None),
    "node": ({"affected": NODE, "action_type": "CordonDrainNode"}, "carries more than one workload"),
    "node in staging": ({"affected": NODE, "environment": "staging", "action_type": "CordonDrainNode"}, None),
    "stateful set": ({"affected": ObjectRef("StatefulSet", "db", "shop")}, "holds state"),
    "stateful workload": ({"detected_labels": DetectedLabels(stateful=True)}, "stateful workload"),
    "warnings": ({"warnings": ["the namespace differs"]}, "has warnings"),
    "failed detections": ({"detected_labels": DetectedLabels(failed_detections=("hpaEnabled",))}, "hpaEnabled"),
    "failed detections in staging": (
        {"environment": "staging", "detected_labels": DetectedLabels(failed_detections=("hpaEnabled",))}, None),
    "recovery": ({"recovery_attempt": 1}, "earlier remediation"),
    "recovery in staging": ({"recovery_attempt": 2, "environment": "staging"}, None),
    "third recovery in staging": ({"recovery_attempt": 3, "environment": "staging"}, "recovery attempt 3"),
    "deletion in staging": ({"environment": "staging", "action_type": "DeletePersistentVolumeClaim"}, "hard to undo"),
    "injection in staging": ({"environment": "staging", "injection_detected": True}, "reads like instructions"),
    "unverified in staging": ({"environment": "staging", "unverified": True}, "could not be verified"),
    "factor in staging": ({"environment": "staging", "risk_factors": ["it was corrected"]}, "it was corrected"),
    "no target": ({"environment": "staging", "affected": ObjectRef("", "")}, "not known"),
    "gitops in staging": ({"environment": "staging", "detected_labels": DetectedLabels(gitops_managed=True)}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_policy(shipped, name):
    _, reason = SHIPPED[name]
    decided = shipped[name]
    assert (reason is not None) == decided.required, decided
    if reason is None:
        assert decided.reasons == ()
        assert all(factor.score < 50 for factor in decided.risk_factors)
    else:
        assert any(reason in text for text in decided.reasons), decided.reasons
        assert set(decided.reasons) <= {factor.reason for factor in decided.risk_factors}
    assert not any("could not be evaluated" in text for text in decided.reasons)


@pytest.mark.parametrize(
    "field", ["environment", "confidence", "affected_resource", "injection_detected", "unverified"]
)
def test_a_missing_field_that_matters_leads_to_approval(shipped, field):
    decided = shipped[f"without {field}"]
    if field == "environment":  # production, where a restart may run by itself
        assert "production" in {factor.reason for factor in decided.risk_factors}
    else:
        assert decided.required


def test_an_empty_input_leads_to_approval(shipped):
    assert shipped["empty"].required


def test_information_is_given_without_approval(shipped):
    factors = shipped["gitops in staging"].risk_factors
    assert [f.reason for f in factors] == ["managed by GitOps: a change beside the repository is reverted"]


async def test_the_shipped_policy_is_never_looser_in_production_than_elsewhere():
    """Every combination of what it looks at: what needs approval in staging needs it in production."""
    choices = {
        "confidence": [0.5, 0.85, 0.95],
        "action_type": ["RestartDeployment", "DeletePod", "PatchHPA"],
        "affected": [SURE["affected"], NODE, ObjectRef("StatefulSet", "db", "shop")],
        "warnings": [[], ["x"]],
        "recovery_attempt": [None, 1, 3],
        "unverified": [False, True],
    }
    async with RegoPolicy(read_policy()) as policy:
        for values in itertools.product(*choices.values()):
            changed = dict(zip(choices, values, strict=True))
            elsewhere = await policy.decide(facts(environment="staging", **changed))
            production = await policy.decide(facts(environment="production", **changed))
            assert production.required >= elsewhere.required, changed
