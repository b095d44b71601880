"""One request from facts to result, over ports in memory: what a consumer gets for what a model says."""

from __future__ import annotations

import pytest

from schemas.analysis import Approval, HumanReviewReason, Status
from schemas.audit import EventType
from schemas.failure import ValidationCode
from schemas.safety import SafetyContext
from tests.fakes.memory_catalog import MemoryCatalog, labels, workflow
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_model import MemoryModel, calls, final, says
from tests.fakes.memory_policy import MemoryPolicy
from tests.fakes.scripted import (
    CONTEXT,
    LOGS,
    LOOK,
    World,
    answer,
    assert_checked,
    cause,
    chosen,
    event_types,
    incident,
    nothing,
    recovered,
    rollback,
    shop,
)
from worker.domain.analyse import Rules
from worker.domain.values.conversation import CallUsage, Finish
from worker.domain.values.errors import ClusterReason, Halted, HaltReason, Retry, RetryReason
from worker.domain.values.limits import Limits
from worker.domain.values.remediations import TrackRecord
from worker.domain.verdict.outcome import Ending

Reason = HumanReviewReason
REVIEW = Status.NEEDS_HUMAN_REVIEW


# -- Answers that hold


async def test_an_accepted_answer_completes_the_request():
    world = World.saying(calls(LOOK, CONTEXT), final(answer()))
    result = await world.analyse()
    assert_checked(result)
    assert (Status.COMPLETED, True, None) == (result.status, result.is_actionable, result.human_review_reason)
    assert result.analysis == "The new image crashes at start."
    assert result.model == "memory-model-1"
    assert (2, 2) == (result.usage.llm_calls, result.usage.tool_calls)
    assert [f"E{n}" for n in range(1, len(result.evidence) + 1)] == [item.id for item in result.evidence]
    sources = [item.source for item in result.evidence]
    asked = [source for source in sources if source != "corroboration"]
    assert ["get_resource", "get_resource_context"] == asked[-2:]
    assert sources[-1] == "corroboration"
    assert result.detected_labels is not None
    assert [EventType.REQUEST_ACCEPTED, EventType.ENRICHMENT_COMPLETED] == event_types(world)[:2]
    assert [
        EventType.VALIDATION_ATTEMPT,
        EventType.CORROBORATION_CHECKED,
        EventType.POLICY_DECIDED,
        EventType.RESPONSE_COMPLETE,
    ] == event_types(world)[-4:]


async def test_what_the_catalog_knows_overwrites_what_the_model_says():
    result = await World.saying(final(chosen(title="Evil", version="v1.2.0", action_type="Delete"))).analyse()
    assert ("1.2.0", "", "RestartWorkload") == (
        result.selected_workflow.version,
        result.selected_workflow.title,
        result.selected_workflow.action_type,
    )


async def test_the_model_does_not_set_flags():
    said = answer(
        needs_human_review=False, approval={"required": False}, is_actionable=False, status="failed"
    )
    result = await World.saying(final(said)).analyse()
    assert (Status.COMPLETED, False, False) == (
        result.status,
        result.needs_human_review,
        result.approval.required,
    )


async def test_target_parameters_are_put_right_by_code():
    pod = {"kind": "Pod", "name": "api-7d9-x2x", "namespace": "shop"}
    said = cause(affectedResource=pod) | {
        "selected_workflow": chosen(parameters={"TARGET_RESOURCE_NAME": "api-7d9-x2x"})["selected_workflow"]
    }
    result = await World.saying(final(said)).analyse()
    assert {
        "TARGET_RESOURCE_NAME": "api",
        "TARGET_RESOURCE_KIND": "Deployment",
        "TARGET_RESOURCE_NAMESPACE": "shop",
    } == result.selected_workflow.parameters
    assert ("Deployment", "api") == (result.affected_resource.kind, result.affected_resource.name)


