"""Metrics and traces of the calls through the handler's ports: messages, audit events, model calls.

Stages are derived from the audit events in which an analysis reports them. A run that resumes another one
publishes events of that run again: those were reported before, and are not reported twice.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import structlog

from schemas import audit
from schemas.analysis import AnalysisResult
from schemas.audit import AuditEvent, EventType, Outcome
from schemas.failure import DeadLetter, ValidationFailure
from schemas.subjects import Header, Subjects
from worker.app.metrics import WorkerMetrics
from worker.domain.audit.redacted import preview
from worker.domain.audit.trail import turn_text
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.conversation import ModelRequest, Reply, ToolTurn, Turn
from worker.domain.values.delivery import Delivery, MessageHandler, Settlement
from worker.domain.values.errors import GiveUp, Retry
from worker.domain.values.ports import AuditRecord, Clock, Events, Model
from worker.domain.values.readable import readable

Attributes = dict[str, Any]

TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
PROVIDERS = {
    "openai-chat": "openai", "openai-responses": "openai", "azure": "azure.ai.openai", "bedrock": "aws.bedrock",
    "google": "gcp.gemini", "google-cloud": "gcp.vertex_ai", "mistral": "mistral_ai",
}  # fmt: skip
"""Names of providers in the semantic conventions, where they differ from ours."""
STAGES = {
    EventType.ENRICHMENT_COMPLETED: "enrichment",
    EventType.LLM_TOOL_CALL: "tool",
    EventType.VALIDATION_ATTEMPT: "check",
    EventType.ALIGNMENT_CHECKED: "alignment",
    EventType.CORROBORATION_CHECKED: "corroboration",
    EventType.POLICY_DECIDED: "policy",
}
"""Stages by the event that reports their end. Calls of the model are measured where they are made."""
CONTENT_CHARS = 4_000
"""How much of one text is recorded, if content is recorded at all."""


class Tracer(Protocol):
    """Records spans. Never raises and never waits for a collector."""

    def span(
        self, name: str, kind: str, attributes: Attributes, parent: str = ""
    ) -> AbstractContextManager[Attributes]:
        """A span around the context. Attributes that are put into the yielded mapping are added at its end.

        `kind` is a span kind of OpenTelemetry in lower case. `parent` is a valid traceparent of another
        system. An exception, or the attribute `error.type`, marks the span as failed.
        """

    def record(self, name: str, attributes: Attributes, *, seconds: float, ago: float) -> None:
        """A span within the current one that took `seconds` and ended `ago` seconds before now."""

    def headers(self) -> Mapping[str, str]:
        """The trace context of the current span, to be sent along."""


class ForwardingTracer:
    """Implements Tracer without a collector: published messages carry the trace context of the request."""

    def __init__(self) -> None:
        self._current: ContextVar[str] = ContextVar("traceparent", default="")

    @contextmanager
    def span(self, name: str, kind: str, attributes: Attributes, parent: str = "") -> Iterator[Attributes]:
        del name, kind
        token = self._current.set(parent or self._current.get())
        try:
            yield attributes
        finally:
            self._current.reset(token)

    def record(self, name: str, attributes: Attributes, *, seconds: float, ago: float) -> None: ...

    def headers(self) -> Mapping[str, str]:
        current = self._current.get()
        return {Header.TRACEPARENT.value: current} if current else {}


@dataclass(slots=True)
class _Handled:
    """The message that this context handles.

    `last`: when its last event was recorded. `seen`: ids of events.
    """

    began: datetime
    last: datetime
    attributes: Attributes
    seen: set[str] = field(default_factory=set)


HANDLED: ContextVar[_Handled | None] = ContextVar("handled", default=None)


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Where metrics and traces go.

    With `content`, prompts, answers, arguments and results are recorded, too, bounded and without secrets.
    """

    tracer: Tracer
    metrics: WorkerMetrics
    clock: Clock
    content: bool = False

    def handler(self, handle: MessageHandler) -> MessageHandler:
        """The handler, with a consumer span around each message that continues the trace of the request."""

        async def traced(body: bytes, headers: Mapping[str, str], delivery: Delivery) -> Settlement:
            name, now = f"process {delivery.subject}", self.clock.now()
            attributes = {
                **_messaging("process", "process", delivery.subject),
                "messaging.consumer.group.name": delivery.durable,
                "messaging.message.body.size": len(body),
                "rca.stream": delivery.stream,
                "rca.sequence": delivery.sequence,
                "rca.deliveries": delivery.deliveries,
            }
            with self.tracer.span(name, "consumer", attributes, traceparent_of(headers)) as more:
                token = HANDLED.set(_Handled(now, now, more))
                try:
                    with structlog.contextvars.bound_contextvars(**self._trace_id()):
                        settled = await handle(body, headers, delivery)
                finally:
                    HANDLED.reset(token)
                more["rca.settlement"] = settled.fate.value
                if settled.reason:
                    more["error.type"] = settled.reason
            return settled

        return traced

    def _trace_id(self) -> Mapping[str, str]:
        """The id of the current trace, for the log."""
        context = self.tracer.headers().get(Header.TRACEPARENT)
        return {"trace_id": context[3:35]} if context else {}


