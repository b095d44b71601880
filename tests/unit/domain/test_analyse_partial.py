"""Whatever part of an answer passed its checks is in the result, however the run ended."""

from __future__ import annotations

import pytest

from schemas.analysis import HumanReviewReason as Reason
from schemas.analysis import Status
from tests.fakes.fixed_clock import START
from tests.fakes.memory_catalog import MemoryCatalog, workflow
from tests.fakes.memory_model import calls, final, says
from tests.fakes.scripted import LOOK, World, answer, cause, chosen, incident
from worker.domain.analyse import Rules
from worker.domain.journal.run import unanswered
from worker.domain.values.errors import Halted, HaltReason, Retry, RetryReason
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


ELSEWHERE = cause(affectedResource={"kind": "Deployment", "name": "no-such-api", "namespace": "shop"})
NAMELESS = cause(affectedResource=None)


@pytest.mark.parametrize(
    ("said", "severity"),
    [(cause(severity="huge"), "unknown"), (cause(signal_type="NoSuchThing"), "critical")],
)
async def test_a_wrong_severity_or_signal_type_takes_nothing_else_away(said, severity):
    result = await World.saying(*[final(said)] * 3).analyse()
    assert_the_cause_is_kept(result, Reason.RCA_INCOMPLETE)
    assert severity == result.root_cause_analysis.severity
    assert ("signal_type" in result.human_review_detail) is (result.root_cause_analysis.signal_type == "")


@pytest.mark.parametrize("said", [ELSEWHERE, NAMELESS], ids=["not there", "not named"])
async def test_a_wrong_affected_resource_leaves_the_root_cause_and_the_alternatives(said):
    catalog = MemoryCatalog([workflow(), workflow("scale-v1", "ScaleReplicas")])
    said = {**said, "alternative_workflows": [{"workflow_id": "scale-v1"}]}
    result = await World.saying(*[final(said)] * 3, catalog=catalog).analyse()
    assert (REVIEW, Reason.RCA_INCOMPLETE) == (result.status, result.human_review_reason)
    assert "listen address" in result.root_cause_analysis.summary
    assert (None, None) == (result.affected_resource, result.root_cause_analysis.affected_resource)
    assert ["scale-v1"] == [item.workflow_id for item in result.alternative_workflows]


async def test_a_missing_summary_leaves_the_affected_resource():
    result = await World.saying(*[final(cause(summary=" "))] * 3).analyse()
    assert Reason.RCA_INCOMPLETE is result.human_review_reason
    assert (None, "api") == (result.root_cause_analysis, result.affected_resource.name)


async def test_a_later_answer_with_less_displaces_nothing():
    result = await World.saying(final(UNKNOWN), final(ELSEWHERE), final(ELSEWHERE)).analyse()
    assert_the_cause_is_kept(result, Reason.RCA_INCOMPLETE)


async def test_a_later_answer_with_less_displaces_nothing_over_a_restart():
    world = World.saying(final(UNKNOWN), final(ELSEWHERE), DOWN)
    with pytest.raises(Retry):
        await world.analyse()
    run = await world.open(incident(), "run-2")
    result = await world.analysis().without_answer(run, Ending(cancelled=True))
    assert_the_cause_is_kept(result, Reason.OPERATOR_ESCALATION)


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
    assert "memory-model-1" == result.model


def halting(said, halt):
    """A world in which the request is halted as soon as the model has answered."""

    def script(request, number):
        world.halt = halt
        return final(said)

    world = World.with_script(script)
    return world


@pytest.mark.parametrize(
    ("halt", "ending", "reason"),
    [
        (HaltReason.CANCELLED, Ending(cancelled=True), Reason.OPERATOR_ESCALATION),
        (HaltReason.EXPIRED, Ending(expired=True), Reason.DECISION_EXPIRED),
    ],
)
@pytest.mark.parametrize("said", [UNKNOWN, answer()], ids=["rejected", "accepted"])
@pytest.mark.parametrize("successor", [False, True], ids=["the same run", "a successor"])
async def test_an_answer_that_was_paid_for_is_kept_when_the_request_is_halted(
    halt, ending, reason, said, successor
):
    world = halting(said, halt)
    run = await world.open(incident())
    with pytest.raises(Halted):
        await world.analysis().run(run)
    if successor:
        run = await world.open(incident(), "run-2")
    result = await world.analysis().without_answer(run, ending)
    assert_the_cause_is_kept(result, reason)
    assert 1 == result.usage.llm_calls


async def test_rejected_answers_are_told_with_their_time_when_the_request_is_halted():
    world = World.saying(final(UNKNOWN), final(UNKNOWN), DOWN)
    with pytest.raises(Retry):
        await world.analyse()
    run = await world.open(incident(), "run-2")
    world.clock.advance(60)
    result = await world.analysis().without_answer(run, Ending(cancelled=True))
    assert [1, 2] == [attempt.attempt for attempt in result.validation_attempts]
    assert all("no-such-v1" in attempt.errors[0] for attempt in result.validation_attempts)
    assert ["no-such-v1"] * 2 == [attempt.workflow_id for attempt in result.validation_attempts]
    assert {START} == {attempt.timestamp for attempt in result.validation_attempts}


async def test_a_dead_letter_keeps_what_the_run_has_concluded():
    world = World.saying(final(answer()), policy=None)
    run = await world.open(incident())
    with pytest.raises(AttributeError):
        await world.analysis().run(run)
    result = unanswered(run, Ending(dead_letter="internal_error: boom"), world.clock.now())
    assert_the_cause_is_kept(result, Reason.INVESTIGATION_INCONCLUSIVE, Status.FAILED)


async def test_a_spent_budget_is_told_with_what_was_wrong():
    world = World.saying(final(UNKNOWN), calls(LOOK), rules=Rules(limits=Limits(llm_calls=2)))
    result = await world.analyse()
    assert "budget" in result.human_review_detail
    assert result.validation_attempts[-1].errors[0] in result.human_review_detail
    assert "no-such-v1" in result.validation_attempts[0].errors[0]
