"""Spans for an OpenTelemetry collector.

It uses the SDK with the OTLP/HTTP exporter, which the standard OTEL_* variables configure.

A thread exports batches from a bounded queue; spans that do not fit are dropped. No global state is set, so
that instrumented libraries record no spans of their own.
"""

from __future__ import annotations

import asyncio
import enum
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

CLOSE_SECONDS = 3.0
"""How long the last spans may take when the process ends."""
MAX_ANSWER_BYTES = 64 * 1024


class _BoundedSession(requests.Session):
    """Reads a bounded part of an answer of the collector."""

    def request(self, *args: Any, **options: Any) -> requests.Response:
        response = super().request(*args, **{**options, "stream": True})
        with response:
            response._content = response.raw.read(MAX_ANSWER_BYTES)  # noqa: SLF001 - it offers no other way
        return response


class OtlpTracer:
    """Implements Tracer. `service` is its name unless the variables give one.

    Raises ValueError if a variable has an unusable value.
    """

    def __init__(self, service: str) -> None:
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: service}))
        self._exporter = OTLPSpanExporter(session=_BoundedSession())
        self._processor = BatchSpanProcessor(self._exporter)
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer(service)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def span(
        self, name: str, kind: str, attributes: dict[str, Any], parent: str = ""
    ) -> Iterator[dict[str, Any]]:
        context = self._propagator.extract({"traceparent": parent}, Context()) if parent else None
        more: dict[str, Any] = {}
        with self._tracer.start_as_current_span(
            name,
            context,
            SpanKind[kind.upper()],
            attributes,
            record_exception=False,  # its message may quote a prompt
            set_status_on_exception=False,
        ) as span:
            try:
                yield more
            except BaseException as e:
                reason = getattr(e, "reason", None)
                more["error.type"] = str(reason) if isinstance(reason, enum.Enum) else type(e).__name__
                raise
            finally:
                _finish(span, more)

    def record(self, name: str, attributes: dict[str, Any], *, seconds: float, ago: float) -> None:
        end = time.time_ns() - int(ago * 1e9)
        span = self._tracer.start_span(name, start_time=end - int(seconds * 1e9))
        _finish(span, attributes)
        span.end(end)

    def headers(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier

    def reach(self) -> bool:
        """True if the collector accepts an export. Blocks at most for the timeout of the exporter."""
        return self._exporter.export(()) is SpanExportResult.SUCCESS

    async def close(self) -> None:
        """Export the remaining spans, for a few seconds at most."""
        closing = threading.Thread(target=self._processor.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_SECONDS)
        if closing.is_alive():
            self._exporter.shutdown()  # type: ignore[no-untyped-call]  # it has no annotation


def _finish(span: Span, attributes: Mapping[str, Any]) -> None:
    span.set_attributes(attributes)
    if "error.type" in attributes:
        span.set_status(Status(StatusCode.ERROR))
