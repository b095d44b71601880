"""The Policy port: one suite for the rules in memory, in Rego, and on an OPA server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from schemas.analysis import Approval
from tests.fakes import opa
from tests.fakes.memory_policy import MemoryPolicy
from tests.fakes.rego import HIGH, LOW, RULES, in_python, rego
from worker.adapters.opa_policy import OpaPolicy


@asynccontextmanager
async def memory():
    yield MemoryPolicy(in_python)


@asynccontextmanager
async def embedded():
    async with rego(RULES) as policy:
        yield policy


@asynccontextmanager
async def served():
    async with opa.serve(RULES) as server, OpaPolicy(server.url, timeout_seconds=30) as policy:
        yield policy


@pytest.fixture(params=[memory, embedded, served], ids=["memory", "rego", "opa"])
async def policy(request):
    async with request.param() as made:
        yield made


async def test_it_decides_by_the_input(policy):
    assert (
        Approval(required=False, risk_factors=(LOW,))
        == (await policy.decide({"environment": "dev"})).approval
    )
    expected = Approval(required=True, reasons=("it is production",), risk_factors=(HIGH, LOW))
    assert expected == (await policy.decide({"environment": "production"})).approval


@pytest.mark.parametrize("environment", ["broken", "odd"])
async def test_a_rule_that_fails_requires_approval_and_says_so(policy, environment):
    decided = (await policy.decide({"environment": environment})).approval
    assert decided.required
    assert ["policy_failed"] == [factor.code for factor in decided.factors]


async def test_an_input_that_is_no_json_requires_approval(policy):
    assert (await policy.decide({"environment": object()})).approval.required
    assert not (await policy.decide({"environment": "dev"})).approval.required


async def test_decisions_do_not_disturb_each_other(policy):
    asked = ["dev", "production", "broken", "production", "dev"] * 4
    decided = await asyncio.gather(*(policy.decide({"environment": e}) for e in asked))
    assert [e != "dev" for e in asked] == [d.approval.required for d in decided]
    assert [(HIGH, LOW) if e == "production" else () for e in asked if e != "dev"] == [
        d.approval.risk_factors for d in decided if d.approval.required
    ]


async def test_a_decision_names_its_policy(policy):
    assert (await policy.decide({"environment": "dev"})).policy
