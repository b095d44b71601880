"""Traces, where the standard variables of OpenTelemetry name a collector."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog

from worker.app.settings.environment import ConfigurationError
from worker.app.telemetry import ForwardingTracer, Tracer

if TYPE_CHECKING:
    from worker.adapters.otlp_tracer import OtlpTracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
NEEDS_OTEL = "needs the extra otel: pip install 'rca-worker[otel]'"

log = structlog.stdlib.get_logger(__name__)


def endpoint(variables: Mapping[str, str]) -> str:
    """The address for traces; empty if they are off."""
    off = variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if off or "otlp" not in (variables.get("OTEL_TRACES_EXPORTER") or "otlp"):
        return ""
    return next((variables[name] for name in ENDPOINTS if variables.get(name)), "")


def records_content(variables: Mapping[str, str]) -> bool:
    """True if prompts and answers are wanted in the spans."""
    return variables.get(CONTENT, "").strip().lower() in {"true", "span_only", "span_and_event"}


def new_tracer(variables: Mapping[str, str]) -> OtlpTracer:
    """A tracer for the collector. Raises ConfigurationError."""
    protocol = next((variables[name] for name in PROTOCOLS if variables.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        raise ConfigurationError(
            f"the protocol {protocol} is not supported: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, and use its port (4318)"
        )
    try:
        from worker.adapters.otlp_tracer import OtlpTracer  # noqa: PLC0415 - an extra
    except ImportError as e:
        raise ConfigurationError(NEEDS_OTEL) from e
    try:
        return OtlpTracer("rca-worker")
    except ValueError as e:
        raise ConfigurationError(f"a variable OTEL_* has a wrong value: {e}") from e


def open_tracer(variables: Mapping[str, str], stack: AsyncExitStack) -> Tracer:
    """The tracer, closed with the stack. Without a usable one, the worker runs without traces."""
    if not (address := endpoint(variables)):
        return ForwardingTracer()
    try:
        tracer = new_tracer(variables)
    except ConfigurationError as e:
        log.warning("tracing_off", reason=str(e))
        return ForwardingTracer()
    stack.push_async_callback(tracer.close)
    log.info("tracing_on", endpoint=address)
    return tracer
