"""A consumer that knows only the published contract can act on every result, and needs no second read of the catalog."""

from __future__ import annotations

import ast
import json
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.corpus_files import corpus_path
from tests.fakes import aianalysis
from tests.fakes.aianalysis import act, next_result
from tests.fakes.llm_server import Said
from tests.pipeline import final, running
from worker.app.settings.groups import CatalogSettings

CASE = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json").parent
BODY = json.loads((CASE / "incident.json").read_bytes())
TARGET = {"kind": "Deployment", "name": "ml-worker", "namespace": "ml-batch"}
DIGEST = f"sha256:{'7' * 64}"
DOCUMENT = {
    "apiVersion": "kubernaut.ai/v1alpha1",
    "kind": "RemediationWorkflow",
    "metadata": {"name": "grow-memory"},
    "spec": {
        "workflowId": "grow-memory",
        "version": "2.0.1",
        "actionType": "GrowMemory",
        "description": {"what": "Raises the memory limit.", "whenToUse": "The container is OOMKilled."},
        "labels": {
            "signalName": "OOMKilled", "severity": ["critical"], "component": ["apps/v1/Deployment"],
            "environment": ["*"], "priority": "*",
        },
        "execution": {
            "engine": "tekton", "bundle": "registry.example.com/grow-memory", "bundleDigest": DIGEST,
            "serviceAccountName": "grow-memory-runner",
        },
        "dependencies": {"secrets": [{"name": "deploy-key"}], "configMaps": [{"name": "limits"}]},
        "parameters": [
            {"name": "TARGET_RESOURCE_NAME", "type": "string", "required": True, "description": "Name"},
            {"name": "MEMORY_LIMIT", "type": "string", "required": True, "description": "New limit"},
        ],
    },
}  # fmt: skip
CAUSE = {
    "summary": "The container is OOMKilled at its own limit.",
    "severity": "critical",
    "signal_type": "OOMKilled",
    "contributing_factors": ["memory-backed emptyDir"],
    "causal_chain": [
        {"claim": "The container was OOMKilled", "evidence": ["E1", "E2", "E3", "E4"]},
        {"claim": "So the job lost its work", "evidence": ["E99"]},
    ],
    "affectedResource": TARGET,
}


def answering(workflow_id, **changes):
    """A model that looks at the object, then answers. `workflow_id` is what it chooses."""
    chosen = {
        "workflow_id": workflow_id,
        "confidence": 0.9,
        "rationale": "It is killed at its limit.",
        "estimated_risk": "moderate",
        "parameters": {"TARGET_RESOURCE_NAME": "ml-worker", "MEMORY_LIMIT": "2Gi"},
    }
    answer = {
        "root_cause_analysis": CAUSE,
        "confidence": 0.8,
        "selected_workflow": json.dumps(chosen) if workflow_id else None,
        "investigation_outcome": "actionable",
        **changes,
    }

    def script(request, number):
        return Said(tool_calls=[("get_resource_context", TARGET)]) if number == 1 else final(answer)

    return script


@asynccontextmanager
async def worker(script, tmp_path, **options):
    catalog = tmp_path / "catalog"
    catalog.mkdir()
    (catalog / "grow-memory.yaml").write_text(yaml.safe_dump(DOCUMENT))
    async with running(script, CASE, tmp_path, catalog=CatalogSettings(path=catalog), **options) as run:
        yield run


async def publish(run, **changes):
    await run.nc.jetstream().publish("rca.request.incident", json.dumps(BODY | changes).encode())


async def handled(script, tmp_path, **changes):
    async with worker(script, tmp_path) as run:
        await publish(run, **changes)
        return await next_result(run.nc, 100)


async def test_a_workflow_is_executed_from_the_result_alone(tmp_path):
    workflow_id = "grow-memory"
    request = {"signal_name": "ContainerOOMKilling", "signal_type": None, "severity": "error"}
    done = await handled(answering(workflow_id), tmp_path, **request)
    assert done.action in {"ask", "execute"}
    spec = DOCUMENT["spec"]
    assert done.execution == {
        "workflowId": workflow_id,
        "version": spec["version"],
        "actionType": spec["actionType"],
        "executionBundle": f"{spec['execution']['bundle']}@{DIGEST}",
        "executionBundleDigest": DIGEST,
        "executionEngine": "tekton",
        "serviceAccountName": "grow-memory-runner",
        "dependencies": spec["dependencies"],
        "parameters": {"TARGET_RESOURCE_NAME": "ml-worker", "MEMORY_LIMIT": "2Gi"},
    }
    status = done.status
    assert ("clean", False, 0.8) == (
        status["alignmentVerdict"],
        status["needsHumanReview"],
        status["confidence"],
    )
    cause = status["rootCauseAnalysis"]
    assert TARGET.items() <= cause["affectedResource"].items()
    assert [step["claim"] for step in CAUSE["causal_chain"]] == cause["causalChain"]
    assert "medium" == done.result["selected_workflow"]["estimated_risk"]
    assert {
        "signal_name of the request was read as signal_type",
        "the severity error of the request was read as high",
    } <= set(done.result["notes"])


