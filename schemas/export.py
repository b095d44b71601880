"""Writes the contract for other languages: `python -m schemas.export [DIRECTORY]`, by default `schemas/v1`.

One JSON Schema (2020-12) a message, an AsyncAPI 3.0 document that says what travels where, and valid samples. The
files are committed; a test compares them with what is generated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic.json_schema import GenerateJsonSchema

from schemas import samples
from schemas.analysis import AnalysisResult
from schemas.audit import AuditEvent, EventType
from schemas.failure import DeadLetter, DeadLetterReason, ValidationFailure
from schemas.fields import Message
from schemas.incident import IncidentRequest
from schemas.key_vectors import key_vectors
from schemas.outcome import RemediationOutcome
from schemas.recovery import RecoveryRequest
from schemas.subjects import (
    REQUEST_REJECTED_TYPE,
    RESPONSE_REJECTED_TYPE,
    Header,
    Subjects,
    audit_type,
    result_type,
)
from schemas.taxonomy import RequestKind

VERSION: Final = "1.0.0"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
V1: Final = Path(__file__).parent / "v1"

MODELS: Final[Mapping[str, type[Message]]] = MappingProxyType(
    {
        "incident-request": IncidentRequest,
        "recovery-request": RecoveryRequest,
        "analysis-result": AnalysisResult,
        "validation-failure": ValidationFailure,
        "dead-letter": DeadLetter,
        "audit-event": AuditEvent,
        "remediation-outcome": RemediationOutcome,
    }
)
"""Every message, by the name of its schema."""

RECEIVED: Final = frozenset({"incident-request", "recovery-request", "remediation-outcome"})
"""Messages that others write: their schemas say what is accepted, the other ones what is always there."""


class _Untitled(GenerateJsonSchema):
    """Without a title on every field, which would only repeat its name."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature of the base class
        return False


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a message."""
    mode: Literal["validation", "serialization"] = "validation" if name in RECEIVED else "serialization"
    schema = MODELS[name].model_json_schema(mode=mode, schema_generator=_Untitled)
    return {"$schema": DIALECT, "$id": f"urn:rca-worker:v1:{name}", **schema}


def sample_files() -> dict[str, Any]:
    """Sample messages by file name; a name starts with the name of its schema."""
    named: dict[str, Message] = {
        "incident-request": samples.incident(),
        "recovery-request": samples.recovery(),
        "analysis-result-completed": samples.completed(),
        "analysis-result-observed": samples.observed(),
        "analysis-result-review": samples.review(),
        **samples.failures(),
        **{f"audit-event-{name}": event for name, event in samples.events().items()},
    }
    return {name: message.model_dump(mode="json") for name, message in named.items()}


# -- AsyncAPI: addresses with parameters, and who sends what


def _message(name: str, ce_types: Sequence[str] = (), headers: Sequence[str] = ()) -> dict[str, Any]:
    """A message in binary mode of CloudEvents 1.0, unless it has headers of its own or comes from outside."""
    content = {"name": name, "contentType": "application/json", "payload": {"$ref": f"./{name}.schema.json"}}
    properties: dict[str, Any] = {header: {"type": "string"} for header in headers}
    if ce_types:
        properties |= {
            Header.CE_SPECVERSION: {"const": "1.0"},
            Header.CE_ID: {"type": "string", "description": "The same as Nats-Msg-Id."},
            Header.CE_SOURCE: {"type": "string"},
            Header.CE_TYPE: {"enum": list(ce_types)},
            Header.CE_SUBJECT: {"type": "string", "description": "The request key."},
        }
    if properties:
        content["headers"] = {
            "type": "object",
            "properties": {**properties, Header.TRACEPARENT: {"type": "string"}},
        }
    return content


def _messages() -> dict[str, Any]:
    dead_letter = _message("dead-letter", headers=tuple(h for h in Header if h.startswith("Rca-")))
    dead_letter["payload"] = {"description": "The body of the request, as it came."}
    return {
        "incidentRequest": _message("incident-request"),
        "recoveryRequest": _message("recovery-request"),
        "incidentResult": _message("analysis-result", [result_type(RequestKind.INCIDENT)]),
        "recoveryResult": _message("analysis-result", [result_type(RequestKind.RECOVERY)]),
        "requestRejected": _message("validation-failure", [REQUEST_REJECTED_TYPE]),
        "responseRejected": _message("validation-failure", [RESPONSE_REJECTED_TYPE]),
        "auditEvent": _message("audit-event", [audit_type(event) for event in EventType]),
        "deadLetter": dead_letter,
        "remediationOutcome": _message("remediation-outcome"),
    }


def _channel(address: str, message: str, stream: str, **parameters: Any) -> dict[str, Any]:
    channel: dict[str, Any] = {
        "address": address,
        "description": f"Kept in the stream {stream}.",
        "messages": {message: {"$ref": f"#/components/messages/{message}"}},
    }
    return channel | ({"parameters": parameters} if parameters else {})


def _channels(subjects: Subjects) -> dict[str, Any]:
    key = {
        "description": "Request key: an encoded remediation id; for recoveries a dot and the attempt follow."
    }
    listed = {
        kind: [s for s in subjects.request_subjects() if s.split(".")[2] == kind] for kind in RequestKind
    }
    channels = {
        "results.incident": _channel(
            subjects.result(RequestKind.INCIDENT, "{key}"), "incidentResult", subjects.results_stream, key=key
        ),
        "results.recovery": _channel(
            subjects.result(RequestKind.RECOVERY, "{key}"), "recoveryResult", subjects.results_stream, key=key
        ),
        "rejected.requests": _channel(
            subjects.validation_request(), "requestRejected", subjects.validation_stream
        ),
        "rejected.responses": _channel(
            subjects.validation_response("{key}"), "responseRejected", subjects.validation_stream, key=key
        ),
        "audit": _channel(
            subjects.audit("{event}"), "auditEvent", subjects.audit_stream, event={"enum": list(EventType)}
        ),
        "deadLetters": _channel(
            subjects.dead_letter("{reason}"), "deadLetter", subjects.dlq_stream,
            reason={"enum": list(DeadLetterReason)},
        ),
        "outcomes": _channel(subjects.outcome("{key}"), "remediationOutcome", subjects.outcomes_stream, key=key),
    }  # fmt: skip
    requests = {
        f"requests.{subject.partition('.request.')[2]}": _channel(
            subject, f"{kind}Request", subjects.requests_stream
        )
        for kind, kind_subjects in listed.items()
        for subject in kind_subjects
    }
    return requests | channels


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3.0 document, with the default prefix."""
    channels = _channels(Subjects())
    received = {name for name in channels if name.startswith("requests.") or name == "outcomes"}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "rca-worker",
            "version": VERSION,
            "description": "Kubernetes incidents in, checked root cause analyses out, over NATS JetStream. "
            "`rca` in the addresses is a setting; streams and buckets carry it in upper case.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": {
            name: {
                "action": "receive" if name in received else "send",
                "channel": {"$ref": f"#/channels/{name}"},
            }
            for name in channels
        },
        "components": {"messages": _messages()},
    }


