"""What can go wrong between the worker and an OPA server: always approval, and a reason that names both."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from schemas.analysis import Approval
from tests.fakes import opa
from tests.fakes.rego import RULES
from tests.nats_servers import free_ports
from tests.waiting import until
from worker.adapters.opa_policy import OpaPolicy

DEV = {"environment": "dev"}
PATIENT = 30.0
CALLING = """
package rca.approval
import rego.v1
default require_approval := false
require_approval if not data.safety.validate_action(input.action)
"""
SAFETY = """
package safety
import rego.v1
validate_action(action) if action.estimated_downtime_seconds <= data.max_downtime[input.environment]
"""


def answers(document, status=200):
    return web.json_response(document, status=status)


def gzipped(document) -> web.Response:
    response = web.json_response(document)
    response.enable_compression(web.ContentCoding.gzip)
    return response


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (answers({}), "data.rca.approval is undefined"),
        (answers({"result": True}), "data.rca.approval.require_approval is not a boolean"),
        (answers({"result": {"require_approval": "no"}}), "is not a boolean"),
        (answers({"result": {"require_approval": None}}), "is not a boolean"),
        (answers({"result": {"require_approval": False, "risk_factors": 7}}), "risk_factors is not"),
        (answers(["result"]), "the answer is not an object"),
        (web.Response(text="hello"), "the answer is not JSON"),
        (web.Response(text="[" * 50_000), "the answer is not JSON"),
        (web.Response(text='{"result": {"require_approval": false, "risk_factors": [{"score": NaN, "reason": "x"}]}}'), "NaN"),
        (web.Response(text="x" * 300_000), "the answer is longer than 262144 bytes"),
        (gzipped({"result": {"require_approval": False}}), "the answer is"),
        (web.Response(status=204), "it answered 204"),
        (web.Response(status=307, headers={"Location": "/v1/data/other"}), "it answered 307; redirects are not followed"),
        (web.Response(status=401), "it answered 401: it rejects the token"),
        (opa.failure(500, "internal_error", "evaluation\nfailed"), "it answered 500: evaluation failed"),
        (answers({"message": 7}, 503), "it answered 503"),
    ],
)  # fmt: skip
async def test_what_is_no_decision_requires_approval(fault, text):
    async with (
        opa.serve(RULES, faults=[fault]) as server,
        OpaPolicy(server.url, timeout_seconds=PATIENT) as policy,
    ):
        decided = (await policy.decide(DEV)).approval
        assert decided.required
        assert f"could not be evaluated: the OPA server {server.url}: " in decided.reasons[0]
        assert text in decided.reasons[0]
        assert text in policy.problem
        assert not (await policy.decide(DEV)).approval.required
        assert "" == policy.problem


async def test_a_server_that_is_late_is_not_waited_for():
    async with opa.serve(RULES, faults=[opa.HANG]) as server, OpaPolicy(server.url) as policy:
        decided = (await policy.decide(DEV)).approval
        assert "no answer within 50 ms" in decided.reasons[0]


async def test_a_server_that_is_not_there_and_comes_later():
    [port] = free_ports(1)
    async with OpaPolicy(f"http://127.0.0.1:{port}", timeout_seconds=PATIENT) as policy:
        assert "cannot be reached" in policy.problem
        decided = (await policy.decide(DEV)).approval
        assert (True, True) == (decided.required, "cannot be reached" in decided.reasons[0])


async def test_a_problem_ends_without_an_incident_when_the_server_is_back():
    async with (
        opa.serve(RULES, faults=[opa.failure(503, "x", "starting")] * 2) as server,
        OpaPolicy(server.url, timeout_seconds=PATIENT) as policy,
    ):
        following = asyncio.create_task(policy.follow(0.01))
        assert (await policy.decide(DEV)).approval.required
        await until(lambda: not policy.problem)
        asked = len(server.asked)
        await asyncio.sleep(0.05)
        assert asked == len(server.asked)  # a server without a problem gets no examples
        following.cancel()


async def test_a_broken_connection_is_tried_once_more():
    async with (
        opa.serve(RULES, faults=[opa.BREAK, opa.BREAK, opa.BREAK]) as server,
        OpaPolicy(server.url, timeout_seconds=PATIENT) as policy,
    ):
        assert "closed the connection" in (await policy.decide(DEV)).approval.reasons[0]
        assert 2 == len(server.asked)
        assert not (await policy.decide(DEV)).approval.required
        assert 4 == len(server.asked)


async def test_it_asks_for_the_path_with_the_token():
    async with opa.serve(RULES, token="let-me-in") as server:
        async with OpaPolicy(server.url, timeout_seconds=PATIENT) as policy:
            refused = (await policy.decide(DEV)).approval
            assert "401: request rejected" in refused.reasons[0]
        async with OpaPolicy(f"{server.url}/", token="let-me-in", timeout_seconds=PATIENT) as policy:
            decision = await policy.decide(DEV)
            assert not decision.approval.required
            assert f"opa:{server.url}/v1/data/rca/approval" == decision.policy
        assert [("rca/approval", DEV)] == server.asked


async def test_another_path():
    module = RULES.replace("package rca.approval", "package team.a")
    async with opa.serve(module) as server:
        async with OpaPolicy(server.url, decision="team/a", timeout_seconds=PATIENT) as policy:
            assert not (await policy.decide(DEV)).approval.required
        async with OpaPolicy(server.url, decision="team/b", timeout_seconds=PATIENT) as policy:
            assert "data.team.b is undefined" in (await policy.decide(DEV)).approval.reasons[0]


async def test_an_approval_policy_calls_the_functions_of_a_safety_policy():
    data = {"max_downtime": {"production": 60}}
    asked = {"environment": "production", "action": {"action": "scale_up", "estimated_downtime_seconds": 10}}
    late = asked | {"action": {"action": "scale_up", "estimated_downtime_seconds": 90}}
    async with (
        opa.serve(CALLING, SAFETY, data=data) as server,
        OpaPolicy(server.url, timeout_seconds=PATIENT) as policy,
    ):
        assert Approval(required=False) == (await policy.decide(asked)).approval
        assert (await policy.decide(late)).approval.required
