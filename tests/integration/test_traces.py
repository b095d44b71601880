"""Spans at a real OpenTelemetry collector, from a worker at a real NATS server."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest

from schemas.analysis import AnalysisResult, Status
from tests.fakes.llm_server import Said
from tests.fakes.otlp_receiver import collector
from tests.integration.test_pipeline import ANSWER, BODY, CASE, TARGET
from tests.pipeline import final, running
from tests.processes import rca
from tests.waiting import until

pytestmark = pytest.mark.process

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "ghp_FAKE0123456789abcdefghijklmnopqrstuv"
TOLD = "my-marker-of-the-request"
POD = {"pod": "ml-worker-5584d8b7cb-rn4jl", "namespace": "ml-batch"}
REQUEST = json.loads(BODY) | {"error_message": f"{TOLD} token={SECRET}"}
KEY = REQUEST["remediation_id"]
RESULT = f"rca.result.incident.{KEY}"


def script(request, number):
    if number == 1:
        calls = [("get_resource_context", TARGET), ("get_pod_logs", POD), ("no_such_tool", {"token": SECRET})]
        return Said(text=f"my-marker-of-the-model {SECRET}", tool_calls=calls)
    if number == 2:
        return Said(status=503)
    return final(ANSWER if number > 3 else {**ANSWER, "selected_workflow": {"workflow_id": SECRET}})


@asynccontextmanager
async def traced(tmp_path, monkeypatch, collecting, **variables):
    """A worker that sends its spans there."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collecting)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with running(script, CASE, tmp_path) as run:
        yield run


async def analysed(run, headers=None):
    """The messages of one request, by the start of their subject."""
    js = run.nc.jetstream()
    await js.publish("rca.request.incident", json.dumps(REQUEST).encode(), headers=headers)
    await until(lambda: _count(js, "RCA_RESULTS"))
    await until(lambda: _none_left(js))
    found = {}
    for stream in ("RCA_RESULTS", "RCA_VALIDATION", "RCA_AUDIT"):
        state = (await js.stream_info(stream)).state
        found[stream] = [await js.get_msg(stream, n) for n in range(1, state.last_seq + 1)]
    return found


async def _count(js, stream):
    return (await js.stream_info(stream)).state.messages


async def _none_left(js):
    return not await _count(js, "RCA_REQUESTS")


async def test_one_trace_leads_from_the_request_to_the_result(tmp_path, monkeypatch):
    async with collector() as there, traced(tmp_path, monkeypatch, there.url) as run:
        sent = await analysed(run, {"Traceparent": TRACEPARENT})
        await until(lambda: there.named("process rca.request.incident"))
        metrics = run.worker.metrics.text().decode()
    assert {TRACE} == {span["trace"] for span in there.spans}
    assert {"/v1/traces"} == {export["path"] for export in there.exports}
    assert {"rca-worker"} == {span["resource"]["service.name"] for span in there.spans}
    [process] = there.named("process rca.request.incident")
    assert ("consumer", PARENT) == (process["kind"], process["parent"])
    assert {
        "messaging.system": "nats",
        "messaging.operation.type": "process",
        "messaging.destination.name": "rca.request.incident",
        "messaging.consumer.group.name": "p2",
        "messaging.message.conversation_id": KEY,
        "rca.deliveries": 1,
        "rca.settlement": "done",
        "rca.status": "completed",
    }.items() <= process["attributes"].items()
    others = [span for span in there.spans if span is not process]
    assert {process["id"]} == {span["parent"] for span in others}
    assert all(process["start"] <= span["start"] <= span["end"] <= process["end"] for span in others)
    assert {
        "enrichment", "chat scripted", "check", "corroboration", "policy", "execute_tool get_resource_context",
        "execute_tool get_pod_logs", "execute_tool unknown", "publish rca.result.incident.{key}",
        "publish rca.validation.response.{key}",
    } == {span["name"] for span in others}  # fmt: skip
    [result] = sent["RCA_RESULTS"]
    [published] = there.named("publish rca.result.incident.{key}")
    assert f"00-{TRACE}-{published['id']}-01" == result.headers["traceparent"]
    assert ("producer", RESULT) == (published["kind"], published["attributes"]["messaging.destination.name"])
    [refused] = sent["RCA_VALIDATION"]
    assert TRACE == refused.headers["traceparent"][3:35]
    assert {f"00-{TRACE}-{process['id']}-01"} == {m.headers["traceparent"] for m in sent["RCA_AUDIT"]}
    _is_told_of_calls(there)
    assert 'rca_llm_calls_total{model="openai-chat:scripted",outcome="answered"} 3.0' in metrics
    assert 'rca_llm_calls_total{model="openai-chat:scripted",outcome="model_unavailable"} 1.0' in metrics
    assert 'rca_tool_calls_total{outcome="failure",tool="unknown"} 1.0' in metrics
    assert 'rca_refused_answers_total{code="answer_' in metrics