async def test_a_corrected_answer_counts_and_the_refused_one_is_published():
    world = World.saying(final(chosen(workflow_id="no-such")), final(answer()))
    result = await world.analyse()
    assert [False, True] == [a.is_valid for a in result.validation_attempts]
    assert "no-such" in result.validation_attempts[0].errors[0]
    assert [ValidationCode.ANSWER_WORKFLOW_UNKNOWN] == [f.code for f in world.events.rejections]
    assert Status.COMPLETED is result.status


# -- Rows of the table that need a person


async def test_low_confidence_needs_a_person_and_keeps_the_choice_as_an_alternative():
    result = await World.saying(final(chosen(confidence=0.69))).analyse()
    assert_checked(result)
    assert (REVIEW, Reason.LOW_CONFIDENCE) == (result.status, result.human_review_reason)
    assert [("restart-v1", 0.69)] == [(a.workflow_id, a.confidence) for a in result.alternative_workflows]
    assert result.approval.required is True


@pytest.mark.parametrize(
    ("said", "status", "reason"),
    [
        (nothing("not_actionable", confidence=0.9), Status.NOT_ACTIONABLE, None),
        (nothing("problem_resolved", confidence=0.9), Status.RESOLVED, None),
        (nothing("inconclusive"), REVIEW, Reason.INVESTIGATION_INCONCLUSIVE),
        (nothing("insufficient_data"), REVIEW, Reason.INVESTIGATION_INCONCLUSIVE),
        (nothing("actionable"), REVIEW, Reason.NO_MATCHING_WORKFLOWS),
        (nothing(...), REVIEW, Reason.NO_MATCHING_WORKFLOWS),
        (nothing("not_actionable", confidence=0.4), REVIEW, Reason.LOW_CONFIDENCE),
    ],
)
async def test_answers_without_a_workflow(said, status, reason):
    world = World.saying(final(said), cluster=MemoryCluster(recovered(), LOGS))
    result = await world.analyse()
    assert_checked(result)
    assert (status, reason) == (result.status, result.human_review_reason)
    assert result.root_cause_analysis is not None
    assert world.model.calls == 1


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (says(""), Reason.LLM_PARSING_ERROR),
        (says("It is the image."), Reason.LLM_PARSING_ERROR),
        (says("I can't help with that.", Finish.REFUSAL), Reason.LLM_PARSING_ERROR),
        (says('```json\n{"root_cause_analysis": {"summary": "cut', Finish.LENGTH), Reason.LLM_PARSING_ERROR),
        (final(cause(summary="")), Reason.RCA_INCOMPLETE),
        (final(cause(affectedResource=None)), Reason.RCA_INCOMPLETE),
        (
            final(cause(affectedResource={"kind": "Deployment", "name": "gone", "namespace": "shop"})),
            Reason.RCA_INCOMPLETE,
        ),
        (final(chosen(workflow_id="no-such")), Reason.WORKFLOW_NOT_FOUND),
        (final(chosen(version="9.9.9")), Reason.IMAGE_MISMATCH),
        (final(chosen(container_image="registry.example.com/evil:1")), Reason.IMAGE_MISMATCH),
        (final(chosen(parameters={"TARGET_RESOURCE_NAME": "payments"})), Reason.PARAMETER_VALIDATION_FAILED),
        (final(chosen(parameters={"TARGET_RESOURCE_NAME": ["api"]})), Reason.PARAMETER_VALIDATION_FAILED),
    ],
)
async def test_three_invalid_answers_need_a_person_for_the_reason_of_the_last(said, reason):
    world = World.saying(said)
    result = await world.analyse()
    assert_checked(result)
    assert (REVIEW, reason) == (result.status, result.human_review_reason)
    assert [1, 2, 3] == [a.attempt for a in result.validation_attempts]
    assert [1, 2, 3] == [f.attempt for f in world.events.rejections]
    assert result.human_review_detail
    assert (None, ()) == (result.selected_workflow, result.alternative_workflows)


async def test_a_spent_budget_needs_a_person_and_says_which():
    world = World.saying(says("-", usage=CallUsage(input_tokens=90_000)))
    result = await world.analyse()
    assert (REVIEW, Reason.INVESTIGATION_INCONCLUSIVE) == (result.status, result.human_review_reason)
    assert (
        "input tokens used up (90000 of 150000, and the next call may need 90" in result.human_review_detail
    )
    assert (0, 1) == (len(result.validation_attempts), world.model.calls)  # the first reply was no attempt


