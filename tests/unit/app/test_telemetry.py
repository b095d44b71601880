"""What is counted and traced of a request, and that no run tells what another one did."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import AsyncExitStack, contextmanager

import pytest
import structlog

from schemas.subjects import Subjects
from tests.fakes.dying_run import die_at
from tests.fakes.handler_rig import HandlerRig, body
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import DELIVERY, LOOK, World, answer, incident
from worker.app.metrics import WorkerMetrics
from worker.app.settings.environment import ConfigurationError
from worker.app.telemetry import ForwardingTracer, MeteredEvents, MeteredModel, Telemetry, traceparent_of
from worker.app.wiring.tracing import endpoint, new_tracer, open_tracer, records_content
from worker.domain.values.conversation import ModelRequest, ToolResult, ToolTurn, UserTurn
from worker.domain.values.delivery import ACK, Fate
from worker.domain.values.errors import Retry, RetryReason
from worker.domain.values.ports import AuditRecord
from worker.domain.values.step_kinds import LLM

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
SECRET = "ghp_FAKE0123456789abcdefghijklmnopqrstuv"


class RecordingTracer:
    """Keeps the spans: name, kind, parent and attributes."""

    def __init__(self):
        self.spans = []

    @contextmanager
    def span(self, name, kind, attributes, parent=""):
        kept = dict(attributes)
        self.spans.append((name, kind, parent, kept))
        try:
            yield kept
        except Exception as e:
            kept["error.type"] = type(e).__name__
            raise

    def record(self, name, attributes, *, seconds, ago):
        assert seconds >= 0
        assert ago >= 0
        self.spans.append((name, "internal", "", attributes))

    def headers(self):
        return {"traceparent": TRACEPARENT}

    def count(self):
        """How many spans of each name there are."""
        return Counter(name for name, *_ in self.spans)


def observed(world, **fields):
    """A handler whose spans and metrics are kept."""
    rig = HandlerRig(world)
    rig.telemetry = Telemetry(RecordingTracer(), rig.metrics, world.clock, **fields)
    rig.new_process()
    return rig


async def test_a_request_is_told_from_its_delivery_to_its_result():
    rig = observed(World(model=MemoryModel([calls(LOOK), final(answer())])))
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logged:
        assert ACK == await rig.take(headers={"traceparent": TRACEPARENT})
    (name, kind, parent, attributes), *stages = rig.telemetry.tracer.spans
    assert ("process rca.request.incident", "consumer", TRACEPARENT) == (name, kind, parent)
    assert "rca.prompt_chars" not in attributes
    told = ("done", "completed", "rr-1", 1)
    keys = ("rca.settlement", "rca.status", "messaging.message.conversation_id", "rca.deliveries")
    assert told == tuple(attributes[key] for key in keys)
    tool = f"execute_tool {LOOK[0]}"
    shown = ["enrichment", tool, "check", "corroboration", "policy", "publish rca.result.incident.{key}"]
    assert shown == [name for name, *_ in stages]
    assert rig.count("rca_tool_calls_total", tool=LOOK[0], outcome="success") == 1
    for stage in ("enrichment", "tool", "check", "corroboration", "policy"):
        assert rig.count("rca_stage_seconds_count", stage=stage) == 1
    assert {TRACEPARENT[3:35]} == {entry["trace_id"] for entry in logged}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("append", range(1, 9))
async def test_spans_of_an_earlier_run_are_not_repeated(append, before):
    said = [calls(LOOK), final(answer())]
    world = World(model=MemoryModel(said))
    await die_at(world, incident(), append, before=before)
    journaled = {event.event_id for step in world.journal.steps["rr-1"] for event in step.events}
    await world.clock.sleep(1.0)
    replies = sum(step.kind == LLM for step in world.journal.steps["rr-1"])
    world.model = MemoryModel(said[replies:])
    rig = observed(world)
    assert ACK == await rig.take()
    new = Counter(str(e.event_type) for e in world.events.audits if e.event_id not in journaled)
    told = rig.telemetry.tracer.count()
    names = {
        "enrichment": "enrichment.completed",
        f"execute_tool {LOOK[0]}": "llm.tool_call",
        "policy": "policy.decided",
    }
    assert {name: new[event] for name, event in names.items()} == {name: told[name] for name in names}
    assert 1 == told["publish rca.result.incident.{key}"]
    resumed = rig.telemetry.tracer.spans[0][3].get("rca.replayed_steps")
    assert (resumed is not None) is bool(new["request.resumed"])


async def test_answers_that_are_refused_are_counted_by_what_was_wrong_and_never_by_what_was_said():
    rig = observed(World.saying(final("no JSON " + SECRET), calls(("hostile_name", {})), final(answer())))
    assert ACK == await rig.take()
    text = rig.metrics.text().decode()
    assert "hostile_name" not in text
    assert rig.count("rca_tool_calls_total", tool="unknown", outcome="failure") == 1
    assert "hostile_name" not in str(rig.telemetry.tracer.spans)


async def test_a_rejected_message_ends_its_span_as_failed():
    rig = observed(World())
    settled = await rig.take(body(severity="terrible"))
    assert Fate.TERMINATE is settled.fate
    (_, _, _, attributes), (published, kind, _, to) = rig.telemetry.tracer.spans
    assert ("rejected: schema", "terminate") == (attributes["error.type"], attributes["rca.settlement"])
    assert ("publish rca.validation.request", "producer") == (published, kind)
    assert "messaging.destination.template" not in to


class Published:
    """Events that keep only what was published."""

    def __init__(self):
        self.records = []

    async def audit(self, record):
        self.records.append(record)


async def test_an_event_of_another_version_is_published_and_not_told():
    telemetry, published = Telemetry(RecordingTracer(), WorkerMetrics(), World().clock), Published()
    events = MeteredEvents(published, telemetry, Subjects(), frozenset)
    record = AuditRecord("id", "request.accepted", "rr-1", 1, b'{"version":2}')

    async def publish(*_):
        await events.audit(record)
        return ACK

    await telemetry.handler(publish)(b"", {}, DELIVERY)
    await events.audit(record)
    assert [record, record] == published.records
    assert 1 == len(telemetry.tracer.spans)


@pytest.mark.parametrize("content", [False, True])
async def test_content_of_a_call_is_recorded_when_asked_for_without_secrets(content):
    world = World()
    telemetry = Telemetry(RecordingTracer(), WorkerMetrics(), world.clock, content=content)
    model = MeteredModel(MemoryModel([final(f"the answer {SECRET}")] * 2), telemetry)
    for turn in (UserTurn(f"the prompt {SECRET}"), ToolTurn((ToolResult("c", "x", "the result"),))):
        await model.ask(ModelRequest("system", (), (turn,)))
    seen = str(telemetry.tracer.spans)
    assert SECRET not in seen
    assert all(content is (words in seen) for words in ("the prompt", "the answer", "the result"))
    assert "system" not in telemetry.tracer.spans[0][3]


async def test_the_name_of_a_model_may_have_colons():
    telemetry = Telemetry(RecordingTracer(), WorkerMetrics(), World().clock)
    model = MeteredModel(MemoryModel([final("x")], name="azure:llama3:8b"), telemetry)
    await model.ask(ModelRequest("system", (), (UserTurn("x"),)))
    [(name, _, _, attributes)] = telemetry.tracer.spans
    assert ("chat llama3:8b", "azure.ai.openai") == (name, attributes["gen_ai.provider.name"])


async def test_a_failed_call_is_counted_by_its_reason():
    telemetry = Telemetry(ForwardingTracer(), WorkerMetrics(), World().clock)
    model = MeteredModel(MemoryModel([Retry(RetryReason.MODEL_RATE_LIMITED, "429")]), telemetry)
    with pytest.raises(Retry):
        await model.ask(ModelRequest("system", (), (UserTurn("x"),)))
    labels = {"model": model.name, "outcome": "model_rate_limited"}
    assert telemetry.metrics.registry.get_sample_value("rca_llm_calls_total", labels) == 1


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TRACEPARENT"])
def test_the_context_of_a_request_is_read(name):
    assert TRACEPARENT == traceparent_of({"x": "y", name: TRACEPARENT})


@pytest.mark.parametrize(
    "value",
    [
        "", "00", TRACEPARENT.upper(), TRACEPARENT + "\r\nx: y", f"{TRACEPARENT}-extra", TRACEPARENT.replace("00-", "ff-", 1),
        f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        TRACEPARENT.replace("4", "٤"), "x" * 100_000,
    ],
)  # fmt: skip
def test_an_invalid_context_is_not_read(value):
    assert "" == traceparent_of({"traceparent": value})


def test_without_a_collector_the_context_of_the_request_is_passed_on():
    tracer = ForwardingTracer()
    assert {} == tracer.headers()
    with tracer.span("outer", "consumer", {}, TRACEPARENT), tracer.span("inner", "producer", {}):
        tracer.record("stage", {}, seconds=1.0, ago=0.0)
        assert {"traceparent": TRACEPARENT} == tracer.headers()
    assert {} == tracer.headers()


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, ""),
        (COLLECTOR, "http://collector:4318"),
        (
            COLLECTOR | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces/v1/traces"},
            "http://traces/v1/traces",
        ),
        (COLLECTOR | {"OTEL_SDK_DISABLED": "TRUE"}, ""),
        (COLLECTOR | {"OTEL_SDK_DISABLED": "false", "OTEL_TRACES_EXPORTER": "otlp"}, "http://collector:4318"),
        (COLLECTOR | {"OTEL_TRACES_EXPORTER": "none"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ""),
    ],
)
def test_traces_are_on_when_the_standard_variables_say_so(variables, address):
    assert address == endpoint(variables)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("", False), ("false", False), ("True", True), ("span_only", True), ("event_only", False)],
)
def test_content_is_recorded_when_the_standard_variable_says_so(value, wanted):
    assert wanted is records_content({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": value})


def test_a_tracer_that_cannot_be_used_says_what_to_set_and_stops_nothing(monkeypatch):
    grpc = COLLECTOR | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with pytest.raises(ConfigurationError, match="http/protobuf"):
        new_tracer(grpc)
    with structlog.testing.capture_logs() as logged:
        assert isinstance(open_tracer(grpc, AsyncExitStack()), ForwardingTracer)
    assert ["tracing_off"] == [entry["event"] for entry in logged]
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    with pytest.raises(ConfigurationError, match="OTEL_"):
        new_tracer(COLLECTOR)
    monkeypatch.setitem(sys.modules, "worker.adapters.otlp_tracer", None)
    with pytest.raises(ConfigurationError, match="extra otel"):
        new_tracer(COLLECTOR)
