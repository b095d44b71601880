"""An incident published on NATS comes back as a checked result, through the production path."""

import json

import pytest

from schemas.analysis import AnalysisResult, CorroborationSource, HumanReviewReason, Status
from schemas.failure import ValidationFailure
from schemas.taxonomy import RequestKind
from tests.corpus_files import corpus_path
from tests.fakes import samples
from tests.fakes.llm_server import Said
from tests.pipeline import final, running
from tests.waiting import until

CASE = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json").parent
BODY = (CASE / "incident.json").read_bytes()
TARGET = {"kind": "Deployment", "name": "ml-worker", "namespace": "ml-batch"}
ANSWER = {
    "root_cause_analysis": {
        "summary": "The container is OOMKilled at its own limit.",
        "severity": "critical",
        "signal_type": "OOMKilled",
        "contributing_factors": ["memory-backed emptyDir"],
        "affectedResource": TARGET,
    },
    "selected_workflow": {
        "workflow_id": "increase-memory-limits-v1",
        "confidence": 0.9,
        "rationale": "Termination reason OOMKilled.",
        "parameters": {
            "TARGET_RESOURCE_NAMESPACE": "ml-batch",
            "TARGET_RESOURCE_NAME": "ml-worker",
            "TARGET_RESOURCE_KIND": "Deployment",
        },
    },
    "investigation_outcome": "actionable",
}


def investigate_then_answer(request, number):
    if number == 1:
        return Said(
            tool_calls=[
                ("get_resource_context", TARGET),
                ("get_pod_logs", {"pod": "ml-worker-5584d8b7cb-rn4jl", "namespace": "ml-batch"}),
                ("list_available_actions", {"signal_type": "OOMKilled", "severity": "critical"}),
            ]
        )
    return final(ANSWER)


async def outcome_of(run, body, kind=RequestKind.INCIDENT):
    async with run.client.waiting(kind, body) as waiter:
        submitted = await run.client.submit(body, kind)
        return await run.client.outcome(waiter, submitted, 100)


async def _nothing_waits(run):
    return 0 == (await run.nc.jetstream().stream_info("RCA_REQUESTS")).state.messages


async def test_an_incident_comes_back_as_a_checked_result(tmp_path):
    events = []
    async with running(investigate_then_answer, CASE, tmp_path) as run, run.client.following(events.append):
        result = await outcome_of(run, BODY)
        await until(lambda: "response.complete" == events[-1].event_type)
    assert isinstance(result, AnalysisResult)
    assert Status.COMPLETED == result.status
    assert "increase-memory-limits-v1" == result.selected_workflow.workflow_id
    assert "1.5.3" == result.selected_workflow.version
    assert result.selected_workflow.container_image.startswith("registry.example.com/")
    assert ("Deployment", "ml-worker", "ml-batch") == (
        result.affected_resource.kind,
        result.affected_resource.name,
        result.affected_resource.namespace,
    )
    assert CorroborationSource.RULES is result.corroboration.by
    assert not result.approval.required, "confirmed, and declared low risk"
    assert (2, 3) == (result.usage.llm_calls, result.usage.tool_calls)
    assert len(result.evidence) > 3
    kinds = [event.event_type for event in events]
    assert list(range(1, len(events) + 1)) == [event.sequence for event in events]
    assert "request.accepted" == kinds[0]
    assert "response.complete" == kinds[-1]
    assert {"enrichment.completed", "llm.request", "llm.response", "llm.tool_call"} <= set(kinds)
    assert {"workflow.validation_attempt", "policy.decided"} <= set(kinds)


async def test_raw_bytes_without_headers_on_the_bare_subject_are_served(tmp_path):
    async with running(lambda request, number: final(ANSWER), CASE, tmp_path) as run:
        results = await run.nc.subscribe("rca.result.incident.*")
        await run.nc.publish("rca.request.incident", BODY)
        message = await results.next_msg(timeout=100)
    result = AnalysisResult.model_validate_json(message.data)
    assert json.loads(BODY)["remediation_id"] == result.remediation_id
    assert "rca.incident.result.v1" == message.headers["ce-type"]


async def test_the_same_request_again_is_answered_once(tmp_path):
    async with running(lambda request, number: final(ANSWER), CASE, tmp_path) as run:
        first = await outcome_of(run, BODY)
        again = await outcome_of(run, BODY + b"\n")
        await until(lambda: _nothing_waits(run))
        info = await run.nc.jetstream().stream_info("RCA_RESULTS")
    assert first == again
    assert 1 == info.state.messages
    assert 1 == len(run.llm.requests)


async def test_another_question_under_a_used_id_is_refused(tmp_path):
    other = json.dumps({**json.loads(BODY), "resource_name": "another"}).encode()
    async with running(lambda request, number: final(ANSWER), CASE, tmp_path) as run:
        await outcome_of(run, BODY)
        refused = await outcome_of(run, other)
    assert isinstance(refused, ValidationFailure)
    assert "key_conflict" == refused.code


async def test_three_wrong_answers_are_escalated_and_published(tmp_path):
    wrong = json.loads(json.dumps(ANSWER))
    wrong["selected_workflow"]["workflow_id"] = "invented-v1"
    async with running(lambda request, number: final(wrong), CASE, tmp_path) as run:
        rejected = await run.nc.subscribe("rca.validation.response.>")
        result = await outcome_of(run, BODY)
        failures = [
            ValidationFailure.model_validate_json((await rejected.next_msg(timeout=60)).data)
            for _ in range(3)
        ]
    assert (Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.WORKFLOW_NOT_FOUND) == (
        result.status,
        result.human_review_reason,
    )
    assert result.selected_workflow is None
    assert [1, 2, 3] == [failure.attempt for failure in failures]
    corrections = run.llm.requests[1]["messages"][-1]["content"]
    assert "invented-v1" in corrections


@pytest.mark.parametrize("body", [b"", b"null", b'{"incident_id": 1}', b"\xff\xfe"])
async def test_what_cannot_be_read_is_reported_and_taken_off_the_queue(body, tmp_path):
    async with running(lambda request, number: final(ANSWER), CASE, tmp_path) as run:
        failure = await outcome_of(run, body)
        await until(lambda: _nothing_waits(run))
    assert isinstance(failure, ValidationFailure)
    assert failure.errors
    assert [] == run.llm.requests


async def test_a_bad_outcome_is_rejected_like_any_other_message(tmp_path):
    good = samples.OUTCOME.model_dump(mode="json")
    async with running(lambda request, number: final(ANSWER), CASE, tmp_path) as run:
        rejected = await run.nc.subscribe("rca.validation.request")
        stream = run.nc.jetstream()
        await stream.publish("rca.outcome.rr-1", json.dumps(good).encode())
        await stream.publish("rca.outcome.rr-1", json.dumps(good | {"outcome": "great"}).encode())
        failure = ValidationFailure.model_validate_json((await rejected.next_msg(timeout=60)).data)
    assert ("schema", "outcome", "RCA_OUTCOMES", 2) == (
        failure.code,
        failure.path,
        failure.origin_stream,
        failure.origin_sequence,
    )
    assert "rr-1" == failure.request_key