async def test_without_a_catalog_no_workflow_is_chosen():
    catalog = MemoryCatalog([workflow()])
    catalog.down = True
    world = World.saying(final(answer()), catalog=catalog)
    result = await world.analyse()
    assert_checked(result)
    assert (REVIEW, Reason.INVESTIGATION_INCONCLUSIVE) == (result.status, result.human_review_reason)
    assert "catalog" in result.human_review_detail
    assert world.model.calls == 1


async def test_forbidden_actions_need_an_operator():
    safety = {"safety_constraints": {"forbidden_actions": ["restart_*"]}}
    result = await World.saying(final(answer())).analyse(incident(safety_context=safety))
    assert (REVIEW, Reason.OPERATOR_ESCALATION) == (result.status, result.human_review_reason)


# -- The outside world


async def test_a_resource_that_is_gone_is_told():
    result = await World.saying(final(answer()), cluster=MemoryCluster()).analyse()
    assert any("does not exist in the cluster" in note for note in result.notes)
    assert result.detected_labels is None


@pytest.mark.parametrize(
    "reason", [ClusterReason.UNAVAILABLE, ClusterReason.FORBIDDEN, ClusterReason.TIMEOUT]
)
async def test_a_cluster_that_is_down_never_ends_the_run_and_nothing_runs_without_approval(reason):
    cluster = MemoryCluster(shop(), LOGS)
    cluster.fail(reason)
    world = World.saying(calls(LOOK), final(answer()), cluster=cluster)
    result = await world.analyse()
    assert result.needs_human_review or result.approval.required
    assert any(note.startswith("unknown: ") for note in result.notes)
    assert "Could not be read, so unknown" in world.model.requests[0].turns[0].text


async def test_signal_types_of_catalog_and_settings_are_accepted():
    catalog = MemoryCatalog([workflow(labels=labels(signal_type="DiskSlow", severity="*")), rollback()])
    for world in (
        World.saying(final(cause(signal_type="DiskSlow")), catalog=catalog),
        World.saying(final(cause(signal_type="DiskSlow")), rules=Rules(signal_types=frozenset({"DiskSlow"}))),
    ):
        result = await world.analyse()
        assert result.root_cause_analysis.signal_type == "DiskSlow"
    refused = await World.saying(final(cause(signal_type="DiskSlow"))).analyse()
    assert Reason.RCA_INCOMPLETE is refused.human_review_reason


async def test_limits_and_thresholds_are_those_of_the_rules():
    rules = Rules(limits=Limits(llm_calls=2, attempts=1), min_confidence=0.95, confidence_threshold=0.5)
    world = World.saying(final(answer()), rules=rules)
    result = await world.analyse()
    assert Reason.LOW_CONFIDENCE is result.human_review_reason
    assert world.policy.asked[0]["confidence_threshold"] == 0.5


async def test_a_result_without_an_answer_tells_what_earlier_runs_have_spent():
    world = World.saying(calls(LOOK), Retry(RetryReason.MODEL_UNAVAILABLE, "503", after=90.0))
    with pytest.raises(Retry):
        await world.analyse()
    successor = await world.open(incident(), "run-2")
    result = await world.analysis().without_answer(successor, Ending(expired=True))
    assert (REVIEW, Reason.DECISION_EXPIRED, True) == (
        result.status,
        result.human_review_reason,
        result.approval.required,
    )
    assert (1, 1, 1_000, 600, 100) == (
        result.usage.llm_calls,
        result.usage.tool_calls,
        result.usage.input_tokens,
        result.usage.cached_tokens,
        result.usage.output_tokens,
    )
    assert EventType.RESPONSE_COMPLETE == event_types(world)[-1]
    assert result == await world.analyse(run="run-3")


