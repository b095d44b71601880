"""Answers and requests that try to get around a person: each must end with one."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from schemas.analysis import HumanReviewReason as Reason
from tests.fakes.memory_catalog import MemoryCatalog, labels, workflow
from tests.fakes.memory_model import final
from tests.fakes.scripted import World, chosen, incident


def limited(**constraints):
    return incident(safety_context={"safety_constraints": constraints})


async def test_the_model_cannot_lift_the_limit_of_downtime():
    unknown = MemoryCatalog([workflow(estimated_downtime_seconds=None)])
    world = World.saying(final(chosen(estimated_downtime_seconds=0)), catalog=unknown)
    result = await world.analyse(limited(max_downtime_seconds=60))
    assert result.approval.required
    assert any("downtime" in reason for reason in result.approval.reasons)


@pytest.mark.parametrize(
    "word", ["restartworkload", "RESTARTWORKLOAD", "RestartWorkloads", "restart-v1", "workload"]
)
async def test_a_forbidden_action_is_recognised_in_any_spelling(word):
    result = await World.saying(final(chosen())).analyse(limited(forbidden_actions=[word]))
    assert result.human_review_reason is Reason.OPERATOR_ESCALATION
    assert result.selected_workflow is None


async def test_the_policy_is_asked_about_the_stricter_environment():
    everywhere = MemoryCatalog([workflow(labels=labels(environment="*"))])
    world = World.saying(final(chosen()), catalog=everywhere)
    await world.analyse(incident(environment="development", safety_context={"environment": "production"}))
    assert [asked["environment"] for asked in world.policy.asked] == ["production"]


@pytest.mark.parametrize(
    "sent",
    [
        {"safety_context": {"safety_constraints": {"requiresApproval": True}}},
        {"safety_context": {"safetyConstraints": {"requires_approval": True}}},
        {"safety_context": {"requires_approval": True}},
        {"safetyContext": {"safety_constraints": {"requires_approval": True}}},
    ],
)
def test_a_limit_in_another_spelling_is_refused_not_lost(sent):
    with pytest.raises(ValidationError):
        incident(**sent)
