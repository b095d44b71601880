"""A collector for OpenTelemetry as a process of its own: `python -m tests.fakes.otlp_receiver BEHAVIOUR`.

It prints its port, and then the spans of each export as one line of JSON. What it does with an export:

takes   answers 200
refuses answers 503
hangs   never answers
floods  answers without end
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def _value(value: dict[str, Any]) -> Any:
    if "arrayValue" in value:
        return [_value(item) for item in value["arrayValue"].get("values", [])]
    if "intValue" in value:
        return int(value["intValue"])
    return next(iter(value.values()))


def _attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: _value(pair["value"]) for pair in pairs}


def spans_of(body: bytes) -> list[dict[str, Any]]:
    """The spans of an export, each with the attributes of its resource."""
    export = ExportTraceServiceRequest.FromString(body)
    found = []
    for resource in export.resource_spans:
        of = _attributes(MessageToDict(resource.resource).get("attributes", []))
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            told = MessageToDict(span)
            found.append(
                {
                    "name": span.name,
                    "kind": told["kind"].removeprefix("SPAN_KIND_").lower(),
                    "trace": span.trace_id.hex(),
                    "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "failed": span.status.code == 2,
                    "message": span.status.message,
                    "events": len(span.events),
                    "attributes": _attributes(told.get("attributes", [])),
                    "resource": of,
                }
            )
    return found


class _Handler(BaseHTTPRequestHandler):
    behaviour = "takes"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print(json.dumps({"path": self.path, "spans": spans_of(body)}), flush=True)
        if self.behaviour == "hangs":
            threading.Event().wait()
        self.send_response(503 if self.behaviour == "refuses" else 200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while self.behaviour == "floods":
                self.wfile.write(b"x" * 65_536)

    def log_message(self, *_: Any) -> None: ...


@dataclass
class Collector:
    """The process as a test sees it."""

    url: str
    exports: list[dict[str, Any]] = field(default_factory=list)

    @property
    def spans(self) -> list[dict[str, Any]]:
        """All that was exported until now."""
        return [span for export in self.exports for span in export["spans"]]

    def named(self, name: str) -> list[dict[str, Any]]:
        """The spans of a name."""
        return [span for span in self.spans if span["name"] == name]


@asynccontextmanager
async def collector(behaviour: str = "takes") -> AsyncIterator[Collector]:
    """A collector that runs until the context ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __spec__.name, behaviour, stdout=asyncio.subprocess.PIPE, limit=1 << 24
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    found, lines = Collector(f"http://127.0.0.1:{port}"), process.stdout

    async def read() -> None:
        async for line in lines:
            found.exports.append(json.loads(line))

    reading = asyncio.create_task(read())
    try:
        yield found
    finally:
        process.kill()
        await process.wait()
        await reading


if __name__ == "__main__":
    _Handler.behaviour = sys.argv[1]
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()