def _is_told_of_calls(there):
    chats = there.named("chat scripted")
    assert [False, True, False, False] == [span["failed"] for span in chats]
    assert "model_unavailable" == chats[1]["attributes"]["error.type"]
    first = chats[0]["attributes"]
    assert {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.finish_reasons": ["tool_calls"],
    }.items() <= first.items()
    assert first["gen_ai.usage.input_tokens"] > 0
    assert first["gen_ai.usage.output_tokens"] > 0
    [unknown] = there.named("execute_tool unknown")
    assert (True, "tool_failed") == (unknown["failed"], unknown["attributes"]["error.type"])
    assert [True, False] == [span["failed"] for span in there.named("check")]


@pytest.mark.parametrize("content", [False, True])
async def test_content_is_only_recorded_when_asked_for_and_never_a_secret(tmp_path, monkeypatch, content):
    variables = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"} if content else {}
    async with collector() as there, traced(tmp_path, monkeypatch, there.url, **variables) as run:
        await analysed(run)
        await until(lambda: there.named("process rca.request.incident"))
    seen = json.dumps(there.exports)
    assert SECRET not in seen
    assert all(content is (marker in seen) for marker in (TOLD, "my-marker-of-the-model", POD["pod"]))
    assert not any(span["events"] or span["message"] for span in there.spans), "exceptions may quote content"


@pytest.mark.parametrize("behaviour", ["refuses", "hangs", "floods", "is away"])
async def test_a_bad_collector_changes_nothing_and_delays_no_shutdown(tmp_path, monkeypatch, behaviour):
    patient = {"OTEL_EXPORTER_OTLP_TIMEOUT": "100000", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "5"}
    async with collector("takes" if behaviour == "is away" else behaviour) as there:
        url = there.url if behaviour != "is away" else "http://127.0.0.1:9"
        async with traced(tmp_path, monkeypatch, url, OTEL_BSP_MAX_QUEUE_SIZE="5", **patient) as run:
            sent = await analysed(run, {"traceparent": TRACEPARENT})
    [result] = sent["RCA_RESULTS"]
    assert Status.COMPLETED is AnalysisResult.model_validate_json(result.data).status
    assert TRACE == result.headers["traceparent"][3:35]


@pytest.mark.parametrize("variables", [{}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
async def test_without_a_tracer_the_context_of_the_request_is_passed_on(tmp_path, monkeypatch, variables):
    for name, value in (
        variables | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9" if variables else ""}
    ).items():
        monkeypatch.setenv(name, value)
    async with running(script, CASE, tmp_path) as run:
        sent = await analysed(run, {"traceparent": TRACEPARENT})
    assert {TRACEPARENT} == {m.headers["traceparent"] for messages in sent.values() for m in messages}


async def test_doctor_says_that_a_collector_takes_spans():
    async with collector() as there:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": there.url, "RCA_NATS__SERVERS": "nats://127.0.0.1:9"}
        rows = (await rca("doctor", "--json", env=env)).json()
        await until(lambda: there.exports)
    assert [("ok", f"the collector at {there.url} accepts spans")] == [
        (row["level"], row["text"]) for row in rows if row["area"] == "traces"
    ]


def test_off_by_default_nothing_of_the_sdk_is_imported():
    code = (
        "import contextlib, sys\n"
        "from worker.app.wiring import open_worker\n"
        "from worker.app.wiring.tracing import open_tracer\n"
        "open_tracer({}, contextlib.AsyncExitStack())\n"
        "print([m for m in sys.modules if m.startswith(('opentelemetry.sdk', 'opentelemetry.exporter', 'google.protobuf'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "[]" == done.stdout.strip()
