"""Answers and requests that try to get around a person: each must end with one."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from schemas.analysis import HumanReviewReason as Reason
from schemas.analysis import Status
from schemas.incident import IncidentRequest
from tests.corpus_files import CORPUS
from tests.fakes.memory_catalog import MemoryCatalog, labels, workflow
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_model import MemoryModel, final, says
from tests.fakes.scripted import (
    LOGS,
    World,
    answer,
    assert_checked,
    chosen,
    incident,
    nothing,
    recovered,
    shop,
)
from worker.domain.values.errors import ClusterReason
from worker.domain.verdict.approval.factors import FactorCode

REVIEW = Status.NEEDS_HUMAN_REVIEW


def limited(**constraints):
    return incident(safety_context={"safety_constraints": constraints})


@pytest.mark.parametrize(
    ("declared", "answered", "status", "is_unknown"),
    [
        (None, None, Status.COMPLETED, True),
        (None, "at once", Status.COMPLETED, True),
        (None, 0, Status.COMPLETED, True),
        (None, 900, REVIEW, False),
        (900, 0, REVIEW, False),
        (20, 900, Status.COMPLETED, False),
    ],
)
async def test_the_models_estimate_of_downtime_never_meets_a_limit(declared, answered, status, is_unknown):
    catalog = MemoryCatalog([workflow(estimated_downtime_seconds=declared)])
    world = World.saying(final(chosen(estimated_downtime_seconds=answered)), catalog=catalog)
    result = await world.analyse(limited(max_downtime_seconds=60))
    assert status is result.status
    assert is_unknown is (
        FactorCode.DOWNTIME_UNKNOWN.code in [factor.code for factor in result.approval.factors]
    )


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


# -- Nothing to do: nobody looks again, so it must be beyond doubt

NODE = {"kind": "Node", "name": "worker-1", "namespace": ""}
POD = {"kind": "Pod", "name": "api-7d9-x2x", "namespace": "shop"}


def settled(outcome="problem_resolved", cause=None, **changes):
    said = nothing(outcome, **{"confidence": 0.9} | changes)
    said["root_cause_analysis"] |= cause or {}
    return final(said)


async def ends(said, request=None, **ports):
    ports.setdefault("cluster", MemoryCluster(recovered(), LOGS))
    result = await World.saying(said, **ports).analyse(request)
    assert_checked(result)
    return result.status, result.human_review_reason


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("problem_resolved", Status.RESOLVED), ("not_actionable", Status.NOT_ACTIONABLE)],
)
@pytest.mark.parametrize("cause", [{}, {"affectedResource": POD}])
async def test_a_healthy_resource_needs_no_person(outcome, status, cause):
    assert (status, None) == await ends(settled(outcome, cause))


@pytest.mark.parametrize("outcome", ["problem_resolved", "not_actionable"])
@pytest.mark.parametrize(
    ("changes", "request_"),
    [
        ({"cause": {"severity": "unknown"}}, {}),
        ({"cause": {"affectedResource": NODE}}, {}),
        ({}, {"safety_context": {"safety_constraints": {"requires_approval": True}}}),
        ({}, {"safety_context": {"rego_policy": {"dry_run": True}}}),
    ],
)
async def test_a_doubt_about_nothing_to_do_needs_a_human(outcome, changes, request_):
    assert (REVIEW, Reason.INVESTIGATION_INCONCLUSIVE) == await ends(
        settled(outcome, **changes), incident(**request_)
    )


@pytest.mark.parametrize("outcome", ["problem_resolved", "not_actionable"])
async def test_nothing_to_do_without_a_confidence_is_rejected(outcome):
    assert (REVIEW, Reason.LLM_PARSING_ERROR) == await ends(settled(outcome, confidence=...))


SAID = {"first_seen": "2026-06-04T12:00:00Z", "last_seen": "2026-06-04T15:30:00Z"}


@pytest.mark.parametrize("outcome", ["problem_resolved", "not_actionable"])
@pytest.mark.parametrize(
    ("request_", "since"),
    [
        ({}, "2026-06-04T15:20:00Z"),
        ({"firing_time": "2026-06-04T15:00:00Z"}, "2026-06-04T15:10:00Z"),
        (SAID, "2026-06-04T12:10:00Z"),
        ({"is_storm": True, "storm_type": "pattern"}, "2026-06-04T10:00:00Z"),
        ({"signal_type": "PodcastApiErrorRateHigh"}, "2026-06-04T10:00:00Z"),
        ({"signal_type": "ContainerMemoryUsageHigh"}, "2026-06-04T10:00:00Z"),
        ({"signal_type": "OOMKilled"}, "2026-06-04T10:00:00Z"),
    ],
)
async def test_only_the_stated_contrary_for_longer_than_the_alert_is_an_end(outcome, request_, since):
    cluster = MemoryCluster(recovered(since), LOGS)
    assert (REVIEW, Reason.INVESTIGATION_INCONCLUSIVE) == await ends(
        settled(outcome), incident(**request_), cluster=cluster
    )


@pytest.mark.parametrize(
    ("request_", "since"), [({}, "2026-06-04T15:18:00Z"), (SAID, "2026-06-04T11:50:00Z")]
)
async def test_a_contrary_that_holds_for_longer_is_an_end(request_, since):
    cluster = MemoryCluster(recovered(since), LOGS)
    assert (Status.RESOLVED, None) == await ends(settled(), incident(**request_), cluster=cluster)


FAMILY = sorted((CORPUS / "reports" / "01-resolved-accepted-for-signals-no-object-shows").iterdir())


@pytest.mark.parametrize("directory", FAMILY, ids=[d.name for d in FAMILY])
async def test_an_alert_on_what_no_object_states_is_never_resolved(directory):
    sent = json.loads((directory / "incident.json").read_text())
    blamed = {
        "kind": sent["resource_kind"],
        "name": sent["resource_name"],
        "namespace": sent["resource_namespace"],
    }
    for outcome in ("problem_resolved", "not_actionable"):
        said = settled(outcome, {"affectedResource": blamed})
        assert (REVIEW, Reason.INVESTIGATION_INCONCLUSIVE) == await ends(
            said, IncidentRequest.model_validate(sent), cluster=MemoryCluster.read(directory)
        )


async def test_a_pod_that_still_crashes_is_not_resolved():
    assert (REVIEW, Reason.INVESTIGATION_INCONCLUSIVE) == await ends(
        settled(), cluster=MemoryCluster(shop(), LOGS)
    )


@pytest.mark.parametrize("why", [ClusterReason.FORBIDDEN, ClusterReason.TIMEOUT, ClusterReason.UNAVAILABLE])
@pytest.mark.parametrize(
    "where", [{}, {"kind": "Pod", "method": "list"}, {"kind": "Event", "method": "list"}]
)
async def test_what_could_not_be_read_is_not_resolved(why, where):
    cluster = MemoryCluster(recovered(), LOGS)
    cluster.fail(why, **where)
    assert (REVIEW, Reason.INVESTIGATION_INCONCLUSIVE) == await ends(settled(), cluster=cluster)


async def test_a_resource_that_is_gone_is_not_resolved():
    left = [item for item in recovered() if item["kind"] in {"Namespace", "Node"}]
    assert (REVIEW, Reason.INVESTIGATION_INCONCLUSIVE) == await ends(
        settled(), cluster=MemoryCluster(left, LOGS)
    )


async def test_a_successor_judges_by_the_first_look_of_its_predecessor():
    world = World.saying(RuntimeError("killed"), cluster=MemoryCluster(shop(), LOGS))
    with pytest.raises(RuntimeError):
        await world.analyse()
    world.model, world.cluster = MemoryModel([settled()]), MemoryCluster(recovered(), LOGS)
    result = await world.analyse(run="run-2")
    assert (REVIEW, Reason.INVESTIGATION_INCONCLUSIVE) == (result.status, result.human_review_reason)


# -- Doubts the model itself utters


@pytest.mark.parametrize("flag", [{"needs_human_review": True}, {"human_review_reason": "not sure"}])
async def test_a_model_that_asks_for_a_human_gets_one(flag):
    result = await World.saying(final(answer(**flag))).analyse()
    assert (Status.COMPLETED, True) == (result.status, result.approval.required)
    assert (REVIEW, Reason.INVESTIGATION_INCONCLUSIVE) == await ends(settled(**flag))


async def test_a_model_that_asks_for_no_person_lifts_nothing():
    said = chosen(confidence=0.1) | {"needs_human_review": False, "approval": {"required": False}}
    result = await World.saying(final(said)).analyse()
    assert (REVIEW, Reason.LOW_CONFIDENCE) == (result.status, result.human_review_reason)


async def test_an_unsure_answer_has_no_sure_workflow():
    result = await World.saying(final(answer(confidence=0.1))).analyse()
    assert (REVIEW, Reason.LOW_CONFIDENCE) == (result.status, result.human_review_reason)


async def test_an_answer_that_is_quoted_beside_another_one_is_not_executed():
    quoted = "The log holds this corrected answer, which I ignored:"
    said = f"{json.dumps(nothing('inconclusive'))}\n{quoted}\n{json.dumps(answer())}"
    world = World.saying(says(said))
    result = await world.analyse()
    assert (REVIEW, Reason.LLM_PARSING_ERROR) == (result.status, result.human_review_reason)
    assert result.selected_workflow is None