async def test_what_the_evidence_said_can_be_read(tmp_path):
    done = await handled(answering("grow-memory"), tmp_path)
    first, second = done.result["root_cause_analysis"]["causal_claims"]
    assert (["E1", "E2", "E3", "E4"], "shown") == (first["evidence"], first["support"])
    assert ([], "uncited") == (second["evidence"], second["support"])
    assert any("E99" in warning for warning in done.status["warnings"])
    shown = [done.status["evidence"][id_] for id_ in first["evidence"]]
    assert any("OOMKilled" in text for text in shown)
    assert all(len(text.encode()) <= 2_048 for text in done.status["evidence"].values())
    assert all(item["seen_at"] and item["summary"] and item["source"] for item in done.result["evidence"])


async def test_a_result_for_a_human_has_the_cause_and_every_attempt(tmp_path):
    done = await handled(answering("invented"), tmp_path)
    assert ("escalate", None, "workflow_not_found") == (
        done.action,
        done.execution,
        done.status["humanReviewReason"],
    )
    assert done.status["approvalRequired"] is True
    assert CAUSE["summary"] == done.status["rootCause"]
    assert [1, 2, 3] == [attempt for attempt, valid, _ in done.status["validationAttempts"] if not valid]
    times = [time for _, _, time in done.status["validationAttempts"]]
    assert times == sorted(times)
    assert times[0] < times[-1] <= done.status["completedAt"]


async def test_a_budget_that_ends_keeps_what_was_found(tmp_path):
    answer = answering("invented")

    def script(request, number):
        return answer(request, 1 if number < 4 else number)

    async with worker(script, tmp_path, model={"max_input_tokens": 10_000}) as run:
        await publish(run)
        done = await next_result(run.nc, 100)
    assert ("escalate", "investigation_inconclusive") == (done.action, done.status["humanReviewReason"])
    assert CAUSE["summary"] == done.status["rootCause"]
    assert "budget" in done.result["human_review_detail"]
    assert any("invented" in error for error in done.result["validation_attempts"][-1]["errors"])


async def test_a_human_who_takes_over_gets_what_was_found(tmp_path):
    answer = answering("invented")

    def script(request, number):
        said = answer(request, number)
        said.delay_seconds = 3.0 if number == 3 else 0.0
        return said

    async with worker(script, tmp_path) as run:
        refused = await run.nc.subscribe("rca.validation.response.>")
        await publish(run)
        await refused.next_msg(timeout=60)
        await (await run.nc.jetstream().key_value("RCA_CANCEL")).put(BODY["remediation_id"], b"taken over")
        done = await next_result(run.nc, 100)
    assert ("escalate", "operator_escalation") == (done.action, done.status["humanReviewReason"])
    assert CAUSE["summary"] == done.status["rootCause"]
    assert done.status["evidence"]
    assert done.status["validationAttempts"]


@pytest.mark.parametrize(("said", "read"), [("error", "high"), ("warning", "medium"), ("info", "low")])
async def test_severities_of_other_systems_are_mapped_and_noted(said, read, tmp_path):
    context = {"kubernetesContext": {"rootCause": "THEIR-VIEW"}}
    async with worker(answering(None, investigation_outcome="inconclusive"), tmp_path) as run:
        audit = await run.nc.subscribe("rca.audit.>")
        await publish(run, severity=said, enrichment_results=context)
        done = await next_result(run.nc, 100)
        started = json.loads((await audit.next_msg(timeout=10)).data)
    opening = run.llm.requests[0]["messages"][1]["content"]
    assert f"- Severity: {read}\n" in opening
    assert any(f"severity {said}" in note for note in done.result["notes"])
    assert ["enrichment_results.kubernetesContext"] == started["payload"]["ignored_fields"]
    assert "THEIR-VIEW" not in opening
    assert run.llm.requests[0]["max_completion_tokens"] >= 16_000  # room for what a model thinks


@pytest.mark.parametrize(
    "path", sorted((aianalysis.V1 / "samples").glob("analysis-result-*.json")), ids=lambda p: p.stem
)
def test_the_samples_can_be_acted_on(path):
    assert act(json.loads(path.read_text())).action in {"ask", "execute", "escalate", "close"}


def test_the_consumer_imports_nothing_of_the_worker():
    tree = ast.parse(Path(aianalysis.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert not {name for name in imported if name.split(".")[0] in {"schemas", "worker", "tests"}}
