"""A worker in observe mode with the example policy that asks for a track record: the whole path, with the real evaluator."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.analysis import Status
from schemas.taxonomy import RequestKind
from tests.fakes.proposals import outcome, result
from tests.integration.test_history import CASE, INCIDENT, look_then_answer, outcome_of
from tests.nats_servers import one_server, provisioned
from tests.pipeline import running
from worker.app.settings.groups import NatsSettings, PolicySettings

EARNED = Path(__file__).parents[2] / "deploy" / "policies" / "earned" / "earned.rego"
NOT_KNOWN = "the track record of this action is not known"
PAUSE_TRIES = 20


async def earn(case, successes):
    """Results of earlier workers for the action and environment of the incident, and what came of them."""
    for number in range(successes):
        key = f"earlier-{number}"
        await case.js.publish(
            case.subjects.result(RequestKind.INCIDENT, key), result(environment=INCIDENT["environment"])
        )
        await case.js.publish(case.subjects.outcome(key), outcome())


@pytest.mark.parametrize("successes", [9, 10])
async def test_an_action_would_pass_once_it_has_earned_it(tmp_path, successes):
    policy = PolicySettings(mode="observe", path=EARNED)
    async with one_server(tmp_path) as server, provisioned([server]) as case:
        await earn(case, successes)
        nats = NatsSettings(servers=(server.url,))
        async with running(look_then_answer(), CASE, tmp_path, nats=nats, policy=policy) as run:
            for number in range(PAUSE_TRIES):  # the history is read in the background
                found = await outcome_of(run, f"rr-{number}")
                if NOT_KNOWN not in found.approval.would_reasons:
                    break
    assert (Status.COMPLETED, True) == (found.status, found.approval.required)
    assert "observe_mode" == found.approval.factors[0].code
    assert INCIDENT["environment"] == found.environment
    short = [reason for reason in found.approval.would_reasons if "(9 of 10)" in reason]
    assert (successes < 10) == bool(short)
    assert not [reason for reason in found.approval.would_reasons if "(0 of 10)" in reason]
    assert NOT_KNOWN not in found.approval.would_reasons
