"""Past remediations and metrics through the production path: wired as the settings say."""

from __future__ import annotations

import json

import pytest

from schemas.analysis import AffectedResource, AnalysisResult, Status
from schemas.outcome import RemediationOutcome
from schemas.taxonomy import RequestKind
from tests.corpus_files import corpus_path
from tests.fakes import datastorage, prometheus
from tests.fakes.datastorage import written
from tests.fakes.llm_server import Said
from tests.pipeline import final, running
from worker.app.settings.groups import HistorySettings, PrometheusSettings
from worker.domain.values.objects import ObjectRef
from worker.domain.values.remediations import PastRemediation

CASE = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json").parent
INCIDENT = json.loads((CASE / "incident.json").read_text())
TARGET = {"kind": "Deployment", "name": "ml-worker", "namespace": "ml-batch"}
WORKFLOW = {
    "workflow_id": "increase-memory-limits-v1",
    "confidence": 0.9,
    "rationale": "The limit is the cause.",
    "parameters": {
        "TARGET_RESOURCE_NAMESPACE": "ml-batch",
        "TARGET_RESOURCE_NAME": "ml-worker",
        "TARGET_RESOURCE_KIND": "Deployment",
    },
}
ANSWER = {
    "root_cause_analysis": {
        "summary": "The container is OOMKilled at its own limit.",
        "severity": "critical",
        "signal_type": "OOMKilled",
        "affectedResource": TARGET,
    },
    "selected_workflow": WORKFLOW,
    "investigation_outcome": "actionable",
}


def look_then_answer(answer=None, calls=(("get_resource_context", TARGET),)):
    def script(request, number):
        asked = any(message["role"] == "tool" for message in request["messages"])
        return final(answer or ANSWER) if asked else Said(tool_calls=list(calls))

    return script


async def outcome_of(run, remediation_id):
    body = json.dumps({**INCIDENT, "remediation_id": remediation_id}).encode()
    async with run.client.waiting(RequestKind.INCIDENT, body) as waiter:
        submitted = await run.client.submit(body, RequestKind.INCIDENT)
        result = await run.client.outcome(waiter, submitted, 30)
    assert isinstance(result, AnalysisResult)
    return result


def seen_by_tools(run, number=-1):
    """What the tools told the model in one of its calls."""
    return "\n".join(m["content"] for m in run.llm.requests[number]["messages"] if m["role"] == "tool")


async def test_what_became_of_a_result_is_known_to_the_next_incident(tmp_path):
    async with running(look_then_answer(), CASE, tmp_path) as run:
        first = await outcome_of(run, "rr-1")
        assert '"remediation_history":"none in the last 90 days"' in seen_by_tools(run)
        failed = RemediationOutcome(
            kind=RequestKind.INCIDENT,
            incident_id=first.incident_id,
            remediation_id="rr-1",
            target=AffectedResource(**TARGET),
            workflow_id="increase-memory-limits-v1",
            action_type=first.selected_workflow.action_type,
            outcome="failed",
            completed_at=first.completed_at,
        )
        js = run.nc.jetstream()
        await js.publish(run.subjects.outcome("rr-1"), failed.model_dump_json().encode())
        second = await outcome_of(run, "rr-2")
        told, opening = seen_by_tools(run), run.llm.requests[-1]["messages"][1]["content"]
        bucket = await js.stream_info("KV_RCA_HISTORY")
    assert () == first.warnings
    assert "(increase-memory-limits-v1) for OOMKilled: failed" in told
    assert "failed on this very spec" in told
    assert "increase-memory-limits-v1" not in opening
    assert Status.COMPLETED is second.status
    assert "did not help this resource before" in second.warnings[0]
    assert second.approval.required
    digest = second.selected_workflow.execution_bundle_digest  # of the image; hashes of specs stay inside
    assert "sha256:" not in second.model_dump_json().replace("@sha256:", "").replace(digest, "")
    assert 1 == bucket.state.messages


async def test_datastorage_is_asked_where_it_is_configured(tmp_path):
    async with datastorage.serve() as storage:
        past = PastRemediation(
            "rr-0", action_type="IncreaseMemoryLimits", outcome="failed", signal_type="OOMKilled"
        )
        storage.put(ObjectRef(**TARGET), past)
        settings = HistorySettings(url=storage.url, token="t0ken")
        async with running(look_then_answer(), CASE, tmp_path, history=settings) as run:
            result = await outcome_of(run, "rr-1")
            told = seen_by_tools(run)
            bucket = await run.nc.jetstream().stream_info("KV_RCA_HISTORY")
    assert "(no time) IncreaseMemoryLimits for OOMKilled: failed" in told
    assert Status.COMPLETED is result.status
    assert 0 == bucket.state.messages
    assert 1 == len(storage.requests)
    assert "Bearer t0ken" == storage.headers[0]["Authorization"]
    assert written(past)["remediationUID"] == "rr-0"


async def test_a_history_that_is_away_does_not_hold_anything_up(tmp_path):
    settings = HistorySettings(url="http://127.0.0.1:9")
    async with running(look_then_answer(), CASE, tmp_path, history=settings) as run:
        result = await outcome_of(run, "rr-1")
        told = seen_by_tools(run)
    assert "unknown: DataStorage at http://127.0.0.1:9: it cannot be reached" in told
    assert Status.COMPLETED is result.status
    assert "history_unknown" in {found.code for found in result.approval.factors}


@pytest.mark.parametrize("configured", [True, False])
async def test_prometheus_is_asked_where_it_is_configured(tmp_path, configured):
    calls = [("query_prometheus", {"query": "container_memory_working_set_bytes", "since": "30m"})]
    async with prometheus.serve() as server:
        groups = {"prometheus": PrometheusSettings(url=server.url)} if configured else {}
        async with running(look_then_answer(calls=calls), CASE, tmp_path, **groups) as run:
            result = await outcome_of(run, "rr-1")
            told = seen_by_tools(run)
            offered = [tool["function"]["name"] for tool in run.llm.requests[0]["tools"]]
    assert configured is ("query_prometheus" in offered)
    assert configured is ("min 0 max" in told)
    assert configured is ("unknown tool" not in told)
    assert configured is bool(server.requests)
    assert result.root_cause_analysis is not None
