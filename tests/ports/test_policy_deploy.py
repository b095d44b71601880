"""The examples that are shipped for installations and shown in the documentation."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.analysis import Approval
from tests.fakes.rego import PATIENT
from worker.adapters.rego_policy import PolicyFiles, RegorusPolicy, read_files
from worker.domain.values.remediations import TrackRecord
from worker.domain.verdict.approval.policy import EXAMPLE, policy_input

DIRECTORY = Path(__file__).parents[2] / "deploy" / "policies"
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "policy.md"
SAFETY = DIRECTORY / "safety"
VALID = "The safety policy does not validate"
CASES = {
    "restart": ({}, ()),
    "scale": ({"action_type": "ScaleUp", "priority": "P0"}, ()),
    "not allowed": (
        {"action_type": "CordonNode"},
        (f"{VALID} cordon_node.", "cordon_node is not among the actions allowed for P1"),
    ),
    "anything for P3": ({"action_type": "CordonNode", "priority": "P3"}, ()),
    "forbidden": (
        {"action_type": "DeletePod", "priority": "P3"},
        (f"{VALID} delete_pod.", "delete_pod is forbidden"),
    ),
    "too long": (
        {"estimated_downtime_seconds": 61},
        (f"{VALID} restart_deployment.", "it takes 61 s, at most 60 s are acceptable in production"),
    ),
    "long enough in staging": ({"estimated_downtime_seconds": 61, "environment": "staging"}, ()),
    "unknown downtime": (
        {"estimated_downtime_seconds": None},
        (f"{VALID} restart_deployment.", "nobody knows how long it takes"),
    ),
    "unknown environment": (
        {"environment": "eu-1"},
        (f"{VALID} restart_deployment.", "there is no limit of downtime for eu-1"),
    ),
    "unknown priority": (
        {"priority": "P9"},
        (f"{VALID} restart_deployment.", "restart_deployment is not among the actions allowed for P9"),
    ),
    "risk for P0": (
        {"priority": "P0", "declared_risk": "medium"},
        ("The safety policy requires approval for restart_deployment.",),
    ),
    "unheard-of risk for P0": (
        {"priority": "P0", "declared_risk": "", "estimated_risk": "tiny"},
        ("The safety policy requires approval for restart_deployment.",),
    ),
    "risk for P1": ({"declared_risk": "medium"}, ()),
}


@pytest.fixture(scope="module")
def decided():
    """All decisions on the cases, taken in one process."""

    async def run():
        async with RegorusPolicy(lambda: read_files(SAFETY), PATIENT) as policy:
            asked = {name: policy_input(replace(EXAMPLE, **changed)) for name, (changed, _) in CASES.items()}
            return {name: (await policy.decide(one)).approval for name, one in asked.items()}

    return asyncio.run(run())


@pytest.mark.parametrize("name", CASES)
def test_the_example_of_a_safety_policy(decided, name):
    _, reasons = CASES[name]
    assert (bool(reasons), reasons) == (decided[name].required, decided[name].reasons)


def test_the_risk_is_reported(decided):
    assert {"restart": [(10, "the risk is low")], "unheard-of risk for P0": []} == {
        name: [(f.score, f.reason) for f in decided[name].risk_factors]
        for name in ("restart", "unheard-of risk for P0")
    }


async def test_what_the_documentation_shows_can_be_used():
    """Each lets a restart in staging run; the last of them calls the function of the second."""
    shown = re.findall(r"```rego\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    approval, safety, calling = ({f"{n}.rego": text.encode()} for n, text in enumerate(shown))
    limits = {"limits.yaml": (SAFETY / "limits.yaml").read_bytes()}
    asked = policy_input(replace(EXAMPLE, environment="staging"))
    for modules in (approval, safety, safety | calling):
        files = PolicyFiles(modules, limits)
        async with RegorusPolicy(lambda files=files: files, PATIENT) as policy:
            assert Approval(required=False) == (await policy.decide(asked)).approval
    cordon = policy_input(replace(EXAMPLE, environment="staging", action_type="CordonNode"))
    async with RegorusPolicy(lambda: PolicyFiles(safety, limits), PATIENT) as policy:
        assert (f"{VALID} cordon_node.",) == (await policy.decide(cordon)).approval.reasons


async def test_it_goes_together_with_the_shipped_policy():
    data = [SAFETY / "limits.yaml"]
    both = PolicyFiles(
        read_files(DIRECTORY / "approval.rego").modules | read_files(SAFETY / "safety.rego").modules,
        read_files(SAFETY / "safety.rego", data).data,
    )
    async with RegorusPolicy(lambda: both, PATIENT) as policy:
        decided = (
            await policy.decide(
                policy_input(replace(EXAMPLE, estimated_downtime_seconds=90, unverified=True))
            )
        ).approval
    assert {
        "The worker could not check whether the affected resource exists.",
        "it takes 90 s, at most 60 s are acceptable in production",
    } <= set(decided.reasons)


EARNED = DIRECTORY / "earned" / "earned.rego"
TOO_FEW = "RestartDeployment in production: too few known successes (%d of 10)"
RECORDS = {
    "earned": (TrackRecord(14, 10, 1), ()),
    "nine successes": (TrackRecord(14, 9, 0), (TOO_FEW % 9,)),
    "too many failures": (
        TrackRecord(30, 19, 2),
        ("RestartDeployment in production: too many failures (2, and 19 successes)",),
    ),
    "never proposed": (TrackRecord(), (TOO_FEW % 0,)),
    "not known": (None, ("the track record of this action is not known",)),
}


@pytest.fixture(scope="module")
def earned():
    """All decisions on the track records, taken in one process."""

    async def run():
        async with RegorusPolicy(lambda: read_files(EARNED), PATIENT) as policy:
            asked = {
                n: policy_input(replace(EXAMPLE, track_record=known)) for n, (known, _) in RECORDS.items()
            }
            return {name: (await policy.decide(one)).approval for name, one in asked.items()}

    return asyncio.run(run())


@pytest.mark.parametrize("name", RECORDS)
def test_an_action_passes_by_itself_once_it_has_earned_it(earned, name):
    _, reasons = RECORDS[name]
    assert (bool(reasons), reasons) == (earned[name].required, earned[name].reasons)


async def test_an_earned_action_still_needs_what_the_shipped_policy_requires():
    both = PolicyFiles(read_files(DIRECTORY / "approval.rego").modules | read_files(EARNED).modules, {})
    async with RegorusPolicy(lambda: both, PATIENT) as policy:
        asked = policy_input(replace(EXAMPLE, unverified=True, track_record=TrackRecord(20, 20, 0)))
        decided = (await policy.decide(asked)).approval
    assert "The worker could not check whether the affected resource exists." in decided.reasons
    assert not [reason for reason in decided.reasons if "RestartDeployment" in reason]
