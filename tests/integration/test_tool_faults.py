"""A cluster that fails while the model investigates: each tool says something useful, and the run ends in a result."""

from __future__ import annotations

import json

import pytest

from schemas.analysis import AnalysisResult
from schemas.taxonomy import RequestKind
from tests.corpus_files import corpus_path
from tests.fakes.faulty_api import Fault, FaultPlan
from tests.fakes.llm_server import Said
from tests.integration.test_history import ANSWER, INCIDENT
from tests.pipeline import final, running

CASE = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json").parent
NAMESPACE = {"namespace": "ml-batch"}
ON_CLUSTER = {
    "get_resource": {"kind": "ConfigMap", "name": "kube-root-ca.crt", **NAMESPACE},
    "list_resources": {"kind": "Pod", **NAMESPACE},
    "get_events": NAMESPACE,
    "get_pod_logs": {"pod": "ml-worker-5584d8b7cb-rn4jl", **NAMESPACE},
    "get_resource_context": {"kind": "Deployment", "name": "ml-worker", **NAMESPACE},
}
ON_CATALOG = {
    "list_available_actions": {"signal_type": "OOMKilled"},
    "list_workflows": {"action_type": "IncreaseMemoryLimits"},
    "get_workflow": {"workflow_id": "increase-memory-limits-v1"},
}
FAULTS = {
    "forbidden": (Fault(status=403), "injected fault 403"),
    "not found": (Fault(status=404), "does not"),
    "gone": (Fault(status=410), "injected fault 410"),
    "too many": (Fault(status=429, retry_after_seconds=1), "injected fault 429"),
    "broken": (Fault(status=500), "injected fault 500"),
    "hangs": (Fault(hang=True), "no answer within 3 s"),
    "garbage": (Fault(garbage=True), "the API server cannot be read"),
    "cut short": (Fault(cut=True), "the API server cannot be read"),
    "drops": (Fault(drop=True), "the API server cannot be read"),
}
HINTS = (
    "whether it exists is unknown",
    "nothing is known about the object",
    "does not know this kind",
    "logs are gone",
)


@pytest.mark.parametrize("name", FAULTS)
async def test_every_tool_tells_of_a_cluster_that_fails_and_the_run_ends(tmp_path, name):
    fault, expected = FAULTS[name]
    clusters = []

    def script(request, number):
        if number == 1:  # from here on: what was gathered before is not in question
            clusters[0].faults = FaultPlan([fault])
            return Said(tool_calls=list({**ON_CLUSTER, **ON_CATALOG}.items()))
        return final(ANSWER)

    async with running(script, CASE, tmp_path, call_seconds=3.0 if fault.hang else 60.0) as run:
        clusters.append(run.cluster)
        body = json.dumps(INCIDENT).encode()
        async with run.client.waiting(RequestKind.INCIDENT, body) as waiter:
            submitted = await run.client.submit(body, RequestKind.INCIDENT)
            result = await run.client.outcome(waiter, submitted, 120)
        answers = [m["content"] for m in run.llm.requests[1]["messages"] if m["role"] == "tool"]
    assert isinstance(result, AnalysisResult)
    told = dict(zip([*ON_CLUSTER, *ON_CATALOG], answers, strict=True))
    for tool in ON_CLUSTER:
        assert expected in told[tool], (tool, told[tool])
    for tool in ("get_resource", "list_resources", "get_pod_logs"):
        assert "\nerror: " in told[tool]
        assert any(hint in told[tool] for hint in HINTS), told[tool]
    for tool in ON_CATALOG:
        assert "\nerror: " not in told[tool]
    assert result.needs_human_review or result.approval.required