def documents() -> dict[str, str]:
    """All files, by path inside the directory."""
    files: dict[str, Any] = {f"{name}.schema.json": schema_of(name) for name in MODELS}
    files["asyncapi.json"] = asyncapi()
    files |= {f"samples/{name}.json": body for name, body in sample_files().items()}
    files["samples/keys.json"] = key_vectors()
    return {path: json.dumps(body, indent=2, ensure_ascii=False) + "\n" for path, body in files.items()}


def export(directory: Path) -> None:
    """Write all files. Files that are no longer generated stay; the drift test names them."""
    for path, text in documents().items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")


def drift(directory: Path) -> list[str]:
    """Files in the directory that are missing, differ, or are generated no longer."""
    generated = documents()
    there = {p.relative_to(directory).as_posix(): p.read_text("utf-8") for p in directory.rglob("*.json")}
    return sorted(path for path in generated.keys() | there.keys() if generated.get(path) != there.get(path))


def main() -> int:
    """The command line: write, or with --check only say what differs (exit code 1)."""
    parser = argparse.ArgumentParser(
        prog="python -m schemas.export", description="Write schemas/v1 from the models."
    )
    parser.add_argument("directory", nargs="?", type=Path, default=V1)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file differs")
    arguments = parser.parse_args()
    if not arguments.check:
        export(arguments.directory)
        return 0
    different = drift(arguments.directory)
    for path in different:
        sys.stderr.write(
            f"{arguments.directory / path} is not what the models say: run python -m schemas.export\n"
        )
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
