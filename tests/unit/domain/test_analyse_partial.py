"""Whatever part of an answer passed its checks is in the result, however the run ended."""

from __future__ import annotations

import pytest

from schemas.analysis import HumanReviewReason as Reason
from schemas.analysis import Status
from tests.fakes.memory_catalog import MemoryCatalog, workflow
from tests.fakes.memory_model import calls, final, says
from tests.fakes.scripted import LOOK, World, answer, cause, chosen, incident
from worker.domain.analyse import Rules
from worker.domain.values.errors import Retry, RetryReason
from worker.domain.values.limits import Limits
from worker.domain.verdict.outcome import Ending

REVIEW = Status.NEEDS_HUMAN_REVIEW
UNKNOWN = chosen(workflow_id="no-such-v1")
DOWN = Retry(RetryReason.MODEL_UNAVAILABLE, "503", after=90.0)


def assert_the_cause_is_kept(result, reason, status=REVIEW):
    assert (status, reason, True) == (result.status, result.human_review_reason, result.approval.required)
    assert "human_review" in {factor.code for factor in result.approval.factors}
    assert result.selected_workflow is None
    assert "listen address" in result.root_cause_analysis.summary
    assert ("Deployment", "api") == (result.affected_resource.kind, result.affected_resource.name)
    assert result.evidence


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (UNKNOWN, Reason.WORKFLOW_NOT_FOUND),
        (chosen(version="9.9.9"), Reason.IMAGE_MISMATCH),
        (chosen(parameters={"FORCE": 1}), Reason.PARAMETER_VALIDATION_FAILED),
        (chosen(confidence="very"), Reason.LLM_PARSING_ERROR),
    ],
)
async def test_three_answers_with_a_wrong_choice(said, reason):
    result = await World.saying(*[final(said)] * 3).analyse()
    assert_the_cause_is_kept(result, reason)
    assert result.validation_attempts[-1].errors[0].split(":")[0] in result.human_review_detail


async def test_alternatives_of_the_catalog_are_kept():
    said = {**UNKNOWN, "alternative_workflows": [{"workflow_id": "scale-v1"}, {"workflow_id": "nope-v1"}]}
    catalog = MemoryCatalog([workflow(), workflow("scale-v1", "ScaleReplicas")])
    result = await World.saying(*[final(said)] * 3, catalog=catalog).analyse()
    assert_the_cause_is_kept(result, Reason.WORKFLOW_NOT_FOUND)
    assert ["scale-v1"] == [item.workflow_id for item in result.alternative_workflows]


async def test_an_earlier_answer_counts_when_the_last_one_cannot_be_read():
    result = await World.saying(final(UNKNOWN), says("no"), says("no")).analyse()
    assert_the_cause_is_kept(result, Reason.LLM_PARSING_ERROR)


async def test_a_cause_that_did_not_pass_is_not_kept():
    result = await World.saying(*[final(cause(severity="huge"))] * 3).analyse()
    assert Reason.RCA_INCOMPLETE is result.human_review_reason
    assert (None, None) == (result.root_cause_analysis, result.affected_resource)


async def test_a_budget_that_is_spent():
    world = World.saying(final(UNKNOWN), calls(LOOK), rules=Rules(limits=Limits(llm_calls=2)))
    assert_the_cause_is_kept(await world.analyse(), Reason.INVESTIGATION_INCONCLUSIVE)


@pytest.mark.parametrize("said", [answer(), UNKNOWN, cause(signal_type="OnlyInTheCatalog")])
async def test_a_catalog_that_is_down(said):
    catalog = MemoryCatalog([workflow()])
    catalog.down = True
    result = await World.saying(final(said), catalog=catalog).analyse()
    assert_the_cause_is_kept(result, Reason.INVESTIGATION_INCONCLUSIVE)
    assert "catalog" in result.human_review_detail


async def test_a_rejected_answer_is_kept_over_a_restart():
    world = World.saying(final(UNKNOWN), DOWN)
    with pytest.raises(Retry):
        await world.analyse()
    world.model.then(says("no"))
    assert_the_cause_is_kept(await world.analyse(run="run-2"), Reason.LLM_PARSING_ERROR)


@pytest.mark.parametrize(
    ("ending", "reason", "status"),
    [
        (Ending(expired=True), Reason.DECISION_EXPIRED, REVIEW),
        (Ending(cancelled=True), Reason.OPERATOR_ESCALATION, REVIEW),
        (Ending(dead_letter="boom"), Reason.INVESTIGATION_INCONCLUSIVE, Status.FAILED),
    ],
)
async def test_a_run_that_ends_before_the_next_answer(ending, reason, status):
    world = World.saying(calls(LOOK), final(UNKNOWN), DOWN)
    with pytest.raises(Retry):
        await world.analyse()
    result = await world.analysis().without_answer(await world.open(incident(), "run-2"), ending)
    assert_the_cause_is_kept(result, reason, status)
    assert "get_resource" in {item.source for item in result.evidence}
    assert result.detected_labels is not None