class MeteredModel:
    """Implements Model by calling another Model, and counts. Its name, used as a label, is the configured one."""

    def __init__(self, model: Model, telemetry: Telemetry) -> None:
        self.name, self._model, self._telemetry = model.name, model, telemetry

    async def ask(self, request: ModelRequest) -> Reply:
        """Ask the model. Raises the errors of the model."""
        to, began = self._telemetry, self._telemetry.clock.monotonic()
        provider, _, model = self.name.partition(":")
        model = model or self.name
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDERS.get(provider, provider),
            "gen_ai.request.model": model,
        }
        if to.content:
            attributes["gen_ai.input.messages"] = _message(request.turns[-1])
        with to.tracer.span(f"chat {model}", "client", attributes) as more:
            try:
                reply = await self._model.ask(request)
            except (Retry, GiveUp) as e:
                to.metrics.llm_calls.labels(self.name, e.reason).inc()
                raise
            more |= {
                "gen_ai.response.model": one_line(reply.model, 128),
                "gen_ai.response.finish_reasons": [reply.finish.value],
                "gen_ai.usage.input_tokens": reply.usage.input_tokens,
                "gen_ai.usage.cache_read.input_tokens": reply.usage.cached_tokens,
                "gen_ai.usage.output_tokens": reply.usage.output_tokens,
            }
            if to.content:
                more["gen_ai.output.messages"] = _message(reply)
        to.metrics.replied(self.name, reply.usage, to.clock.monotonic() - began)
        return reply


class MeteredEvents:
    """Implements Events by calling another Events, and counts.

    `tools` are the names of tools that may appear in metrics and traces.
    """

    def __init__(
        self, events: Events, telemetry: Telemetry, subjects: Subjects, tools: Callable[[], Collection[str]]
    ) -> None:
        self._events, self._telemetry, self._subjects, self._tools = events, telemetry, subjects, tools

    async def audit(self, record: AuditRecord) -> None:
        handled = HANDLED.get()
        if handled is not None and record.event_id not in handled.seen:
            handled.seen.add(record.event_id)
            event = readable(AuditEvent, record.body)
            if event and event.time >= handled.began:  # else an earlier run counted it
                self._report(event, handled)
        await self._events.audit(record)

    async def reject(self, failure: ValidationFailure) -> None:
        to = self._subjects.validation_request()
        if failure.attempt is not None:
            to = self._subjects.validation_response("{key}")
            self._telemetry.metrics.refused_answers.labels(failure.code).inc()
        with self._publishing(to, failure.request_key or ""):
            await self._events.reject(failure)

    async def result(self, result: AnalysisResult, *, replace_failed: bool = False) -> AnalysisResult:
        with self._publishing(self._subjects.result(result.kind, "{key}"), result.request_key):
            return await self._events.result(result, replace_failed=replace_failed)

    async def dead_letter(self, letter: DeadLetter, body: bytes) -> None:
        with self._publishing(self._subjects.dead_letter(letter.reason)):
            await self._events.dead_letter(letter, body)

    def _publishing(self, template: str, key: str = "") -> AbstractContextManager[Attributes]:
        attributes = _messaging("publish", "send", template.replace("{key}", key))
        if "{key}" in template:
            attributes["messaging.destination.template"] = template
        return self._telemetry.tracer.span(f"publish {template}", "producer", attributes)

    def _report(self, event: AuditEvent, handled: _Handled) -> None:
        to, payload = self._telemetry, event.payload
        passed, handled.last = (event.time - handled.last).total_seconds(), event.time
        handled.attributes["messaging.message.conversation_id"] = event.correlation_id
        stage = STAGES.get(event.event_type)
        if event.event_type.startswith(("request.", "response.")):
            handled.attributes |= _facts(payload)
        if stage is None:
            return
        seconds = getattr(payload, "duration_seconds", max(0.0, passed))
        name, attributes = stage, _facts(payload)
        if isinstance(payload, audit.LLMToolCall):
            tool = payload.name if payload.name in self._tools() else "unknown"  # the model chose the name
            name, tools = f"execute_tool {tool}", {"gen_ai.tool.name": tool, "gen_ai.tool.type": "function"}
            attributes |= {"gen_ai.operation.name": "execute_tool", **tools}
            to.metrics.tool_calls.labels(tool, event.outcome).inc()
            if to.content:
                attributes["gen_ai.tool.call.arguments"] = json.dumps(payload.arguments)
                attributes["gen_ai.tool.call.result"] = payload.result_preview
        if event.outcome is not Outcome.SUCCESS:
            attributes["error.type"] = f"{stage}_failed"
        to.metrics.stage_seconds.labels(stage).observe(seconds)
        ago = max(0.0, (to.clock.now() - event.time).total_seconds())
        to.tracer.record(name, attributes, seconds=seconds, ago=ago)


def traceparent_of(headers: Mapping[str, str]) -> str:
    """The trace context in the headers of a message; empty without a valid one.

    Its format is version 00 of W3C Trace Context.
    """
    named = (value for name, value in headers.items() if name.lower() == Header.TRACEPARENT)
    return next((value for value in named if TRACEPARENT.fullmatch(value)), "")


def _messaging(operation: str, kind: str, destination: str) -> Attributes:
    return {
        "messaging.system": "nats",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": destination,
    }


def _facts(payload: audit.Payload) -> Attributes:
    """Numbers, flags and codes of an event, but no text of the cluster, the model or the sender."""
    return {f"rca.{name}": value for name, value in payload if isinstance(value, int | float | enum.Enum)}


def _message(turn: Turn) -> str:
    """One turn as the semantic conventions write messages, bounded and without secrets."""
    role = "tool" if isinstance(turn, ToolTurn) else "assistant" if isinstance(turn, Reply) else "user"
    part = {"type": "text", "content": preview(turn_text(turn), CONTENT_CHARS)}
    finish = {"finish_reason": turn.finish.value} if isinstance(turn, Reply) else {}
    return json.dumps([{"role": role, "parts": [part], **finish}])