@pytest.mark.parametrize("calls_before", [0, 1, 2])
async def test_a_halted_run_makes_no_further_call(calls_before):
    world = World()

    def halt(request, number):
        if number == calls_before:
            world.halt = HaltReason.CANCELLED
        return calls(LOOK) if number == 1 else final(answer())

    world.model = MemoryModel(halt)
    world.halt = None if calls_before else HaltReason.CANCELLED
    with pytest.raises(Halted):
        await world.analyse()
    assert calls_before == world.model.calls
    assert "result" not in [step.kind for step in world.journal.steps["rr-1"]]


# -- Observe mode


OBSERVE = Rules(observe=True)
NO_RESTART = Approval(required=True, reasons=("no restarts",))


def approval_of(result):
    """Whether it is required, whether it would be, whether observe mode is among the factors."""
    codes = [found.code for found in result.approval.factors]
    return result.approval.required, result.approval.would_require, "observe_mode" in codes


@pytest.mark.parametrize("decided", [Approval(required=False), NO_RESTART])
async def test_observe_mode_publishes_what_the_policy_would_have_decided(decided):
    world = World.saying(
        calls(LOOK, CONTEXT), final(answer()), rules=OBSERVE, policy=MemoryPolicy(lambda _: decided)
    )
    result = await world.analyse()
    assert (True, decided.required, True) == approval_of(result)
    assert decided.reasons == result.approval.would_reasons
    [event] = [e.payload for e in world.events.audits if e.event_type is EventType.POLICY_DECIDED]
    assert result.approval == event.approval


@pytest.mark.parametrize("outcome", ["problem_resolved", "inconclusive"])
async def test_in_observe_mode_every_result_requires_approval(outcome):
    said = final(nothing(outcome))
    world = World.saying(calls(LOOK), said, said, said, rules=OBSERVE, cluster=MemoryCluster(recovered(), {}))
    result = await world.analyse()
    assert (True, result.needs_human_review, True) == approval_of(result)


async def test_in_observe_mode_a_request_without_an_answer_requires_approval_too():
    world = World(rules=OBSERVE)
    run = await world.open(incident())
    assert (True, True, True) == approval_of(await world.analysis().without_answer(run, Ending(expired=True)))


@pytest.mark.parametrize(
    ("sent", "other", "named"), [("Staging", "", "staging"), ("dev", "qa", "production")]
)
async def test_a_result_names_the_environment_that_was_decided_for(sent, other, named):
    world = World.saying(calls(LOOK, CONTEXT), final(answer()))
    request = incident(environment=sent, safety_context=SafetyContext(environment=other))
    assert named == (await world.analyse(request)).environment


# -- The track record of an action


class Records:
    """The TrackRecords port: one record for each action and environment that is named."""

    def __init__(self, **known):
        self.known = known

    def of(self, action_type, environment):
        return self.known.get(f"{action_type}_{environment}")


@pytest.mark.parametrize(
    ("records", "given"),
    [
        (
            Records(RestartWorkload_production=TrackRecord(5, 3, 1)),
            {"proposed": 5, "succeeded": 3, "failed": 1},
        ),
        (Records(RestartWorkload_production=TrackRecord()), {"proposed": 0, "succeeded": 0, "failed": 0}),
        (Records(RestartWorkload_staging=TrackRecord(5, 3, 1)), None),
        (None, None),
    ],
)
async def test_the_policy_is_told_the_track_record_of_the_action_in_this_environment(records, given):
    world = World.saying(calls(LOOK, CONTEXT), final(answer()), track_records=records)
    await world.analyse(incident(environment="Production"))
    assert [given] == [asked["track_record"] for asked in world.policy.asked]


async def test_what_is_known_of_an_environment_that_was_not_named_is_not_that_of_production():
    records = Records(RestartWorkload_unknown=TrackRecord(1), RestartWorkload_production=TrackRecord(20, 20))
    world = World.saying(calls(LOOK, CONTEXT), final(answer()), track_records=records)
    result = await world.analyse(incident(environment="unknown"))
    [asked] = world.policy.asked
    assert ("production", 1, "unknown") == (
        asked["environment"],
        asked["track_record"]["proposed"],
        result.environment,
    )
